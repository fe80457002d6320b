/* General products by cuBLAS. Row-major matrices are the transposes of column-major ones: c^T = b^T
 * a^T, so operands change places.
 *
 * A batch promises the bits of as many single products, and cuBLAS chooses its kernels by the size
 * of a batch, too. So products of a batch are issued one after another; one call for all of them is
 * an option of the device. fp16 and bf16 are accumulated in fp32, also between parts of a sum; fp32
 * is not rounded to TF32 unless the device was asked for it. Every queue has a workspace of its
 * own, without which cuBLAS promises no equal results. */
#include "backend/cuda/cuda.h"

#include <limits.h>

static cudaDataType_t data_type(DMuonDType dtype) {
  switch (dtype) {
    case DMUON_FLOAT32:
      return CUDA_R_32F;
    case DMUON_FLOAT64:
      return CUDA_R_64F;
    case DMUON_BFLOAT16:
      return CUDA_R_16BF;
    case DMUON_FLOAT16:
      break;
  }
  return CUDA_R_16F;
}

static cublasComputeType_t compute_type(const dmuon_cuda_device *device, DMuonDType dtype) {
  if (dtype == DMUON_FLOAT64) return CUBLAS_COMPUTE_64F;
  if (dtype == DMUON_FLOAT32 && device->allow_tf32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return CUBLAS_COMPUTE_32F;
}

DMuonErrorCode dmuon_cuda_queue_products(dmuon_queue *queue) {
  dmuon_cuda_device *device = queue->device;
  void *made = NULL;
  if (!queue->blas_workspace) {
    DMUON_TRY(dmuon_cuda_alloc(device, device->blas_bytes, &made));
    queue->blas_workspace = made;
  }
  if (!queue->pointers) {
    DMUON_TRY(dmuon_cuda_alloc(device, DMUON_CUDA_TILE_BYTES, &made));
    queue->pointers = made;
  }
  return DMUON_SUCCESS;
}

/* A new stream takes the workspace away again. */
DMuonErrorCode dmuon_cuda_blas_on(dmuon_queue *queue) {
  dmuon_cuda_device *device = queue->device;
  if (!queue->blas_workspace || !queue->pointers) DMUON_TRY(dmuon_cuda_queue_products(queue));
  DMUON_TRY(DMUON_CUBLAS(cublasSetStream, (device->blas, queue->stream)));
  DMUON_TRY(DMUON_CUBLAS(cublasSetWorkspace,
                         (device->blas, queue->blas_workspace, (size_t)device->blas_bytes)));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_product_check(const dmuon_cuda_product *p) {
  if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX || p->lda > INT_MAX || p->ldb > INT_MAX ||
      p->ldc > INT_MAX || p->batch.count > INT_MAX)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "a product of %lld x %lld x %lld with leading dimensions %lld, %lld, %lld: cuBLAS "
               "takes at most %d",
               (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->lda,
               (long long)p->ldb, (long long)p->ldc, INT_MAX);
  return DMUON_SUCCESS;
}

/* alpha and beta in the type of the sums; cuBLAS reads them before it returns. */
typedef struct {
  float f32[2];
  double f64[2];
  const void *alpha, *beta;
} factors;

static void set_factors(factors *f, const dmuon_cuda_product *p) {
  const int wide = p->dtype == DMUON_FLOAT64;
  f->f64[0] = p->alpha, f->f64[1] = p->beta;
  f->f32[0] = (float)p->alpha, f->f32[1] = (float)p->beta;
  f->alpha = wide ? (const void *)&f->f64[0] : &f->f32[0];
  f->beta = wide ? (const void *)&f->f64[1] : &f->f32[1];
}

static cublasOperation_t operation(int transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static DMuonErrorCode single(dmuon_queue *queue, const dmuon_cuda_product *p, int64_t index) {
  const cudaDataType_t type = data_type(p->dtype);
  const void *a = dmuon_dtype_at(p->a, index * p->batch.stride_a, p->dtype);
  const void *b = dmuon_dtype_at(p->b, index * p->batch.stride_b, p->dtype);
  void *c = dmuon_dtype_at(p->c, index * p->batch.stride_c, p->dtype);
  if (p->k <= 0) {
    DMUON_TRY(dmuon_cuda_scale(queue, p->dtype, p->m, p->n, p->beta, c, p->ldc));
    return DMUON_SUCCESS;
  }
  factors f;
  set_factors(&f, p);
  DMUON_TRY(DMUON_CUBLAS(
      cublasGemmEx,
      (queue->device->blas, operation(p->transpose_b), operation(p->transpose_a), (int)p->n,
       (int)p->m, (int)p->k, f.alpha, b, type, (int)p->ldb, a, type, (int)p->lda, f.beta, c, type,
       (int)p->ldc, compute_type(queue->device, p->dtype), CUBLAS_GEMM_DEFAULT)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode strided(dmuon_queue *queue, const dmuon_cuda_product *p) {
  const cudaDataType_t type = data_type(p->dtype);
  factors f;
  set_factors(&f, p);
  DMUON_TRY(DMUON_CUBLAS(
      cublasGemmStridedBatchedEx,
      (queue->device->blas, operation(p->transpose_b), operation(p->transpose_a), (int)p->n,
       (int)p->m, (int)p->k, f.alpha, p->b, type, (int)p->ldb, p->batch.stride_b, p->a, type,
       (int)p->lda, p->batch.stride_a, f.beta, p->c, type, (int)p->ldc, p->batch.stride_c,
       (int)p->batch.count, compute_type(queue->device, p->dtype), CUBLAS_GEMM_DEFAULT)));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_products(dmuon_queue *queue, const dmuon_cuda_product *p) {
  if (p->batch.count > 1 && queue->device->one_call_batches && p->k > 0) {
    DMUON_TRY(strided(queue, p));
    return DMUON_SUCCESS;
  }
  for (int64_t i = 0; i < p->batch.count; i++) DMUON_TRY(single(queue, p, i));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_listed_products(dmuon_queue *queue, const dmuon_cuda_product *p,
                                          const void *const *a, const void *const *b,
                                          void *const *c, int64_t count) {
  const cudaDataType_t type = data_type(p->dtype);
  factors f;
  set_factors(&f, p);
  DMUON_TRY(DMUON_CUBLAS(
      cublasGemmBatchedEx,
      (queue->device->blas, operation(p->transpose_b), operation(p->transpose_a), (int)p->n,
       (int)p->m, (int)p->k, f.alpha, b, type, (int)p->ldb, a, type, (int)p->lda, f.beta, c, type,
       (int)p->ldc, (int)count, compute_type(queue->device, p->dtype), CUBLAS_GEMM_DEFAULT)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode gemm(dmuon_queue *queue, const dmuon_cuda_product *p) {
  DMUON_TRY(dmuon_cuda_product_check(p));
  DMUON_TRY(dmuon_cuda_blas_on(queue));
  DMUON_TRY(dmuon_cuda_products(queue, p));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_gemm(dmuon_queue *queue, DMuonDType dtype, int transpose_a,
                               int transpose_b, int64_t m, int64_t n, int64_t k, double alpha,
                               const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                               void *c, int64_t ldc, const dmuon_batch *batch) {
  const dmuon_cuda_product p = {
      dtype, transpose_a, transpose_b, m,   n,
      k,     alpha,       beta,        a,   b,
      c,     lda,         ldb,         ldc, batch ? *batch : (dmuon_batch){.count = 1}};
  if (m <= 0 || n <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device, gemm(queue, &p));
}
