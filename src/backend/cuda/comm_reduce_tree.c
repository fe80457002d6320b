/* Ordered sums over many ranks: partial sums travel along the tree of sum_plan.c, level by level,
 * for a few roots at a time. The same bits as bare contributions. */
#include "backend/cuda/comm_reduction.h"

/* Place 2i: the partial sum for roots[i]; place 2i + 1: what comes in. */
static DMuonErrorCode exchange_level(const dmuon_reduction *r, int64_t low, int slot, int root,
                                     const dmuon_sum_edge *edge) {
  const dmuon_reduction_cursor whole = dmuon_reduction_range(r, root, low);
  const int64_t n = whole.high - whole.low;
  switch (edge->kind) {
    case DMUON_EDGE_SEND:
      if (edge->is_leaf) return dmuon_reduction_send(r, root, low, edge->peer);
      return dmuon_nccl_send(r->comm, r->queue, dmuon_reduction_chunk(r, 2 * slot), n, r->sum_dtype,
                             edge->peer);
    case DMUON_EDGE_RECEIVE:
      if (edge->is_leaf)
        return dmuon_reduction_receive(r, root, low, edge->peer,
                                       dmuon_reduction_chunk(r, 2 * slot + 1));
      return dmuon_nccl_receive(r->comm, r->queue, dmuon_reduction_chunk(r, 2 * slot + 1), n,
                                r->sum_dtype, edge->peer);
    case DMUON_EDGE_NONE:
      break;
  }
  return DMUON_SUCCESS;
}

/* is_first: this rank's own contribution is not in its partial sum yet. */
static DMuonErrorCode add_level(const dmuon_reduction *r, int64_t low, int slot, int root,
                                int is_leaf, int is_first, int is_last) {
  const DMuonDType sum = r->sum_dtype;
  char *partial = dmuon_reduction_chunk(r, 2 * slot),
       *came = dmuon_reduction_chunk(r, 2 * slot + 1);
  dmuon_reduction_cursor c = dmuon_reduction_range(r, root, low);
  dmuon_reduction_piece p;
  while (dmuon_reduction_next(r, &c, &p)) {
    dmuon_sum_args args = dmuon_reduction_sum(r, p.count);
    int sources = 0;
    if (is_first)
      args.source[sources++] = dmuon_reduction_own(r, &p);
    else
      args.merge[args.merge_count++] = dmuon_dtype_at(partial, p.at, sum);
    if (is_leaf)
      args.source[sources++] = dmuon_dtype_at(came, p.at, r->in_dtype);
    else
      args.merge[args.merge_count++] = dmuon_dtype_at(came, p.at, sum);
    if (is_last) args.divisor = r->divisor;
    args.out =
        is_last ? dmuon_dtype_at(r->out, low + p.at, sum) : dmuon_dtype_at(partial, p.at, sum);
    DMUON_TRY(dmuon_reduction_launch(r, &args));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_level(const dmuon_reduction *r, int64_t low, int level, int count,
                                   const int *roots, int *begun) {
  dmuon_cuda_comm *comm = r->comm;
  const int rank = comm->base.rank, size = comm->base.size;
  const int is_top = level == dmuon_sum_levels(size) - 1;
  dmuon_sum_edge edges[DMUON_TREE_ROOTS];
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

DMuonErrorCode dmuon_reduce_by_tree(const dmuon_reduction *r, int64_t low) {
  int after = 0, roots[DMUON_TREE_ROOTS], count;
  while ((count = dmuon_reduction_roots(r, low, &after, DMUON_TREE_ROOTS, roots)) > 0) {
    int begun[DMUON_TREE_ROOTS] = {0};
    for (int level = 0; level < dmuon_sum_levels(r->comm->base.size); level++)
      DMUON_TRY(reduce_level(r, low, level, count, roots, begun));
  }
  return DMUON_SUCCESS;
}
