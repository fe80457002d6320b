/* Reductions, in one of three ways.
 *
 * Ordered, up to fanin ranks: a root gets the bare contributions, eight at a time by one group of
 * sends and receives, and adds them up with its own kernel, in the order of sum_plan.c: the host's
 * bits. Ordered, above: partial sums travel, level by level, a few roots at a time: the same bits.
 * By NCCL (the device's reduce_nccl): contributions are widened, NCCL adds them in an order of its
 * own, the root divides.
 *
 * What a root gets, its segments one after another, is gone through in chunks: chunk 0 of every
 * root, then chunk 1, so that memory is a few chunks and all ranks agree on every message. Here is
 * the first way, and the beginning and end of all; the others are in files of their own. */
#include "backend/cuda/comm_reduction.h"
#include "comm/check.h"
#include "comm/count.h"

/* Bare contributions: a place for each position (the root's own needs one where NCCL adds), then
 * the partial sums. */
int dmuon_cuda_reduce_chunks(const dmuon_cuda_comm *comm) {
  if (dmuon_reduction_is_tree(comm)) return 2 * DMUON_TREE_ROOTS;
  return dmuon_sum_width(comm->base.size) + dmuon_sum_places(comm->base.size);
}

int64_t dmuon_cuda_chunk_elements(const dmuon_cuda_comm *comm, DMuonDType in, DMuonDType sum) {
  int64_t wide = (int64_t)dmuon_dtype_bytes(in), chunk;
  if ((int64_t)dmuon_dtype_bytes(sum) > wide) wide = (int64_t)dmuon_dtype_bytes(sum);
  chunk = comm->base.chunk_bytes / wide;
  return chunk > 0 ? chunk : 1;
}

/* ---- bare contributions to their root ------------------------------------------------------- */

static DMuonErrorCode exchange(const dmuon_reduction *r, int64_t low, int number, int is_root,
                               const dmuon_sum_block *block) {
  const int rank = r->comm->base.rank;
  for (int root = 0; root < r->comm->base.size; root++)
    if (root != rank && r->comm->totals[root] > low && dmuon_sum_block_of(rank, root) == number)
      DMUON_TRY(dmuon_reduction_send(r, root, low, root));
  for (int i = 0; i < DMUON_SUM_WIDTH && is_root; i++)
    if (block->rank[i] >= 0 && block->rank[i] != rank)
      DMUON_TRY(dmuon_reduction_receive(r, rank, low, block->rank[i], dmuon_reduction_chunk(r, i)));
  return DMUON_SUCCESS;
}

