#!/bin/sh
# The parameters after 20 steps on 8 ranks are the same to the bit whatever the mesh, the owners, the
# order in which work is carried out, and the way sums travel. A table in which every two values of
# two columns meet, not the full product; deferred runs each have a seed of their own.
. "$abs_top_srcdir/test/mpi/train_common.sh"

train 8 $tiny -dmuon_replicate 1 -dmuon_shard 8
point $? "1x8"
reference=$(result parameter_hash)
i=0
for mesh in "1 8" "2 4" "4 2" "8 1"; do
  replicate=${mesh% *} shard=${mesh#* }
  j=0
  for strategy in lpt round_robin rank0; do
    async=$(((i + j) % 2))
    case $(((i + j) % 3)) in 0) fanin=32 ;; 1) fanin=1 ;; *) fanin=2 ;; esac
    case $(((i / 2 + j) % 2)) in 0) device=host ;; *) device=host:deferred,seed=$((3 * i + j)) ;; esac
    train 8 $tiny -dmuon_replicate "$replicate" -dmuon_shard "$shard" -dmuon_owner_strategy $strategy \
      -dmuon_replicate_async $async -dmuon_device $device -dmuon_reduce_fanin $fanin
    same "$(result mesh) $(result parameter_hash)" "[$replicate, $shard, 1] $reference" \
      "${replicate}x$shard $strategy async=$async fanin=$fanin $device"
    j=$((j + 1))
  done
  i=$((i + 1))
done
finish
