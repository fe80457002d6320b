/* Which parts of which pieces a round carries: a function of the table alone, so that all ranks go
 * the same rounds. Many pieces share a round, so that many roots work at one time. */
#include "backend/staged/comm_state.h"

void dmuon_staged_begin(staged_rounds *rounds, DMuonDType a, DMuonDType b) {
  size_t wide =
      dmuon_dtype_bytes(a) > dmuon_dtype_bytes(b) ? dmuon_dtype_bytes(a) : dmuon_dtype_bytes(b);
  *rounds = (staged_rounds){.budget = STAGED_BYTES / (int64_t)wide};
}

/* The next pieces that have anything, at most STAGED_PIECES of them. */
static int next_pieces(staged_rounds *rounds, int total, int64_t (*count)(const void *table, int i),
                       const void *table) {
  int end = rounds->first += rounds->count, some = 0;
  while (end < total && some < STAGED_PIECES) some += count(table, end++) > 0;
  rounds->count = end - rounds->first;
  rounds->level = 0;
  rounds->part = some ? rounds->budget / some : 0;
  return some > 0;
}

int dmuon_staged_next(staged_rounds *rounds, int total, int64_t (*count)(const void *table, int i),
                      const void *table) {
  for (;;) {
    int64_t place = 0;
    rounds->taken = 0;
    for (int i = rounds->first; i < rounds->first + rounds->count; i++) {
      const int64_t at = rounds->level * rounds->part, left = count(table, i) - at;
      if (left <= 0) continue;
      const int t = rounds->taken++;
      rounds->piece[t] = i;
      rounds->at[t] = at;
      rounds->take[t] = left < rounds->part ? left : rounds->part;
      rounds->place[t] = place;
      place += rounds->take[t];
    }
    rounds->level++;
    if (rounds->taken) return 1;
    if (!next_pieces(rounds, total, count, table)) return 0;
  }
}
