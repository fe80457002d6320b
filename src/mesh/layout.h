/* Who sits where, as a pure function of which ranks share a domain: an island (split.h), a node. */
#ifndef DMUON_MESH_LAYOUT_H
#define DMUON_MESH_LAYOUT_H

#include "base/memory.h"

/* Domains of ranks, in numbers. */
typedef struct {
  int count, smallest, largest; /* ranks of the smallest and the largest one */
  int divisor;                  /* greatest common divisor of their ranks */
} dmuon_layout_domains;

/* Why a size is what it is. */
typedef enum {
  DMUON_SIZE_GIVEN = 0,
  DMUON_SIZE_ISLAND, /* the ranks of an island */
  DMUON_SIZE_COMMON, /* greatest common divisor of the islands' ranks */
  DMUON_SIZE_REST,   /* what remains */
  DMUON_SIZE_ONE,    /* one unless given */
  DMUON_SIZE_COORDS  /* from the coordinates that the ranks gave */
} dmuon_size_reason;

/* Groups along one axis, and how many have ranks in more than one domain. */
typedef struct {
  int groups, crossing;
} dmuon_layout_crossing;

/* node[i] = i rounded down to a multiple of node_size: nodes of that many ranks, the last perhaps
 * smaller. */
void dmuon_layout_pretend_nodes(int size, int64_t node_size, int *node);

/* domain[i]: the lowest rank of rank i's domain. */
DMuonErrorCode dmuon_layout_survey(dmuon_memory *memory, int size, const int *domain,
                                   dmuon_layout_domains *domains);

/* Sizes by DMuonAxis for `size` ranks: want[a] is a size or DMUON_DECIDE. */
DMuonErrorCode dmuon_layout_sizes(int size, const dmuon_layout_domains *islands,
                                  const int64_t want[3], int sizes[3],
                                  dmuon_size_reason reasons[3]);

/* rank_at[(r*G + s)*T + t]: whole shard x tp blocks, then whole tp groups, then the rest, each
 * inside the domains of the innermost level as far as there are ranks for them, then of the next
 * one. levels[k][i] names rank i's domain by its lowest rank; the innermost first, each level finer
 * than the next. Domains come in the order of their lowest ranks, ranks in order. */
DMuonErrorCode dmuon_layout_order(dmuon_memory *memory, int size, int level_count,
                                  const int *const levels[], const int sizes[3], int *rank_at);

/* The same from coordinates that every rank gave itself: coords[i] by DMuonAxis. want as above; an
 * axis to be decided is as long as the largest coordinate says. */
DMuonErrorCode dmuon_layout_from_coords(int size, const int (*coords)[3], const int64_t want[3],
                                        int sizes[3], dmuon_size_reason reasons[3], int *rank_at);

/* How the groups along axis lie on the domains. */
dmuon_layout_crossing dmuon_layout_crossings(const int *domain, const int sizes[3],
                                             const int *rank_at, int axis);

#endif
