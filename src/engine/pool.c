/* Places are few, so they are simply gone through. */
#include "engine/pool.h"

void dmuon_pool_begin(dmuon_pool *pool, int count, dmuon_place *places) {
  *pool = (dmuon_pool){.count = count, .places = places};
  for (int i = 0; i < count; i++) places[i] = (dmuon_place){.group = -1};
}

int dmuon_pool_find(const dmuon_pool *pool, int group) {
  for (int i = 0; i < pool->count; i++)
    if (pool->places[i].use != DMUON_PLACE_FREE && pool->places[i].group == group) return i;
  return -1;
}

int dmuon_pool_free_count(const dmuon_pool *pool) {
  int count = 0;
  for (int i = 0; i < pool->count; i++) count += pool->places[i].use == DMUON_PLACE_FREE;
  return count;
}

/* Lower is better; -1: not to be had. */
static int rank_of(const dmuon_place *place, int ahead) {
  switch (place->use) {
    case DMUON_PLACE_FREE:
      return 0;
    case DMUON_PLACE_KEPT:
      if (place->is_used_up) return 1;
      return ahead ? -1 : 2;
    default:
      return -1;
  }
}

int dmuon_pool_take(dmuon_pool *pool, int group, dmuon_place_use use, int ahead, int *evicted) {
  int best = -1, best_rank = 0;
  for (int i = 0; i < pool->count; i++) {
    const int rank = rank_of(&pool->places[i], ahead);
    if (rank < 0) continue;
    if (best < 0 || rank < best_rank ||
        (rank == best_rank && pool->places[i].since < pool->places[best].since)) {
      best = i;
      best_rank = rank;
    }
  }
  if (best < 0) return -1;
  *evicted = pool->places[best].use == DMUON_PLACE_FREE ? -1 : pool->places[best].group;
  pool->places[best] = (dmuon_place){.group = group, .use = use, .since = ++pool->clock};
  return best;
}

void dmuon_pool_set(dmuon_pool *pool, int place, dmuon_place_use use, int is_used_up) {
  dmuon_place *p = &pool->places[place];
  p->use = use;
  p->is_used_up = is_used_up;
  p->since = ++pool->clock;
}

void dmuon_pool_free(dmuon_pool *pool, int place) {
  pool->places[place] = (dmuon_place){.group = -1, .since = ++pool->clock};
}