/* Piece by piece, as this rank's own contribution lies. */
static DMuonErrorCode add_block(const dmuon_reduction *r, int64_t low,
                                const dmuon_sum_block *block) {
  dmuon_reduction_cursor c = dmuon_reduction_range(r, r->comm->base.rank, low);
  const DMuonDType sum = r->sum_dtype;
  dmuon_reduction_piece p;
  while (dmuon_reduction_next(r, &c, &p)) {
    dmuon_sum_args args = dmuon_reduction_sum(r, p.count);
    for (int i = 0; i < DMUON_SUM_WIDTH; i++) {
      if (block->rank[i] < 0) continue;
      args.source[i] = block->rank[i] == r->comm->base.rank
                           ? dmuon_reduction_own(r, &p)
                           : dmuon_dtype_at(dmuon_reduction_chunk(r, i), p.at, r->in_dtype);
    }
    for (int i = 0; i < block->merge_count; i++)
      args.merge[i] =
          dmuon_dtype_at(dmuon_reduction_chunk(r, DMUON_SUM_WIDTH + block->merge[i]), p.at, sum);
    args.merge_count = block->merge_count;
    if (block->store < 0) args.divisor = r->divisor;
    args.out =
        block->store < 0
            ? dmuon_dtype_at(r->out, low + p.at, sum)
            : dmuon_dtype_at(dmuon_reduction_chunk(r, DMUON_SUM_WIDTH + block->store), p.at, sum);
    DMUON_TRY(dmuon_reduction_launch(r, &args));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_directly(const dmuon_reduction *r, int64_t low) {
  dmuon_cuda_comm *comm = r->comm;
  const int size = comm->base.size;
  for (int number = 0; number < dmuon_sum_blocks(size); number++) {
    dmuon_sum_block block = {0};
    const int is_root =
        r->total > low && dmuon_sum_block_plan(size, comm->base.rank, number, &block);
    if (size > 1) {
      DMUON_TRY(dmuon_nccl_begin(comm, r->queue));
      DMuonErrorCode code = exchange(r, low, number, is_root, &block);
      DMUON_TRY(dmuon_nccl_end(comm, r->queue, r->name, code));
    }
    if (is_root) DMUON_TRY(add_block(r, low, &block));
  }
  return DMUON_SUCCESS;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Totals by root, the chunk, and room; the chunk is the same on all ranks, whatever room there
 * is. */
static DMuonErrorCode prepare(dmuon_reduction *r, int64_t *most) {
  dmuon_cuda_comm *comm = r->comm;
  int64_t largest = 0, wide = (int64_t)dmuon_dtype_bytes(r->sum_dtype);
  for (int root = 0; root < comm->base.size; root++) comm->totals[root] = 0;
  *most = 0;
  for (int i = 0; i < r->segment_count; i++) {
    const dmuon_segment s = dmuon_reduction_segment(r, i);
    if (comm->totals[s.root] == 0) comm->firsts[s.root] = i;
    comm->totals[s.root] += s.count;
    if (s.count > largest) largest = s.count;
    if (comm->totals[s.root] > *most) *most = comm->totals[s.root];
  }
  r->total = comm->totals[comm->base.rank];
  r->chunk = dmuon_cuda_chunk_elements(comm, r->in_dtype, r->sum_dtype);
  if (r->chunk > largest) r->chunk = largest > 0 ? largest : 1;
  if ((int64_t)dmuon_dtype_bytes(r->in_dtype) > wide)
    wide = (int64_t)dmuon_dtype_bytes(r->in_dtype);
  if (r->total && !r->out)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: no place for %lld elements", r->name, (long long)r->total);
  DMUON_TRY(dmuon_cuda_comm_chunks(comm, r->chunk * wide, dmuon_cuda_reduce_chunks(comm)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce(dmuon_reduction *r) {
  int64_t most;
  DMUON_TRY(prepare(r, &most));
  /* The chunks are the communicator's: an operation on another queue comes behind its last one. */
  DMUON_TRY(
      DMUON_CUDA(cudaStreamWaitEvent, (dmuon_cuda_stream(r->queue), r->comm->chunks_free, 0)));
  const int by_nccl = r->comm->device->reduce_nccl && r->comm->base.size > 1;
  if (by_nccl && r->in_dtype == r->sum_dtype && r->prescale == 0) {
    DMUON_TRY(dmuon_reduce_by_nccl_at_once(r));
  } else {
    for (int64_t low = 0; low < most; low += r->chunk) {
      if (by_nccl)
        DMUON_TRY(dmuon_reduce_by_nccl(r, low));
      else if (dmuon_reduction_is_tree(r->comm))
        DMUON_TRY(dmuon_reduce_by_tree(r, low));
      else
        DMUON_TRY(reduce_directly(r, low));
    }
  }
  if (by_nccl) DMUON_TRY(dmuon_reduce_divide(r));
  DMUON_TRY(DMUON_CUDA(cudaEventRecord, (r->comm->chunks_free, dmuon_cuda_stream(r->queue))));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_reduce_segments(dmuon_queue *queue, dmuon_comm *base,
                                          const dmuon_reduce *args) {
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  dmuon_reduction r = {.comm = comm,
                       .queue = queue,
                       .name = "reducing segments",
                       .segment_count = args->segment_count,
                       .segments = args->segments,
                       .in = args->in,
                       .out = args->out,
                       .in_dtype = args->in_dtype,
                       .sum_dtype = args->sum_dtype,
                       .prescale = args->prescale,
                       .divisor = args->divisor};
  DMUON_TRY(dmuon_cuda_comm_check_segments(comm, r.name, r.segment_count, r.segments));
  DMUON_TRY(dmuon_check_sum(args->sum_dtype));
  const int previous = dmuon_cuda_enter(comm->device);
  DMuonErrorCode code = reduce(&r);
  dmuon_cuda_leave(comm->device, previous);
  DMUON_TRY(code);
  dmuon_count(base, dmuon_count_segments(base->rank, args->segment_count, args->segments),
              args->in_dtype);
  return DMUON_SUCCESS;
}

/* The sum of each part back to all. */
static DMuonErrorCode spread_parts(const dmuon_reduction *r, void *buffer) {
  dmuon_cuda_comm *comm = r->comm;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (comm->base.size == 1) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_nccl_begin(comm, r->queue));
  for (int i = 0; i < r->segment_count && !code; i++) {
    const dmuon_segment s = dmuon_reduction_segment(r, i);
    code = dmuon_nccl_broadcast(comm, r->queue, dmuon_dtype_at(buffer, s.offset, r->sum_dtype),
                                s.count, r->sum_dtype, s.root);
  }
  DMUON_TRY(dmuon_nccl_end(comm, r->queue, r->name, code));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_all_reduce(dmuon_queue *queue, dmuon_comm *base, int64_t count,
                                     DMuonDType dtype, void *buffer) {
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  dmuon_reduction r = {.comm = comm,
                       .queue = queue,
                       .name = "reducing on all",
                       .segment_count = dmuon_part_count(base->size, count),
                       .count = count,
                       .in = buffer,
                       .in_dtype = dtype,
                       .sum_dtype = dtype,
                       .divisor = 1};
  DMUON_TRY(dmuon_cuda_comm_check(comm, r.name, 0));
  DMUON_TRY(dmuon_check_sum(dtype));
  /* In place: what a rank adds up lies where its own contribution to it did, which nobody needs any
   * more; and nobody's contribution to anything else lies there. */
  const dmuon_segment own = dmuon_part(base->size, count, r.segment_count > 1 ? base->rank : 0);
  r.out = dmuon_dtype_at(buffer, own.offset, dtype);
  const int previous = dmuon_cuda_enter(comm->device);
  DMuonErrorCode code = reduce(&r);
  if (!code) code = spread_parts(&r, buffer);
  dmuon_cuda_leave(comm->device, previous);
  DMUON_TRY(code);
  dmuon_count_all_reduce(base, count, dtype);
  return DMUON_SUCCESS;
}
