/* The host's device: the table of operations, each of which copies its arguments into a task and
 * issues it. It decides nothing about order (engine.c), memory (buffer.c) or arithmetic (blas.c,
 * loops.c, norm.c, update_loops.c). */
#include "backend/host/host.h"

#include <string.h>

#include "backend/host/engine.h"
#include "backend/host/tasks.h"

typedef struct {
  dmuon_device base;
  dmuon_host_engine *engine;
} host_device;

static dmuon_host_engine *engine_of(dmuon_device *device) {
  return ((host_device *)device)->engine;
}

dmuon_host_engine *dmuon_host_device_engine(dmuon_device *device) {
  return engine_of(device);
}

#define HOST_FITS(type) \
  _Static_assert(sizeof(type) <= DMUON_HOST_TASK_BYTES, #type " does not fit into a task")
HOST_FITS(dmuon_host_product);
HOST_FITS(dmuon_host_find);
HOST_FITS(dmuon_copy_matrix);
HOST_FITS(dmuon_muon_momentum);
HOST_FITS(dmuon_muon_apply);
HOST_FITS(dmuon_adamw);

/* Queues and events. */

static DMuonErrorCode host_queue_create(dmuon_device *device, int high_priority,
                                        dmuon_queue **queue) {
  DMUON_TRY(dmuon_host_queue_create(engine_of(device), high_priority, queue));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_event_create(dmuon_device *device, dmuon_event **event) {
  DMUON_TRY(dmuon_host_event_create(engine_of(device), event));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_reserve(dmuon_device *device, int64_t operations) {
  DMUON_TRY(dmuon_host_engine_reserve(engine_of(device), operations));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_reserve_matrix(dmuon_queue *queue, DMuonDType dtype, int64_t rows,
                                          int64_t cols) {
  void *scratch = NULL;
  int64_t bytes = dmuon_host_product_scratch(dtype, rows, cols);
  if (bytes) DMUON_TRY(dmuon_host_engine_scratch(dmuon_host_queue_engine(queue), bytes, &scratch));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_progress(dmuon_device *device) {
  DMUON_TRY(dmuon_host_engine_progress(engine_of(device)));
  return DMUON_SUCCESS;
}

/* Memory. */

static DMuonErrorCode host_alloc(dmuon_device *device, int64_t bytes, void **ptr) {
  DMUON_TRY(dmuon_host_buffer_alloc(engine_of(device), bytes, ptr));
  return DMUON_SUCCESS;
}

static void host_free(dmuon_device *device, void *ptr) {
  dmuon_host_buffer_free(engine_of(device), ptr);
}

static DMuonErrorCode host_alloc_host(dmuon_device *device, int64_t bytes, void **ptr) {
  void *made;
  DMUON_TRY(dmuon_host_buffer_alloc(engine_of(device), bytes, &made));
  memset(made, 0, (size_t)bytes);
  *ptr = made;
  return DMUON_SUCCESS;
}

/* Operations. */

static DMuonErrorCode issue(dmuon_queue *queue, const dmuon_host_task_class *task_class,
                            const void *args, size_t args_bytes) {
  DMUON_TRY(dmuon_host_engine_issue(queue, task_class, NULL, args, args_bytes));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_zero(dmuon_queue *queue, void *dst, int64_t bytes) {
  dmuon_host_vector v = {.n = bytes, .dst = dst};
  DMUON_TRY(issue(queue, &dmuon_host_zero_task, &v, sizeof v));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_copy(dmuon_queue *queue, void *dst, const void *src, int64_t bytes) {
  dmuon_host_vector v = {.n = bytes, .dst = dst, .src = src};
  DMUON_TRY(issue(queue, &dmuon_host_copy_task, &v, sizeof v));
  return DMUON_SUCCESS;
}

/* The caller works in this thread: he comes after what was waited for, and before what is issued.
 */
static DMuonErrorCode host_reclaim(dmuon_queue *queue, const void *ptr, int64_t bytes,
                                   int written) {
  (void)ptr;
  (void)bytes;
  (void)written;
  DMUON_TRY(dmuon_host_engine_check(dmuon_host_queue_engine(queue)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_discard(dmuon_queue *queue, void *dst, int64_t bytes) {
  dmuon_host_vector v = {.n = bytes, .dst = dst};
  if (!dmuon_host_engine_is_deferred(dmuon_host_queue_engine(queue))) return DMUON_SUCCESS;
  DMUON_TRY(issue(queue, &dmuon_host_discard_task, &v, sizeof v));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_cast(dmuon_queue *queue, int64_t n, void *dst, DMuonDType dst_dtype,
                                const void *src, DMuonDType src_dtype) {
  dmuon_host_vector v = {
      .n = n, .dst = dst, .dst_dtype = dst_dtype, .src = src, .src_dtype = src_dtype};
  DMUON_TRY(issue(queue, &dmuon_host_cast_task, &v, sizeof v));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_pack(dmuon_queue *queue, const dmuon_pack *args) {
  DMUON_TRY(issue(queue, &dmuon_host_pack_task, args, sizeof *args));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_copy_matrix(dmuon_queue *queue, const dmuon_copy_matrix *args) {
  DMUON_TRY(issue(queue, &dmuon_host_copy_matrix_task, args, sizeof *args));
  return DMUON_SUCCESS;
}

static dmuon_batch batch_of(const dmuon_batch *batch) {
  return batch ? *batch : (dmuon_batch){.count = 1};
}

static DMuonErrorCode host_gemm(dmuon_queue *queue, DMuonDType dtype, int transpose_a,
                                int transpose_b, int64_t m, int64_t n, int64_t k, double alpha,
                                const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                                void *c, int64_t ldc, const dmuon_batch *batch) {
  dmuon_host_product p = {dtype, transpose_a, transpose_b, m,   n,   k,   alpha,          beta,
                          a,     b,           c,           lda, ldb, ldc, batch_of(batch)};
  DMUON_TRY(issue(queue, &dmuon_host_gemm_task, &p, sizeof p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_syrk(dmuon_queue *queue, DMuonDType dtype, int64_t m, int64_t k,
                                double alpha, const void *a, int64_t lda, double beta, void *c,
                                int64_t ldc, const dmuon_batch *batch) {
  dmuon_host_product p = {dtype, 0,    0, m,   m, k,   alpha,          beta,
                          a,     NULL, c, lda, 0, ldc, batch_of(batch)};
  DMUON_TRY(issue(queue, &dmuon_host_syrk_task, &p, sizeof p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_gemm_symmetric(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                          double alpha, const void *a, int64_t lda, const void *b,
                                          int64_t ldb, double beta, void *c, int64_t ldc,
                                          const dmuon_batch *batch) {
  dmuon_host_product p = {dtype, 0, 0, m,   m,   m,   alpha,          beta,
                          a,     b, c, lda, ldb, ldc, batch_of(batch)};
  DMUON_TRY(issue(queue, &dmuon_host_gemm_symmetric_task, &p, sizeof p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_axpby(dmuon_queue *queue, int64_t n, DMuonDType dtype, double alpha,
                                 const void *x, double beta, void *y) {
  dmuon_host_vector v = {.n = n,
                         .dst = y,
                         .dst_dtype = dtype,
                         .src = x,
                         .src_dtype = dtype,
                         .alpha = alpha,
                         .beta = beta};
  DMUON_TRY(issue(queue, &dmuon_host_axpby_task, &v, sizeof v));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_divide(dmuon_queue *queue, int64_t n, DMuonDType dtype, double divisor,
                                  void *x) {
  dmuon_host_vector v = {.n = n, .dst = x, .dst_dtype = dtype, .alpha = divisor};
  DMUON_TRY(issue(queue, &dmuon_host_divide_task, &v, sizeof v));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_add_diagonal(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                        double alpha, void *c, int64_t ldc) {
  dmuon_host_diagonal d = {dtype, m, ldc, alpha, c};
  DMUON_TRY(issue(queue, &dmuon_host_diagonal_task, &d, sizeof d));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_norm(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                                const void *x, int64_t ld, dmuon_norm *norm) {
  dmuon_host_norm n = {dtype, rows, cols, x, ld, norm};
  DMUON_TRY(issue(queue, &dmuon_host_norm_task, &n, sizeof n));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_find_nonfinite(dmuon_queue *queue, const dmuon_pack *args,
                                          int64_t *index, float *flag) {
  dmuon_host_find f = {*args, index, flag};
  DMUON_TRY(issue(queue, &dmuon_host_find_task, &f, sizeof f));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_decide(dmuon_queue *queue, int64_t count, const float *flags, float *any,
                                  int64_t *skipped) {
  dmuon_host_decide d = {count, flags, any, skipped};
  DMUON_TRY(issue(queue, &dmuon_host_decide_task, &d, sizeof d));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_muon_momentum(dmuon_queue *queue, const dmuon_muon_momentum *args) {
  DMUON_TRY(issue(queue, &dmuon_host_momentum_task, args, sizeof *args));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_muon_apply(dmuon_queue *queue, const dmuon_muon_apply *args) {
  DMUON_TRY(issue(queue, &dmuon_host_apply_task, args, sizeof *args));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_adamw(dmuon_queue *queue, const dmuon_adamw *args) {
  DMUON_TRY(issue(queue, &dmuon_host_adamw_task, args, sizeof *args));
  return DMUON_SUCCESS;
}

/* The only compute task that is short enough to live here. */
static DMuonErrorCode stamp_advance(dmuon_host_engine *engine, void *args, int *done) {
  double *seconds;
  (void)engine;
  memcpy(&seconds, args, sizeof seconds);
  *seconds = dmuon_host_seconds();
  *done = 1;
  return DMUON_SUCCESS;
}

static const dmuon_host_task_class stamp_task = {.name = "stamp", .advance = stamp_advance};

static DMuonErrorCode host_stamp(dmuon_queue *queue, double *seconds) {
  DMUON_TRY(issue(queue, &stamp_task, &seconds, sizeof seconds));
  return DMUON_SUCCESS;
}

static void host_destroy(dmuon_device *device) {
  if (!device) return;
  dmuon_host_engine_destroy(engine_of(device));
  dmuon_memory_free(device);
}

static const DMuonDeviceOps host_ops = {
    .name = "host",
    .queue_create = host_queue_create,
    .queue_destroy = dmuon_host_queue_destroy,
    .queue_sync = dmuon_host_queue_sync,
    .event_create = host_event_create,
    .event_destroy = dmuon_host_event_destroy,
    .event_record = dmuon_host_event_record,
    .event_wait = dmuon_host_event_wait,
    .event_test = dmuon_host_event_test,
    .event_sync = dmuon_host_event_sync,
    .reserve = host_reserve,
    .reserve_matrix = host_reserve_matrix,
    .progress = host_progress,
    .lend = dmuon_host_queue_sync,
    .reclaim = host_reclaim,
    .discard = host_discard,
    .stamp = host_stamp,
    .alloc = host_alloc,
    .free = host_free,
    .alloc_host = host_alloc_host,
    .free_host = host_free,
    .zero = host_zero,
    .copy = host_copy,
    .cast = host_cast,
    .pack = host_pack,
    .copy_matrix = host_copy_matrix,
    .gemm = host_gemm,
    .syrk = host_syrk,
    .gemm_symmetric = host_gemm_symmetric,
    .axpby = host_axpby,
    .divide = host_divide,
    .add_diagonal = host_add_diagonal,
    .norm = host_norm,
    .find_nonfinite = host_find_nonfinite,
    .decide = host_decide,
    .muon_momentum = host_muon_momentum,
    .muon_apply = host_muon_apply,
    .adamw = host_adamw,
    .destroy = host_destroy,
};

DMuonErrorCode dmuon_host_device_create(dmuon_context *context, int deferred, uint64_t seed,
                                        dmuon_device **device) {
  host_device *d = NULL;
  DMUON_TRY(dmuon_memory_alloc(&context->memory, 1, sizeof *d, &d));
  d->base.ops = &host_ops;
  d->base.context = context;
  DMuonErrorCode code = dmuon_host_engine_create(context, &d->engine);
  if (code) {
    dmuon_memory_free(d);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  dmuon_host_engine_set_deferred(d->engine, deferred, seed);
  *device = &d->base;
  return DMUON_SUCCESS;
}

void dmuon_host_device_set_timeout(dmuon_device *device, double seconds) {
  dmuon_host_engine_set_timeout(engine_of(device), seconds);
}

void dmuon_host_device_set_delay(dmuon_device *device, double seconds) {
  dmuon_host_engine_set_delay(engine_of(device), seconds);
}

void dmuon_host_device_break(dmuon_device *device, DMuonErrorCode code) {
  dmuon_host_engine_break(engine_of(device), code);
}
