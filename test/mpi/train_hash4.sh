#!/bin/sh
# The same on 4 ranks: the table, then the other update, and
# another processor type of the BLAS, within itself.
. "$abs_top_srcdir/test/mpi/train_common.sh"

train 4 $tiny -dmuon_replicate 1 -dmuon_shard 4
point $? "1x4"
reference=$(result parameter_hash)
i=0
for mesh in "1 4" "2 2" "4 1"; do
  replicate=${mesh% *} shard=${mesh#* }
  j=0
  for strategy in lpt round_robin rank0; do
    async=$(((i + j) % 2))
    case $(((i + 2 * j) % 3)) in 0) fanin=32 ;; 1) fanin=1 ;; *) fanin=2 ;; esac
    train 4 $tiny -dmuon_replicate "$replicate" -dmuon_shard "$shard" -dmuon_owner_strategy $strategy \
      -dmuon_replicate_async $async -dmuon_reduce_fanin $fanin
    same "$(result mesh) $(result parameter_hash)" "[$replicate, $shard, 1] $reference" \
      "${replicate}x$shard $strategy async=$async fanin=$fanin"
    j=$((j + 1))
  done
  i=$((i + 1))
done

# The comparison can fail: another batch, another hash.
train 4 $tiny -seed 2 && [ -n "$(result parameter_hash)" ] && [ "$(result parameter_hash)" != "$reference" ]
point $? "another seed gives other parameters"

train 4 $tiny -optimizer adamw -dmuon_replicate 1
adamw=$(result parameter_hash)
train 4 $tiny -optimizer adamw -dmuon_replicate 2 -dmuon_replicate_async 1 -dmuon_owner_strategy rank0
same "$(result parameter_hash)" "$adamw" "adamw: 1x4 and 2x2, async, all on rank 0"

# Each within itself: a BLAS made for another processor may differ from this one.
OPENBLAS_CORETYPE=Haswell
export OPENBLAS_CORETYPE
train 4 $tiny -dmuon_replicate 1
haswell=$(result parameter_hash)
train 4 $tiny -dmuon_replicate 4 -dmuon_replicate_async 1 -dmuon_owner_strategy round_robin
same "$(result parameter_hash)" "$haswell" "with OpenBLAS for Haswell: 1x4 and 4x1"
finish
