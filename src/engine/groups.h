/* Groups: the bundles that one pair of brackets opens, and how they lie in the buffers that groups
 * take turns with. Pure: from a packing. */
#ifndef DMUON_ENGINE_GROUPS_H
#define DMUON_ENGINE_GROUPS_H

#include "engine/packing.h"

/* Dtypes, meshes, divisors and residencies differ in at most so many ways within a group. */
enum { DMUON_MAX_PARTS = 64 };

typedef struct {
  int bundle;                        /* of the packing */
  int64_t value_offset, grad_offset; /* bytes, in a value buffer and in a gradient buffer */
  int64_t value_bytes, grad_bytes;   /* grad: 0 for frozen parameters */
} dmuon_group_bundle;

/* Where a parameter of a group is. */
typedef struct {
  int id;
  int part;  /* of the group, or -1: the caller's array */
  int index; /* in the bundle's params */
  int is_frozen;
} dmuon_group_param;

typedef struct {
  const char *key;
  int first;      /* registry parameter */
  int is_lent;    /* has parameters in the library's memory */
  int has_arrays; /* and the caller's */
  int is_z2;
  int part_count; /* lent bundles */
  dmuon_group_bundle *parts;
  int param_count;
  dmuon_group_param *params; /* in registered order */
  int *ids;                  /* of params */
  int64_t value_bytes, grad_bytes;
} dmuon_group_plan;

typedef struct {
  int count;
  dmuon_group_plan *groups; /* in the order in which this rank registered their first parameters */
  int lent_count;           /* groups with lent parameters */
  int64_t largest_value_bytes; /* of Z3 groups */
  int64_t largest_grad_bytes;
  int64_t z2_value_bytes; /* of all Z2 groups together */
} dmuon_groups;

/* all_z2: as if every group were Z2. */
DMuonErrorCode dmuon_groups_make(dmuon_memory *memory, const dmuon_registry *registry,
                                 const dmuon_packing *packing, int all_z2, dmuon_groups *groups);
/* By key, or -1. */
int dmuon_groups_find(const dmuon_groups *groups, const char *key);
void dmuon_groups_free(dmuon_groups *groups);

#endif
