/* The flags of a step, from looks over all ranks to updates and to the host. What is done with the
 * numbers on the host is settled by step.c. */
#include "optim/verdict.h"

#include <string.h>

#include "mesh/mesh.h"

int dmuon_verdict_is_used(const dmuon_verdict *verdict) {
  return verdict->device != NULL;
}

static int64_t flag_count(const dmuon_verdict *verdict) {
  return (int64_t)verdict->param_count + verdict->size;
}

static int64_t flag_bytes(const dmuon_verdict *verdict) {
  return flag_count(verdict) * (int64_t)sizeof *verdict->flags;
}

static int64_t count_bytes(const dmuon_verdict *verdict) {
  return (verdict->local_count + 1) * (int64_t)sizeof *verdict->counts;
}

static DMuonErrorCode create(dmuon_verdict *verdict, dmuon_queue *compute) {
  dmuon_device *device = verdict->device;
  const DMuonDeviceOps *ops = device->ops;
  dmuon_event **events[] = {&verdict->looked, &verdict->ready, &verdict->summed, &verdict->decided,
                            &verdict->cleared};
  DMUON_TRY(ops->alloc(device, flag_bytes(verdict), (void **)&verdict->flags));
  DMUON_TRY(ops->alloc(device, sizeof *verdict->any, (void **)&verdict->any));
  DMUON_TRY(ops->alloc(device, count_bytes(verdict), (void **)&verdict->counts));
  DMUON_TRY(ops->alloc_host(device, flag_bytes(verdict), (void **)&verdict->seen_flags));
  DMUON_TRY(ops->alloc_host(device, count_bytes(verdict), (void **)&verdict->seen_counts));
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
    DMUON_TRY(ops->event_create(device, events[i]));
  dmuon_device_name_buffer(device, verdict->flags, "flags of gradients not finite");
  dmuon_device_name_buffer(device, verdict->any, "whether the step is skipped");
  dmuon_device_name_buffer(device, verdict->counts, "counts of skipped steps");
  DMUON_TRY(ops->zero(compute, verdict->flags, flag_bytes(verdict)));
  DMUON_TRY(ops->zero(compute, verdict->any, sizeof *verdict->any));
  DMUON_TRY(ops->zero(compute, verdict->counts, count_bytes(verdict)));
  return ops->queue_sync(compute);
}

