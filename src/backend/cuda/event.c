/* Events of CUDA, without timing. One that was never recorded counts as done, and a wait means the
 * record issued last, as the seam wants it. */
#include "backend/cuda/cuda.h"

static DMuonErrorCode event_create(dmuon_cuda_device *device, dmuon_event **event) {
  dmuon_event *e = NULL;
  DMUON_TRY(dmuon_memory_alloc(dmuon_cuda_memory(device), 1, sizeof *e, &e));
  e->device = device;
  DMuonErrorCode code = DMUON_CUDA(cudaEventCreateWithFlags, (&e->event, cudaEventDisableTiming));
  if (code) {
    dmuon_memory_free(e);
    return code;
  }
  *event = e;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_event_create(dmuon_device *device, dmuon_event **event) {
  DMUON_CUDA_WITHIN(dmuon_cuda_of(device), event_create(dmuon_cuda_of(device), event));
}

void dmuon_cuda_event_destroy(dmuon_event *event) {
  if (!event) return;
  const int previous = dmuon_cuda_enter(event->device);
  (void)cudaEventDestroy(event->event);
  dmuon_cuda_leave(event->device, previous);
  dmuon_memory_free(event);
}

DMuonErrorCode dmuon_cuda_event_record(dmuon_queue *queue, dmuon_event *event) {
  DMUON_CUDA_WITHIN(queue->device, DMUON_CUDA(cudaEventRecord, (event->event, queue->stream)));
}

DMuonErrorCode dmuon_cuda_event_wait(dmuon_queue *queue, dmuon_event *event) {
  DMUON_CUDA_WITHIN(queue->device,
                    DMUON_CUDA(cudaStreamWaitEvent, (queue->stream, event->event, 0)));
}

static DMuonErrorCode event_query(dmuon_event *event, int *done) {
  cudaError_t answer = cudaEventQuery(event->event);
  if (answer == cudaErrorNotReady) {
    (void)cudaGetLastError(); /* not ready is no failure */
    *done = 0;
    return DMUON_SUCCESS;
  }
  DMUON_TRY(dmuon_cuda_error(answer, "cudaEventQuery"));
  *done = 1;
  return DMUON_SUCCESS;
}

static DMuonErrorCode event_test(dmuon_event *event, int *done) {
  int answer = 0;
  DMUON_TRY(event_query(event, &answer));
  if (!answer) DMUON_TRY(dmuon_cuda_advance(event->device));
  *done = answer;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_event_test(dmuon_event *event, int *done) {
  DMUON_CUDA_WITHIN(event->device, event_test(event, done));
}

static DMuonErrorCode event_sync(dmuon_event *event) {
  const double since = dmuon_cuda_seconds();
  for (int64_t turn = 0;; turn++) {
    int done = 0;
    DMUON_TRY(event_query(event, &done));
    if (done) return DMUON_SUCCESS;
    DMUON_TRY(dmuon_cuda_pause(event->device, since, turn, "what an event stands for"));
  }
}

DMuonErrorCode dmuon_cuda_event_sync(dmuon_event *event) {
  DMUON_CUDA_WITHIN(event->device, event_sync(event));
}
