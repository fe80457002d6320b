/* The traced device's work on memory: which bytes each operation reads and which it writes. Of a
 * matrix with a leading dimension all between its first and last element counts. */
#include "backend/trace/device_state.h"

static DMuonErrorCode begin(dmuon_queue *queue, dmuon_trace_operation operation, DMuonDType dtype) {
  trace_queue *q = traced(queue);
  dmuon_trace_record *record;
  DMUON_TRY(dmuon_trace_log_add(&q->device->log, operation, q->number, &record));
  if (record) record->dtype = dtype;
  return DMUON_SUCCESS;
}

static DMuonErrorCode touch(dmuon_queue *queue, const void *ptr, int64_t bytes, int is_write) {
  return dmuon_trace_log_access(&traced(queue)->device->log, ptr, bytes, is_write, 0);
}

static DMuonErrorCode reads(dmuon_queue *queue, const void *ptr, int64_t n, DMuonDType dtype) {
  return touch(queue, ptr, n * (int64_t)dmuon_dtype_bytes(dtype), 0);
}

static DMuonErrorCode writes(dmuon_queue *queue, const void *ptr, int64_t n, DMuonDType dtype) {
  return touch(queue, ptr, n * (int64_t)dmuon_dtype_bytes(dtype), 1);
}

/* Scalars that operations read and write lie in a buffer, or in the host's memory: who reads them
 * there waits for the queue. */
static int is_buffer(dmuon_queue *queue, const void *scalar) {
  return dmuon_trace_log_holds(&traced(queue)->device->log, scalar);
}

static int64_t matrix_extent(int64_t rows, int64_t cols, int64_t ld) {
  return rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0;
}

/* The same over a batch: from the first element of the first matrix to the last of the last. */
static int64_t batch_extent(int64_t rows, int64_t cols, int64_t ld, const dmuon_batch *batch,
                            int64_t stride) {
  const int64_t one = matrix_extent(rows, cols, ld);
  if (!batch || one == 0) return one;
  return batch->count > 0 ? (batch->count - 1) * stride + one : 0;
}

/* The inner device's table and queue, for passing a call on. */
#define PASS_ON(queue, call)                                         \
  do {                                                               \
    dmuon_queue *inner = traced(queue)->inner;                       \
    if (inner) {                                                     \
      const DMuonDeviceOps *ops = traced(queue)->device->inner->ops; \
      DMUON_TRY(ops->call);                                          \
    }                                                                \
    return DMUON_SUCCESS;                                            \
  } while (0)

DMuonErrorCode dmuon_trace_zero(dmuon_queue *queue, void *dst, int64_t bytes) {
  DMUON_TRY(begin(queue, DMUON_TRACE_ZERO, (DMuonDType)-1));
  DMUON_TRY(touch(queue, dst, bytes, 1));
  PASS_ON(queue, zero(inner, dst, bytes));
}

DMuonErrorCode dmuon_trace_discard(dmuon_queue *queue, void *dst, int64_t bytes) {
  DMUON_TRY(begin(queue, DMUON_TRACE_DISCARD, (DMuonDType)-1));
  DMUON_TRY(touch(queue, dst, bytes, 1));
  PASS_ON(queue, discard(inner, dst, bytes));
}

DMuonErrorCode dmuon_trace_copy_bytes(dmuon_queue *queue, void *dst, const void *src,
                                      int64_t bytes) {
  DMUON_TRY(begin(queue, DMUON_TRACE_COPY, (DMuonDType)-1));
  DMUON_TRY(touch(queue, src, bytes, 0));
  DMUON_TRY(touch(queue, dst, bytes, 1));
  PASS_ON(queue, copy(inner, dst, src, bytes));
}

DMuonErrorCode dmuon_trace_cast(dmuon_queue *queue, int64_t n, void *dst, DMuonDType dst_dtype,
                                const void *src, DMuonDType src_dtype) {
  DMUON_TRY(begin(queue, DMUON_TRACE_CAST, dst_dtype));
  DMUON_TRY(reads(queue, src, n, src_dtype));
  DMUON_TRY(writes(queue, dst, n, dst_dtype));
  PASS_ON(queue, cast(inner, n, dst, dst_dtype, src, src_dtype));
}

DMuonErrorCode dmuon_trace_pack(dmuon_queue *queue, const dmuon_pack *args) {
  DMUON_TRY(begin(queue, DMUON_TRACE_PACK, args->dst_dtype));
  DMUON_TRY(reads(queue, args->addend, args->n, args->addend_dtype));
  DMUON_TRY(reads(queue, args->src, args->n, args->src_dtype));
  DMUON_TRY(writes(queue, args->dst, args->n, args->dst_dtype));
  PASS_ON(queue, pack(inner, args));
}