static DMuonErrorCode reserve(const dmuon_verdict *verdict, DMuonMesh mesh) {
  const DMuonAxis axes[] = {DMUON_AXIS_SHARD, DMUON_AXIS_REPLICATE};
  for (int i = 0; i < 2; i++) {
    dmuon_comm *comm = dmuon_mesh_comm(mesh, axes[i], DMUON_ROLE_REDUCE);
    DMUON_TRY(comm->ops->reserve(comm, flag_count(verdict), DMUON_FLOAT32));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_verdict_create(const dmuon_registry *registry, dmuon_runtime *runtime,
                                    dmuon_verdict *verdict) {
  *verdict = (dmuon_verdict){0};
  if (!runtime->device->decides_late) return DMUON_SUCCESS;
  *verdict = (dmuon_verdict){.device = runtime->device,
                             .param_count = registry->param_count,
                             .local_count = registry->local_count,
                             .rank = registry->meshes[0].mesh->rank,
                             .size = registry->meshes[0].mesh->size};
  DMuonErrorCode code = create(verdict, runtime->compute);
  if (!code) code = reserve(verdict, registry->meshes[0].mesh);
  if (!code) return DMUON_SUCCESS;
  dmuon_queue_settle(runtime->device, runtime->compute, code); /* numbers are still being zeroed */
  dmuon_verdict_destroy(verdict);
  return code;
}

void dmuon_verdict_destroy(dmuon_verdict *verdict) {
  dmuon_device *device = verdict->device;
  if (!device) return;
  dmuon_event *events[] = {verdict->looked, verdict->ready, verdict->summed, verdict->decided,
                           verdict->cleared};
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
    device->ops->event_destroy(events[i]);
  device->ops->free(device, verdict->flags);
  device->ops->free(device, verdict->any);
  device->ops->free(device, verdict->counts);
  device->ops->free_host(device, verdict->seen_flags);
  device->ops->free_host(device, verdict->seen_counts);
  memset(verdict, 0, sizeof *verdict);
}

float *dmuon_verdict_flag(const dmuon_verdict *verdict, int param) {
  return verdict->device ? verdict->flags + param : NULL;
}

const float *dmuon_verdict_skip(const dmuon_verdict *verdict) {
  return verdict->any;
}

int64_t *dmuon_verdict_skipped(const dmuon_verdict *verdict, int id) {
  return verdict->device ? verdict->counts + id : NULL;
}

static DMuonErrorCode sum(dmuon_verdict *verdict, dmuon_queue *queue, DMuonMesh mesh,
                          DMuonAxis axis, dmuon_event *before, dmuon_event *after) {
  const DMuonDeviceOps *ops = verdict->device->ops;
  dmuon_comm *comm = dmuon_mesh_comm(mesh, axis, DMUON_ROLE_REDUCE);
  DMUON_TRY(ops->event_wait(queue, before));
  DMUON_TRY(comm->ops->all_reduce(queue, comm, flag_count(verdict), DMUON_FLOAT32, verdict->flags));
  return ops->event_record(queue, after);
}

DMuonErrorCode dmuon_verdict_decide(dmuon_verdict *verdict, dmuon_runtime *runtime,
                                    dmuon_queue *caller) {
  const DMuonDeviceOps *ops = verdict->device->ops;
  const DMuonMesh mesh = runtime->registry->meshes[0].mesh;
  const dmuon_mesh_queues *queues = &runtime->queues[0];
  if (caller) {
    DMUON_TRY(ops->event_record(caller, verdict->looked));
    DMUON_TRY(ops->event_wait(runtime->compute, verdict->looked));
  }
  DMUON_TRY(ops->decide(runtime->compute, verdict->param_count, verdict->flags,
                        verdict->flags + verdict->param_count + verdict->rank, NULL));
  DMUON_TRY(ops->event_record(runtime->compute, verdict->ready));
  DMUON_TRY(
      sum(verdict, queues->shard_reduce, mesh, DMUON_AXIS_SHARD, verdict->ready, verdict->summed));
  DMUON_TRY(sum(verdict, queues->replicate_reduce, mesh, DMUON_AXIS_REPLICATE, verdict->summed,
                verdict->decided));
  DMUON_TRY(ops->event_wait(runtime->compute, verdict->decided));
  DMUON_TRY(ops->decide(runtime->compute, verdict->param_count, verdict->flags, verdict->any,
                        verdict->counts + verdict->local_count));
  DMUON_TRY(ops->copy(runtime->compute, verdict->seen_flags, verdict->flags, flag_bytes(verdict)));
  DMUON_TRY(ops->zero(runtime->compute, verdict->flags, flag_bytes(verdict)));
  DMUON_TRY(ops->event_record(runtime->compute, verdict->cleared));
  verdict->is_open = 1;
  return caller ? ops->event_wait(caller, verdict->cleared) : DMUON_SUCCESS;
}

DMuonErrorCode dmuon_verdict_report(dmuon_verdict *verdict, dmuon_runtime *runtime) {
  return verdict->device->ops->copy(runtime->compute, verdict->seen_counts, verdict->counts,
                                    count_bytes(verdict));
}

DMuonErrorCode dmuon_verdict_restart(dmuon_verdict *verdict, dmuon_runtime *runtime) {
  memset(verdict->seen_counts, 0, (size_t)count_bytes(verdict));
  const DMuonDeviceOps *ops = verdict->device->ops;
  DMUON_TRY(ops->zero(runtime->compute, verdict->counts, count_bytes(verdict)));
  return ops->queue_sync(runtime->compute);
}

DMuonErrorCode dmuon_verdict_forget(dmuon_verdict *verdict, dmuon_runtime *runtime,
                                    dmuon_queue *caller) {
  if (!verdict->device || !caller) return DMUON_SUCCESS;
  const DMuonDeviceOps *ops = verdict->device->ops;
  DMUON_TRY(ops->zero(caller, verdict->flags, flag_bytes(verdict)));
  DMUON_TRY(ops->event_record(caller, verdict->cleared));
  return ops->event_wait(runtime->compute, verdict->cleared); /* the next looks may be its */
}
