/* Of a root's segments, what lies in a chunk: walked through piece by piece, sent, received, and
 * handed to the kernel that adds up. It decides nothing about who adds what to what. */
#include <math.h>

#include "backend/cuda/comm_reduction.h"
#include "comm/count.h"

int dmuon_reduction_is_tree(const dmuon_cuda_comm *comm) {
  return comm->base.size > 1 &&
         (comm->base.size > comm->base.fanin || comm->base.size > DMUON_SUM_MOST);
}

dmuon_segment dmuon_reduction_segment(const dmuon_reduction *r, int i) {
  return r->segments ? r->segments[i] : dmuon_part(r->comm->base.size, r->count, i);
}

dmuon_reduction_cursor dmuon_reduction_range(const dmuon_reduction *r, int root, int64_t low) {
  const int64_t total = r->comm->totals[root];
  return (dmuon_reduction_cursor){.root = root,
                                  .next = (int)r->comm->firsts[root],
                                  .low = low,
                                  .high = total - low < r->chunk ? total : low + r->chunk};
}

int dmuon_reduction_next(const dmuon_reduction *r, dmuon_reduction_cursor *c,
                         dmuon_reduction_piece *out) {
  while (c->next < r->segment_count && c->before < c->high) {
    const dmuon_segment s = dmuon_reduction_segment(r, c->next++);
    if (s.root != c->root) continue;
    const int64_t begin = c->before, end = begin + s.count;
    c->before = end;
    const int64_t low = begin > c->low ? begin : c->low, high = end < c->high ? end : c->high;
    if (low >= high) continue;
    *out = (dmuon_reduction_piece){low - c->low, s.offset + low - begin, high - low};
    return 1;
  }
  return 0;
}

int dmuon_reduction_roots(const dmuon_reduction *r, int64_t low, int *after, int most, int *roots) {
  int count = 0;
  for (; *after < r->comm->base.size && count < most; (*after)++)
    if (r->comm->totals[*after] > low) roots[count++] = *after;
  return count;
}

char *dmuon_reduction_chunk(const dmuon_reduction *r, int place) {
  return r->comm->block + place * r->comm->chunk_bytes;
}

const void *dmuon_reduction_own(const dmuon_reduction *r, const dmuon_reduction_piece *p) {
  return dmuon_dtype_at(r->in, p->offset, r->in_dtype);
}

dmuon_sum_args dmuon_reduction_sum(const dmuon_reduction *r, int64_t n) {
  return (dmuon_sum_args){.n = n,
                          .factor = ldexp(1.0, r->prescale),
                          .divisor = 1,
                          .in_dtype = r->in_dtype,
                          .sum_dtype = r->sum_dtype};
}

DMuonErrorCode dmuon_reduction_launch(const dmuon_reduction *r, const dmuon_sum_args *args) {
  const int64_t blocks = dmuon_cuda_blocks(r->comm->device, args->n);
  if (args->n == 0) return DMUON_SUCCESS;
  DMUON_TRY(
      dmuon_cuda_launch(r->queue, (const void *)dmuon_kernel_sum, blocks, DMUON_THREADS, args));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_reduction_send(const dmuon_reduction *r, int root, int64_t low, int to) {
  dmuon_reduction_cursor c = dmuon_reduction_range(r, root, low);
  dmuon_reduction_piece p;
  while (dmuon_reduction_next(r, &c, &p))
    DMUON_TRY(
        dmuon_nccl_send(r->comm, r->queue, dmuon_reduction_own(r, &p), p.count, r->in_dtype, to));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_reduction_receive(const dmuon_reduction *r, int root, int64_t low, int from,
                                       char *into) {
  dmuon_reduction_cursor c = dmuon_reduction_range(r, root, low);
  dmuon_reduction_piece p;
  while (dmuon_reduction_next(r, &c, &p))
    DMUON_TRY(dmuon_nccl_receive(r->comm, r->queue, dmuon_dtype_at(into, p.at, r->in_dtype),
                                 p.count, r->in_dtype, from));
  return DMUON_SUCCESS;
}
