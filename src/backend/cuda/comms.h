/* What a device knows of its communicators, and the communicators themselves: NCCL's, one for each
 * axis and role, all on the device's queues. The files:
 *   comm.c        the table, their life, their memory
 *   comm_spread.c what moves data and adds nothing
 *   comm_reduce.c what adds up, with comm_reduce_tree.c, comm_reduce_nccl.c, comm_reduction.c;
 *                 sum_plan.c decides in which order
 *   nccl_order.c  groups of NCCL calls, one after another as the program says
 *   nccl_poll.c   waiting for a communicator that is busy with itself, and failures */
#ifndef DMUON_BACKEND_CUDA_COMMS_H
#define DMUON_BACKEND_CUDA_COMMS_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/text.h"
#include "comm/comm.h"

struct dmuon_cuda_device;
typedef struct dmuon_cuda_comm dmuon_cuda_comm;

enum {
  DMUON_NCCL_RING = 64,   /* groups of calls that are remembered */
  DMUON_CUDA_BLOCKS = 24, /* times that a communicator's memory can grow */
};

/* A group of NCCL calls that was issued; its event fires behind it. */
typedef struct {
  cudaEvent_t event;
  const char *name; /* of the operation; NULL: never used */
  DMuonAxis axis;
} dmuon_nccl_call;

/* Part of a device. Zero until the first communicator is made. */
typedef struct {
  dmuon_cuda_comm *first;
  int is_open;
  int version;        /* of NCCL: 22809 */
  int order_implicit; /* NCCL itself keeps calls of several communicators in order */
  int64_t calls;      /* groups so far; number i stands at ring[i % DMUON_NCCL_RING] */
  dmuon_nccl_call ring[DMUON_NCCL_RING];
} dmuon_cuda_comms;

struct dmuon_cuda_comm {
  dmuon_comm base;
  struct dmuon_cuda_device *device;
  dmuon_bootstrap *bootstrap;
  dmuon_cuda_comm *next; /* of the same device */
  ncclComm_t nccl;       /* NULL: alone, or given up */
  DMuonErrorCode aborted;
  int calls_in_group; /* NCCL calls since dmuon_nccl_begin */
  int64_t *totals;    /* by rank: elements that it roots in the operation being issued; */
  int64_t *firsts;    /* and its first segment there. One array with totals */

  /* Chunks of device memory: places for contributions, then those for partial sums. Blocks that
   * became too small stay until the communicator is freed: operations may still use them. */
  char *block;
  int64_t chunk_bytes;
  int chunk_count;
  cudaEvent_t chunks_free; /* behind the last operation that used them */
  void *blocks[DMUON_CUDA_BLOCKS];
  int block_count;
};

static inline dmuon_cuda_comm *dmuon_cuda_comm_of(dmuon_comm *comm) {
  return (dmuon_cuda_comm *)(void *)comm;
}

extern const DMuonCommOps dmuon_cuda_comm_ops;

/* ---- for the device (nccl_poll.c, nccl_order.c) ---- */

/* Looks after all communicators: the first failure that NCCL has met since. For every turn of a
 * wait. */
DMuonErrorCode dmuon_cuda_comms_check(struct dmuon_cuda_device *device);
/* "reducing segments on the shard axis": the oldest operation not yet done; nothing when there is
 * none. */
void dmuon_cuda_comms_describe(struct dmuon_cuda_device *device, dmuon_text *text);
/* Aborts all communicators: what is under way ends. */
void dmuon_cuda_comms_give_up(struct dmuon_cuda_device *device);
/* Gives back what the device holds for communicators, when they are freed. */
void dmuon_cuda_comms_close(struct dmuon_cuda_device *device);
/* "NCCL 2.28.9, launch order implicit" */
void dmuon_cuda_comms_version(const struct dmuon_cuda_device *device, dmuon_text *text);

/* ---- between the files of communication ---- */

