/* The element operations of the table: each fills the arguments of its kernel and launches it. The
 * arithmetic is in bodies.h. */
#include "backend/cuda/cuda.h"

#include <math.h>

#include "backend/cuda/kernels.h"

#define LAUNCH(queue, name, blocks, args) \
  dmuon_cuda_launch((queue), (const void *)dmuon_kernel_##name, (blocks), DMUON_THREADS, (args))

DMuonErrorCode dmuon_cuda_zero(dmuon_queue *queue, void *dst, int64_t bytes) {
  if (bytes <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device,
                    DMUON_CUDA(cudaMemsetAsync, (dst, 0, (size_t)bytes, queue->stream)));
}

DMuonErrorCode dmuon_cuda_copy(dmuon_queue *queue, void *dst, const void *src, int64_t bytes) {
  if (bytes <= 0 || dst == src) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device, DMUON_CUDA(cudaMemcpyAsync, (dst, src, (size_t)bytes,
                                                                cudaMemcpyDefault, queue->stream)));
}

/* What lies there is undefined and may stay. */
DMuonErrorCode dmuon_cuda_discard(dmuon_queue *queue, void *dst, int64_t bytes) {
  (void)dst;
  (void)bytes;
  DMUON_TRY(dmuon_cuda_check(queue->device));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_stamp(dmuon_queue *queue, double *seconds) {
  const dmuon_stamp_args args = {seconds};
  DMUON_CUDA_WITHIN(queue->device,
                    dmuon_cuda_launch(queue, (const void *)dmuon_kernel_stamp, 1, 1, &args));
}

DMuonErrorCode dmuon_cuda_cast(dmuon_queue *queue, int64_t n, void *dst, DMuonDType dst_dtype,
                               const void *src, DMuonDType src_dtype) {
  if (n <= 0) return DMUON_SUCCESS;
  if (dst_dtype == src_dtype) {
    DMUON_TRY(dmuon_cuda_copy(queue, dst, src, dmuon_dtype_span(n, dst_dtype)));
    return DMUON_SUCCESS;
  }
  const dmuon_cast_args args = {n, dst, src, dst_dtype, src_dtype};
  DMUON_CUDA_WITHIN(queue->device, LAUNCH(queue, cast, dmuon_cuda_blocks(queue->device, n), &args));
}

DMuonErrorCode dmuon_cuda_pack(dmuon_queue *queue, const dmuon_pack *args) {
  if (args->n <= 0) return DMUON_SUCCESS;
  /* One array as it is, or nothing at all: no kernel is needed. */
  if (!args->addend && !args->src) {
    DMUON_TRY(dmuon_cuda_zero(queue, args->dst, dmuon_dtype_span(args->n, args->dst_dtype)));
    return DMUON_SUCCESS;
  }
  if (!args->addend && args->src_dtype == args->dst_dtype) {
    DMUON_TRY(
        dmuon_cuda_copy(queue, args->dst, args->src, dmuon_dtype_span(args->n, args->dst_dtype)));
    return DMUON_SUCCESS;
  }
  if (!args->src && args->addend_dtype == args->dst_dtype) {
    DMUON_TRY(dmuon_cuda_copy(queue, args->dst, args->addend,
                              dmuon_dtype_span(args->n, args->dst_dtype)));
    return DMUON_SUCCESS;
  }
  DMUON_CUDA_WITHIN(queue->device,
                    LAUNCH(queue, pack, dmuon_cuda_blocks(queue->device, args->n), args));
}

/* A matrix without gaps is one row. */
static DMuonErrorCode copy_rows(dmuon_queue *queue, dmuon_copy_matrix_args *args) {
  dmuon_copy_matrix *m = &args->matrix;
  if (m->src_ld == m->cols && m->dst_ld == m->cols) {
    m->cols *= m->rows;
    m->rows = 1;
  }
  const int64_t across = (m->cols + DMUON_VECTOR - 1) / DMUON_VECTOR * DMUON_VECTOR;
  DMUON_TRY(LAUNCH(queue, copy_matrix, dmuon_cuda_blocks(queue->device, m->rows * across), args));
  return DMUON_SUCCESS;
}

static DMuonErrorCode copy_matrix(dmuon_queue *queue, dmuon_copy_matrix_args *args) {
  const dmuon_copy_matrix *m = &args->matrix;
  if (!m->transpose) {
    DMUON_TRY(copy_rows(queue, args));
    return DMUON_SUCCESS;
  }
  const int64_t tiles =
      ((m->rows + DMUON_TILE - 1) / DMUON_TILE) * ((m->cols + DMUON_TILE - 1) / DMUON_TILE);
  DMUON_TRY(LAUNCH(queue, transpose, tiles, args));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_copy_matrix(dmuon_queue *queue, const dmuon_copy_matrix *args) {
  dmuon_copy_matrix_args a = {*args, 0};
  if (args->rows <= 0 || args->cols <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device, copy_matrix(queue, &a));
}

DMuonErrorCode dmuon_cuda_scale(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                                double factor, void *c, int64_t ld) {
  dmuon_copy_matrix_args args = {.matrix = {.rows = rows,
                                            .cols = cols,
                                            .src = c,
                                            .src_ld = ld,
                                            .src_dtype = dtype,
                                            .dst = c,
                                            .dst_ld = ld,
                                            .dst_dtype = dtype,
                                            .alpha = factor},
                                 .constant = factor == 0};
  DMUON_TRY(copy_rows(queue, &args));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_axpby(dmuon_queue *queue, int64_t n, DMuonDType dtype, double alpha,
                                const void *x, double beta, void *y) {
  const dmuon_axpby_args args = {n, alpha, beta, x, y, dtype};
  if (n <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device,
                    LAUNCH(queue, axpby, dmuon_cuda_blocks(queue->device, n), &args));
}

DMuonErrorCode dmuon_cuda_divide(dmuon_queue *queue, int64_t n, DMuonDType dtype, double divisor,
                                 void *x) {
  const dmuon_divide_args args = {n, divisor, x, dtype};
  if (n <= 0 || divisor == 1) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device,
                    LAUNCH(queue, divide, dmuon_cuda_blocks(queue->device, n), &args));
}

DMuonErrorCode dmuon_cuda_add_diagonal(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                       double alpha, void *c, int64_t ldc) {
  const dmuon_diagonal_args args = {m, ldc, alpha, c, dtype};
  if (m <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(
      queue->device,
      LAUNCH(queue, add_diagonal, dmuon_cuda_blocks(queue->device, m * DMUON_VECTOR), &args));
}

/* One pass over the matrix, and a second kernel for what its blocks gave, if there are several. */
static DMuonErrorCode norm_pass(dmuon_queue *queue, dmuon_norm_args args) {
  const int64_t chunks = args.rows * ((args.cols + DMUON_CHUNK - 1) / DMUON_CHUNK);
  args.group = DMUON_LANES;
  while (args.group * DMUON_CUDA_PARTIALS < chunks) args.group *= 2;
  const int64_t blocks = chunks > 0 ? (chunks + args.group - 1) / args.group : 1;
  args.count = blocks;
  DMUON_TRY(LAUNCH(queue, norm, blocks, &args));
  if (blocks == 1) return DMUON_SUCCESS;
  args.finish = 1;
  DMUON_TRY(LAUNCH(queue, norm, 1, &args));
  return DMUON_SUCCESS;
}

static DMuonErrorCode norm(dmuon_queue *queue, dmuon_norm_args args) {
  if (args.dtype == DMUON_FLOAT64) {
    args.exponent = queue->partials + DMUON_CUDA_PARTIALS;
    args.largest = 1;
    DMUON_TRY(norm_pass(queue, args));
    args.largest = 0;
  }
  DMUON_TRY(norm_pass(queue, args));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_norm(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                               const void *x, int64_t ld, dmuon_norm *result) {
  const dmuon_norm_args args = {.rows = rows,
                                .cols = cols,
                                .ld = ld,
                                .x = x,
                                .dtype = dtype,
                                .partials = queue->partials,
                                .norm = result};
  DMUON_CUDA_WITHIN(queue->device, norm(queue, args));
}

static DMuonErrorCode find(dmuon_queue *queue, dmuon_find_args args) {
  int64_t blocks = dmuon_cuda_blocks(queue->device, args.pack.n);
  if (blocks > DMUON_CUDA_PARTIALS) blocks = DMUON_CUDA_PARTIALS;
  DMUON_TRY(LAUNCH(queue, find_nonfinite, blocks, &args));
  if (blocks == 1) return DMUON_SUCCESS;
  args.finish = 1;
  args.count = blocks;
  DMUON_TRY(LAUNCH(queue, find_nonfinite, 1, &args));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_find_nonfinite(dmuon_queue *queue, const dmuon_pack *pack, int64_t *index,
                                         float *flag) {
  const dmuon_find_args args = {
      .pack = *pack, .partials = (int64_t *)(void *)queue->partials, .index = index, .flag = flag};
  DMUON_CUDA_WITHIN(queue->device, find(queue, args));
}

DMuonErrorCode dmuon_cuda_decide(dmuon_queue *queue, int64_t count, const float *flags, float *any,
                                 int64_t *skipped) {
  const dmuon_decide_args args = {count, flags, any, skipped};
  DMUON_CUDA_WITHIN(queue->device, LAUNCH(queue, decide, 1, &args));
}

DMuonErrorCode dmuon_cuda_muon_momentum(dmuon_queue *queue, const dmuon_muon_momentum *args) {
  if (args->n <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device,
                    LAUNCH(queue, muon_momentum, dmuon_cuda_blocks(queue->device, args->n), args));
}

/* Without elements there may still be a count of skipped steps. */
DMuonErrorCode dmuon_cuda_muon_apply(dmuon_queue *queue, const dmuon_muon_apply *args) {
  if (args->n <= 0 && !args->skipped) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device,
                    LAUNCH(queue, muon_apply, dmuon_cuda_blocks(queue->device, args->n), args));
}

DMuonErrorCode dmuon_cuda_adamw(dmuon_queue *queue, const dmuon_adamw *args) {
  const double t = (double)args->step;
  const dmuon_adamw_args a = {.adamw = *args,
                              .step_size = args->lr / (1 - pow(args->beta1, t)),
                              .root_factor = 1 / sqrt(1 - pow(args->beta2, t))};
  if (args->n <= 0 && !args->skipped) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device,
                    LAUNCH(queue, adamw, dmuon_cuda_blocks(queue->device, args->n), &a));
}
