/* The slots of one mesh with their loads, and the best one for a unit in logarithmic time.
 *
 * Slot number: s*R + r. The order of slots, best first: cost of the shard column (when columns are
 * balanced), cost of the slot, elements of the column (when balanced), elements of the slot,
 * number. */
#ifndef DMUON_PARTITION_SLOTS_H
#define DMUON_PARTITION_SLOTS_H

#include "base/memory.h"

typedef struct {
  int replicate, shard, count; /* count = replicate * shard */
  int balance;                 /* compare columns before slots */
  double *cost;                /* [count] */
  int64_t *size;               /* [count] */
  double *column_cost;         /* [shard] */
  int64_t *column_size;        /* [shard] */
  /* slots.c's own */
  int leaves;  /* a power of two, at least count */
  int *winner; /* [2*leaves] tournament: the best slot below each node, -1: none; root at 1 */
  int *marked; /* [count] mark of the last exclusion of each slot */
  int mark;
  int *frontier; /* [leaves] */
} dmuon_slots;

DMuonErrorCode dmuon_slots_init(dmuon_memory *memory, int replicate, int shard, int balance,
                                dmuon_slots *slots);
void dmuon_slots_free(dmuon_slots *slots);
/* After cost and size were filled from outside: columns and tournament follow. */
void dmuon_slots_rebuild(dmuon_slots *slots);
/* Adds a load to a slot. */
void dmuon_slots_add(dmuon_slots *slots, int slot, double cost, int64_t size);
/* Slot a is better than slot b. */
int dmuon_slots_better(const dmuon_slots *slots, int a, int b);
/* The best slot that is none of excluded; the best of all when every slot is excluded. */
int dmuon_slots_best(dmuon_slots *slots, int excluded_count, const int *excluded);

#endif
