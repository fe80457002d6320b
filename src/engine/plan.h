/* The plan: what a step will communicate and what memory it needs, from packing, groups and
 * settings alone, before anything runs. Pure.
 *
 * Counted as communicators count (comm/comm.h): payload elements, received in unshard, move and
 * publish, sent in reduce, so P - own(P) a rank and operation; bytes are those of the dtype that
 * travels. Assumed: every group runs forward and, in training, backward once a pass, in registered
 * order and its reverse, and every parameter gets a gradient. Recomputation costs nothing more; a
 * gradient that comes late costs one more reduction of its bundle.
 *
 * It does not decide how often anything happens: it says what lend.c and the optimizer's step do,
 * and a test holds counters and high-water to it. */
#ifndef DMUON_ENGINE_PLAN_H
#define DMUON_ENGINE_PLAN_H

#include "engine/lend.h"
#include "update/update.h"

typedef enum {
  DMUON_FLOW_UNSHARD = 0,      /* shard axis, unshard: values from homes, or new values of arrays */
  DMUON_FLOW_MOVE,             /* the same communicator: new values from owners to flat homes */
  DMUON_FLOW_SHARD_REDUCE,     /* shard axis, reduce: stage 1 */
  DMUON_FLOW_REPLICATE_REDUCE, /* replicate axis, reduce: stage 2 */
  DMUON_FLOW_PUBLISH,          /* replicate axis, publish */
  DMUON_FLOWS
} dmuon_flow_kind;

typedef struct {
  int64_t operations;
  int64_t payload; /* elements */
  int64_t bytes;
} dmuon_flow;

typedef struct {
  dmuon_flow flow[DMUON_FLOWS];
} dmuon_traffic;

const char *dmuon_flow_name(dmuon_flow_kind kind); /* "unshard", "reduce" */
DMuonAxis dmuon_flow_axis(dmuon_flow_kind kind);
/* All that travels along one axis, or (DMUON_AXIS_ALL) along both. */
dmuon_flow dmuon_traffic_along(const dmuon_traffic *traffic, DMuonAxis axis);
void dmuon_traffic_add(dmuon_traffic *traffic, const dmuon_traffic *more);

/* What happens between two Steps, the second included: evaluations first. */
typedef struct {
  int micro_batches; /* passes with a backward, the last one TRAIN */
  int accumulates;   /* those before it are ACCUMULATE, else TRAIN too */
  int evaluations;   /* EVAL passes */
} dmuon_plan_step;

typedef struct {
  const dmuon_registry *registry;
  const dmuon_packing *packing;
  const dmuon_groups *groups;
  const dmuon_lend_settings *settings;
} dmuon_plan;

/* How often a pass fetches a group: 0 where all its parameters are the caller's arrays. Z2: of the
 * first pass after a Step. */
int dmuon_plan_fetches(const dmuon_plan *plan, int group, DMuonPass pass);
/* Every operation on one bundle done once. */
dmuon_traffic dmuon_plan_once(const dmuon_plan *plan, int bundle);
/* What this rank does with one bundle. */
dmuon_traffic dmuon_plan_bundle(const dmuon_plan *plan, int bundle, const dmuon_plan_step *step);
/* The same, summed over the ranks of the bundle's mesh; operations are those of this rank. */
dmuon_traffic dmuon_plan_bundle_everywhere(const dmuon_plan *plan, int bundle,
                                           const dmuon_plan_step *step);
/* This rank's, of a group, and of all bundles that live on a registry mesh. */
dmuon_traffic dmuon_plan_group(const dmuon_plan *plan, int group, const dmuon_plan_step *step);
dmuon_traffic dmuon_plan_mesh(const dmuon_plan *plan, int mesh, const dmuon_plan_step *step);
/* What this rank's operations along axis take, one after another, by what the links of each
 * bundle's mesh cost: as if nothing were hidden behind anything. */
double dmuon_plan_seconds(const dmuon_plan *plan, DMuonAxis axis, const dmuon_plan_step *step);

/* Bytes that this rank will have taken once set up. */
typedef struct {
  int64_t homes;         /* values kept here, and gathered ones before they are moved */
  int64_t value_buffers; /* what groups are lent in */
  int64_t grad_buffers;
  int64_t sums;    /* means of what this rank updates, columns, further reductions */
  int64_t arrays;  /* buffers of parameters that are the caller's arrays */
  int64_t masters; /* where they are not the values themselves */
  int64_t state;
  int64_t workspace;     /* of the largest update */
  int64_t queues;        /* what the device keeps for each, and for products */
  int64_t communicators; /* chunks being added up */
  int64_t tasks;         /* room for operations issued and not yet done */
  int64_t tables;        /* the rest: about */
  int64_t accumulators;  /* taken by the first ACCUMULATE pass or Accumulate; not in the total */
} dmuon_memory_plan;

/* update_plans: by id; empty (piece_count 0) where this rank does not update by Newton-Schulz. */
dmuon_memory_plan dmuon_plan_memory(const dmuon_plan *plan, const dmuon_update_plan *update_plans);
int64_t dmuon_memory_plan_total(const dmuon_memory_plan *memory);
/* Operations that may be issued and not done, at most: of the device that the optimizer computes
 * on. */
int64_t dmuon_plan_operations(const dmuon_plan *plan, const dmuon_update_plan *update_plans);

#endif
