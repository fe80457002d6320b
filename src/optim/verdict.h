/* Whether a step is skipped, where the device tells the host late (device->decides_late): looks at
 * gradients leave flags in device memory, the flags are summed over the ranks like gradients, and
 * updates read the verdict when they run. The host learns of it when it waits anyway. */
#ifndef DMUON_OPTIM_VERDICT_H
#define DMUON_OPTIM_VERDICT_H

#include "engine/runtime.h"

typedef struct {
  dmuon_device *device; /* NULL: not used */
  int param_count, local_count;
  int rank, size;
  float *flags;      /* device, by registry index: a gradient is not finite somewhere; then by rank
                           of the model's mesh: one of its gradients is not */
  float *any;        /* device: whether one is */
  int64_t *counts;   /* device: skipped steps by id, then of the optimizer */
  float *seen_flags; /* host: of the last step */
  int64_t *seen_counts; /* host: counts behind it */
  dmuon_event *looked, *ready, *summed, *decided, *cleared;
  int is_open; /* a step was issued that the host has not heard of yet */
} dmuon_verdict;

/* Nothing on a device that does not decide late. */
DMuonErrorCode dmuon_verdict_create(const dmuon_registry *registry, dmuon_runtime *runtime,
                                    dmuon_verdict *verdict);
void dmuon_verdict_destroy(dmuon_verdict *verdict);
int dmuon_verdict_is_used(const dmuon_verdict *verdict);

/* For looks, and for updates; NULL where not used. */
float *dmuon_verdict_flag(const dmuon_verdict *verdict, int param);
const float *dmuon_verdict_skip(const dmuon_verdict *verdict);
int64_t *dmuon_verdict_skipped(const dmuon_verdict *verdict, int id);

/* Issues the decision: what compute and caller (NULL: none) have looked at so far, on all ranks of
 * the registry's first mesh, which is that of the model. What compute does from now on may read it.
 * All ranks issue it at the same place. */
DMuonErrorCode dmuon_verdict_decide(dmuon_verdict *verdict, dmuon_runtime *runtime,
                                    dmuon_queue *caller);
/* Behind the updates of the step. */
DMuonErrorCode dmuon_verdict_report(dmuon_verdict *verdict, dmuon_runtime *runtime);
/* The host has heard: counts begin at zero again. */
DMuonErrorCode dmuon_verdict_restart(dmuon_verdict *verdict, dmuon_runtime *runtime);
/* What was looked at is dropped, behind caller and before what compute does from now on. */
DMuonErrorCode dmuon_verdict_forget(dmuon_verdict *verdict, dmuon_runtime *runtime,
                                    dmuon_queue *caller);

#endif
