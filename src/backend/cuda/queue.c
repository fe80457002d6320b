/* Queues: streams, their edges, and waiting for one without blocking in CUDA. A wait asks, lets the
 * rest of the process advance, and asks again; it ends with the work, with a failure of the device,
 * a communicator or the process, or with the timeout. */
#include "config.h"

#include "backend/cuda/cuda.h"

#include <sched.h>
#include <time.h>

enum { TURNS_BEFORE_SLEEP = 1000, SLEEP_NANOSECONDS = 50000 };

double dmuon_cuda_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static DMuonErrorCode make_stream(dmuon_queue *queue) {
  dmuon_cuda_device *device = queue->device;
  void *partials = NULL;
  DMUON_TRY(DMUON_CUDA(cudaStreamCreateWithPriority,
                       (&queue->stream, cudaStreamNonBlocking,
                        queue->high_priority ? device->high_priority : device->low_priority)));
  DMUON_TRY(dmuon_cuda_alloc(device, DMUON_CUDA_QUEUE_BYTES, &partials));
  queue->partials = partials;
  return DMUON_SUCCESS;
}

static DMuonErrorCode queue_create(dmuon_cuda_device *device, int high_priority,
                                   dmuon_queue **queue) {
  dmuon_queue *q = NULL;
  DMUON_TRY(dmuon_memory_alloc(dmuon_cuda_memory(device), 1, sizeof *q, &q));
  q->device = device;
  q->high_priority = high_priority;
  q->next = device->queues;
  device->queues = q;
  DMuonErrorCode code = make_stream(q);
  if (code) {
    dmuon_cuda_queue_destroy(q);
    return code;
  }
  *queue = q;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_queue_create(dmuon_device *device, int high_priority,
                                       dmuon_queue **queue) {
  DMUON_CUDA_WITHIN(dmuon_cuda_of(device),
                    queue_create(dmuon_cuda_of(device), high_priority, queue));
}

void dmuon_cuda_queue_destroy(dmuon_queue *queue) {
  if (!queue) return;
  dmuon_cuda_device *device = queue->device;
  const int previous = dmuon_cuda_enter(device);
  for (dmuon_queue **place = &device->queues; *place; place = &(*place)->next) {
    if (*place != queue) continue;
    *place = queue->next;
    break;
  }
  if (queue->stream) (void)cudaStreamDestroy(queue->stream);
  dmuon_cuda_free(device, queue->partials);
  dmuon_cuda_free(device, queue->pointers);
  dmuon_cuda_free(device, queue->blas_workspace);
  dmuon_memory_free(queue);
  dmuon_cuda_leave(device, previous);
}

/* What communication is under way says what is missing. */
static DMuonErrorCode time_out(dmuon_cuda_device *device, const char *what) {
  dmuon_text text;
  dmuon_text_init(&text, dmuon_cuda_memory(device));
  dmuon_cuda_comms_describe(device, &text);
  const char *under_way = "";
  if (dmuon_text_finish(&text, &under_way)) under_way = "";
  DMuonErrorCode code =
      DMUON_ERROR(DMUON_ERR_TIMEOUT, "%s did not end within %g seconds, the timeout; under way: %s",
                  what, device->timeout, *under_way ? under_way : "computation alone");
  dmuon_text_free(&text);
  dmuon_cuda_break(device, code);
  return code;
}

DMuonErrorCode dmuon_cuda_advance(dmuon_cuda_device *device) {
  if (device->progress) DMUON_TRY(device->progress(device->progress_argument));
  DMUON_TRY(dmuon_cuda_comms_check(device));
  DMUON_TRY(dmuon_cuda_check(device));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_progress(dmuon_device *device) {
  DMUON_CUDA_WITHIN(dmuon_cuda_of(device), dmuon_cuda_advance(dmuon_cuda_of(device)));
}

DMuonErrorCode dmuon_cuda_pause(dmuon_cuda_device *device, double since, int64_t turn,
                                const char *what) {
  DMUON_TRY(dmuon_cuda_advance(device));
  if (device->timeout > 0 && dmuon_cuda_seconds() - since > device->timeout)
    DMUON_TRY(time_out(device, what));
  sched_yield();
  if (turn > TURNS_BEFORE_SLEEP) {
    struct timespec nap = {0, SLEEP_NANOSECONDS};
    nanosleep(&nap, NULL);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode queue_sync(dmuon_queue *queue) {
  const double since = dmuon_cuda_seconds();
  for (int64_t turn = 0;; turn++) {
    cudaError_t answer = cudaStreamQuery(queue->stream);
    if (answer == cudaSuccess) return DMUON_SUCCESS;
    if (answer != cudaErrorNotReady) return dmuon_cuda_error(answer, "cudaStreamQuery");
    (void)cudaGetLastError(); /* not ready is no failure */
    DMUON_TRY(dmuon_cuda_pause(queue->device, since, turn, "a queue"));
  }
}

DMuonErrorCode dmuon_cuda_queue_sync(dmuon_queue *queue) {
  DMUON_CUDA_WITHIN(queue->device, queue_sync(queue));
}

DMuonErrorCode dmuon_cuda_order(dmuon_cuda_device *device, cudaStream_t earlier,
                                cudaStream_t later) {
  cudaEvent_t event = device->ring[device->ring_next];
  device->ring_next = (device->ring_next + 1) % DMUON_CUDA_RING;
  DMUON_TRY(DMUON_CUDA(cudaEventRecord, (event, earlier)));
  DMUON_TRY(DMUON_CUDA(cudaStreamWaitEvent, (later, event, 0)));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_lend(dmuon_queue *queue) {
  DMUON_CUDA_WITHIN(queue->device,
                    dmuon_cuda_order(queue->device, queue->stream, queue->device->caller));
}

DMuonErrorCode dmuon_cuda_reclaim(dmuon_queue *queue, const void *ptr, int64_t bytes, int written) {
  (void)ptr;
  (void)bytes;
  (void)written;
  DMUON_CUDA_WITHIN(queue->device,
                    dmuon_cuda_order(queue->device, queue->device->caller, queue->stream));
}
