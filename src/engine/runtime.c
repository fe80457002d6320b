/* Carrying bundles: gradients to owners, new values back. Every operation is issued on the queue of
 * its mesh, axis and role; events order the queues, and slots are taken over only behind the event
 * that says their last use is done. */
#include "engine/runtime.h"

#include <math.h>
#include <string.h>

static DMuonMesh mesh_of(const dmuon_runtime *runtime, int bundle) {
  return runtime->registry->meshes[runtime->packing.bundles[bundle].mesh].mesh;
}

static const dmuon_mesh_queues *queues_of(const dmuon_runtime *runtime, int bundle) {
  return &runtime->queues[runtime->packing.bundles[bundle].mesh];
}

/* ---- life --------------------------------------------------------------------------------- */

/* For those who read what was issued. */
static void name_queues(dmuon_runtime *runtime) {
  const dmuon_registry *registry = runtime->registry;
  dmuon_device_name_queue(runtime->device, runtime->compute, "compute");
  dmuon_device_name_queue(runtime->device, runtime->local, "local");
  for (int m = 0; m < registry->mesh_count; m++) {
    const dmuon_mesh_queues *queues = &runtime->queues[m];
    if (!registry->meshes[m].mesh) continue;
    dmuon_device *device = registry->meshes[m].mesh->device;
    dmuon_device_name_queue(device, queues->shard_reduce, "shard_reduce");
    dmuon_device_name_queue(device, queues->replicate_reduce, "replicate_reduce");
    dmuon_device_name_queue(device, queues->publish, "publish");
    dmuon_device_name_queue(device, queues->unshard, "unshard");
  }
}

static DMuonErrorCode create_queues(dmuon_runtime *runtime, dmuon_memory *memory) {
  const dmuon_registry *registry = runtime->registry;
  const DMuonDeviceOps *ops = runtime->device->ops;
  DMUON_TRY(ops->queue_create(runtime->device, 0, &runtime->compute));
  DMUON_TRY(ops->queue_create(runtime->device, 0, &runtime->local));
  DMUON_TRY(
      dmuon_memory_alloc(memory, registry->mesh_count, sizeof *runtime->queues, &runtime->queues));
  for (int m = 0; m < registry->mesh_count; m++) {
    dmuon_mesh_queues *queues = &runtime->queues[m];
    if (!registry->meshes[m].mesh) continue;
    dmuon_device *device = registry->meshes[m].mesh->device;
    DMUON_TRY(device->ops->queue_create(device, 1, &queues->shard_reduce));
    DMUON_TRY(device->ops->queue_create(device, 0, &queues->replicate_reduce));
    DMUON_TRY(device->ops->queue_create(device, 0, &queues->publish));
    DMUON_TRY(device->ops->queue_create(device, 1, &queues->unshard));
  }
  name_queues(runtime);
  return DMUON_SUCCESS;
}

/* What a slot holds of values: a bundle, or a piece of any parameter on its way to all ranks
 * (frozen ones are in no bundle). The same pieces on all ranks, whatever bundles they have. */
enum { STAGE_BYTES = 4 * 1024 * 1024 };

static int64_t value_bytes(const dmuon_runtime *runtime) {
  const dmuon_registry *registry = runtime->registry;
  int64_t largest = 0;
  for (int i = 0; i < registry->param_count; i++) {
    const dmuon_param *param = &registry->params[i];
    const int64_t bytes = param->numel * (int64_t)dmuon_dtype_bytes(param->dtype);
    if (registry->global_to_local[i] >= 0 && !param->is_lent && bytes > largest) largest = bytes;
  }
  if (largest > STAGE_BYTES) largest = STAGE_BYTES;
  return largest > runtime->packing.largest_packed_value_bytes
             ? largest
             : runtime->packing.largest_packed_value_bytes;
}

int64_t dmuon_runtime_buffer_bytes(const dmuon_runtime *runtime) {
  return DMUON_SLOTS * (runtime->packing.largest_packed_grad_bytes +
                        runtime->packing.largest_column_bytes + value_bytes(runtime));
}

