#!/bin/sh
# Muon against AdamW on train_gpt: how many steps each needs to reach a loss, each with the best
# learning rate of a small sweep; network, seeds, batches and schedule are the same for both.
#
#   tools/bench_sweep.sh [BUILD_DIRECTORY [TRAIN_GPT_OPTION...]]
#
# AdamW's rate is chosen first. What Muon leaves to AdamW (norms, biases, embeddings, head) then has
# that rate, and Muon's own is chosen. The best rate has the lowest loss at the end (mean of the last
# 10 steps) with the first seed. Then both run with all seeds. A loss counts as reached at the first
# step where the mean of the last 5 losses is not above it. From the environment:
#
#   RANKS (2), STEPS (200), SEEDS ("1 2 3")
#   ADAMW_RATES ("0.001 0.003 0.01 0.03"), MUON_RATES ("0.005 0.01 0.02 0.04")
#   LOSSES ("3.0 2.75 2.5 2.25 2.0")
build=${1:-build}
[ $# -eq 0 ] || shift
RANKS=${RANKS:-2}
STEPS=${STEPS:-200}
SEEDS=${SEEDS:-1 2 3}
ADAMW_RATES=${ADAMW_RATES:-0.001 0.003 0.01 0.03}
MUON_RATES=${MUON_RATES:-0.005 0.01 0.02 0.04}
LOSSES=${LOSSES:-3.0 2.75 2.5 2.25 2.0}
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
# sweep OPTIMIZER RATES OPTION...: sets best and shows each rate with its loss
sweep() {
  optimizer=$1 rates=$2
  shift 2
  best= lowest=
  for rate in $rates; do
    case $optimizer in muon) option=-lr ;; adamw) option=-adamw_lr ;; esac
    # shellcheck disable=SC2086
    train $optimizer.$rate -optimizer $optimizer -steps "$STEPS" -seed "$first" $network \
      $option "$rate" "$@"
    loss=$(final $optimizer.$rate)
    echo "  $optimizer  $rate  $loss"
    if $AWK "BEGIN { exit !(\"$lowest\" == \"\" || $loss + 0 < 0$lowest + 0) }"; then
      best=$rate lowest=$loss
    fi
  done
}

first=${SEEDS%% *}
echo "train_gpt $network${*:+ $*}: $RANKS ranks, $STEPS steps"
echo "learning rate and final loss, seed $first"
sweep adamw "$ADAMW_RATES" "$@"
adamw=$best
sweep muon "$MUON_RATES" -adamw_lr "$adamw" "$@"
muon=$best
echo "best: adamw $adamw, muon $muon (with adamw $adamw for the rest)"

for seed in $SEEDS; do
  # shellcheck disable=SC2086
  train muon.seed$seed -optimizer muon -steps "$STEPS" -seed "$seed" $network -lr "$muon" \
    -adamw_lr "$adamw" "$@"
  # shellcheck disable=SC2086
  train adamw.seed$seed -optimizer adamw -steps "$STEPS" -seed "$seed" $network -adamw_lr "$adamw" "$@"
done

echo "steps to a loss: muon, adamw (seeds $SEEDS), and the ratio of the means where all got there"
for loss in $LOSSES; do
  line= sums=
  for optimizer in muon adamw; do
    line="$line   $optimizer" steps=
    for seed in $SEEDS; do
      step=$(reached $optimizer.seed$seed "$loss")
      line="$line $(printf '%4s' "$step")" steps="$steps $step"
    done
    case $steps in *-*) sums="$sums -" ;; *) sums="$sums $(($(echo $steps | tr ' ' '+')))" ;; esac
  done
  printf '  %-6s%s   %s\n' "$loss" "$line" \
    "$(echo $sums | $AWK '/-/ { print "-"; next } { printf "%.2f", $2 / $1 }')"
done
line=
for optimizer in muon adamw; do
  line="$line   $optimizer"
  for seed in $SEEDS; do line="$line $(final $optimizer.seed$seed)"; done
done
echo "  at the end$line"
