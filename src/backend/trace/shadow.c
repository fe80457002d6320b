/* Pieces of a buffer: cutting them at a boundary, and making one of several. */
#include "backend/trace/shadow.h"

#include <string.h>

dmuon_shadow_piece *dmuon_shadow_at(const dmuon_shadow *shadow, int64_t index) {
  return (dmuon_shadow_piece *)(void *)(shadow->pieces + (size_t)index * shadow->piece_bytes);
}

static void clear_reads(const dmuon_shadow *shadow, dmuon_shadow_piece *piece) {
  for (int64_t i = 0; i < shadow->actors; i++) piece->reads[i] = (dmuon_shadow_stamp){.actor = -1};
}

static DMuonErrorCode make_room(dmuon_memory *memory, dmuon_shadow *shadow) {
  if (shadow->count < shadow->room) return DMUON_SUCCESS;
  const int64_t more = 2 * shadow->room + 4;
  DMUON_TRY(dmuon_memory_resize(memory, &shadow->pieces, shadow->room, more, shadow->piece_bytes));
  shadow->room = more;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_shadow_init(dmuon_memory *memory, dmuon_shadow *shadow, int64_t actors,
                                 int64_t begin, int64_t end, dmuon_shadow_state state) {
  *shadow = (dmuon_shadow){
      .actors = actors,
      .piece_bytes = sizeof(dmuon_shadow_piece) + (size_t)actors * sizeof(dmuon_shadow_stamp)};
  DMUON_TRY(make_room(memory, shadow));
  dmuon_shadow_piece *piece = dmuon_shadow_at(shadow, 0);
  *piece =
      (dmuon_shadow_piece){.begin = begin, .end = end, .state = state, .written = {.actor = -1}};
  clear_reads(shadow, piece);
  shadow->count = 1;
  return DMUON_SUCCESS;
}

void dmuon_shadow_free(dmuon_shadow *shadow) {
  dmuon_memory_release(&shadow->pieces);
  shadow->count = shadow->room = 0;
}

/* The piece that ends behind `at`; count when there is none. */
static int64_t find(const dmuon_shadow *shadow, int64_t at) {
  int64_t low = 0, high = shadow->count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (dmuon_shadow_at(shadow, middle)->end <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* A boundary at `at`; *index: the piece that begins there. */
static DMuonErrorCode cut(dmuon_memory *memory, dmuon_shadow *shadow, int64_t at, int64_t *index) {
  const int64_t i = find(shadow, at);
  *index = i;
  if (i == shadow->count || dmuon_shadow_at(shadow, i)->begin >= at) return DMUON_SUCCESS;
  DMUON_TRY(make_room(memory, shadow));
  memmove(dmuon_shadow_at(shadow, i + 1), dmuon_shadow_at(shadow, i),
          (size_t)(shadow->count - i) * shadow->piece_bytes);
  shadow->count++;
  dmuon_shadow_at(shadow, i)->end = at;
  dmuon_shadow_at(shadow, i + 1)->begin = at;
  *index = i + 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_shadow_cut(dmuon_memory *memory, dmuon_shadow *shadow, int64_t begin,
                                int64_t end, int64_t *first, int64_t *end_index) {
  DMUON_TRY(cut(memory, shadow, begin, first));
  return cut(memory, shadow, end, end_index);
}

void dmuon_shadow_write(dmuon_shadow *shadow, int64_t first, int64_t end_index,
                        dmuon_shadow_state state, dmuon_shadow_stamp stamp) {
  if (first >= end_index) return;
  dmuon_shadow_piece *piece = dmuon_shadow_at(shadow, first);
  piece->end = dmuon_shadow_at(shadow, end_index - 1)->end;
  piece->state = state;
  piece->written = stamp;
  clear_reads(shadow, piece);
  memmove(dmuon_shadow_at(shadow, first + 1), dmuon_shadow_at(shadow, end_index),
          (size_t)(shadow->count - end_index) * shadow->piece_bytes);
  shadow->count -= end_index - first - 1;
}