static DMuonErrorCode create_slot(dmuon_runtime *runtime, dmuon_slot *slot) {
  dmuon_device *device = runtime->device;
  const dmuon_packing *packing = &runtime->packing;
  dmuon_event **events[] = {&slot->packed, &slot->column_done, &slot->mean_done, &slot->updated,
                            &slot->published};
  const int64_t values = value_bytes(runtime);
  DMUON_TRY(device->ops->alloc(device, packing->largest_packed_grad_bytes, &slot->grads));
  DMUON_TRY(device->ops->alloc(device, packing->largest_column_bytes, &slot->column));
  DMUON_TRY(device->ops->alloc(device, values, &slot->values));
  DMUON_TRY(device->ops->zero(runtime->compute, slot->grads, packing->largest_packed_grad_bytes));
  DMUON_TRY(device->ops->zero(runtime->compute, slot->column, packing->largest_column_bytes));
  DMUON_TRY(device->ops->zero(runtime->compute, slot->values, values));
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
    DMUON_TRY(device->ops->event_create(device, events[i]));
  dmuon_device_name_buffer(device, slot->grads, "packed gradients");
  dmuon_device_name_buffer(device, slot->column, "sums of the column");
  dmuon_device_name_buffer(device, slot->values, "packed new values");
  return DMUON_SUCCESS;
}

/* Room in every communicator that adds up (those of values move them in place), for the largest
 * segment of any bundle. */
