#!/bin/sh
# Two ways to add up the passes of a step: on the rank, reduced once; or reduced after every pass. They
# round differently. Each gives the same bits in every mode and on every mesh; their losses are within
# 1e-5 of each other.
. "$abs_top_srcdir/test/mpi/train_common.sh"
base="$tiny -batch 68 -sharded"

train 4 $base -dmuon_replicate 1
point $? "added up on the rank"
once=$(result parameter_hash)
losses "$work/once"
train 4 $base -reduce_each -dmuon_replicate 1
point $? "reduced after every pass"
reference=$(result parameter_hash)
losses "$work/each"
[ -n "$once" ] && [ "$once" != "$reference" ]
point $? "they are two results"
near "$work/once" "$work/each" 1e-5 "their losses agree"

# each OPTION...: the same bits
each() {
  train 4 $base -reduce_each "$@"
  same "$(result parameter_hash)" "$reference" "after every pass: $*"
}
each -dmuon_replicate 2 -dmuon_replicate_async 1
each -dmuon_replicate 4 -z2 -dmuon_owner_strategy rank0
each -dmuon_replicate 1 -z2 -adamw sharded
each -dmuon_replicate 2 -recompute -order program
each -dmuon_replicate 4 -recompute -adamw sharded -dmuon_replicate_async 1
each -dmuon_replicate 2 -z2 -dmuon_device host:deferred,seed=5 -dmuon_muon_forward_unshard all_gather
finish
