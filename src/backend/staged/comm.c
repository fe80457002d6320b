/* A staged communicator's life, and how one of its operations begins, waits and ends. What an
 * operation copies and asks of the host is in operations.c. */
#include "backend/host/host.h"
#include "backend/staged/comm_state.h"

static void staged_abort(dmuon_comm *base) {
  staged_comm *comm = staged_of(base);
  if (!comm->aborted) comm->aborted = DMUON_ERR_REVOKED;
  if (comm->inner) comm->inner->ops->abort(comm->inner);
  /* The thread's record says why. */
  if (comm->host) dmuon_host_device_break(comm->host, DMUON_ERR_REVOKED);
}

static void staged_free(dmuon_comm *base) {
  if (!base) return;
  staged_comm *comm = staged_of(base);
  const DMuonDeviceOps *ops = base->device->ops;
  /* Of messages that were given up, MPI may still use the areas. */
  const int is_left = comm->aborted || dmuon_bootstrap_check(comm->bootstrap);
  if (!is_left && comm->event) (void)ops->event_sync(comm->event);
  if (comm->event) ops->event_destroy(comm->event);
  if (comm->inner) comm->inner->ops->free(comm->inner);
  if (comm->host_queue) comm->host->ops->queue_destroy(comm->host_queue);
  if (comm->host) comm->host->ops->destroy(comm->host);
  if (!is_left && comm->in) ops->free_host(base->device, comm->in);
  if (!is_left && comm->out) ops->free_host(base->device, comm->out);
  dmuon_memory_free(comm);
}

static DMuonErrorCode make(staged_comm *comm, dmuon_device *device) {
  void *in, *out;
  DMUON_TRY(dmuon_host_device_create(device->context, 0, 0, &comm->host));
  DMUON_TRY(dmuon_host_device_join_process(comm->host));
  DMUON_TRY(dmuon_host_comm_ops.create(comm->host, comm->bootstrap, comm->base.axis,
                                       comm->base.role, &comm->inner));
  DMUON_TRY(comm->host->ops->queue_create(comm->host, 0, &comm->host_queue));
  DMUON_TRY(device->ops->event_create(device, &comm->event));
  DMUON_TRY(device->ops->alloc_host(device, STAGED_BYTES, &in));
  comm->in = in;
  DMUON_TRY(device->ops->alloc_host(device, STAGED_BYTES, &out));
  comm->out = out;
  comm->base.rank = comm->inner->rank;
  comm->base.size = comm->inner->size;
  comm->base.fanin = comm->inner->fanin;
  comm->base.chunk_bytes = comm->inner->chunk_bytes;
  return DMUON_SUCCESS;
}

static DMuonErrorCode staged_create(dmuon_device *device, dmuon_bootstrap *bootstrap,
                                    DMuonAxis axis, dmuon_role role, dmuon_comm **out) {
  staged_comm *comm = NULL;
  DMUON_TRY(dmuon_bootstrap_check(bootstrap));
  DMUON_TRY(dmuon_memory_alloc(&device->context->memory, 1, sizeof *comm, &comm));
  comm->base.ops = &dmuon_staged_comm_ops;
  comm->base.device = device;
  comm->base.axis = axis;
  comm->base.role = role;
  comm->bootstrap = bootstrap;
  DMuonErrorCode code = make(comm, device);
  if (code) {
    staged_free(&comm->base);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *out = &comm->base;
  return DMUON_SUCCESS;
}

static void configure(staged_comm *comm) {
  comm->inner->fanin = comm->base.fanin;
  comm->inner->chunk_bytes = comm->base.chunk_bytes;
  dmuon_host_device_set_timeout(comm->host, dmuon_bootstrap_timeout(comm->bootstrap));
}

static DMuonErrorCode staged_reserve(dmuon_comm *base, int64_t largest_segment,
                                     DMuonDType sum_dtype) {
  staged_comm *comm = staged_of(base);
  const int64_t most = STAGED_BYTES / (int64_t)dmuon_dtype_bytes(sum_dtype);
  configure(comm);
  DMUON_TRY(comm->inner->ops->reserve(comm->inner, largest_segment < most ? largest_segment : most,
                                      sum_dtype));
  return DMUON_SUCCESS;
}

static DMuonErrorCode staged_group(dmuon_comm *base) {
  (void)base; /* operations are carried out one after another anyway */
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_open(staged_comm *comm, const char *name, int root) {
  DMUON_TRY(dmuon_bootstrap_check(comm->bootstrap));
  if (comm->aborted) DMUON_FAIL(comm->aborted, "%s: the communicator was given up", name);
  if (root < 0 || root >= comm->base.size)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: root %d out of range [0,%d)", name, root, comm->base.size);
  configure(comm);
  comm->before = comm->inner->counters;
  DMUON_TRY(comm->base.device->ops->event_sync(comm->event));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_arrive(staged_comm *comm, dmuon_queue *queue) {
  const DMuonDeviceOps *ops = comm->base.device->ops;
  DMUON_TRY(ops->event_record(queue, comm->event));
  DMUON_TRY(ops->event_sync(comm->event));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_finish(staged_comm *comm) {
  DMUON_TRY(comm->host->ops->queue_sync(comm->host_queue));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_depart(staged_comm *comm, dmuon_queue *queue) {
  DMUON_TRY(comm->base.device->ops->event_record(queue, comm->event));
  return DMUON_SUCCESS;
}

void dmuon_staged_close(staged_comm *comm) {
  const dmuon_comm_counters *now = &comm->inner->counters;
  comm->base.counters.messages += now->messages - comm->before.messages;
  comm->base.counters.seconds_waited += now->seconds_waited - comm->before.seconds_waited;
}

const DMuonCommOps dmuon_staged_comm_ops = {
    .name = "staged",
    .create = staged_create,
    .free = staged_free,
    .reserve = staged_reserve,
    .group_begin = staged_group,
    .group_end = staged_group,
    .gather_segments = dmuon_staged_gather_segments,
    .reduce_segments = dmuon_staged_reduce_segments,
    .move_segments = dmuon_staged_move_segments,
    .broadcast = dmuon_staged_broadcast,
    .all_reduce = dmuon_staged_all_reduce,
    .gather = dmuon_staged_gather,
    .scatter = dmuon_staged_scatter,
    .abort = staged_abort,
};
