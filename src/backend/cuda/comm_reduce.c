/* Reductions, in one of three ways.
 *
 * Ordered, up to fanin ranks: a root gets the bare contributions, eight at a time by one group of
 * sends and receives, and adds them up with its own kernel, in the order of sum_plan.c: the host's
 * bits. Ordered, above: partial sums travel, level by level, a few roots at a time: the same bits.
 * By NCCL (the device's reduce_nccl): contributions are widened, NCCL adds them in an order of its
 * own, the root divides.
 *
 * What a root gets, its segments one after another, is gone through in chunks: chunk 0 of every root,
 * then chunk 1, so that memory is a few chunks and all ranks agree on every message. */
#include <math.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels_comm.h"
#include "comm/count.h"

enum { TREE_ROOTS = 4 }; /* whose partial sums a rank keeps at one time */

/* A reduction being issued. Segments from a table, or (NULL) `count` elements in parts. */
typedef struct {
  dmuon_cuda_comm *comm;
  dmuon_queue *queue;
  const char *name;
  int segment_count;
  const dmuon_segment *segments;
  int64_t count;
  const void *in;
  void *out;
  DMuonDType in_dtype, sum_dtype;
  int prescale;
  double divisor;
  int64_t chunk; /* elements */
  int64_t total; /* this rank's */
} reduction;

static int is_tree(const dmuon_cuda_comm *comm) {
  return comm->base.size > 1 &&
         (comm->base.size > comm->base.fanin || comm->base.size > DMUON_SUM_MOST);
}

/* Bare contributions: a place for each position (the root's own needs one where NCCL adds), then the
 * partial sums. */
int dmuon_cuda_reduce_chunks(const dmuon_cuda_comm *comm) {
  if (is_tree(comm)) return 2 * TREE_ROOTS;
  return dmuon_sum_width(comm->base.size) + dmuon_sum_places(comm->base.size);
}

int64_t dmuon_cuda_chunk_elements(const dmuon_cuda_comm *comm, DMuonDType in, DMuonDType sum) {
  int64_t wide = (int64_t)dmuon_dtype_bytes(in), chunk;
  if ((int64_t)dmuon_dtype_bytes(sum) > wide) wide = (int64_t)dmuon_dtype_bytes(sum);
  chunk = comm->base.chunk_bytes / wide;
  return chunk > 0 ? chunk : 1;
}

static dmuon_segment segment_of(const reduction *r, int i) {
  return r->segments ? r->segments[i] : dmuon_part(r->comm->base.size, r->count, i);
}

/* What is told of a root's elements from `low` on, at most a chunk: pieces of its segments. */
typedef struct {
  int root, next; /* segment */
  int64_t low, high, before;
} cursor;
typedef struct {
  int64_t at;     /* from low */
  int64_t offset; /* in the buffer of contributions */
  int64_t count;
} piece;

static cursor range_of(const reduction *r, int root, int64_t low) {
  const int64_t total = r->comm->totals[root];
  return (cursor){.root = root,
                  .next = (int)r->comm->firsts[root],
                  .low = low,
                  .high = total - low < r->chunk ? total : low + r->chunk};
}

static int next_piece(const reduction *r, cursor *c, piece *out) {
  while (c->next < r->segment_count && c->before < c->high) {
    const dmuon_segment s = segment_of(r, c->next++);
    if (s.root != c->root) continue;
    const int64_t begin = c->before, end = begin + s.count;
    c->before = end;
    const int64_t low = begin > c->low ? begin : c->low, high = end < c->high ? end : c->high;
    if (low >= high) continue;
    *out = (piece){low - c->low, s.offset + low - begin, high - low};
    return 1;
  }
  return 0;
}

static char *chunk_at(const reduction *r, int place) {
  return r->comm->block + place * r->comm->chunk_bytes;
}

static const void *contribution(const reduction *r, const piece *p) {
  return dmuon_dtype_at(r->in, p->offset, r->in_dtype);
}

/* A sum of nothing yet. */
static dmuon_sum_args sum_of(const reduction *r, int64_t n) {
  return (dmuon_sum_args){.n = n,
                          .factor = ldexp(1.0, r->prescale),
                          .divisor = 1,
                          .in_dtype = r->in_dtype,
                          .sum_dtype = r->sum_dtype};
}

static DMuonErrorCode launch(const reduction *r, const dmuon_sum_args *args) {
  const int64_t blocks = dmuon_cuda_blocks(r->comm->device, args->n);
  if (args->n == 0) return DMUON_SUCCESS;
  DMUON_TRY(
      dmuon_cuda_launch(r->queue, (const void *)dmuon_kernel_sum, blocks, DMUON_THREADS, args));
  return DMUON_SUCCESS;
}

