/* The partition: which rank owns which parameter.
 *
 * An owner keeps the parameter's master copy and optimizer state and computes its update. Owners
 * are found by longest processing time first: allocation units (a parameter, or all small
 * parameters of one group together) in order of falling cost, each to the least loaded slot, slots
 * that its group does not use yet first. A slot is a (replicate, shard) place of the parameter's
 * mesh. The plan is a pure function of names, shapes, groups, routes, meshes and options, the same
 * on every rank.
 *
 * A partition is optional: an optimizer makes one with these defaults.
 *
 * Options: owner_strategy (lpt), owner_cost_model (optimizer), max_owners_per_group (0: no limit),
 * hsdp_column_balance (1: balance shard columns before slots when replicate > 1), pack_small_params
 * (1), pack_threshold (5,000,000 elements below which a parameter is small). */
#ifndef DMUON_PARTITION_H
#define DMUON_PARTITION_H

#include <dmuon/error.h>
#include <dmuon/model.h>
#include <dmuon/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The cost of a parameter to its owner, in seconds or any one unit: a pure function of param,
 * finite and not negative. Not asked of frozen parameters, which cost nothing. */
typedef double (*DMuonCostFunction)(void *ctx, const DMuonParamInfo *param);

/* Loads over all slots of the model's mesh. Set struct_size = sizeof before the call. */
typedef struct {
  size_t struct_size;
  int slots, idle_slots;        /* idle: owns nothing */
  double max_cost, mean_cost;   /* of a slot */
  double lower_bound;           /* max of mean and largest unit: no placement has less max_cost */
  int64_t max_bytes, min_bytes; /* of a slot: masters and state */
} DMuonPartitionInfo;

/* Makes a partition of model, which it keeps.
 * Local; does not block. *part: yours to destroy. DMUON_ERR_ARGUMENT, DMUON_ERR_MEMORY. */
DMUON_API DMuonErrorCode DMuonPartitionCreate(DMuonModel model, DMuonPartition *part);

/* How owners are chosen: "lpt" (default), "round_robin" (units in turn, as registered), "rank0"
 * (all on the first slot). Local; before SetUp. Option owner_strategy. DMUON_ERR_ARGUMENT for
 * another name (the nearest is named), DMUON_ERR_UNSUPPORTED for "balanced", which is not built. */
DMUON_API DMuonErrorCode DMuonPartitionSetStrategy(DMuonPartition part, const char *name);

/* What a parameter costs: "optimizer" (default: five Newton-Schulz iterations of its matrices,
 * 15 small^2 big multiply-adds each; element-wise for vectors, norms, embeddings, heads and
 * whatever the program routes to AdamW) or "numel" (its elements). Local; before SetUp. Option
 * owner_cost_model. Errors as SetStrategy; "measured" is not built. */
DMUON_API DMuonErrorCode DMuonPartitionSetCostModel(DMuonPartition part, const char *name);

/* Costs from the program instead of a model; NULL: the model again.
 * Local; before SetUp; ctx is used until SetUp. A cost that is negative or not finite makes SetUp
 * fail and is named. */
DMUON_API DMuonErrorCode DMuonPartitionSetCostFunction(DMuonPartition part, DMuonCostFunction cost,
                                                       void *ctx);

/* Fixes the owner of the parameters that match pattern (copied), in coordinates of their own mesh;
 * DMUON_DECIDE leaves an axis free. Later calls win. Fixed owners are placed first and count as
 * load.
 * Local (what holders of one parameter say must agree); before SetUp. DMUON_ERR_ARGUMENT; SetUp
 * fails for a pattern that matches nothing and for coordinates outside the mesh. */
DMUON_API DMuonErrorCode DMuonPartitionSetOwner(DMuonPartition part, const char *pattern,
                                                int replicate, int shard, int tp);

/* Makes the plan and agrees it over all ranks; sets up mesh and model first. All meshes of the
 * model are placed at once, smaller ones first; larger ones see the load that those left on each
 * rank. Collective over the model's mesh, blocks; not collective on a plan mesh. A second call does
 * nothing. DMUON_ERR_DISAGREE names the first setting, cost or owner that differs and the rank;
 * DMUON_ERR_SETUP and DMUON_ERR_MEMORY are the same on every rank, nothing is set up then. */
DMUON_API DMuonErrorCode DMuonPartitionSetUp(DMuonPartition part);

/* The owner of parameter id (of this rank's model), as coordinates in the parameter's mesh. Outputs
 * may be NULL; tp is 0 unless SetOwner said otherwise.
 * Not collective; after SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonPartitionGetOwner(DMuonPartition part, int id, int *replicate,
                                                int *shard, int *tp);

/* Loads over the slots. Not collective; after SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonPartitionGetInfo(DMuonPartition part, DMuonPartitionInfo *info);

/* A hash of the plan: parameters, meshes and owners; equal plans, equal hashes, on every rank.
 * Not collective; after SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonPartitionGetHash(DMuonPartition part, uint64_t *hash);

/* Text for people: statistics, what the busiest owner's part of a step takes along each axis by the
 * mesh's costs of it (DMuonMeshGetLink), load by slot (the 64 heaviest of more), who owns what.
 * Written once, to the file path (replaced) or to standard output when path is NULL.
 * Collective over the model's mesh, blocks; after SetUp. DMUON_ERR_FILE on every rank. */
DMUON_API DMuonErrorCode DMuonPartitionView(DMuonPartition part, const char *path);

/* The same as JSON in *json, to be freed with DMuonFree.
 * Not collective; after SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE, DMUON_ERR_MEMORY. */
DMUON_API DMuonErrorCode DMuonPartitionSummary(DMuonPartition part, char **json);

/* Gives the handle up and sets it to NULL; an optimizer that uses the partition keeps it. NULL is
 * fine. Not collective, unless it is the last holder of its mesh. */
DMUON_API DMuonErrorCode DMuonPartitionDestroy(DMuonPartition *part);

#ifdef __cplusplus
}
#endif
#endif
