#!/bin/sh
# Putting work off in any legal order changes no bit: 20 seeds of the deferred engine on 4 ranks (200
# nightly), in turn on each mesh, in step and asynchronously; in the replicated form, and in the
# sharded one in turn with each row of the table.
. "$abs_top_srcdir/test/mpi/train_common.sh"
. "$abs_top_srcdir/test/mpi/train_table.sh"

train 4 $tiny -dmuon_replicate 1
point $? "eager"
reference=$(result parameter_hash)
seed=1
if [ -n "$nightly" ]; then seeds=200; else seeds=20; fi
while [ $seed -le $seeds ]; do
  case $((seed % 3)) in 0) replicate=1 ;; 1) replicate=2 ;; *) replicate=4 ;; esac
  train 4 $tiny -dmuon_replicate $replicate -dmuon_replicate_async $((seed % 2)) \
    -dmuon_device host:deferred,seed=$seed
  same "$(result parameter_hash)" "$reference" "seed $seed, ${replicate}x$((4 / replicate)), async=$((seed % 2))"
  row "1x4 2x2 4x1 2x2" "$(table | sed -n "$((seed % 15 + 1))p")"
  # shellcheck disable=SC2086
  train 4 $tiny $options -dmuon_device host:deferred,seed=$seed
  same "$(result parameter_hash)" "$reference" "seed $seed, sharded: $(echo $options)"
  seed=$((seed + 1))
done
finish
