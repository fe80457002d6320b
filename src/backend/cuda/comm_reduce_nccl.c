/* Sums in NCCL's own association: contributions are widened into chunks unless they lie as they are
 * added, NCCL adds them, the root divides. */
#include "backend/cuda/comm_reduction.h"

static DMuonErrorCode widen(const dmuon_reduction *r, int root, int64_t low, char *into) {
  dmuon_reduction_cursor c = dmuon_reduction_range(r, root, low);
  dmuon_reduction_piece p;
  while (dmuon_reduction_next(r, &c, &p)) {
    dmuon_sum_args args = dmuon_reduction_sum(r, p.count);
    args.source[0] = dmuon_reduction_own(r, &p);
    args.out = dmuon_dtype_at(into, p.at, r->sum_dtype);
    DMUON_TRY(dmuon_reduction_launch(r, &args));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_reduce_by_nccl(const dmuon_reduction *r, int64_t low) {
  int after = 0, roots[DMUON_SUM_WIDTH], count;
  const int most =
      dmuon_reduction_is_tree(r->comm) ? 2 * DMUON_TREE_ROOTS : dmuon_sum_width(r->comm->base.size);
  while ((count = dmuon_reduction_roots(r, low, &after, most, roots)) > 0) {
    DMuonErrorCode code = DMUON_SUCCESS;
    for (int i = 0; i < count; i++) DMUON_TRY(widen(r, roots[i], low, dmuon_reduction_chunk(r, i)));
    DMUON_TRY(dmuon_nccl_begin(r->comm, r->queue));
    for (int i = 0; i < count && !code; i++) {
      const dmuon_reduction_cursor c = dmuon_reduction_range(r, roots[i], low);
      code = dmuon_nccl_reduce(r->comm, r->queue, dmuon_reduction_chunk(r, i),
                               dmuon_dtype_at(r->out, low, r->sum_dtype), c.high - c.low,
                               r->sum_dtype, roots[i]);
    }
    DMUON_TRY(dmuon_nccl_end(r->comm, r->queue, r->name, code));
  }
  return DMUON_SUCCESS;
}

/* Contributions that need no widening: straight from where they lie. */
DMuonErrorCode dmuon_reduce_by_nccl_at_once(const dmuon_reduction *r) {
  DMuonErrorCode code = DMUON_SUCCESS;
  int64_t at = 0;
  DMUON_TRY(dmuon_nccl_begin(r->comm, r->queue));
  for (int i = 0; i < r->segment_count && !code; i++) {
    const dmuon_segment s = dmuon_reduction_segment(r, i);
    code =
        dmuon_nccl_reduce(r->comm, r->queue, dmuon_dtype_at(r->in, s.offset, r->in_dtype),
                          dmuon_dtype_at(r->out, at, r->sum_dtype), s.count, r->sum_dtype, s.root);
    if (s.root == r->comm->base.rank) at += s.count;
  }
  DMUON_TRY(dmuon_nccl_end(r->comm, r->queue, r->name, code));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_reduce_divide(const dmuon_reduction *r) {
  dmuon_sum_args args = dmuon_reduction_sum(r, r->total);
  if (r->divisor == 1 || r->total == 0) return DMUON_SUCCESS;
  args.merge[args.merge_count++] = r->out;
  args.out = r->out;
  args.divisor = r->divisor;
  DMUON_TRY(dmuon_reduction_launch(r, &args));
  return DMUON_SUCCESS;
}
