/* Allocation units: what is placed as a whole. A unit is one parameter, or all small parameters of
 * one group together, so that the group's small tensors travel in one piece. */
#ifndef DMUON_PARTITION_UNITS_H
#define DMUON_PARTITION_UNITS_H

#include "partition/assign.h"

typedef struct {
  int mesh, group;  /* group: number of (mesh, key) in first-seen order */
  int first, count; /* members: dmuon_units.member[first .. first+count) */
  int fixed;        /* 0: all axes wanted, 1: some, 2: free; placed in this order */
  double cost;
  int64_t size;
} dmuon_unit;

typedef struct {
  int count, group_count;
  dmuon_unit *units; /* in the order in which they are placed */
  int *member;       /* [item_count] items, unit by unit, each unit's in the order given */
  int *group_units;  /* [group_count] units of each group */
} dmuon_units;

/* Cuts the problem's items into units and puts these into order: meshes by size, fixed owners
 * first, then by strategy. */
DMuonErrorCode dmuon_units_make(dmuon_memory *memory, const dmuon_assign_problem *problem,
                                dmuon_units *units);
void dmuon_units_free(dmuon_units *units);

#endif
