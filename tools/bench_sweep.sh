#!/bin/sh
# Muon against AdamW on train_gpt: how many steps each needs to reach a loss, each with the best
# learning rate of a small sweep; network, seeds, batches and schedule are the same for both.
#
#   tools/bench_sweep.sh [BUILD_DIRECTORY [TRAIN_GPT_OPTION...]]
#
# AdamW comes first. What Muon leaves to AdamW (norms, biases, embeddings, head) then has the rate at
# which AdamW alone ended lowest (mean of the last 10 losses and of the seeds). A loss counts as
# reached at the first step where the mean of the last 5 losses is not above it; for each loss both
# show the rate that got there first on average, so each has its best for what is asked. From the
# environment:
#
#   RANKS (2), STEPS (500), SEEDS ("1 2")
#   ADAMW_RATES ("0.001 0.003 0.01 0.03"), MUON_RATES ("0.005 0.01 0.02 0.04")
#   LOSSES ("3.0 2.75 2.5 2.4 2.3 2.2 2.0 1.8 1.6")
build=${1:-build}
[ $# -eq 0 ] || shift
RANKS=${RANKS:-2}
STEPS=${STEPS:-500}
SEEDS=${SEEDS:-1 2}
ADAMW_RATES=${ADAMW_RATES:-0.001 0.003 0.01 0.03}
MUON_RATES=${MUON_RATES:-0.005 0.01 0.02 0.04}
LOSSES=${LOSSES:-3.0 2.75 2.5 2.4 2.3 2.2 2.0 1.8 1.6}
. "$(dirname "$0")/bench_train.sh"
network="-layers 2 -width 64 -batch 32"

# The losses of a run, one a line.
losses() {
  sed -n 's/.*"loss": \[\([^]]*\)\].*/\1/p' "$work/$1.json" | tr ',' '\n'
}
final() {
  losses "$1" | tail -n 10 | $AWK '{ sum += $1 } END { printf "%.4f", sum / NR }'
}
# reached NAME LOSS: the step, or "-"
reached() {
  losses "$1" | $AWK -v loss="$2" '
    { last[NR % 5] = $1 }
    NR >= 5 && last[0] + last[1] + last[2] + last[3] + last[4] <= 5 * loss { print NR; found = 1; exit }
    END { if (!found) print "-" }'
}
# mean VALUE...: "-" when one is
mean() {
  echo "$@" | $AWK '/(^| )-/ { print "-"; next }
    { for (i = 1; i <= NF; i++) sum += $i; printf "%.4f", sum / NF }'
}
# less A B: whether A is a number below B, where "-" is above all numbers
less() {
  $AWK -v a="$1" -v b="$2" 'BEGIN { exit !(a != "-" && (b == "-" || a + 0 < b + 0)) }'
}
# sweep OPTIMIZER RATES TRAIN_GPT_OPTION...: runs all, shows how they end, sets best
sweep() {
  optimizer=$1 rates=$2
  shift 2
  case $optimizer in muon) option=-lr ;; adamw) option=-adamw_lr ;; esac
  best= lowest=-
  for rate in $rates; do
    ends=
    for seed in $SEEDS; do
      # shellcheck disable=SC2086
      train $optimizer.$rate.$seed -optimizer $optimizer -steps "$STEPS" -seed "$seed" $network \
        $option "$rate" "$@"
      ends="$ends $(final $optimizer.$rate.$seed)"
    done
    echo "  $optimizer  $rate $ends"
    # shellcheck disable=SC2086
    if less "$(mean $ends)" "$lowest"; then best=$rate lowest=$(mean $ends); fi
  done
}
# first OPTIMIZER RATES LOSS: sets line (rate and steps of the seeds) and steps (their mean)
first() {
  line= steps=-
  for rate in $2; do
    all=
    for seed in $SEEDS; do all="$all $(reached "$1.$rate.$seed" "$3")"; done
    # shellcheck disable=SC2086
    average=$(mean $all)
    if [ -z "$line" ] || less "$average" "$steps"; then line="$rate:$all" steps=$average; fi
  done
  if [ "$steps" = - ]; then line=-; fi
}

echo "train_gpt $network${*:+ $*}: $RANKS ranks, $STEPS steps, seeds $SEEDS"
echo "learning rate and final loss"
sweep adamw "$ADAMW_RATES" "$@"
adamw=$best
sweep muon "$MUON_RATES" -adamw_lr "$adamw" "$@"
echo "best at the end: adamw $adamw, muon $best (with adamw $adamw for the rest)"
echo "steps to a loss, at the rate that gets there first, and the ratio of the means"
for loss in $LOSSES; do
  first muon "$MUON_RATES" "$loss"
  muon_line=$line muon_steps=$steps
  first adamw "$ADAMW_RATES" "$loss"
  printf '  %-5s | muon %-22s | adamw %-22s | %s\n' "$loss" "$muon_line" "$line" \
    "$(echo "$muon_steps $steps" | $AWK '/-/ { print "-"; next } { printf "%.1f", $2 / $1 }')"
done
