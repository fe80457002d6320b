/* The partition object as the optimizer sees it. */
#ifndef DMUON_PARTITION_PARTITION_H
#define DMUON_PARTITION_PARTITION_H

#include <dmuon/partition.h>

#include "base/object.h"
#include "model/model.h"
#include "partition/assign.h"

enum { DMUON_COST_OPTIMIZER, DMUON_COST_NUMEL }; /* owner_cost_model */

/* What SetOwner said. */
typedef struct dmuon_partition_fixed {
  char *pattern;
  int owner[3]; /* DMUON_DECIDE where free */
} dmuon_partition_fixed;

typedef struct {
  int owner_strategy;   /* dmuon_strategy */
  int owner_cost_model; /* DMUON_COST_... */
  int64_t max_owners_per_group;
  int hsdp_column_balance;
  int pack_small_params;
  int64_t pack_threshold;
} dmuon_partition_settings;

struct DMuonPartition_ {
  dmuon_object object;
  DMuonModel model; /* retained */
  dmuon_partition_settings settings;
  unsigned char program[16];
  DMuonCostFunction cost_function;
  void *cost_context;
  dmuon_partition_fixed *fixed; /* SetOwner rules, in order: later ones win */
  int fixed_count;
  /* after SetUp, by registry index */
  int (*owners)[3];
  double *item_cost;
  double *slot_cost;   /* by position (r*G + s)*T + t in the model's mesh */
  int64_t *slot_size;  /* elements */
  int64_t *slot_bytes; /* masters and state that the owner keeps */
  int *slot_params;    /* parameters owned */
  dmuon_assign_statistics statistics;
  uint64_t hash;
};

extern const dmuon_option_table dmuon_partition_option_table;

/* Options, costs, owners and statistics of a partition whose model is set up; nothing is left of
 * them on failure. Collective over the model's mesh; local on a plan mesh. */
DMuonErrorCode dmuon_partition_make_plan(DMuonPartition partition);
void dmuon_partition_free_plan(DMuonPartition partition);

/* Bytes of master copy and optimizer state that the owner of a parameter keeps. */
int64_t dmuon_partition_bytes(const dmuon_param *param);
/* The position in the model's mesh of the owner of parameter index. After SetUp. */
int dmuon_partition_position(DMuonPartition partition, int index);

/* What a step of the busiest owner takes at least, along one axis. */
typedef struct {
  double seconds;
  int64_t bytes;
  int position; /* in the model's mesh; -1: nothing travels */
} dmuon_partition_busiest;

/* The bytes that placement decides, by what the links of the model's mesh cost: of what a place
 * roots, one gradient from each other rank of the axis and the new values to them. Along the shard
 * axis a place roots what its column owns, along the replicate axis what it owns itself. What is
 * the same wherever owners are (latencies, values fetched, flat parameters) is the optimizer's
 * plan's to say. After SetUp. seconds.c. */
DMuonErrorCode dmuon_partition_find_busiest(DMuonPartition partition, DMuonAxis axis,
                                            dmuon_partition_busiest *busiest);

DMuonErrorCode dmuon_partition_check(DMuonPartition partition);
void dmuon_partition_retain(DMuonPartition partition);
void dmuon_partition_release(DMuonPartition partition);

#endif
