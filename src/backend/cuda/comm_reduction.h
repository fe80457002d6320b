/* What the ways of adding up share: a reduction that is being issued, and which pieces of a root's
 * segments lie in a chunk. For comm_reduce*.c alone. */
#ifndef DMUON_BACKEND_CUDA_COMM_REDUCTION_H
#define DMUON_BACKEND_CUDA_COMM_REDUCTION_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels_comm.h"

enum { DMUON_TREE_ROOTS = 4 }; /* whose partial sums a rank keeps at one time */

/* Segments from a table, or (NULL) `count` elements in parts. */
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
} dmuon_reduction;

/* What is told of a root's elements from `low` on, at most a chunk: pieces of its segments. */
typedef struct {
  int root, next; /* segment */
  int64_t low, high, before;
} dmuon_reduction_cursor;
typedef struct {
  int64_t at;     /* from low */
  int64_t offset; /* in the buffer of contributions */
  int64_t count;
} dmuon_reduction_piece;

/* ---- comm_reduction.c ---- */

/* Partial sums travel, level by level. */
int dmuon_reduction_is_tree(const dmuon_cuda_comm *comm);
dmuon_segment dmuon_reduction_segment(const dmuon_reduction *r, int i);
dmuon_reduction_cursor dmuon_reduction_range(const dmuon_reduction *r, int root, int64_t low);
/* The next piece; 0: there is none. */
int dmuon_reduction_next(const dmuon_reduction *r, dmuon_reduction_cursor *c,
                         dmuon_reduction_piece *out);
/* The next roots with elements from `low` on, beginning at *after; how many. */
int dmuon_reduction_roots(const dmuon_reduction *r, int64_t low, int *after, int most, int *roots);
/* A place of the communicator's memory. */
char *dmuon_reduction_chunk(const dmuon_reduction *r, int place);
/* This rank's own contribution to a piece. */
const void *dmuon_reduction_own(const dmuon_reduction *r, const dmuon_reduction_piece *p);
/* A sum of n elements, of nothing yet; and the kernel that adds one up. */
dmuon_sum_args dmuon_reduction_sum(const dmuon_reduction *r, int64_t n);
DMuonErrorCode dmuon_reduction_launch(const dmuon_reduction *r, const dmuon_sum_args *args);
/* A chunk of bare contributions for root, inside a group of NCCL calls. */
DMuonErrorCode dmuon_reduction_send(const dmuon_reduction *r, int root, int64_t low, int to);
DMuonErrorCode dmuon_reduction_receive(const dmuon_reduction *r, int root, int64_t low, int from,
                                       char *into);

/* ---- the ways ---- */

/* Chunk `low` of every root, by partial sums (comm_reduce_tree.c). */
DMuonErrorCode dmuon_reduce_by_tree(const dmuon_reduction *r, int64_t low);
/* The same by NCCL (comm_reduce_nccl.c); or all at once, of contributions that need no widening. */
DMuonErrorCode dmuon_reduce_by_nccl(const dmuon_reduction *r, int64_t low);
DMuonErrorCode dmuon_reduce_by_nccl_at_once(const dmuon_reduction *r);
/* NCCL's sum by the divisor. */
DMuonErrorCode dmuon_reduce_divide(const dmuon_reduction *r);

#endif