DMuonErrorCode dmuon_trace_copy_matrix(dmuon_queue *queue, const dmuon_copy_matrix *args) {
  const int64_t rows = args->transpose ? args->cols : args->rows;
  const int64_t cols = args->transpose ? args->rows : args->cols;
  DMUON_TRY(begin(queue, DMUON_TRACE_COPY_MATRIX, args->dst_dtype));
  DMUON_TRY(reads(queue, args->src, matrix_extent(args->rows, args->cols, args->src_ld),
                  args->src_dtype));
  if (args->divide && is_buffer(queue, args->divide))
    DMUON_TRY(touch(queue, args->divide, sizeof *args->divide, 0));
  DMUON_TRY(writes(queue, args->dst, matrix_extent(rows, cols, args->dst_ld), args->dst_dtype));
  PASS_ON(queue, copy_matrix(inner, args));
}

DMuonErrorCode dmuon_trace_gemm(dmuon_queue *queue, DMuonDType dtype, int transpose_a,
                                int transpose_b, int64_t m, int64_t n, int64_t k, double alpha,
                                const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                                void *c, int64_t ldc, const dmuon_batch *batch) {
  const int64_t stride_a = batch ? batch->stride_a : 0, stride_b = batch ? batch->stride_b : 0;
  const int64_t of_a = transpose_a ? batch_extent(k, m, lda, batch, stride_a)
                                   : batch_extent(m, k, lda, batch, stride_a);
  const int64_t of_b = transpose_b ? batch_extent(n, k, ldb, batch, stride_b)
                                   : batch_extent(k, n, ldb, batch, stride_b);
  const int64_t of_c = batch_extent(m, n, ldc, batch, batch ? batch->stride_c : 0);
  DMUON_TRY(begin(queue, DMUON_TRACE_GEMM, dtype));
  DMUON_TRY(reads(queue, a, of_a, dtype));
  DMUON_TRY(reads(queue, b, of_b, dtype));
  if (beta != 0) DMUON_TRY(reads(queue, c, of_c, dtype));
  DMUON_TRY(writes(queue, c, of_c, dtype));
  PASS_ON(queue, gemm(inner, dtype, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta,
                      c, ldc, batch));
}

DMuonErrorCode dmuon_trace_syrk(dmuon_queue *queue, DMuonDType dtype, int64_t m, int64_t k,
                                double alpha, const void *a, int64_t lda, double beta, void *c,
                                int64_t ldc, const dmuon_batch *batch) {
  const int64_t of_c = batch_extent(m, m, ldc, batch, batch ? batch->stride_c : 0);
  DMUON_TRY(begin(queue, DMUON_TRACE_SYRK, dtype));
  DMUON_TRY(reads(queue, a, batch_extent(m, k, lda, batch, batch ? batch->stride_a : 0), dtype));
  if (beta != 0) DMUON_TRY(reads(queue, c, of_c, dtype));
  DMUON_TRY(writes(queue, c, of_c, dtype));
  PASS_ON(queue, syrk(inner, dtype, m, k, alpha, a, lda, beta, c, ldc, batch));
}

DMuonErrorCode dmuon_trace_gemm_symmetric(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                          double alpha, const void *a, int64_t lda, const void *b,
                                          int64_t ldb, double beta, void *c, int64_t ldc,
                                          const dmuon_batch *batch) {
  const int64_t of_c = batch_extent(m, m, ldc, batch, batch ? batch->stride_c : 0);
  DMUON_TRY(begin(queue, DMUON_TRACE_GEMM_SYMMETRIC, dtype));
  DMUON_TRY(reads(queue, a, batch_extent(m, m, lda, batch, batch ? batch->stride_a : 0), dtype));
  DMUON_TRY(reads(queue, b, batch_extent(m, m, ldb, batch, batch ? batch->stride_b : 0), dtype));
  if (beta != 0) DMUON_TRY(reads(queue, c, of_c, dtype));
  DMUON_TRY(writes(queue, c, of_c, dtype));
  PASS_ON(queue, gemm_symmetric(inner, dtype, m, alpha, a, lda, b, ldb, beta, c, ldc, batch));
}

DMuonErrorCode dmuon_trace_axpby(dmuon_queue *queue, int64_t n, DMuonDType dtype, double alpha,
                                 const void *x, double beta, void *y) {
  DMUON_TRY(begin(queue, DMUON_TRACE_AXPBY, dtype));
  DMUON_TRY(reads(queue, x, n, dtype));
  if (beta != 0) DMUON_TRY(reads(queue, y, n, dtype));
  DMUON_TRY(writes(queue, y, n, dtype));
  PASS_ON(queue, axpby(inner, n, dtype, alpha, x, beta, y));
}

DMuonErrorCode dmuon_trace_divide(dmuon_queue *queue, int64_t n, DMuonDType dtype, double divisor,
                                  void *x) {
  DMUON_TRY(begin(queue, DMUON_TRACE_DIVIDE, dtype));
  DMUON_TRY(reads(queue, x, n, dtype));
  DMUON_TRY(writes(queue, x, n, dtype));
  PASS_ON(queue, divide(inner, n, dtype, divisor, x));
}

DMuonErrorCode dmuon_trace_add_diagonal(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                        double alpha, void *c, int64_t ldc) {
  DMUON_TRY(begin(queue, DMUON_TRACE_ADD_DIAGONAL, dtype));
  DMUON_TRY(reads(queue, c, matrix_extent(m, m, ldc), dtype));
  DMUON_TRY(writes(queue, c, matrix_extent(m, m, ldc), dtype));
  PASS_ON(queue, add_diagonal(inner, dtype, m, alpha, c, ldc));
}

