/* What is known of every byte of a buffer: who wrote it last and who has read it since, in pieces
 * that know the same. */
#ifndef DMUON_BACKEND_TRACE_SHADOW_H
#define DMUON_BACKEND_TRACE_SHADOW_H

#include "base/memory.h"

typedef enum {
  DMUON_SHADOW_NEVER = 0, /* nothing was ever written */
  DMUON_SHADOW_WRITTEN,
  DMUON_SHADOW_DISCARDED
} dmuon_shadow_state;

/* An actor (a queue, the host, the caller) at a time of its own clock; actor -1: nobody. */
typedef struct {
  int64_t actor, clock, record;
} dmuon_shadow_stamp;

typedef struct {
  int64_t begin, end;
  int64_t state;
  dmuon_shadow_stamp written;
  dmuon_shadow_stamp reads[]; /* by actor */
} dmuon_shadow_piece;

typedef struct {
  int64_t count, room, actors;
  size_t piece_bytes;
  char *pieces;
} dmuon_shadow;

/* One piece from begin to end. */
DMuonErrorCode dmuon_shadow_init(dmuon_memory *memory, dmuon_shadow *shadow, int64_t actors,
                                 int64_t begin, int64_t end, dmuon_shadow_state state);
void dmuon_shadow_free(dmuon_shadow *shadow);
dmuon_shadow_piece *dmuon_shadow_at(const dmuon_shadow *shadow, int64_t index);
/* Cuts so that pieces [*first, *end_index) are exactly the bytes [begin, end), as far as there are
 * any. */
DMuonErrorCode dmuon_shadow_cut(dmuon_memory *memory, dmuon_shadow *shadow, int64_t begin,
                                int64_t end, int64_t *first, int64_t *end_index);
/* Pieces [first, end_index) become one, written so, read by nobody. */
void dmuon_shadow_write(dmuon_shadow *shadow, int64_t first, int64_t end_index,
                        dmuon_shadow_state state, dmuon_shadow_stamp stamp);

#endif
