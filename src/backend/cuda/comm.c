/* The table of communication over NCCL, and the life of a communicator: how it comes to be, its
 * memory, its end.
 *
 * The first communicator of an axis is made from a unique id that the first rank of each line along
 * the axis tells the others; the second role of the axis is split off the first, with resources of
 * its own. There is no communicator over all ranks: it would not be used, and could not be had
 * where two ranks that never talk to each other share a GPU. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/sum_plan.h"
#include "comm/agree.h"
#include "comm/check.h"
#include "comm/count.h"

enum {
  DEFAULT_FANIN = 32,
  DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024,
  ALIGNMENT = 256,
  SMALL_BYTES = DMUON_ONE_ROOT_ELEMENTS * 8 /* of a chunk of a small sum, fp64 at most */
};

static const char making[] = "making communicators";

/* The communicator of the other role on this axis, if it was made before. */
static dmuon_cuda_comm *find_first_role(const dmuon_cuda_comm *comm) {
  dmuon_cuda_comm *other = comm->device->comms.first;
  while (other && (other == comm || other->base.axis != comm->base.axis || !other->nccl))
    other = other->next;
  return other;
}

static DMuonErrorCode connect_line(dmuon_cuda_comm *comm) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  dmuon_cuda_comm *first = find_first_role(comm);
  if (first) {
    config.splitShare = 0;
    DMUON_TRY(dmuon_nccl_result(
        comm, ncclCommSplit(first->nccl, 0, comm->base.rank, &comm->nccl, &config),
        "ncclCommSplit"));
    DMUON_TRY(dmuon_nccl_settle(first, "splitting a communicator"));
  } else {
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    DMuonErrorCode code = DMUON_SUCCESS;
    if (comm->base.rank == 0)
      code = dmuon_nccl_result(comm, ncclGetUniqueId(&id), "ncclGetUniqueId");
    DMUON_TRY(
        dmuon_bootstrap_share(comm->bootstrap, making, comm->base.axis, code, &id, sizeof id));
    DMUON_TRY(dmuon_nccl_result(
        comm, ncclCommInitRankConfig(&comm->nccl, comm->base.size, id, comm->base.rank, &config),
        "ncclCommInitRankConfig"));
  }
  DMUON_TRY(dmuon_nccl_settle(comm, making));
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_comm(dmuon_device *base, dmuon_bootstrap *bootstrap, DMuonAxis axis,
                                dmuon_role role, dmuon_cuda_comm **out) {
  dmuon_cuda_device *device = dmuon_cuda_of(base);
  dmuon_cuda_comm *comm = NULL;
  DMUON_TRY(dmuon_cuda_check(device));
  DMUON_TRY(dmuon_cuda_comms_open(device));
  DMUON_TRY(dmuon_memory_alloc(dmuon_cuda_memory(device), 1, sizeof *comm, &comm));
  *out = comm;
  comm->base.ops = &dmuon_cuda_comm_ops;
  comm->base.device = base;
  comm->base.axis = axis;
  comm->base.role = role;
  comm->base.fanin = DEFAULT_FANIN;
  comm->base.chunk_bytes = DEFAULT_CHUNK_BYTES;
  comm->device = device;
  comm->bootstrap = bootstrap;
  comm->next = device->comms.first;
  device->comms.first = comm;
  DMUON_TRY(dmuon_bootstrap_place(bootstrap, axis, &comm->base.rank, &comm->base.size));
  DMUON_TRY(dmuon_memory_alloc(dmuon_cuda_memory(device), 2 * (int64_t)comm->base.size,
                               sizeof *comm->totals, &comm->totals));
  comm->firsts = comm->totals + comm->base.size;
  DMUON_TRY(DMUON_CUDA(cudaEventCreateWithFlags, (&comm->chunks_free, cudaEventDisableTiming)));
  /* Small sums are issued without anybody having asked for room. */
  DMUON_TRY(dmuon_cuda_comm_chunks(comm, SMALL_BYTES, dmuon_cuda_reduce_chunks(comm)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode cuda_create(dmuon_device *base, dmuon_bootstrap *bootstrap, DMuonAxis axis,
                                  dmuon_role role, dmuon_comm **out) {
  dmuon_cuda_comm *comm = NULL;
  DMUON_TRY(dmuon_bootstrap_check(bootstrap));
  const int previous = dmuon_cuda_enter(dmuon_cuda_of(base));
  DMuonErrorCode code = make_comm(base, bootstrap, axis, role, &comm);
  /* Nobody waits in NCCL for a rank that could not get so far. */
  code = dmuon_agree_error(bootstrap, making, code, DMUON_ERR_SETUP);
  if (!code && comm->base.size > 1) {
    code = connect_line(comm);
    if (DMuonErrorIsFatal(code)) dmuon_bootstrap_break(bootstrap, code);
  }
  dmuon_cuda_leave(dmuon_cuda_of(base), previous);
  if (code) {
    if (comm) comm->base.ops->free(&comm->base);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *out = &comm->base;
  return DMUON_SUCCESS;
}

static void cuda_abort(dmuon_comm *base) {
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  ncclComm_t nccl = comm->nccl;
  if (!comm->aborted) comm->aborted = DMUON_ERR_REVOKED;
  comm->nccl = NULL;
  if (nccl) (void)ncclCommAbort(nccl);
}

/* All ranks are here, unless something is broken: then the others are not waited for. */
static void disconnect(dmuon_cuda_comm *comm) {
  if (!comm->nccl) return;
  DMuonErrorCode code = dmuon_bootstrap_check_mpi();
  if (!code) code = dmuon_bootstrap_check(comm->bootstrap);
  if (!code) code = dmuon_cuda_check(comm->device);
  if (!code) code = dmuon_nccl_result(comm, ncclCommFinalize(comm->nccl), "ncclCommFinalize");
  if (!code) code = dmuon_nccl_settle(comm, "freeing a communicator");
  if (!code && comm->nccl) {
    (void)ncclCommDestroy(comm->nccl);
    comm->nccl = NULL;
  }
  cuda_abort(&comm->base);
}

static void cuda_free(dmuon_comm *base) {
  if (!base) return;
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  dmuon_cuda_device *device = comm->device;
  const int previous = dmuon_cuda_enter(device);
  disconnect(comm);
  dmuon_cuda_comm **link = &device->comms.first;
  while (*link && *link != comm) link = &(*link)->next;
  if (*link) *link = comm->next;
  for (int i = 0; i < comm->block_count; i++) dmuon_cuda_free(device, comm->blocks[i]);
  if (comm->chunks_free) (void)cudaEventDestroy(comm->chunks_free);
  if (!device->comms.first) dmuon_cuda_comms_close(device);
  dmuon_cuda_leave(device, previous);
  dmuon_memory_free(comm->totals);
  dmuon_memory_free(comm);
}

static int64_t aligned(int64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

DMuonErrorCode dmuon_cuda_comm_chunks(dmuon_cuda_comm *comm, int64_t bytes, int count) {
  void *block = NULL;
  if (bytes <= comm->chunk_bytes && count <= comm->chunk_count) return DMUON_SUCCESS;
  if (comm->block_count == DMUON_CUDA_BLOCKS)
    DMUON_FAIL(DMUON_ERR_MEMORY, "the memory of a communicator grew %d times; reserve it at once",
               DMUON_CUDA_BLOCKS);
  bytes = aligned(bytes);
  if (bytes < comm->chunk_bytes) bytes = comm->chunk_bytes;
  if (count < comm->chunk_count) count = comm->chunk_count;
  DMUON_TRY(dmuon_cuda_alloc(comm->device, bytes * count, &block));
  comm->blocks[comm->block_count++] = block;
  comm->block = block;
  comm->chunk_bytes = bytes;
  comm->chunk_count = count;
  return DMUON_SUCCESS;
}

/* Bytes of a chunk, at most. */
static int64_t largest_chunk(const dmuon_cuda_comm *comm, int64_t largest_segment,
                             DMuonDType sum_dtype) {
  const int64_t chunk = dmuon_cuda_chunk_elements(comm, sum_dtype, sum_dtype);
  return dmuon_dtype_span(largest_segment < chunk ? largest_segment : chunk, sum_dtype);
}

/* Larger chunks come beside those of small sums. */
static int64_t cuda_reserve_bytes(const dmuon_comm *base, int64_t largest_segment,
                                  DMuonDType sum_dtype) {
  const dmuon_cuda_comm *comm = (const dmuon_cuda_comm *)(const void *)base;
  const int64_t bytes = largest_chunk(comm, largest_segment, sum_dtype);
  return bytes <= SMALL_BYTES ? 0 : aligned(bytes) * dmuon_cuda_reduce_chunks(comm);
}

static DMuonErrorCode cuda_reserve(dmuon_comm *base, int64_t largest_segment,
                                   DMuonDType sum_dtype) {
  dmuon_cuda_comm *comm = dmuon_cuda_comm_of(base);
  const int64_t bytes = largest_chunk(comm, largest_segment, sum_dtype);
  if (bytes <= 0) return DMUON_SUCCESS;
  const int previous = dmuon_cuda_enter(comm->device);
  DMuonErrorCode code = dmuon_cuda_comm_chunks(comm, bytes, dmuon_cuda_reduce_chunks(comm));
  dmuon_cuda_leave(comm->device, previous);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_comm_check(dmuon_cuda_comm *comm, const char *name, int root) {
  DMUON_TRY(dmuon_bootstrap_check(comm->bootstrap));
  DMUON_TRY(dmuon_cuda_check(comm->device));
  if (comm->aborted) DMUON_FAIL(comm->aborted, "%s: the communicator was given up", name);
  if (root < 0 || root >= comm->base.size)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: root %d out of range [0,%d)", name, root, comm->base.size);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_comm_check_segments(dmuon_cuda_comm *comm, const char *name, int count,
                                              const dmuon_segment *segments) {
  DMUON_TRY(dmuon_cuda_comm_check(comm, name, 0));
  return dmuon_check_segments(name, comm->base.size, count, segments);
}

/* Every operation is one group of NCCL, or several with kernels between them; operations of
 * different kinds do not merge, so there is nothing to be put off until the end. */
static DMuonErrorCode cuda_group(dmuon_comm *comm) {
  DMUON_TRY(dmuon_cuda_comm_check(dmuon_cuda_comm_of(comm), "a group of operations", 0));
  return DMUON_SUCCESS;
}

const DMuonCommOps dmuon_cuda_comm_ops = {
    .name = "cuda",
    .create = cuda_create,
    .free = cuda_free,
    .reserve = cuda_reserve,
    .reserve_bytes = cuda_reserve_bytes,
    .group_begin = cuda_group,
    .group_end = cuda_group,
    .gather_segments = dmuon_cuda_gather_segments,
    .reduce_segments = dmuon_cuda_reduce_segments,
    .move_segments = dmuon_cuda_move_segments,
    .broadcast = dmuon_cuda_broadcast,
    .all_reduce = dmuon_cuda_all_reduce,
    .gather = dmuon_cuda_gather,
    .scatter = dmuon_cuda_scatter,
    .abort = cuda_abort,
};
