#!/bin/sh
# train_gpt on the double of CUDA: what must not change a bit does not, on 1 to 8 ranks and for
# several orders of the double; with AdamW alone, where no product comes from a BLAS, its bits are
# those of the host.
. "$abs_top_srcdir/test/mpi/train_common.sh"

base="-layers 2 -width 32 -context 8 -batch 68 -steps 4 $own_text"

# row RANKS WHAT OPTION...: ends with $reference, on the GPU
row() {
  row_ranks=$1 row_what=$2
  shift 2
  # shellcheck disable=SC2086
  train "$row_ranks" $base -dmuon_device cuda "$@"
  same "$(result parameter_hash)" "$reference" "$row_ranks ranks, $row_what"
}

# shellcheck disable=SC2086
{
  train 4 $base -optimizer adamw -dmuon_replicate 2
  reference=$(result parameter_hash)
  row 4 "adamw: the host's bits" -optimizer adamw -dmuon_replicate 2
  row 4 "adamw in equal parts: the host's bits" -optimizer adamw -sharded -adamw sharded -dmuon_replicate 2
  train 4 $base -optimizer adamw -sharded -reduce_each -dmuon_replicate 2
  reference=$(result parameter_hash)
  row 4 "adamw, reduced after each of 3 passes: the host's bits" -optimizer adamw -sharded -reduce_each \
    -dmuon_replicate 2

  for ranks in 1 2 3 4 5 6 7 8; do
    case $ranks in
      4) mesh="-dmuon_replicate 2 -dmuon_shard 2" ;;
      8) mesh="-dmuon_replicate 2 -dmuon_shard 4" ;;
      *) mesh="-dmuon_replicate 1" ;;
    esac
    train $ranks $base -dmuon_device cuda $mesh
    point $? "$ranks ranks, replicated"
    reference=$(result parameter_hash)
    export CUDA_DOUBLE_SEED=$ranks
    row $ranks "sharded, another order" -sharded $mesh
    row $ranks "sharded, z2" -sharded -z2 $mesh
    unset CUDA_DOUBLE_SEED
    case $ranks in 4 | 8) ;; *) continue ;; esac
    if [ $ranks = 8 ] && [ -z "$nightly" ]; then continue; fi
    row $ranks "sharded, recomputed, program order, all shards" -sharded -recompute -order program \
      -dmuon_replicate 1
    row $ranks "sharded, all replicas" -sharded -dmuon_replicate $ranks
    row $ranks "sharded, gathered, further ahead" -sharded -dmuon_muon_forward_unshard all_gather \
      -dmuon_prefetch_depth 2 $mesh
    row $ranks "sharded, in buckets, stage 2 at once" -sharded -dmuon_publish_bucket_mb 0.001 \
      -dmuon_delay_stage2_to_optimizer 0 $mesh
    row $ranks "replicated, asynchronous" -dmuon_replicate_async 1 $mesh
    row $ranks "adamw parts" -sharded -adamw sharded $mesh
    row $ranks "sharded, owners in turn" -sharded -dmuon_owner_strategy round_robin $mesh
    row $ranks "sharded, rank 0 owns all" -sharded -dmuon_owner_strategy rank0 $mesh
    row $ranks "partial sums along a tree" -dmuon_reduce_fanin 1 $mesh
    row $ranks "staged through the host" -sharded $mesh -dmuon_device cuda:staged
    row $ranks "replicated, invariants checked" -dmuon_check_invariants 1 $mesh
    row $ranks "sharded, invariants checked" -sharded -dmuon_check_invariants 1 $mesh
  done

  # The passes of a step added up by their owners: other bits, the same ones in every mode.
  train 4 $base -dmuon_device cuda -sharded -reduce_each -dmuon_replicate 2
  point $? "reduced after every pass"
  once=$reference reference=$(result parameter_hash)
  [ -n "$reference" ] && [ "$reference" != "$once" ]
  point $? "which is another result"
  row 4 "reduced after every pass, z2, all replicas" -sharded -reduce_each -z2 -dmuon_replicate 4
  row 4 "reduced after every pass, asynchronous, invariants checked" -sharded -reduce_each \
    -dmuon_replicate 2 -dmuon_replicate_async 1 -dmuon_check_invariants 1

  train 2 $base -dmuon_device cuda -dtype bf16
  reference=$(result parameter_hash)
  row 2 "bf16, sharded" -sharded -dtype bf16
}

# Clipped: norms are told to the host.
# shellcheck disable=SC2086
train 4 $base -dmuon_device cuda -dmuon_clip global -dmuon_clip_norm 0.5
reference=$(result parameter_hash)
row 4 "clipped, sharded" -sharded -dmuon_clip global -dmuon_clip_norm 0.5

sh "$abs_top_srcdir/test/launch.sh" 2 "$abs_top_builddir/examples/ex05_hsdp" -dmuon_device cuda \
  >"$work/run.log" 2>&1
[ $? -eq 2 ] && grep -q 'computes on the host' "$work/run.log"
point $? "the example that works in place refuses a GPU, and says where to look"

# Too little memory, at some place of set-up: an error, and nothing is freed that is still in use.
for memory in 400000 1000000 1500000; do
  # shellcheck disable=SC2086
  CUDA_DOUBLE_MEMORY=$memory train 2 $base -sharded -dmuon_device cuda
  [ $? -ne 0 ] && grep -q 'bytes left' "$work/run.log" && ! grep -q '^double:' "$work/run.log"
  point $? "set-up in $memory bytes of the GPU"
done
finish
