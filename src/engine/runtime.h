/* The replicated runtime: the buffers, queues and events that carry bundles from the callers'
 * gradients to their owners and new values back. It decides nothing: what is packed where is
 * packing's, the order is schedule's, the update is the optimizer's. */
#ifndef DMUON_ENGINE_RUNTIME_H
#define DMUON_ENGINE_RUNTIME_H

#include "engine/packing.h"
#include "engine/schedule.h"
#include "model/model.h"

/* The queues of one mesh: one an axis and role, so that no role waits behind another. */
typedef struct {
  dmuon_queue *shard_reduce, *replicate_reduce, *publish, *unshard;
} dmuon_mesh_queues;

typedef struct {
  void *grads;  /* packed contribution of this rank */
  void *column; /* sums of the first stage */
  void *values; /* packed new values */
  dmuon_event *packed, *column_done, *mean_done, *updated, *published;
} dmuon_slot;

/* Where the time of one bundle's step went, on the compute queue. */
typedef struct {
  double pack[2];   /* before and after packing */
  double update[3]; /* before waiting for the mean, after it, after the update */
  double unpack[2]; /* before waiting for the new values, after storing them */
} dmuon_bundle_stamps;

typedef struct {
  dmuon_device *device; /* the model mesh's */
  const dmuon_registry *registry;
  dmuon_packing packing;
  dmuon_queue *compute;
  dmuon_queue *local;        /* work that waits for no other rank, whatever compute is behind */
  dmuon_mesh_queues *queues; /* by registry mesh */
  dmuon_slot slots[DMUON_SLOTS];
  void **means;                /* by bundle: what this rank owns of it, averaged; sum_dtype */
  dmuon_bundle_stamps *stamps; /* by bundle */
} dmuon_runtime;

DMuonErrorCode dmuon_runtime_create(const dmuon_registry *registry, dmuon_device *device,
                                    int (*owners)[3], const dmuon_packing_options *options,
                                    dmuon_runtime *runtime);
void dmuon_runtime_destroy(dmuon_runtime *runtime);
/* Contributions are scaled by 2^-halvings, so that no sum over the mesh's ranks can overflow. */
int dmuon_runtime_halvings(DMuonMesh mesh);
/* Of the slots together. */
int64_t dmuon_runtime_buffer_bytes(const dmuon_runtime *runtime);

/* Packs this rank's gradients, what was accumulated before added, into the slot (by id; NULL
 * counts as zeros) and issues both stages of the mean. divisor: contributions are averaged over so
 * many. */
DMuonErrorCode dmuon_runtime_reduce(dmuon_runtime *runtime, int bundle, int slot,
                                    const dmuon_param_arrays *arrays, void *const *accumulated,
                                    double divisor);
/* The compute queue goes on when the bundle's mean is there. */
DMuonErrorCode dmuon_runtime_wait_mean(dmuon_runtime *runtime, int bundle, int slot);
/* Address of what is mine of a parameter in the mean, and of the parameter in the packed new
 * values.
 */
void *dmuon_runtime_mean(const dmuon_runtime *runtime, int bundle, int index);
void *dmuon_runtime_value(const dmuon_runtime *runtime, int bundle, int index, int slot);
/* The owner's values, written behind what the compute queue holds now, go to all ranks. */
DMuonErrorCode dmuon_runtime_publish(dmuon_runtime *runtime, int bundle, int slot);
/* Stores the new values in the callers' arrays. */
DMuonErrorCode dmuon_runtime_unpack(dmuon_runtime *runtime, int bundle, int slot,
                                    const dmuon_param_arrays *arrays);
/* Waits until the callers' gradients are not read any more. */
DMuonErrorCode dmuon_runtime_wait_packed(dmuon_runtime *runtime);
/* Waits for every queue. */
DMuonErrorCode dmuon_runtime_sync(dmuon_runtime *runtime);

/* The arrays of data rank root of each parameter's mesh become everyone's. Waits. */
DMuonErrorCode dmuon_runtime_broadcast_arrays(dmuon_runtime *runtime, int root,
                                              const dmuon_param_arrays *arrays);

#endif
