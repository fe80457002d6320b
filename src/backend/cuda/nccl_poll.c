/* Waiting for communicators and looking after them: what NCCL answers as codes, the wait until it
 * is done on the CPU, failures that come out later, and giving up. It decides nothing about what is
 * communicated. */
#include <stdio.h>

#include "backend/cuda/cuda.h"

const char *dmuon_cuda_axis_name(DMuonAxis axis) {
  static const char *const names[] = {"replicate", "shard", "tp", "whole"};
  return names[axis];
}

DMuonErrorCode dmuon_nccl_result(const dmuon_cuda_comm *comm, ncclResult_t result,
                                 const char *call) {
  if (result == ncclSuccess || result == ncclInProgress) return DMUON_SUCCESS;
  const char *more = comm->nccl ? ncclGetLastError(comm->nccl) : NULL;
  DMUON_FAIL(DMUON_ERR_COMM, "%s on the %s axis, rank %d of %d: NCCL says %s%s%s", call,
             dmuon_cuda_axis_name(comm->base.axis), comm->base.rank, comm->base.size,
             ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

DMuonErrorCode dmuon_nccl_settle(dmuon_cuda_comm *comm, const char *what) {
  char name[96];
  const double since = dmuon_cuda_seconds();
  for (int64_t turn = 0;; turn++) {
    ncclResult_t state = ncclSuccess;
    if (comm->aborted) DMUON_FAIL(comm->aborted, "%s was given up", what);
    DMUON_TRY(dmuon_nccl_result(comm, ncclCommGetAsyncError(comm->nccl, &state),
                                "ncclCommGetAsyncError"));
    if (state == ncclSuccess) return DMUON_SUCCESS;
    DMUON_TRY(dmuon_nccl_result(comm, state, what));
    if (turn == 0)
      snprintf(name, sizeof name, "%s on the %s axis", what, dmuon_cuda_axis_name(comm->base.axis));
    /* Meanwhile another rank may give up, and this communicator with it. */
    DMUON_TRY(dmuon_cuda_pause(comm->device, since, turn, name));
  }
}

DMuonErrorCode dmuon_cuda_comms_check(dmuon_cuda_device *device) {
  for (dmuon_cuda_comm *comm = device->comms.first; comm; comm = comm->next) {
    ncclResult_t state = ncclSuccess;
    if (!comm->nccl) continue;
    DMUON_TRY(dmuon_nccl_result(comm, ncclCommGetAsyncError(comm->nccl, &state),
                                "ncclCommGetAsyncError"));
    DMUON_TRY(dmuon_nccl_result(comm, state, "communication"));
  }
  return DMUON_SUCCESS;
}

void dmuon_cuda_comms_give_up(dmuon_cuda_device *device) {
  for (dmuon_cuda_comm *comm = device->comms.first; comm; comm = comm->next)
    comm->base.ops->abort(&comm->base);
}

void dmuon_cuda_comms_describe(dmuon_cuda_device *device, dmuon_text *text) {
  const dmuon_cuda_comms *comms = &device->comms;
  int64_t i = comms->calls > DMUON_NCCL_RING ? comms->calls - DMUON_NCCL_RING : 0;
  for (; i < comms->calls; i++) {
    const dmuon_nccl_call *call = &comms->ring[i % DMUON_NCCL_RING];
    if (cudaEventQuery(call->event) == cudaSuccess) continue;
    (void)cudaGetLastError(); /* "not ready" is no error to whoever asks next */
    dmuon_text_add(text, "%s on the %s axis", call->name, dmuon_cuda_axis_name(call->axis));
    return;
  }
}
