/* cuBLAS of the double: products, with every argument checked. Halves are widened, sums are of fp32
 * (fp64 for fp64) in the order of k alone, so a batch gives the bits of single products. */
#include "state.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct cublasContext { /* what a cublasHandle_t points to */
  int device;
  cudaStream_t stream;
  void *workspace;
  size_t workspace_bytes;
  bool had_workspace, destroyed;
};

struct Matrix {
  const void *ptr;
  const void *const *array; /* of pointers, in device memory, or NULL */
  cudaDataType type;
  int rows, cols, ld; /* as stored, column-major */
  int64_t stride;
  std::vector<const char *> each;
};

static int bytes_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static double load(const char *p, cudaDataType type) {
  switch (type) {
    case CUDA_R_64F:
      return *(const double *)p;
    case CUDA_R_32F:
      return *(const float *)p;
    case CUDA_R_16F:
      return __half2float(*(const __half *)p);
    default:
      return __bfloat162float(*(const __nv_bfloat16 *)p);
  }
}

static void store(char *p, cudaDataType type, double value) {
  switch (type) {
    case CUDA_R_64F:
      *(double *)p = value;
      break;
    case CUDA_R_32F:
      *(float *)p = (float)value;
      break;
    case CUDA_R_16F:
      *(__half *)p = __float2half((float)value);
      break;
    default:
      *(__nv_bfloat16 *)p = __float2bfloat16((float)value);
      break;
  }
}

/* op(x), rows x cols, as T and without gaps. */
template <typename T>
static std::vector<T> dense(const Matrix &x, int b, bool transpose) {
  std::vector<T> out((size_t)x.rows * x.cols);
  for (int j = 0; j < x.cols; j++)
    for (int i = 0; i < x.rows; i++)
      out[transpose ? (size_t)i * x.cols + j : (size_t)j * x.rows + i] =
          (T)load(x.each[b] + ((int64_t)j * x.ld + i) * bytes_of(x.type), x.type);
  return out;
}

template <typename T>
static void multiply(bool ta, bool tb, int m, int n, int k, T alpha, const Matrix &a,
                     const Matrix &b, T beta, const Matrix &c, int which) {
  std::vector<T> x = dense<T>(a, which, ta), y = dense<T>(b, which, tb), sum(m);
  for (int j = 0; j < n; j++) {
    std::fill(sum.begin(), sum.end(), (T)0);
    for (int l = 0; l < k; l++) {
      const T *column = &x[(size_t)l * m], factor = y[(size_t)j * k + l];
      for (int i = 0; i < m; i++) sum[i] += column[i] * factor;
    }
    for (int i = 0; i < m; i++) {
      char *p = (char *)c.each[which] + ((int64_t)j * c.ld + i) * bytes_of(c.type);
      T value = alpha * sum[i];
      if (beta != 0) value += beta * (T)load(p, c.type);
      store(p, c.type, value);
    }
  }
}

static void place(Matrix &x, const char *name, int batch, int mode, CUstream_st *s,
                  double_touches &touches) {
  if (x.ld < (x.rows > 1 ? x.rows : 1))
    fail("leading dimension %d of %s is less than its %d rows", x.ld, name, x.rows);
  if (x.type != CUDA_R_64F && x.type != CUDA_R_32F && x.type != CUDA_R_16F && x.type != CUDA_R_16BF)
    fail("type %d of %s", (int)x.type, name);
  if (x.array) { /* pointers that lie on the device: read as soon as they stand there */
    double_touches list;
    double_touch(&list, x.array, batch, sizeof(void *), DOUBLE_READ);
    bool there = false;
    issue("pointers of a batch", s, std::move(list), [&] {
      for (int b = 0; b < batch; b++) x.each.push_back((const char *)x.array[b]);
      return there = true;
    });
    while (!there) wait_turn();
  }
  for (int b = 0; b < batch; b++) {
    if (!x.array) x.each.push_back((const char *)x.ptr + b * x.stride * bytes_of(x.type));
    double_touch_rows(&touches, x.each[b], x.cols, x.rows, x.ld, bytes_of(x.type),
                      (double_mode)mode);
  }
}

