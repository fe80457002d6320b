#!/bin/sh
# The bytes that the results tell, those that were planned and those that were sent: summed over the ranks, P parameters on R x S ranks in k passes cost,
# in bytes a step
#   along shard      Z3  k times 2 (S-1) R P to read them for forward and for backward
#                    Z2  (S-1) R P to read them, for all passes
#                    both (S-1) R P for the sums; after every pass, k times that
#   along replicate  P for the sums, k times when reduced each, and P for the new values
# With all_gather a matrix lies in S parts, and its owner sends S-1 of them along shard, once a step.
# In bytes of what travels: values and gradients in their dtype, sums between the stages in fp32.
. "$abs_top_srcdir/test/mpi/train_common.sh"

# bytes RANKS RxS READS SUMS VALUE OPTION...: values are read READS times, sums made SUMS times; VALUE
# bytes each
parts=0 # elements sent in parts
bytes() {
  ranks=$1 mesh=$2 reads=$3 sums=$4 value=$5
  shift 5
  train "$ranks" $tiny -sharded -dmuon_replicate "${mesh%x*}" -dmuon_shard "${mesh#*x}" "$@"
  P=$(sed -n 's/^network:.* \([0-9]*\) parameters;.*/\1/p' "$work/run.log")
  R=${mesh%x*} S=${mesh#*x}
  shard=$(((S - 1) * R * ${P:-0} * value * (reads + sums) + parts * (S - 1) / S * value))
  replicate=$(((R - 1) * ${P:-0} * (4 * sums + value)))
  same "$(result shard_bytes_per_step_total) $(result replicate_bytes_per_step_total)" \
    "$shard $replicate" "$mesh $*: $shard along shard, $replicate along replicate"
  same "$(result shard_bytes_per_step_planned) $(result replicate_bytes_per_step_planned)" \
    "$shard $replicate" "and as planned"
}
bytes 4 1x4 2 1 4 -batch 32
bytes 4 2x2 2 1 4 -batch 32
bytes 4 4x1 2 1 4 -batch 32
bytes 8 2x4 2 1 4
bytes 8 2x4 1 1 4 -z2
bytes 8 2x4 2 1 4 -recompute -dmuon_replicate_async 1
bytes 8 2x4 2 1 4 -adamw sharded -dmuon_prefetch_depth 2
bytes 8 4x2 2 1 2 -dtype bf16
bytes 4 2x2 6 1 4 -batch 68
bytes 4 2x2 1 1 4 -batch 68 -z2
bytes 4 2x2 6 3 4 -batch 68 -reduce_each
bytes 4 2x2 1 3 4 -batch 68 -reduce_each -z2
parts=$((2 * 12 * 32 * 32)) # Muon's: 2 layers of 12 squares
bytes 8 4x2 1 1 4 -z2 -dmuon_muon_forward_unshard all_gather
bytes 4 1x4 2 1 4 -batch 32 -dmuon_muon_forward_unshard all_gather
finish
