/* The traced device: its life, queues, events and memory. Every entry records, then passes the
 * call on to the inner device when there is one; without one, everything is done at once. */
#include "backend/trace/device_state.h"

#include <string.h>

static trace_device *of_device(dmuon_device *device) {
  return (trace_device *)(void *)device;
}

static trace_event *of_event(dmuon_event *event) {
  return (trace_event *)(void *)event;
}

static DMuonErrorCode add(trace_device *device, dmuon_trace_operation operation, int64_t queue,
                          int64_t event) {
  dmuon_trace_record *record;
  DMUON_TRY(dmuon_trace_log_add(&device->log, operation, queue, &record));
  if (record) record->event = event;
  return DMUON_SUCCESS;
}

/* ---- queues and events --------------------------------------------------------------------- */

static void trace_queue_destroy(dmuon_queue *queue) {
  if (!queue) return;
  trace_queue *q = traced(queue);
  q->device->log.live_queues--;
  if (q->inner) q->device->inner->ops->queue_destroy(q->inner);
  dmuon_memory_free(q);
}

static DMuonErrorCode trace_queue_create(dmuon_device *base, int high_priority,
                                         dmuon_queue **queue) {
  trace_device *device = of_device(base);
  trace_queue *q = NULL;
  DMUON_TRY(dmuon_memory_alloc(&base->context->memory, 1, sizeof *q, &q));
  q->device = device;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (device->inner)
    code = device->inner->ops->queue_create(device->inner, high_priority, &q->inner);
  if (!code) code = dmuon_trace_log_queue(&device->log, &q->number);
  if (code) {
    if (q->inner) device->inner->ops->queue_destroy(q->inner);
    dmuon_memory_free(q);
    return code;
  }
  *queue = (dmuon_queue *)(void *)q;
  return DMUON_SUCCESS;
}

/* The wait first: what is recorded has happened. */
static DMuonErrorCode trace_queue_sync(dmuon_queue *queue) {
  trace_queue *q = traced(queue);
  if (q->inner) DMUON_TRY(q->device->inner->ops->queue_sync(q->inner));
  return add(q->device, DMUON_TRACE_QUEUE_SYNC, q->number, -1);
}

static DMuonErrorCode trace_event_create(dmuon_device *base, dmuon_event **event) {
  trace_device *device = of_device(base);
  trace_event *e = NULL;
  DMUON_TRY(dmuon_memory_alloc(&base->context->memory, 1, sizeof *e, &e));
  e->device = device;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (device->inner) code = device->inner->ops->event_create(device->inner, &e->inner);
  if (code) {
    dmuon_memory_free(e);
    return code;
  }
  e->number = dmuon_trace_log_event(&device->log);
  *event = (dmuon_event *)(void *)e;
  return DMUON_SUCCESS;
}

static void trace_event_destroy(dmuon_event *event) {
  if (!event) return;
  trace_event *e = of_event(event);
  e->device->log.live_events--;
  if (e->inner) e->device->inner->ops->event_destroy(e->inner);
  dmuon_memory_free(e);
}