/* The first communicator of a device: version, launch order, events. */
DMuonErrorCode dmuon_cuda_comms_open(struct dmuon_cuda_device *device);
/* An answer of NCCL as a code; "in progress" is none. */
DMuonErrorCode dmuon_nccl_result(const dmuon_cuda_comm *comm, ncclResult_t result,
                                 const char *call);
/* Waits until NCCL has done what it was asked for on the CPU; what names it in messages. */
DMuonErrorCode dmuon_nccl_settle(dmuon_cuda_comm *comm, const char *what);
/* A group of calls on one communicator and queue, behind all earlier ones of this device where NCCL
 * does not see to it. end closes the group whatever code is, and returns code or its own failure;
 * name lives for ever. */
DMuonErrorCode dmuon_nccl_begin(dmuon_cuda_comm *comm, dmuon_queue *queue);
DMuonErrorCode dmuon_nccl_end(dmuon_cuda_comm *comm, dmuon_queue *queue, const char *name,
                              DMuonErrorCode code);
/* Calls of such a group. */
DMuonErrorCode dmuon_nccl_send(dmuon_cuda_comm *comm, dmuon_queue *queue, const void *data,
                               int64_t count, DMuonDType dtype, int to);
DMuonErrorCode dmuon_nccl_receive(dmuon_cuda_comm *comm, dmuon_queue *queue, void *data,
                                  int64_t count, DMuonDType dtype, int from);
DMuonErrorCode dmuon_nccl_broadcast(dmuon_cuda_comm *comm, dmuon_queue *queue, void *data,
                                    int64_t count, DMuonDType dtype, int root);
DMuonErrorCode dmuon_nccl_reduce(dmuon_cuda_comm *comm, dmuon_queue *queue, const void *in,
                                 void *out, int64_t count, DMuonDType dtype, int root);
const char *dmuon_cuda_axis_name(DMuonAxis axis);

/* At least so many chunks of so many bytes (comm.c). */
DMuonErrorCode dmuon_cuda_comm_chunks(dmuon_cuda_comm *comm, int64_t bytes, int count);
/* The communicator can be used, and these are ranks of it (comm.c). */
DMuonErrorCode dmuon_cuda_comm_check(dmuon_cuda_comm *comm, const char *name, int root);
DMuonErrorCode dmuon_cuda_comm_check_segments(dmuon_cuda_comm *comm, const char *name, int count,
                                              const dmuon_segment *segments);
/* How many chunks reducing takes, and of how many elements one is (comm_reduce.c). */
int dmuon_cuda_reduce_chunks(const dmuon_cuda_comm *comm);
int64_t dmuon_cuda_chunk_elements(const dmuon_cuda_comm *comm, DMuonDType in, DMuonDType sum);

/* Entries of the table. comm_spread.c: */
DMuonErrorCode dmuon_cuda_gather_segments(dmuon_queue *queue, dmuon_comm *comm, int segment_count,
                                          const dmuon_segment *segments, DMuonDType dtype,
                                          void *buffer);
DMuonErrorCode dmuon_cuda_move_segments(dmuon_queue *queue, dmuon_comm *comm, int move_count,
                                        const dmuon_move *moves, DMuonDType dtype, const void *in,
                                        void *out);
DMuonErrorCode dmuon_cuda_broadcast(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                    DMuonDType dtype, void *buffer);
DMuonErrorCode dmuon_cuda_gather(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                 DMuonDType dtype, const void *in, void *out);
DMuonErrorCode dmuon_cuda_scatter(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                  DMuonDType dtype, const void *in, void *out);
/* comm_reduce.c: */
DMuonErrorCode dmuon_cuda_reduce_segments(dmuon_queue *queue, dmuon_comm *comm,
                                          const dmuon_reduce *args);
DMuonErrorCode dmuon_cuda_all_reduce(dmuon_queue *queue, dmuon_comm *comm, int64_t count,
                                     DMuonDType dtype, void *buffer);

#endif