DMuonErrorCode dmuon_trace_norm(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                                const void *x, int64_t ld, dmuon_norm *norm) {
  DMUON_TRY(begin(queue, DMUON_TRACE_NORM, dtype));
  DMUON_TRY(reads(queue, x, matrix_extent(rows, cols, ld), dtype));
  if (is_buffer(queue, norm))
    DMUON_TRY(touch(queue, norm, sizeof *norm, 1));
  else if (!traced(queue)->inner)
    *norm = (dmuon_norm){.sum = 1};
  PASS_ON(queue, norm(inner, dtype, rows, cols, x, ld, norm));
}

DMuonErrorCode dmuon_trace_find_nonfinite(dmuon_queue *queue, const dmuon_pack *args,
                                          int64_t *index, float *flag) {
  DMUON_TRY(begin(queue, DMUON_TRACE_FIND_NONFINITE, args->dst_dtype));
  DMUON_TRY(reads(queue, args->addend, args->n, args->addend_dtype));
  DMUON_TRY(reads(queue, args->src, args->n, args->src_dtype));
  if (is_buffer(queue, index))
    DMUON_TRY(touch(queue, index, sizeof *index, 1));
  else if (!traced(queue)->inner)
    *index = -1;
  if (flag) DMUON_TRY(touch(queue, flag, sizeof *flag, 1));
  PASS_ON(queue, find_nonfinite(inner, args, index, flag));
}

DMuonErrorCode dmuon_trace_decide(dmuon_queue *queue, int64_t count, const float *flags, float *any,
                                  int64_t *skipped) {
  DMUON_TRY(begin(queue, DMUON_TRACE_DECIDE, DMUON_FLOAT32));
  DMUON_TRY(reads(queue, flags, count, DMUON_FLOAT32));
  DMUON_TRY(touch(queue, any, sizeof *any, 1));
  if (skipped) DMUON_TRY(touch(queue, skipped, sizeof *skipped, 1));
  PASS_ON(queue, decide(inner, count, flags, any, skipped));
}

DMuonErrorCode dmuon_trace_muon_momentum(dmuon_queue *queue, const dmuon_muon_momentum *args) {
  DMUON_TRY(begin(queue, DMUON_TRACE_MUON_MOMENTUM, args->momentum_dtype));
  if (args->skip) DMUON_TRY(touch(queue, args->skip, sizeof *args->skip, 0));
  DMUON_TRY(reads(queue, args->grad, args->n, args->grad_dtype));
  if (!args->first) DMUON_TRY(reads(queue, args->momentum, args->n, args->momentum_dtype));
  if (args->l2 != 0) DMUON_TRY(reads(queue, args->weight, args->n, args->weight_dtype));
  DMUON_TRY(writes(queue, args->momentum, args->n, args->momentum_dtype));
  DMUON_TRY(writes(queue, args->update, args->n, args->momentum_dtype));
  PASS_ON(queue, muon_momentum(inner, args));
}

DMuonErrorCode dmuon_trace_muon_apply(dmuon_queue *queue, const dmuon_muon_apply *args) {
  DMUON_TRY(begin(queue, DMUON_TRACE_MUON_APPLY, args->weight_dtype));
  if (args->skip) DMUON_TRY(touch(queue, args->skip, sizeof *args->skip, 0));
  if (args->skipped) DMUON_TRY(touch(queue, args->skipped, sizeof *args->skipped, 1));
  DMUON_TRY(reads(queue, args->update, args->n, args->update_dtype));
  DMUON_TRY(reads(queue, args->weight, args->n, args->weight_dtype));
  DMUON_TRY(writes(queue, args->weight, args->n, args->weight_dtype));
  DMUON_TRY(writes(queue, args->value, args->n, args->value_dtype));
  PASS_ON(queue, muon_apply(inner, args));
}

DMuonErrorCode dmuon_trace_adamw(dmuon_queue *queue, const dmuon_adamw *args) {
  DMUON_TRY(begin(queue, DMUON_TRACE_ADAMW, args->weight_dtype));
  if (args->skip) DMUON_TRY(touch(queue, args->skip, sizeof *args->skip, 0));
  if (args->skipped) DMUON_TRY(touch(queue, args->skipped, sizeof *args->skipped, 1));
  DMUON_TRY(reads(queue, args->grad, args->n, args->grad_dtype));
  DMUON_TRY(reads(queue, args->exp_avg, args->n, args->state_dtype));
  DMUON_TRY(reads(queue, args->exp_avg_sq, args->n, args->state_dtype));
  DMUON_TRY(reads(queue, args->weight, args->n, args->weight_dtype));
  DMUON_TRY(writes(queue, args->exp_avg, args->n, args->state_dtype));
  DMUON_TRY(writes(queue, args->exp_avg_sq, args->n, args->state_dtype));
  DMUON_TRY(writes(queue, args->weight, args->n, args->weight_dtype));
  DMUON_TRY(writes(queue, args->value, args->n, args->value_dtype));
  PASS_ON(queue, adamw(inner, args));
}