static DMuonErrorCode trace_event_record(dmuon_queue *queue, dmuon_event *event) {
  trace_queue *q = traced(queue);
  trace_event *e = of_event(event);
  DMUON_TRY(add(q->device, DMUON_TRACE_RECORD, q->number, e->number));
  if (q->inner) DMUON_TRY(q->device->inner->ops->event_record(q->inner, e->inner));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_event_wait(dmuon_queue *queue, dmuon_event *event) {
  trace_queue *q = traced(queue);
  trace_event *e = of_event(event);
  DMUON_TRY(add(q->device, DMUON_TRACE_WAIT, q->number, e->number));
  if (q->inner) DMUON_TRY(q->device->inner->ops->event_wait(q->inner, e->inner));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_event_test(dmuon_event *event, int *done) {
  trace_event *e = of_event(event);
  int answer = 1;
  if (e->inner) DMUON_TRY(e->device->inner->ops->event_test(e->inner, &answer));
  if (answer) DMUON_TRY(add(e->device, DMUON_TRACE_EVENT_SYNC, -1, e->number));
  *done = answer;
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_event_sync(dmuon_event *event) {
  trace_event *e = of_event(event);
  if (e->inner) DMUON_TRY(e->device->inner->ops->event_sync(e->inner));
  return add(e->device, DMUON_TRACE_EVENT_SYNC, -1, e->number);
}

static DMuonErrorCode trace_reserve(dmuon_device *base, int64_t operations) {
  dmuon_device *inner = of_device(base)->inner;
  if (inner) DMUON_TRY(inner->ops->reserve(inner, operations));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_reserve_matrix(dmuon_queue *queue, DMuonDType dtype, int64_t rows,
                                           int64_t cols) {
  trace_queue *q = traced(queue);
  if (q->inner) DMUON_TRY(q->device->inner->ops->reserve_matrix(q->inner, dtype, rows, cols));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_progress(dmuon_device *base) {
  dmuon_device *inner = of_device(base)->inner;
  if (inner) DMUON_TRY(inner->ops->progress(inner));
  return DMUON_SUCCESS;
}

/* A time is no part of the order. */
static DMuonErrorCode trace_stamp(dmuon_queue *queue, double *seconds) {
  trace_queue *q = traced(queue);
  *seconds = 0;
  if (q->inner) DMUON_TRY(q->device->inner->ops->stamp(q->inner, seconds));
  return DMUON_SUCCESS;
}

/* ---- the caller ---------------------------------------------------------------------------- */

static DMuonErrorCode trace_lend(dmuon_queue *queue) {
  trace_queue *q = traced(queue);
  if (q->inner) DMUON_TRY(q->device->inner->ops->lend(q->inner));
  return add(q->device, DMUON_TRACE_LEND, q->number, -1);
}

static DMuonErrorCode trace_reclaim(dmuon_queue *queue, const void *ptr, int64_t bytes,
                                    int written) {
  trace_queue *q = traced(queue);
  DMUON_TRY(add(q->device, DMUON_TRACE_RECLAIM, q->number, -1));
  DMUON_TRY(dmuon_trace_log_access(&q->device->log, ptr, bytes, written, 0));
  if (q->inner) DMUON_TRY(q->device->inner->ops->reclaim(q->inner, ptr, bytes, written));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_touch(dmuon_device *device, const void *ptr, int64_t bytes,
                                 int written) {
  dmuon_trace_log *log = dmuon_trace_log_of(device);
  if (!log) return DMUON_SUCCESS;
  DMUON_TRY(add(of_device(device), DMUON_TRACE_TOUCH, -1, -1));
  return dmuon_trace_log_access(log, ptr, bytes, written, 0);
}

/* object: a buffer, a queue (is_queue), or NULL for what comes next. */
static void trace_note(dmuon_device *base, const void *object, int is_queue, const char *text) {
  trace_device *device = of_device(base);
  /* A note that finds no memory is no reason to fail: it is missing. */
  if (!object)
    (void)dmuon_trace_log_note(&device->log, text);
  else if (is_queue)
    (void)dmuon_trace_log_name_queue(&device->log, ((const trace_queue *)object)->number, text);
  else
    (void)dmuon_trace_log_label(&device->log, object, text);
}

/* ---- memory -------------------------------------------------------------------------------- */

static DMuonErrorCode trace_alloc(dmuon_device *base, int64_t bytes, void **ptr) {
  trace_device *device = of_device(base);
  void *made = NULL;
  if (device->inner) DMUON_TRY(device->inner->ops->alloc(device->inner, bytes, &made));
  DMuonErrorCode code = dmuon_trace_log_alloc(&device->log, bytes, &made);
  if (code) {
    if (device->inner) device->inner->ops->free(device->inner, made);
    return code;
  }
  *ptr = made;
  return DMUON_SUCCESS;
}

static void trace_free(dmuon_device *base, void *ptr) {
  trace_device *device = of_device(base);
  dmuon_trace_record *record;
  if (!ptr) return;
  /* A record that finds no room is missing; freeing cannot fail. */
  if (!dmuon_trace_log_add(&device->log, DMUON_TRACE_FREE, -1, &record))
    (void)dmuon_trace_log_access(&device->log, ptr, 1, 1, 0);
  dmuon_trace_log_forget(&device->log, ptr);
  if (device->inner) device->inner->ops->free(device->inner, ptr);
}

static DMuonErrorCode trace_alloc_host(dmuon_device *base, int64_t bytes, void **ptr) {
  dmuon_device *inner = of_device(base)->inner;
  char *made = NULL;
  if (inner)
    DMUON_TRY(inner->ops->alloc_host(inner, bytes, (void **)&made));
  else
    DMUON_TRY(dmuon_memory_alloc(&base->context->memory, bytes, 1, &made));
  *ptr = made;
  return DMUON_SUCCESS;
}

static void trace_free_host(dmuon_device *base, void *ptr) {
  dmuon_device *inner = of_device(base)->inner;
  if (inner)
    inner->ops->free_host(inner, ptr);
  else
    dmuon_memory_free(ptr);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void trace_destroy(dmuon_device *base) {
  if (!base) return;
  trace_device *device = of_device(base);
  if (device->inner) device->inner->ops->destroy(device->inner);
  dmuon_trace_log_free(&device->log);
  dmuon_memory_free(device);
}

const DMuonDeviceOps dmuon_trace_device_ops = {
    .name = "trace",
    .queue_create = trace_queue_create,
    .queue_destroy = trace_queue_destroy,
    .queue_sync = trace_queue_sync,
    .event_create = trace_event_create,
    .event_destroy = trace_event_destroy,
    .event_record = trace_event_record,
    .event_wait = trace_event_wait,
    .event_test = trace_event_test,
    .event_sync = trace_event_sync,
    .reserve = trace_reserve,
    .reserve_matrix = trace_reserve_matrix,
    .progress = trace_progress,
    .lend = trace_lend,
    .reclaim = trace_reclaim,
    .discard = dmuon_trace_discard,
    .stamp = trace_stamp,
    .alloc = trace_alloc,
    .free = trace_free,
    .alloc_host = trace_alloc_host,
    .free_host = trace_free_host,
    .zero = dmuon_trace_zero,
    .copy = dmuon_trace_copy_bytes,
    .cast = dmuon_trace_cast,
    .pack = dmuon_trace_pack,
    .copy_matrix = dmuon_trace_copy_matrix,
    .gemm = dmuon_trace_gemm,
    .syrk = dmuon_trace_syrk,
    .gemm_symmetric = dmuon_trace_gemm_symmetric,
    .axpby = dmuon_trace_axpby,
    .divide = dmuon_trace_divide,
    .add_diagonal = dmuon_trace_add_diagonal,
    .norm = dmuon_trace_norm,
    .find_nonfinite = dmuon_trace_find_nonfinite,
    .decide = dmuon_trace_decide,
    .muon_momentum = dmuon_trace_muon_momentum,
    .muon_apply = dmuon_trace_muon_apply,
    .adamw = dmuon_trace_adamw,
    .note = trace_note,
    .destroy = trace_destroy,
};

DMuonErrorCode dmuon_trace_device_create(dmuon_context *context, dmuon_device *inner,
                                         const DMuonCommOps *inner_comm, int64_t limit,
                                         dmuon_device **device) {
  trace_device *made = NULL;
  DMUON_TRY(dmuon_memory_alloc(&context->memory, 1, sizeof *made, &made));
  made->base.ops = &dmuon_trace_device_ops;
  made->base.context = context;
  made->base.decides_late = inner && inner->decides_late;
  made->base.prefers_half = inner && inner->prefers_half;
  made->base.prefers_batches = inner && inner->prefers_batches;
  made->base.cuts_products = inner && inner->cuts_products;
  made->inner = inner;
  made->inner_comm = inner_comm;
  dmuon_trace_log_init(&made->log, limit);
  *device = &made->base;
  return DMUON_SUCCESS;
}

dmuon_device *dmuon_trace_device_inner(dmuon_device *device) {
  return of_device(device)->inner;
}

dmuon_trace_log *dmuon_trace_log_of(dmuon_device *device) {
  return device && device->ops == &dmuon_trace_device_ops ? &of_device(device)->log : NULL;
}
