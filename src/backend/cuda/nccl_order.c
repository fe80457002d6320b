/* Groups of NCCL calls and their order. NCCL wants the calls of several communicators to begin in
 * one order on all ranks, or ranks wait for each other for ever. All ranks issue them in one
 * program order; NCCL keeps to it by itself from 2.26 on when it is told to
 * (NCCL_LAUNCH_ORDER_IMPLICIT=1), else every group's stream first waits for the group issued before
 * it, of whatever communicator and whatever mesh of the process.
 *
 * A group is of one operation and is carried out as a whole. Its calls are not for CUDA graphs. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "comm/bootstrap_process.h"

enum { IMPLICIT_SINCE = 22600 };

DMuonErrorCode dmuon_cuda_comms_open(dmuon_cuda_device *device) {
  dmuon_cuda_comms *comms = &device->comms;
  if (comms->is_open) return DMUON_SUCCESS;
  const char *implicit = dmuon_environment("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (ncclGetVersion(&comms->version) != ncclSuccess)
    DMUON_FAIL(DMUON_ERR_SETUP, "NCCL does not say its version");
  comms->order_implicit =
      comms->version >= IMPLICIT_SINCE && implicit && strcmp(implicit, "1") == 0;
  for (int i = 0; i < DMUON_NCCL_RING; i++)
    if (!comms->ring[i].event)
      DMUON_TRY(
          DMUON_CUDA(cudaEventCreateWithFlags, (&comms->ring[i].event, cudaEventDisableTiming)));
  comms->is_open = 1;
  return DMUON_SUCCESS;
}

void dmuon_cuda_comms_close(dmuon_cuda_device *device) {
  dmuon_cuda_comms *comms = &device->comms;
  dmuon_process *process = dmuon_process_find();
  for (int i = 0; i < DMUON_NCCL_RING; i++) {
    /* All of it is done, or given up. */
    if (process && process->last_call == comms->ring[i].event) process->last_call = NULL;
    if (comms->ring[i].event) (void)cudaEventDestroy(comms->ring[i].event);
    comms->ring[i].event = NULL;
  }
  comms->is_open = 0;
  comms->calls = 0;
}

void dmuon_cuda_comms_version(const dmuon_cuda_device *device, dmuon_text *text) {
  const dmuon_cuda_comms *comms = &device->comms;
  if (!comms->is_open) {
    dmuon_text_add(text, "no communicators");
    return;
  }
  const int v = comms->version;
  dmuon_text_add(text, "NCCL %d.%d.%d, launch order %s", v / 10000, v / 100 % 100, v % 100,
                 comms->order_implicit ? "implicit" : "by events");
}

DMuonErrorCode dmuon_nccl_begin(dmuon_cuda_comm *comm, dmuon_queue *queue) {
  const dmuon_cuda_comms *comms = &comm->device->comms;
  if (comm->aborted) DMUON_FAIL(comm->aborted, "the communicator was given up");
  const dmuon_process *process = dmuon_process_find();
  if (!comms->order_implicit && process && process->last_call)
    DMUON_TRY(DMUON_CUDA(cudaStreamWaitEvent,
                         (dmuon_cuda_stream(queue), (cudaEvent_t)process->last_call, 0)));
  comm->calls_in_group = 0;
  DMUON_TRY(dmuon_nccl_result(comm, ncclGroupStart(), "ncclGroupStart"));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_nccl_end(dmuon_cuda_comm *comm, dmuon_queue *queue, const char *name,
                              DMuonErrorCode code) {
  dmuon_cuda_comms *comms = &comm->device->comms;
  const ncclResult_t result = ncclGroupEnd();
  if (!code) code = dmuon_nccl_result(comm, result, name);
  /* Only then do the calls stand in the stream. */
  if (!code && comm->calls_in_group) code = dmuon_nccl_settle(comm, name);
  DMUON_TRY(code);
  if (!comm->calls_in_group) return DMUON_SUCCESS;
  dmuon_nccl_call *call = &comms->ring[comms->calls % DMUON_NCCL_RING];
  call->name = name;
  call->axis = comm->base.axis;
  DMUON_TRY(DMUON_CUDA(cudaEventRecord, (call->event, dmuon_cuda_stream(queue))));
  comms->calls++;
  dmuon_process *process = dmuon_process_find();
  if (process) process->last_call = call->event;
  return DMUON_SUCCESS;
}

static ncclDataType_t nccl_dtype(DMuonDType dtype) {
  switch (dtype) {
    case DMUON_FLOAT64:
      return ncclFloat64;
    case DMUON_BFLOAT16:
      return ncclBfloat16;
    case DMUON_FLOAT16:
      return ncclFloat16;
    default:
      return ncclFloat32;
  }
}

DMuonErrorCode dmuon_nccl_send(dmuon_cuda_comm *comm, dmuon_queue *queue, const void *data,
                               int64_t count, DMuonDType dtype, int to) {
  if (count == 0) return DMUON_SUCCESS;
  comm->calls_in_group++;
  comm->base.counters.messages++;
  DMUON_TRY(dmuon_nccl_result(
      comm,
      ncclSend(data, (size_t)count, nccl_dtype(dtype), to, comm->nccl, dmuon_cuda_stream(queue)),
      "ncclSend"));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_nccl_receive(dmuon_cuda_comm *comm, dmuon_queue *queue, void *data,
                                  int64_t count, DMuonDType dtype, int from) {
  if (count == 0) return DMUON_SUCCESS;
  comm->calls_in_group++;
  DMUON_TRY(dmuon_nccl_result(
      comm,
      ncclRecv(data, (size_t)count, nccl_dtype(dtype), from, comm->nccl, dmuon_cuda_stream(queue)),
      "ncclRecv"));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_nccl_broadcast(dmuon_cuda_comm *comm, dmuon_queue *queue, void *data,
                                    int64_t count, DMuonDType dtype, int root) {
  if (count == 0) return DMUON_SUCCESS;
  comm->calls_in_group++;
  if (root == comm->base.rank) comm->base.counters.messages++;
  DMUON_TRY(dmuon_nccl_result(comm,
                              ncclBroadcast(data, data, (size_t)count, nccl_dtype(dtype), root,
                                            comm->nccl, dmuon_cuda_stream(queue)),
                              "ncclBroadcast"));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_nccl_reduce(dmuon_cuda_comm *comm, dmuon_queue *queue, const void *in,
                                 void *out, int64_t count, DMuonDType dtype, int root) {
  if (count == 0) return DMUON_SUCCESS;
  comm->calls_in_group++;
  if (root != comm->base.rank) comm->base.counters.messages++;
  DMUON_TRY(dmuon_nccl_result(
      comm,
      ncclReduce(in, root == comm->base.rank ? out : NULL, (size_t)count, nccl_dtype(dtype),
                 ncclSum, root, comm->nccl, dmuon_cuda_stream(queue)),
      "ncclReduce"));
  return DMUON_SUCCESS;
}