/* ---- bare contributions to their root ------------------------------------------------------- */

static DMuonErrorCode send_pieces(const reduction *r, int root, int64_t low, int to) {
  cursor c = range_of(r, root, low);
  piece p;
  while (next_piece(r, &c, &p))
    DMUON_TRY(dmuon_nccl_send(r->comm, r->queue, contribution(r, &p), p.count, r->in_dtype, to));
  return DMUON_SUCCESS;
}

static DMuonErrorCode receive_pieces(const reduction *r, int root, int64_t low, int from,
                                     char *into) {
  cursor c = range_of(r, root, low);
  piece p;
  while (next_piece(r, &c, &p))
    DMUON_TRY(dmuon_nccl_receive(r->comm, r->queue, dmuon_dtype_at(into, p.at, r->in_dtype),
                                 p.count, r->in_dtype, from));
  return DMUON_SUCCESS;
}

static DMuonErrorCode exchange(const reduction *r, int64_t low, int number, int is_root,
                               const dmuon_sum_block *block) {
  const int rank = r->comm->base.rank;
  for (int root = 0; root < r->comm->base.size; root++)
    if (root != rank && r->comm->totals[root] > low && dmuon_sum_block_of(rank, root) == number)
      DMUON_TRY(send_pieces(r, root, low, root));
  for (int i = 0; i < DMUON_SUM_WIDTH && is_root; i++)
    if (block->rank[i] >= 0 && block->rank[i] != rank)
      DMUON_TRY(receive_pieces(r, rank, low, block->rank[i], chunk_at(r, i)));
  return DMUON_SUCCESS;
}

