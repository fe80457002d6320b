#!/bin/sh
# The share of a step that goes to the optimizer (reduce, update, publish), for Muon and for AdamW,
# on the default network of train_gpt:
#
#   tools/bench_share.sh [BUILD_DIRECTORY [TRAIN_GPT_OPTION...]]
#
# The build directory is build by default, the ranks are RANKS (4), the steps STEPS (40). Phases are
# means over the ranks; with more ranks than cores they contain the time in which others ran.
build=${1:-build}
[ $# -eq 0 ] || shift
RANKS=${RANKS:-4}
STEPS=${STEPS:-40}
. "$(dirname "$0")/bench_train.sh"

echo "$RANKS ranks, $STEPS steps; milliseconds a step, mean over the ranks"
printf '%-6s %9s %7s | %8s %8s %8s %8s %8s %8s\n' "" "tokens/s" "share" forward backward reduce \
  "N.-Sch." update publish
for optimizer in muon adamw; do
  train $optimizer -optimizer $optimizer -steps "$STEPS" "$@"
  printf '%-6s %9.0f %6.1f%% |' $optimizer "$(number $optimizer tokens_per_second)" \
    "$(echo "$(number $optimizer optimizer_share)" | $AWK '{ print 100 * $1 }')"
  for phase in forward backward reduce newton_schulz update publish; do
    printf ' %8.2f' "$(echo "$(number $optimizer $phase) $STEPS" | $AWK '{ print 1000 * $1 / $2 }')"
  done
  echo
done
