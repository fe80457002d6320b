/* What every table of collectives asks of its arguments before it issues anything. Pure. */
#ifndef DMUON_COMM_CHECK_H
#define DMUON_COMM_CHECK_H

#include "comm/comm.h"

/* name: of the operation, for messages; what: segments, pieces. */
static inline DMuonErrorCode dmuon_check_table(const char *name, int count, const void *table,
                                               const char *what) {
  if (count && !table) DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: no table of %d %s", name, count, what);
  return DMUON_SUCCESS;
}

static inline DMuonErrorCode dmuon_check_segments(const char *name, int size, int count,
                                                  const dmuon_segment *segments) {
  DMUON_TRY(dmuon_check_table(name, count, segments, "segments"));
  for (int i = 0; i < count; i++) {
    const dmuon_segment *s = &segments[i];
    if (s->root < 0 || s->root >= size || s->offset < 0 || s->count < 0)
      DMUON_FAIL(DMUON_ERR_INTERNAL,
                 "%s: segment %d has root %d of [0,%d), offset %lld, count %lld", name, i, s->root,
                 size, (long long)s->offset, (long long)s->count);
  }
  return DMUON_SUCCESS;
}

static inline DMuonErrorCode dmuon_check_moves(const char *name, int size, int count,
                                               const dmuon_move *moves) {
  DMUON_TRY(dmuon_check_table(name, count, moves, "pieces"));
  for (int i = 0; i < count; i++)
    if (moves[i].from < 0 || moves[i].from >= size || moves[i].to < 0 || moves[i].to >= size)
      DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: piece %d goes from rank %d to %d of [0,%d)", name, i,
                 moves[i].from, moves[i].to, size);
  return DMUON_SUCCESS;
}

static inline DMuonErrorCode dmuon_check_sum(DMuonDType dtype) {
  if (dtype != DMUON_FLOAT32 && dtype != DMUON_FLOAT64)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "sums are kept in fp32 or fp64, not in %s",
               dmuon_dtype_name(dtype));
  return DMUON_SUCCESS;
}

#endif