/* Piece by piece, as this rank's own contribution lies. */
static DMuonErrorCode add_block(const reduction *r, int64_t low, const dmuon_sum_block *block) {
  cursor c = range_of(r, r->comm->base.rank, low);
  const DMuonDType sum = r->sum_dtype;
  piece p;
  while (next_piece(r, &c, &p)) {
    dmuon_sum_args args = sum_of(r, p.count);
    for (int i = 0; i < DMUON_SUM_WIDTH; i++) {
      if (block->rank[i] < 0) continue;
      args.source[i] = block->rank[i] == r->comm->base.rank
                           ? contribution(r, &p)
                           : dmuon_dtype_at(chunk_at(r, i), p.at, r->in_dtype);
    }
    for (int i = 0; i < block->merge_count; i++)
      args.merge[i] = dmuon_dtype_at(chunk_at(r, DMUON_SUM_WIDTH + block->merge[i]), p.at, sum);
    args.merge_count = block->merge_count;
    if (block->store < 0) args.divisor = r->divisor;
    args.out = block->store < 0
                   ? dmuon_dtype_at(r->out, low + p.at, sum)
                   : dmuon_dtype_at(chunk_at(r, DMUON_SUM_WIDTH + block->store), p.at, sum);
    DMUON_TRY(launch(r, &args));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_directly(const reduction *r, int64_t low) {
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

/* ---- partial sums along a tree ---------------------------------------------------------------- */

/* The next roots with elements from `low` on; how many. */
static int next_roots(const reduction *r, int64_t low, int *after, int most, int *roots) {
  int count = 0;
  for (; *after < r->comm->base.size && count < most; (*after)++)
    if (r->comm->totals[*after] > low) roots[count++] = *after;
  return count;
}

/* Place 2i: the partial sum for roots[i]; place 2i + 1: what comes in. */
static DMuonErrorCode exchange_level(const reduction *r, int64_t low, int slot, int root,
                                     const dmuon_sum_edge *edge) {
  const cursor whole = range_of(r, root, low);
  const int64_t n = whole.high - whole.low;
  switch (edge->kind) {
    case DMUON_EDGE_SEND:
      if (edge->is_leaf) return send_pieces(r, root, low, edge->peer);
      return dmuon_nccl_send(r->comm, r->queue, chunk_at(r, 2 * slot), n, r->sum_dtype, edge->peer);
    case DMUON_EDGE_RECEIVE:
      if (edge->is_leaf) return receive_pieces(r, root, low, edge->peer, chunk_at(r, 2 * slot + 1));
      return dmuon_nccl_receive(r->comm, r->queue, chunk_at(r, 2 * slot + 1), n, r->sum_dtype,
                                edge->peer);
    case DMUON_EDGE_NONE:
      break;
  }
  return DMUON_SUCCESS;
}

/* is_first: this rank's own contribution is not in its partial sum yet. */
static DMuonErrorCode add_level(const reduction *r, int64_t low, int slot, int root, int is_leaf,
                                int is_first, int is_last) {
  const DMuonDType sum = r->sum_dtype;
  char *partial = chunk_at(r, 2 * slot), *came = chunk_at(r, 2 * slot + 1);
  cursor c = range_of(r, root, low);
  piece p;
  while (next_piece(r, &c, &p)) {
    dmuon_sum_args args = sum_of(r, p.count);
    int sources = 0;
    if (is_first)
      args.source[sources++] = contribution(r, &p);
    else
      args.merge[args.merge_count++] = dmuon_dtype_at(partial, p.at, sum);
    if (is_leaf)
      args.source[sources++] = dmuon_dtype_at(came, p.at, r->in_dtype);
    else
      args.merge[args.merge_count++] = dmuon_dtype_at(came, p.at, sum);
    if (is_last) args.divisor = r->divisor;
    args.out =
        is_last ? dmuon_dtype_at(r->out, low + p.at, sum) : dmuon_dtype_at(partial, p.at, sum);
    DMUON_TRY(launch(r, &args));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_level(const reduction *r, int64_t low, int level, int count,
                                   const int *roots, int *begun) {
  dmuon_cuda_comm *comm = r->comm;
  const int rank = comm->base.rank, size = comm->base.size;
  const int is_top = level == dmuon_sum_levels(size) - 1;
  dmuon_sum_edge edges[TREE_ROOTS];
  DMuonErrorCode code = DMUON_SUCCESS;
  DMUON_TRY(dmuon_nccl_begin(comm, r->queue));
  for (int i = 0; i < count && !code; i++) {
    edges[i] = dmuon_sum_edge_plan(rank, size, roots[i], level);
    code = exchange_level(r, low, i, roots[i], &edges[i]);
  }
  DMUON_TRY(dmuon_nccl_end(comm, r->queue, r->name, code));
  for (int i = 0; i < count; i++) {
    if (edges[i].kind != DMUON_EDGE_RECEIVE) continue;
    DMUON_TRY(add_level(r, low, i, roots[i], edges[i].is_leaf, !begun[i], is_top));
    begun[i] = 1;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_as_tree(const reduction *r, int64_t low) {
  int after = 0, roots[TREE_ROOTS], count;
  while ((count = next_roots(r, low, &after, TREE_ROOTS, roots)) > 0) {
    int begun[TREE_ROOTS] = {0};
    for (int level = 0; level < dmuon_sum_levels(r->comm->base.size); level++)
      DMUON_TRY(reduce_level(r, low, level, count, roots, begun));
  }
  return DMUON_SUCCESS;
}

/* ---- by NCCL ---------------------------------------------------------------------------------- */

static DMuonErrorCode widen(const reduction *r, int root, int64_t low, char *into) {
  cursor c = range_of(r, root, low);
  piece p;
  while (next_piece(r, &c, &p)) {
    dmuon_sum_args args = sum_of(r, p.count);
    args.source[0] = contribution(r, &p);
    args.out = dmuon_dtype_at(into, p.at, r->sum_dtype);
    DMUON_TRY(launch(r, &args));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_chunks(const reduction *r, int64_t low) {
  int after = 0, roots[DMUON_SUM_WIDTH], count;
  const int most = is_tree(r->comm) ? 2 * TREE_ROOTS : dmuon_sum_width(r->comm->base.size);
  while ((count = next_roots(r, low, &after, most, roots)) > 0) {
    DMuonErrorCode code = DMUON_SUCCESS;
    for (int i = 0; i < count; i++) DMUON_TRY(widen(r, roots[i], low, chunk_at(r, i)));
    DMUON_TRY(dmuon_nccl_begin(r->comm, r->queue));
    for (int i = 0; i < count && !code; i++) {
      const cursor c = range_of(r, roots[i], low);
      code = dmuon_nccl_reduce(r->comm, r->queue, chunk_at(r, i),
                               dmuon_dtype_at(r->out, low, r->sum_dtype), c.high - c.low,
                               r->sum_dtype, roots[i]);
    }
    DMUON_TRY(dmuon_nccl_end(r->comm, r->queue, r->name, code));
  }
  return DMUON_SUCCESS;
}

/* Contributions that need no widening: straight from where they lie. */
static DMuonErrorCode reduce_whole(const reduction *r) {
  DMuonErrorCode code = DMUON_SUCCESS;
  int64_t at = 0;
  DMUON_TRY(dmuon_nccl_begin(r->comm, r->queue));
  for (int i = 0; i < r->segment_count && !code; i++) {
    const dmuon_segment s = segment_of(r, i);
    code =
        dmuon_nccl_reduce(r->comm, r->queue, dmuon_dtype_at(r->in, s.offset, r->in_dtype),
                          dmuon_dtype_at(r->out, at, r->sum_dtype), s.count, r->sum_dtype, s.root);
    if (s.root == r->comm->base.rank) at += s.count;
  }
  DMUON_TRY(dmuon_nccl_end(r->comm, r->queue, r->name, code));
  return DMUON_SUCCESS;
}

static DMuonErrorCode divide(const reduction *r) {
  dmuon_sum_args args = sum_of(r, r->total);
  if (r->divisor == 1 || r->total == 0) return DMUON_SUCCESS;
  args.merge[args.merge_count++] = r->out;
  args.out = r->out;
  args.divisor = r->divisor;
  DMUON_TRY(launch(r, &args));
  return DMUON_SUCCESS;
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* Totals by root, the chunk, and room; the chunk is the same on all ranks, whatever room there is. */
static DMuonErrorCode prepare(reduction *r, int64_t *most) {
  dmuon_cuda_comm *comm = r->comm;
  int64_t largest = 0, wide = (int64_t)dmuon_dtype_bytes(r->sum_dtype);
  for (int root = 0; root < comm->base.size; root++) comm->totals[root] = 0;
  *most = 0;
  for (int i = 0; i < r->segment_count; i++) {
    const dmuon_segment s = segment_of(r, i);
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

static DMuonErrorCode reduce(reduction *r) {
  int64_t most;
  DMUON_TRY(prepare(r, &most));
  const int by_nccl = r->comm->device->reduce_nccl && r->comm->base.size > 1;
  if (by_nccl && r->in_dtype == r->sum_dtype && r->prescale == 0) {
    DMUON_TRY(reduce_whole(r));
  } else {
    for (int64_t low = 0; low < most; low += r->chunk) {
      if (by_nccl)
        DMUON_TRY(reduce_chunks(r, low));
      else if (is_tree(r->comm))
        DMUON_TRY(reduce_as_tree(r, low));
      else
        DMUON_TRY(reduce_directly(r, low));
    }
  }
  if (by_nccl) DMUON_TRY(divide(r));
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_sum(DMuonDType dtype) {
  if (dtype != DMUON_FLOAT32 && dtype != DMUON_FLOAT64)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "sums are kept in fp32 or fp64, not in %s",
               dmuon_dtype_name(dtype));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_reduce_segments(dmuon_queue *queue, dmuon_comm *base,
                                          const dmuon_reduce *args) {
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  reduction r = {.comm = comm,
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
  DMUON_TRY(check_sum(args->sum_dtype));
  const int previous = dmuon_cuda_enter(comm->device);
  DMuonErrorCode code = reduce(&r);
  dmuon_cuda_leave(comm->device, previous);
  DMUON_TRY(code);
  dmuon_count(base, dmuon_count_segments(base->rank, args->segment_count, args->segments),
              args->in_dtype);
  return DMUON_SUCCESS;
}

/* The sum of each part back to all. */
static DMuonErrorCode spread_parts(const reduction *r, void *buffer) {
  dmuon_cuda_comm *comm = r->comm;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (comm->base.size == 1) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_nccl_begin(comm, r->queue));
  for (int i = 0; i < r->segment_count && !code; i++) {
    const dmuon_segment s = segment_of(r, i);
    code = dmuon_nccl_broadcast(comm, r->queue, dmuon_dtype_at(buffer, s.offset, r->sum_dtype),
                                s.count, r->sum_dtype, s.root);
  }
  DMUON_TRY(dmuon_nccl_end(comm, r->queue, r->name, code));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_all_reduce(dmuon_queue *queue, dmuon_comm *base, int64_t count,
                                     DMuonDType dtype, void *buffer) {
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  reduction r = {.comm = comm,
                 .queue = queue,
                 .name = "reducing on all",
                 .segment_count = dmuon_part_count(base->size, count),
                 .count = count,
                 .in = buffer,
                 .in_dtype = dtype,
                 .sum_dtype = dtype,
                 .divisor = 1};
  DMUON_TRY(dmuon_cuda_comm_check(comm, r.name, 0));
  DMUON_TRY(check_sum(dtype));
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