static cublasStatus_t gemm(const char *call, cublasHandle_t h, cublasOperation_t ta,
                           cublasOperation_t tb, int m, int n, int k, const void *alpha, Matrix a,
                           Matrix b, const void *beta, Matrix c, int batch,
                           cublasComputeType_t compute) {
  ENTER(call, cublasStatus_t);
  if (!h || h->destroyed) fail("no handle, or a destroyed one");
  if (h->device != double_device) fail("the handle is of another device than the current one");
  if (!alpha || !beta) fail("a null scalar");
  if (m < 0 || n < 0 || k < 0 || batch < 0) fail("a negative size");
  if (ta > CUBLAS_OP_T || tb > CUBLAS_OP_T) fail("operations %d, %d", (int)ta, (int)tb);
  bool wide = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
  if (!wide && compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
      compute != CUBLAS_COMPUTE_32F_FAST_TF32)
    fail("compute type %d is not in the double", (int)compute);
  if (a.type != b.type || wide != (a.type == CUDA_R_64F) || wide != (c.type == CUDA_R_64F) ||
      (c.type != a.type && c.type != CUDA_R_32F))
    fail("types %d, %d, %d with compute type %d", (int)a.type, (int)b.type, (int)c.type,
         (int)compute);
  if (h->had_workspace && !h->workspace)
    fail("cublasSetStream has put the workspace back to the shared one: set it again");
  double al = wide ? *(const double *)alpha : *(const float *)alpha;
  double be = wide ? *(const double *)beta : *(const float *)beta;
  if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
  a.rows = ta ? k : m, a.cols = ta ? m : k;
  b.rows = tb ? n : k, b.cols = tb ? k : n;
  c.rows = m, c.cols = n;
  CUstream_st *s = stream_of(h->stream);
  double_touches touches;
  touches.exclusive = true;
  place(a, "A", batch, DOUBLE_READ, s, touches);
  place(b, "B", batch, DOUBLE_READ, s, touches);
  touches.list.reserve(touches.list.size() + batch);
  place(c, "C", batch, DOUBLE_WRITE, s, touches);
  if (be != 0) { /* read too; not as an input that C must not overlap */
    touches.exclusive = false;
    for (size_t i = touches.list.size() - batch; i < touches.list.size(); i++)
      touches.list[i].mode = DOUBLE_UPDATE;
  }
  issue(call, s, std::move(touches), [=] {
    for (int i = 0; i < batch; i++) {
      if (wide)
        multiply<double>(ta, tb, m, n, k, al, a, b, be, c, i);
      else
        multiply<float>(ta, tb, m, n, k, (float)al, a, b, (float)be, c, i);
    }
    return true;
  });
  if (h->workspace) { /* two streams must not use one workspace at a time */
    double_touches work;
    double_touch(&work, h->workspace, (int64_t)h->workspace_bytes, 1, DOUBLE_WRITE);
    judge("a product's workspace", s, work);
  }
  return CUBLAS_STATUS_SUCCESS;
}

static cublasContext *handle_of(cublasHandle_t h) {
  if (!h || h->destroyed) fail("no handle, or a destroyed one");
  return h;
}

Left blas_leaks(void) {
  Left left;
  int number = 0;
  for (auto &h : state().blas_handles) {
    number++;
    if (!h->destroyed) left.add("cublasCreate", number);
  }
  return left;
}

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t *handle) {
  ENTER("cublasCreate", cublasStatus_t);
  if (state().missing) return CUBLAS_STATUS_NOT_INITIALIZED;
  blocks_host();
  *handle = new cublasContext();
  (*handle)->device = double_device;
  state().blas_handles.emplace_back(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  ENTER("cublasDestroy", cublasStatus_t);
  blocks_host();
  handle_of(handle)->destroyed = true;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  ENTER("cublasSetStream", cublasStatus_t);
  handle_of(handle)->stream = stream;
  stream_of(stream);
  handle->workspace = NULL; /* as documented */
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes) {
  ENTER("cublasSetWorkspace", cublasStatus_t);
  handle_of(handle);
  Allocation *m = find_memory(workspace);
  if (!m || m->pinned || (uint64_t)workspace % 256 ||
      (uint64_t)workspace + bytes > m->base + m->bytes)
    fail("%p, %zu bytes: not device memory, or not aligned to 256 bytes", workspace, bytes);
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  handle->had_workspace = true;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t) {
  ENTER("cublasSetMathMode", cublasStatus_t);
  handle_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
  return status ? "an error of the double" : "success";
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType at,
                            int lda, const void *b, cudaDataType bt, int ldb, const void *beta,
                            void *c, cudaDataType ct, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t) {
  return gemm("cublasGemmEx", h, ta, tb, m, n, k, alpha, {a, NULL, at, 0, 0, lda, 0, {}},
              {b, NULL, bt, 0, 0, ldb, 0, {}}, beta, {c, NULL, ct, 0, 0, ldc, 0, {}}, 1, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta,
                                          cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType at,
                                          int lda, long long sa, const void *b, cudaDataType bt,
                                          int ldb, long long sb, const void *beta, void *c,
                                          cudaDataType ct, int ldc, long long sc, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  return gemm("cublasGemmStridedBatchedEx", h, ta, tb, m, n, k, alpha,
              {a, NULL, at, 0, 0, lda, sa, {}}, {b, NULL, bt, 0, 0, ldb, sb, {}}, beta,
              {c, NULL, ct, 0, 0, ldc, sc, {}}, batch, compute);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                   int m, int n, int k, const void *alpha, const void *const a[],
                                   cudaDataType at, int lda, const void *const b[], cudaDataType bt,
                                   int ldb, const void *beta, void *const c[], cudaDataType ct,
                                   int ldc, int batch, cublasComputeType_t compute,
                                   cublasGemmAlgo_t) {
  return gemm("cublasGemmBatchedEx", h, ta, tb, m, n, k, alpha, {NULL, a, at, 0, 0, lda, 0, {}},
              {NULL, b, bt, 0, 0, ldb, 0, {}}, beta,
              {NULL, (const void *const *)c, ct, 0, 0, ldc, 0, {}}, batch, compute);
}

cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                           int n, int k, const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c, int ldc) {
  return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c,
                      CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
}