static DMuonErrorCode reserve_communicators(dmuon_runtime *runtime) {
  const dmuon_packing *packing = &runtime->packing;
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    DMuonMesh mesh = mesh_of(runtime, b);
    static const struct {
      DMuonAxis axis;
      dmuon_role role;
    } uses[] = {{DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE}, {DMUON_AXIS_REPLICATE, DMUON_ROLE_REDUCE}};
    for (size_t u = 0; u < sizeof uses / sizeof uses[0]; u++) {
      dmuon_comm *comm = dmuon_mesh_comm(mesh, uses[u].axis, uses[u].role);
      DMUON_TRY(comm->ops->reserve(comm, packing->largest_segment, bundle->sum_dtype));
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode create_all(dmuon_runtime *runtime, int (*owners)[3],
                                 const dmuon_packing_options *options) {
  dmuon_device *device = runtime->device;
  dmuon_memory *memory = &device->context->memory;
  DMUON_TRY(dmuon_packing_make(memory, runtime->registry, owners, options, &runtime->packing));
  DMUON_TRY(create_queues(runtime, memory));
  for (int i = 0; i < DMUON_SLOTS; i++) DMUON_TRY(create_slot(runtime, &runtime->slots[i]));
  DMUON_TRY(dmuon_memory_alloc(memory, runtime->packing.bundle_count, sizeof *runtime->means,
                               &runtime->means));
  DMUON_TRY(device->ops->alloc_host(
      device, runtime->packing.bundle_count * (int64_t)sizeof *runtime->stamps,
      (void **)&runtime->stamps));
  for (int b = 0; b < runtime->packing.bundle_count; b++) {
    const dmuon_bundle *bundle = &runtime->packing.bundles[b];
    DMUON_TRY(device->ops->alloc(device,
                                 bundle->mine_count * (int64_t)dmuon_dtype_bytes(bundle->sum_dtype),
                                 &runtime->means[b]));
    dmuon_device_name_buffer(device, runtime->means[b], "mean of %s", bundle->group);
  }
  DMUON_TRY(reserve_communicators(runtime));
  return device->ops->queue_sync(runtime->compute);
}

DMuonErrorCode dmuon_runtime_create(const dmuon_registry *registry, dmuon_device *device,
                                    int (*owners)[3], const dmuon_packing_options *options,
                                    dmuon_runtime *runtime) {
  dmuon_runtime made = {.device = device, .registry = registry};
  DMuonErrorCode code = create_all(&made, owners, options);
  if (!code) {
    *runtime = made;
    return DMUON_SUCCESS;
  }
  dmuon_queue_settle(device, made.compute, code); /* buffers are still being zeroed */
  dmuon_runtime_destroy(&made);
  return code;
}

void dmuon_runtime_destroy(dmuon_runtime *runtime) {
  dmuon_device *device = runtime->device;
  if (!device) return;
  for (int b = 0; runtime->means && b < runtime->packing.bundle_count; b++)
    device->ops->free(device, runtime->means[b]);
  for (int i = 0; i < DMUON_SLOTS; i++) {
    dmuon_slot *slot = &runtime->slots[i];
    device->ops->free(device, slot->grads);
    device->ops->free(device, slot->column);
    device->ops->free(device, slot->values);
    device->ops->event_destroy(slot->packed);
    device->ops->event_destroy(slot->column_done);
    device->ops->event_destroy(slot->mean_done);
    device->ops->event_destroy(slot->updated);
    device->ops->event_destroy(slot->published);
  }
  for (int m = 0; runtime->queues && m < runtime->registry->mesh_count; m++) {
    dmuon_mesh_queues *queues = &runtime->queues[m];
    if (!runtime->registry->meshes[m].mesh) continue;
    const DMuonDeviceOps *ops = runtime->registry->meshes[m].mesh->device->ops;
    ops->queue_destroy(queues->shard_reduce);
    ops->queue_destroy(queues->replicate_reduce);
    ops->queue_destroy(queues->publish);
    ops->queue_destroy(queues->unshard);
  }
  device->ops->queue_destroy(runtime->compute);
  device->ops->queue_destroy(runtime->local);
  dmuon_memory_free(runtime->queues);
  dmuon_memory_free(runtime->means);
  device->ops->free_host(device, runtime->stamps);
  dmuon_packing_free(&runtime->packing);
  memset(runtime, 0, sizeof *runtime);
}

int dmuon_runtime_halvings(DMuonMesh mesh) {
  int halvings;
  frexp((double)(mesh->sizes[DMUON_AXIS_SHARD] * (int64_t)mesh->sizes[DMUON_AXIS_REPLICATE]) - 0.5,
        &halvings);
  return halvings;
}

/* ---- gradients to their owners ------------------------------------------------------------ */

static DMuonErrorCode pack(dmuon_runtime *runtime, const dmuon_bundle *bundle, dmuon_slot *slot,
                           const dmuon_param_arrays *arrays, void *const *accumulated) {
  const DMuonDeviceOps *ops = runtime->device->ops;
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    const dmuon_param *param = &runtime->registry->params[p->param];
    DMUON_TRY(
        ops->pack(runtime->compute,
                  &(dmuon_pack){.n = param->numel,
                                .dst = dmuon_dtype_at(slot->grads, p->offset, param->grad_dtype),
                                .dst_dtype = param->grad_dtype,
                                .addend = accumulated[p->id],
                                .addend_dtype = dmuon_dtype_wide(param->grad_dtype),
                                .src = arrays[p->id].gradients,
                                .src_dtype = param->grad_dtype}));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_runtime_reduce(dmuon_runtime *runtime, int index, int slot_index,
                                    const dmuon_param_arrays *arrays, void *const *accumulated,
                                    double divisor) {
  const dmuon_bundle *bundle = &runtime->packing.bundles[index];
  const DMuonDeviceOps *ops = runtime->device->ops;
  const dmuon_mesh_queues *queues = queues_of(runtime, index);
  const DMuonMesh mesh = mesh_of(runtime, index);
  dmuon_slot *slot = &runtime->slots[slot_index];
  dmuon_bundle_stamps *stamps = &runtime->stamps[index];
  dmuon_comm *shard = dmuon_mesh_comm(mesh, DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE);
  dmuon_comm *replicate = dmuon_mesh_comm(mesh, DMUON_AXIS_REPLICATE, DMUON_ROLE_REDUCE);
  const int halvings = dmuon_runtime_halvings(mesh);

  /* The slot's last contribution has left it, and its last column was taken. */
  DMUON_TRY(ops->event_wait(runtime->compute, slot->column_done));
  DMUON_TRY(ops->stamp(runtime->compute, &stamps->pack[0]));
  DMUON_TRY(pack(runtime, bundle, slot, arrays, accumulated));
  DMUON_TRY(ops->stamp(runtime->compute, &stamps->pack[1]));
  DMUON_TRY(ops->event_record(runtime->compute, slot->packed));

  DMUON_TRY(ops->event_wait(queues->shard_reduce, slot->packed));
  DMUON_TRY(ops->event_wait(queues->shard_reduce, slot->mean_done));
  DMUON_TRY(
      shard->ops->reduce_segments(queues->shard_reduce, shard,
                                  &(dmuon_reduce){.segment_count = bundle->shard_segment_count,
                                                  .segments = bundle->shard_segments,
                                                  .in = slot->grads,
                                                  .in_dtype = bundle->grad_dtype,
                                                  .out = slot->column,
                                                  .sum_dtype = bundle->sum_dtype,
                                                  .prescale = -halvings,
                                                  .divisor = 1}));
  DMUON_TRY(ops->event_record(queues->shard_reduce, slot->column_done));

  DMUON_TRY(ops->event_wait(queues->replicate_reduce, slot->column_done));
  DMUON_TRY(
      replicate->ops->reduce_segments(queues->replicate_reduce, replicate,
                                      &(dmuon_reduce){.segment_count = bundle->column_segment_count,
                                                      .segments = bundle->column_segments,
                                                      .in = slot->column,
                                                      .in_dtype = bundle->sum_dtype,
                                                      .out = runtime->means[index],
                                                      .sum_dtype = bundle->sum_dtype,
                                                      .prescale = 0,
                                                      .divisor = ldexp(divisor, -halvings)}));
  return ops->event_record(queues->replicate_reduce, slot->mean_done);
}

DMuonErrorCode dmuon_runtime_wait_mean(dmuon_runtime *runtime, int bundle, int slot) {
  const DMuonDeviceOps *ops = runtime->device->ops;
  DMUON_TRY(ops->stamp(runtime->compute, &runtime->stamps[bundle].update[0]));
  DMUON_TRY(ops->event_wait(runtime->compute, runtime->slots[slot].mean_done));
  return ops->stamp(runtime->compute, &runtime->stamps[bundle].update[1]);
}

void *dmuon_runtime_mean(const dmuon_runtime *runtime, int bundle, int index) {
  const dmuon_bundle *b = &runtime->packing.bundles[bundle];
  return dmuon_dtype_at(runtime->means[bundle],
                        b->params[index].offset + b->params[index].mine_first - b->mine_offset,
                        b->sum_dtype);
}

/* ---- new values to all ------------------------------------------------------------------- */

void *dmuon_runtime_value(const dmuon_runtime *runtime, int bundle, int index, int slot) {
  const dmuon_bundle *b = &runtime->packing.bundles[bundle];
  return dmuon_dtype_at(runtime->slots[slot].values, b->params[index].offset, b->dtype);
}

DMuonErrorCode dmuon_runtime_publish(dmuon_runtime *runtime, int index, int slot_index) {
  const dmuon_bundle *bundle = &runtime->packing.bundles[index];
  const DMuonDeviceOps *ops = runtime->device->ops;
  const dmuon_mesh_queues *queues = queues_of(runtime, index);
  const DMuonMesh mesh = mesh_of(runtime, index);
  dmuon_slot *slot = &runtime->slots[slot_index];
  dmuon_comm *replicate = dmuon_mesh_comm(mesh, DMUON_AXIS_REPLICATE, DMUON_ROLE_PUBLISH);
  dmuon_comm *shard = dmuon_mesh_comm(mesh, DMUON_AXIS_SHARD, DMUON_ROLE_UNSHARD);

  DMUON_TRY(ops->stamp(runtime->compute, &runtime->stamps[index].update[2]));
  DMUON_TRY(ops->event_record(runtime->compute, slot->updated));
  DMUON_TRY(ops->event_wait(queues->publish, slot->updated));
  DMUON_TRY(replicate->ops->gather_segments(queues->publish, replicate,
                                            bundle->column_segment_count, bundle->value_segments,
                                            bundle->dtype, slot->values));
  DMUON_TRY(ops->event_record(queues->publish, slot->published));
  DMUON_TRY(ops->event_wait(queues->unshard, slot->published));
  DMUON_TRY(shard->ops->gather_segments(queues->unshard, shard, bundle->shard_segment_count,
                                        bundle->shard_segments, bundle->dtype, slot->values));
  return ops->event_record(queues->unshard, slot->published);
}

DMuonErrorCode dmuon_runtime_unpack(dmuon_runtime *runtime, int index, int slot,
                                    const dmuon_param_arrays *arrays) {
  const dmuon_bundle *bundle = &runtime->packing.bundles[index];
  const DMuonDeviceOps *ops = runtime->device->ops;
  DMUON_TRY(ops->stamp(runtime->compute, &runtime->stamps[index].unpack[0]));
  DMUON_TRY(ops->event_wait(runtime->compute, runtime->slots[slot].published));
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    const dmuon_param *param = &runtime->registry->params[p->param];
    if (p->is_mine && param->master_dtype == param->dtype) continue; /* the array was the master */
    DMUON_TRY(ops->copy(runtime->compute, arrays[p->id].weights,
                        dmuon_runtime_value(runtime, index, i, slot),
                        param->numel * (int64_t)dmuon_dtype_bytes(param->dtype)));
  }
  return ops->stamp(runtime->compute, &runtime->stamps[index].unpack[1]);
}

/* ---- everything else --------------------------------------------------------------------- */

DMuonErrorCode dmuon_runtime_wait_packed(dmuon_runtime *runtime) {
  for (int i = 0; i < DMUON_SLOTS; i++)
    DMUON_TRY(runtime->device->ops->event_sync(runtime->slots[i].packed));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_runtime_sync(dmuon_runtime *runtime) {
  DMUON_TRY(runtime->device->ops->queue_sync(runtime->compute));
  for (int m = 0; m < runtime->registry->mesh_count; m++) {
    const dmuon_mesh_queues *queues = &runtime->queues[m];
    if (!runtime->registry->meshes[m].mesh) continue;
    const DMuonDeviceOps *ops = runtime->registry->meshes[m].mesh->device->ops;
    DMUON_TRY(ops->queue_sync(queues->shard_reduce));
    DMUON_TRY(ops->queue_sync(queues->replicate_reduce));
    DMUON_TRY(ops->queue_sync(queues->publish));
    DMUON_TRY(ops->queue_sync(queues->unshard));
  }
  return DMUON_SUCCESS;
}

/* One piece of a parameter, staged in slot 0, so that messages never touch the callers' arrays:
 * what a broadcast that was given up still brings goes nowhere. Waits. */
static DMuonErrorCode broadcast_piece(dmuon_runtime *runtime, const dmuon_param *param, int root,
                                      int64_t count, void *weights) {
  const DMuonMesh mesh = runtime->registry->meshes[param->mesh].mesh;
  const dmuon_mesh_queues *queues = &runtime->queues[param->mesh];
  const DMuonDeviceOps *ops = mesh->device->ops;
  const int row = root / mesh->sizes[DMUON_AXIS_SHARD];
  const int64_t bytes = count * (int64_t)dmuon_dtype_bytes(param->dtype);
  dmuon_comm *shard = dmuon_mesh_comm(mesh, DMUON_AXIS_SHARD, DMUON_ROLE_UNSHARD);
  dmuon_comm *replicate = dmuon_mesh_comm(mesh, DMUON_AXIS_REPLICATE, DMUON_ROLE_PUBLISH);
  dmuon_slot *slot = &runtime->slots[0];
  const int in_row = mesh->coords[DMUON_AXIS_REPLICATE] == row;
  const int is_root = in_row && mesh->coords[DMUON_AXIS_SHARD] == root % shard->size;

  if (is_root) DMUON_TRY(ops->copy(runtime->compute, slot->values, weights, bytes));
  DMUON_TRY(ops->event_record(runtime->compute, slot->updated));
  DMUON_TRY(ops->event_wait(queues->unshard, slot->updated));
  /* Along the root's row first, then every column from that row. */
  if (in_row)
    DMUON_TRY(shard->ops->broadcast(queues->unshard, shard, root % shard->size, count, param->dtype,
                                    slot->values));
  DMUON_TRY(ops->event_record(queues->unshard, slot->published));
  DMUON_TRY(ops->event_wait(queues->publish, slot->published));
  DMUON_TRY(replicate->ops->broadcast(queues->publish, replicate, row, count, param->dtype,
                                      slot->values));
  DMUON_TRY(ops->event_record(queues->publish, slot->published));
  DMUON_TRY(ops->event_wait(runtime->compute, slot->published));
  if (!is_root) DMUON_TRY(ops->copy(runtime->compute, weights, slot->values, bytes));
  return ops->queue_sync(runtime->compute);
}

DMuonErrorCode dmuon_runtime_broadcast_arrays(dmuon_runtime *runtime, int root,
                                              const dmuon_param_arrays *arrays) {
  const dmuon_registry *registry = runtime->registry;
  for (int i = 0; i < registry->param_count; i++) {
    const dmuon_param *param = &registry->params[i];
    const int id = registry->global_to_local[i];
    const int64_t room = STAGE_BYTES / (int64_t)dmuon_dtype_bytes(param->dtype);
    if (id < 0 || param->is_lent) continue;
    for (int64_t at = 0; at < param->numel; at += room) {
      const int64_t count = param->numel - at < room ? param->numel - at : room;
      DMUON_TRY(broadcast_piece(runtime, param, root, count,
                                dmuon_dtype_at(arrays[id].weights, at, param->dtype)));
    }
  }
  return DMUON_SUCCESS;
}
