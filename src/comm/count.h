/* What an operation counts for on a rank, as comm.h says: payload elements that come from other
 * ranks, or go to them, whatever way they take. Pure. */
#ifndef DMUON_COMM_COUNT_H
#define DMUON_COMM_COUNT_H

#include "comm/comm.h"

/* all_reduce adds up on rank 0 alone up to so many elements, above in parts on all ranks. */
enum { DMUON_ONE_ROOT_ELEMENTS = 1024 };

/* Part i of count elements in parts of equal size over size ranks, the last ones smaller or empty;
 * or, of few elements, all of them at rank 0. */
static inline int dmuon_part_count(int size, int64_t count) {
  return count <= DMUON_ONE_ROOT_ELEMENTS ? 1 : size;
}
static inline dmuon_segment dmuon_part(int size, int64_t count, int i) {
  dmuon_segment segment = {0, 0, count, count};
  if (dmuon_part_count(size, count) > 1) {
    const int64_t part = (count + size - 1) / size;
    segment.root = i;
    segment.offset = part * i < count ? part * i : count;
    segment.count = count - segment.offset < part ? count - segment.offset : part;
    segment.payload = segment.count;
  }
  return segment;
}

/* Segments that go from their roots to all, or from all to their roots. */
static inline int64_t dmuon_count_segments(int rank, int count, const dmuon_segment *segments) {
  int64_t elements = 0;
  for (int i = 0; i < count; i++)
    if (segments[i].root != rank) elements += segments[i].payload;
  return elements;
}

static inline int64_t dmuon_count_moves(int rank, int count, const dmuon_move *moves) {
  int64_t elements = 0;
  for (int i = 0; i < count; i++)
    if (moves[i].to == rank && moves[i].from != rank) elements += moves[i].payload;
  return elements;
}

/* gather and scatter: count elements of each rank but the root. */
static inline int64_t dmuon_count_parts(int rank, int size, int root, int64_t count) {
  return rank == root ? count * (size - 1) : count;
}

/* An operation of so many counted elements is done. */
static inline void dmuon_count(dmuon_comm *comm, int64_t elements, DMuonDType dtype) {
  comm->counters.operations++;
  comm->counters.bytes += dmuon_dtype_span(elements, dtype);
}

/* all_reduce is two operations: there and back. */
static inline void dmuon_count_all_reduce(dmuon_comm *comm, int64_t count, DMuonDType dtype) {
  int64_t elements = 0;
  for (int i = 0; i < dmuon_part_count(comm->size, count); i++) {
    const dmuon_segment part = dmuon_part(comm->size, count, i);
    elements += dmuon_count_segments(comm->rank, 1, &part);
  }
  dmuon_count(comm, elements, dtype);
  dmuon_count(comm, elements, dtype);
}

#endif
