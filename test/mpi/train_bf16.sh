#!/bin/sh
# Parameters and gradients in bf16, masters and momentum in fp32: the losses of 20 steps are within 1e-2
# of those in fp32, and what must not change a bit does not here either.
. "$abs_top_srcdir/test/mpi/train_common.sh"
. "$abs_top_srcdir/test/mpi/train_table.sh"
base="$tiny -batch 68"

train 4 $base -dmuon_replicate 1
losses "$work/fp32"
train 4 $base -dtype bf16 -dmuon_replicate 1
point $? "replicated"
reference=$(result parameter_hash)
losses "$work/replicated"
near "$work/fp32" "$work/replicated" 1e-2 "losses near those of fp32"
! cmp -s "$work/fp32" "$work/replicated"
point $? "and not the same"
train 4 $base -dtype bf16 -sharded -dmuon_replicate 2
same "$(result parameter_hash)" "$reference" "sharded, 2x2"
losses "$work/sharded"
near "$work/fp32" "$work/sharded" 1e-2 "losses near those of fp32"
# shellcheck disable=SC2086
rows 4 "2x2 1x4 4x1 2x2" ${nightly:+9}9 $base -dtype bf16
finish
