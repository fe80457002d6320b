#!/bin/sh
# Putting work off in any legal order changes no bit: 20 seeds of the deferred engine on 4 ranks, in
# turn on each mesh, in step and asynchronously.
. "$abs_top_srcdir/test/mpi/train_common.sh"

train 4 $tiny -dmuon_replicate 1
point $? "eager"
reference=$(result parameter_hash)
seed=1
while [ $seed -le 20 ]; do
  case $((seed % 3)) in 0) replicate=1 ;; 1) replicate=2 ;; *) replicate=4 ;; esac
  train 4 $tiny -dmuon_replicate $replicate -dmuon_replicate_async $((seed % 2)) \
    -dmuon_device host:deferred,seed=$seed
  same "$(result parameter_hash)" "$reference" "seed $seed, ${replicate}x$((4 / replicate)), async=$((seed % 2))"
  seed=$((seed + 1))
done
finish
