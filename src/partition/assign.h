/* Who owns what, as a pure function of names, shapes, groups, costs and meshes: no communication,
 * no object, the same on every rank.
 *
 * Greedy longest processing time over all replicate x shard slots of each mesh; smaller meshes are
 * placed first and larger ones see the load they left on each rank. */
#ifndef DMUON_PARTITION_ASSIGN_H
#define DMUON_PARTITION_ASSIGN_H

#include "base/memory.h"

typedef enum {
  DMUON_STRATEGY_LPT = 0,
  DMUON_STRATEGY_ROUND_ROBIN,
  DMUON_STRATEGY_RANK0
} dmuon_strategy;

/* One parameter to place. */
typedef struct {
  const char *name;
  const char *group; /* key; parameters of equal key (and mesh) share one group */
  int mesh;          /* index into the problem's meshes */
  int64_t size;      /* elements */
  double cost;
  int fixed[3]; /* owner replicate, shard, tp wanted, DMUON_DECIDE where free */
} dmuon_assign_item;

typedef struct {
  int replicate, shard, tp;
  const int *ranks; /* [replicate*shard*tp] numbers of the ranks in the whole, for shared load */
} dmuon_assign_mesh;

typedef struct {
  int item_count;
  const dmuon_assign_item *items;
  int mesh_count;
  const dmuon_assign_mesh *meshes;
  int rank_count; /* ranks in the whole */
  dmuon_strategy strategy;
  int pack_small;               /* merge a group's items below pack_threshold into one unit */
  int64_t pack_threshold;       /* 5,000,000 elements */
  int64_t max_owners_per_group; /* 0: no limit */
  int column_balance;           /* balance shard columns before slots when replicate > 1 */
} dmuon_assign_problem;

typedef struct {
  int units, packed_units;
  int slots, idle_slots;
  double max_cost, mean_cost;
  double largest_unit, largest_item;
  double lower_bound; /* no placement of these units can have a smaller max_cost */
  int64_t max_size, min_size;
} dmuon_assign_statistics;

/* owners[i] = replicate, shard, tp of item i (tp 0 unless fixed). slot_cost and slot_size (by rank
 * of the whole) and statistics may be NULL. */
DMuonErrorCode dmuon_assign(dmuon_memory *memory, const dmuon_assign_problem *problem,
                            int (*owners)[3], double *slot_cost, int64_t *slot_size,
                            dmuon_assign_statistics *statistics);

/* The cost models. optimizer: an AdamW update for vectors and for names with embed, lm_head, norm,
 * ln_, .ln, bias, rope or rotary in them (dmuon_cost_is_base), else a matrix of dims[0] rows. */
double dmuon_cost_optimizer(const char *name, int ndim, const int64_t *dims);
double dmuon_cost_numel(int64_t numel);
int dmuon_cost_is_base(const char *name, int ndim);
double dmuon_cost_base(int64_t numel);
double dmuon_cost_matrices(int64_t batch, int64_t rows, int64_t cols);

#endif
