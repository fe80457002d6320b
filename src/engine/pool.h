/* Which group lies in which of the buffers that groups take turns with. Pure. */
#ifndef DMUON_ENGINE_POOL_H
#define DMUON_ENGINE_POOL_H

#include <stdint.h>

typedef enum {
  DMUON_PLACE_FREE = 0,
  DMUON_PLACE_AHEAD, /* fetched before its turn, not yet used */
  DMUON_PLACE_OPEN,  /* a bracket uses it */
  DMUON_PLACE_KEPT,  /* closed or passed over; the content is good until somebody needs the room */
} dmuon_place_use;

typedef struct {
  int group; /* -1: none */
  dmuon_place_use use;
  int is_used_up; /* KEPT, and its bracket of this phase has come and gone */
  int64_t since;
} dmuon_place;

typedef struct {
  int count;
  dmuon_place *places; /* [count], whoever made the pool */
  int64_t clock;
} dmuon_pool;

void dmuon_pool_begin(dmuon_pool *pool, int count, dmuon_place *places);
/* The place of a group, or -1. */
int dmuon_pool_find(const dmuon_pool *pool, int group);
int dmuon_pool_free_count(const dmuon_pool *pool);
/* A place that group may have, or -1: a free one, else the one that was kept longest, those used up
 * first. ahead: only such as nobody can miss. It is marked with use; *evicted is the group that
 * loses its values, or -1. */
int dmuon_pool_take(dmuon_pool *pool, int group, dmuon_place_use use, int ahead, int *evicted);
void dmuon_pool_set(dmuon_pool *pool, int place, dmuon_place_use use, int is_used_up);
void dmuon_pool_free(dmuon_pool *pool, int place);

#endif
