// An MPI + CUDA code with its own streams and its own memory pool trains a few dense layers, Z3, on
// GPU pointers: 'work' computes, 'feed' uploads batches, and the host waits for nothing inside a
// step. The same training with plain loops, on a mesh that computes on the host, must give the same
// weights (but for the rounding of other sums).
//
// Compiled by nvcc its kernels are real; by a C++ compiler they are entered into the test double's
// table, and the double also checks that nothing blocks.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <cublas_v2.h>
#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>

#include "double/double.h"
#endif
#include <dmuon.h>

#include "tap_mpi.h"

#ifndef D_CUDA_LAYERS
#define D_CUDA_LAYERS 3
#define D_CUDA_WIDTH 24
#define D_CUDA_BATCH 8
#define D_CUDA_STEPS 6
#endif
enum { L = D_CUDA_LAYERS, WIDTH = D_CUDA_WIDTH, BATCH = D_CUDA_BATCH, STEPS = D_CUDA_STEPS };
enum { SIZE = WIDTH * WIDTH, CELLS = BATCH * WIDTH };

#define CUDA(call)                                                    \
  do {                                                                \
    const cudaError_t error_ = (call);                                \
    if (error_ != cudaSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
      return DMUON_ERR_DEVICE;                                        \
    }                                                                 \
  } while (0)
#define BLAS(call)                           \
  do {                                       \
    if ((call) != CUBLAS_STATUS_SUCCESS) {   \
      fprintf(stderr, "%s failed\n", #call); \
      return DMUON_ERR_DEVICE;               \
    }                                        \
  } while (0)

// ---- the code's own kernels ---------------------------------------------------------------------

struct cells {
  float *x;        // in, out
  const float *y;  // the other operand
  float *loss;
  const float *target;
  int64_t n;
};

#ifdef __CUDACC__
#define BODY __host__ __device__ static inline
#else
#define BODY static inline
#endif
BODY void tanh_forward_body(const cells *a, int64_t i) {
  a->x[i] = tanhf(a->x[i]);
}
BODY void tanh_backward_body(const cells *a, int64_t i) {
  a->x[i] *= 1 - a->y[i] * a->y[i];
}
// The slope of mean((y - target)^2) / 2, and the loss itself by the one thread of i 0.
BODY void loss_slope_body(const cells *a, int64_t i) {
  a->x[i] = (a->y[i] - a->target[i]) / (float)a->n;
  if (i > 0) return;
  float sum = 0;
  for (int64_t j = 0; j < a->n; j++)
    sum += (a->y[j] - a->target[j]) * (a->y[j] - a->target[j]) / (float)a->n;
  *a->loss = sum / 2;
}

#ifdef __CUDACC__
#define KERNEL(name)                                                  \
  static __global__ void name(cells a) {                              \
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; \
    if (i < a.n) name##_body(&a, i);                                  \
  }
#else
#define KERNEL(name)                                      \
  static void name(cells) {                               \
  }                                                       \
  static void name##_run(const void *args, dim3, dim3) {  \
    const cells *a = (const cells *)args;                 \
    for (int64_t i = 0; i < a->n; i++) name##_body(a, i); \
  }
static void touch_cells(const void *args, dim3, dim3, double_touches *t) {
  const cells *a = (const cells *)args;
  double_touch(t, a->x, a->n, 4, a->loss ? DOUBLE_WRITE : DOUBLE_UPDATE);
  if (a->y) double_touch(t, a->y, a->n, 4, DOUBLE_READ);
  if (a->target) double_touch(t, a->target, a->n, 4, DOUBLE_READ);
  if (a->loss) double_touch(t, a->loss, 1, 4, DOUBLE_WRITE);
}
#endif
KERNEL(tanh_forward)
KERNEL(tanh_backward)
KERNEL(loss_slope)
#ifndef __CUDACC__
#define ROW(name) \
  { (const void *)name, #name, sizeof(cells), touch_cells, name##_run }
static const double_kernel kernels[] = {ROW(tanh_forward), ROW(tanh_backward), ROW(loss_slope)};
static const int known = double_register(kernels, 3);
#else
static const int known = 3;
static void double_forbid_blocking(int) {
}
#endif

static cudaError_t launch(const void *kernel, cells a, cudaStream_t stream) {
  void *args[] = {&a};
  return cudaLaunchKernel(kernel, dim3((unsigned)((a.n + 127) / 128)), dim3(128), args, 0, stream);
}

// ---- data and start values, the same everywhere -------------------------------------------------

static float wave(int64_t i, int64_t seed) {
  return (float)((i * 7919 + seed * 104729 + i * i % 91) % 1009) / 1009.0f - 0.5f;
}

static void batch(int rank, int step, float *x, float *target) {
  for (int i = 0; i < CELLS; i++) {
    x[i] = wave(i, rank * 100 + step);
    target[i] = tanhf(2 * wave(i, rank * 100 + step));
  }
}

static void start(int layer, float *w) {
  for (int i = 0; i < SIZE; i++) w[i] = wave(i, 5000 + layer) * 0.5f + (i % (WIDTH + 1) == 0);
}

// ---- on the GPU ---------------------------------------------------------------------------------

static int pool_live, pool_calls;
static void *pool_alloc(void *, size_t bytes, void *stream) {
  void *p = NULL;
  pool_live++, pool_calls++;
  return cudaMallocAsync(&p, bytes, (cudaStream_t)stream) == cudaSuccess ? p : NULL;
}
static void pool_free(void *, void *p, size_t, void *stream) {
  pool_live--;
  cudaFreeAsync(p, (cudaStream_t)stream);
}

struct machine {
  cublasHandle_t blas;
  cudaStream_t work, feed;
  float *x, *target, *act[L + 1], *dact[2], *loss;
  float *host_x, *host_target;  // pinned, all steps
};

static DMuonErrorCode set_up(machine *m, int rank) {
  const size_t bytes = sizeof(float) * CELLS;
  BLAS(cublasCreate(&m->blas));
  CUDA(cudaStreamCreateWithFlags(&m->work, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&m->feed, cudaStreamNonBlocking));
  BLAS(cublasSetStream(m->blas, m->work));
  CUDA(cudaMalloc((void **)&m->x, bytes));
  CUDA(cudaMalloc((void **)&m->target, bytes));
  for (int l = 1; l <= L; l++) CUDA(cudaMalloc((void **)&m->act[l], bytes));
  for (int i = 0; i < 2; i++) CUDA(cudaMalloc((void **)&m->dact[i], bytes));
  CUDA(cudaMalloc((void **)&m->loss, sizeof(float)));
  CUDA(cudaHostAlloc((void **)&m->host_x, bytes * STEPS, 0));
  CUDA(cudaHostAlloc((void **)&m->host_target, bytes * STEPS, 0));
  for (int s = 0; s < STEPS; s++) batch(rank, s, m->host_x + s * CELLS, m->host_target + s * CELLS);
  return DMUON_SUCCESS;
}

static DMuonErrorCode tear_down(machine *m) {
  CUDA(cudaStreamSynchronize(m->work));
  CUDA(cudaStreamSynchronize(m->feed));
  CUDA(cudaFree(m->x));
  CUDA(cudaFree(m->target));
  for (int l = 1; l <= L; l++) CUDA(cudaFree(m->act[l]));
  for (int i = 0; i < 2; i++) CUDA(cudaFree(m->dact[i]));
  CUDA(cudaFree(m->loss));
  CUDA(cudaFreeHost(m->host_x));
  CUDA(cudaFreeHost(m->host_target));
  BLAS(cublasDestroy(m->blas));
  CUDA(cudaStreamDestroy(m->work));
  CUDA(cudaStreamDestroy(m->feed));
  return DMUON_SUCCESS;
}

static DMuonErrorCode gpu_step(machine *m, DMuonGroup *layer) {
  const float one = 1, zero = 0;
  const void *w;
  void *dw;
  m->act[0] = m->x;
  for (int l = 0; l < L; l++) {                    // act[l+1] = tanh(act[l] W^T), row-major
    DMUON_CALL(DMuonGroupForwardBegin(layer[l]));  // 'work' waits, the host does not
    DMUON_CALL(DMuonGroupGetArrays(layer[l], &w, NULL));
    BLAS(cublasSgemm(m->blas, CUBLAS_OP_T, CUBLAS_OP_N, WIDTH, BATCH, WIDTH, &one, (const float *)w,
                     WIDTH, m->act[l], WIDTH, &zero, m->act[l + 1], WIDTH));
    DMUON_CALL(DMuonGroupForwardEnd(layer[l]));  // freed when 'work' gets here
    CUDA(
        launch((const void *)tanh_forward, cells{m->act[l + 1], NULL, NULL, NULL, CELLS}, m->work));
  }
  CUDA(launch((const void *)loss_slope, cells{m->dact[L % 2], m->act[L], m->loss, m->target, CELLS},
              m->work));
  for (int l = L; l-- > 0;) {
    float *dy = m->dact[(l + 1) % 2], *dx = m->dact[l % 2];
    CUDA(launch((const void *)tanh_backward, cells{dy, m->act[l + 1], NULL, NULL, CELLS}, m->work));
    DMUON_CALL(DMuonGroupBackwardBegin(layer[l]));
    DMUON_CALL(DMuonGroupGetArrays(layer[l], &w, &dw));
    BLAS(cublasSgemm(m->blas, CUBLAS_OP_N, CUBLAS_OP_T, WIDTH, WIDTH, BATCH, &one, m->act[l], WIDTH,
                     dy, WIDTH, &zero, (float *)dw, WIDTH));
    if (l)
      BLAS(cublasSgemm(m->blas, CUBLAS_OP_N, CUBLAS_OP_N, WIDTH, BATCH, WIDTH, &one,
                       (const float *)w, WIDTH, dy, WIDTH, &zero, dx, WIDTH));
    DMUON_CALL(DMuonGroupBackwardEnd(layer[l]));  // averaging starts behind 'work'
  }
  return DMUON_SUCCESS;
}

// Objects of one training.
struct objects {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  DMuonGroup layer[L];
};

static DMuonErrorCode make(objects *o, DMuonDevice device, void *stream) {
  const int64_t dims[2] = {WIDTH, WIDTH};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &o->mesh));
  DMUON_CALL(DMuonMeshSetDevice(o->mesh, device, DMUON_DECIDE));
  if (device == DMUON_DEVICE_CUDA)
    DMUON_CALL(DMuonMeshSetAllocator(o->mesh, pool_alloc, pool_free, NULL));  // one pool, not two
  DMUON_CALL(DMuonModelCreate(o->mesh, &o->model));
  DMUON_CALL(DMuonModelAddStack(o->model, "layers.%d.weight", 0, L, DMUON_FLOAT32, 2, dims, NULL));
  DMUON_CALL(DMuonOptimizerCreate(o->model, &o->opt));
  // Products write with beta 0: no need to clear.
  DMUON_CALL(DMuonOptimizerSetGradMode(o->opt, DMUON_GRAD_OVERWRITE));
  DMUON_CALL(DMuonOptimizerSetStream(o->opt, stream));  // brackets and steps are ordered with it
  DMUON_CALL(DMuonOptimizerSetUp(o->opt));
  for (int l = 0; l < L; l++) DMUON_CALL(DMuonOptimizerGetGroup(o->opt, l, &o->layer[l]));
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_values(objects *o) {
  static float w[SIZE];
  void *buffer = NULL;
  DMUON_CALL(DMuonMeshAlloc(o->mesh, sizeof w, &buffer));
  for (int l = 0; l < L; l++) {
    start(l, w);
    DMUON_CALL(DMuonMeshCopy(o->mesh, buffer, w, sizeof w));
    DMUON_CALL(DMuonOptimizerSetParam(o->opt, l, buffer, DMUON_ALL));
  }
  return DMuonMeshFree(o->mesh, &buffer);
}

static DMuonErrorCode get_values(objects *o, float (*weights)[SIZE]) {
  void *buffer = NULL;
  DMUON_CALL(DMuonMeshAlloc(o->mesh, sizeof *weights, &buffer));
  for (int l = 0; l < L; l++) {
    DMUON_CALL(DMuonOptimizerGetParam(o->opt, l, buffer, DMUON_ALL));
    DMUON_CALL(DMuonMeshCopy(o->mesh, weights[l], buffer, sizeof *weights));
  }
  return DMuonMeshFree(o->mesh, &buffer);
}

static DMuonErrorCode destroy(objects *o) {
  DMUON_CALL(DMuonOptimizerDestroy(&o->opt));
  DMUON_CALL(DMuonModelDestroy(&o->model));
  return DMuonMeshDestroy(&o->mesh);
}

static DMuonErrorCode gpu_train(objects *o, machine *m, float *losses) {
  cudaEvent_t uploaded, used;
  const size_t bytes = sizeof(float) * CELLS;
  CUDA(cudaEventCreateWithFlags(&uploaded, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&used, cudaEventDisableTiming));
  for (int step = 0; step < STEPS; step++) {
    double_forbid_blocking(1);
    if (step) CUDA(cudaStreamWaitEvent(m->feed, used, 0));
    CUDA(cudaMemcpyAsync(m->x, m->host_x + step * CELLS, bytes, cudaMemcpyHostToDevice, m->feed));
    CUDA(cudaMemcpyAsync(m->target, m->host_target + step * CELLS, bytes, cudaMemcpyHostToDevice,
                         m->feed));
    CUDA(cudaEventRecord(uploaded, m->feed));
    CUDA(cudaStreamWaitEvent(m->work, uploaded, 0));
    DMUON_CALL(gpu_step(m, o->layer));
    CUDA(cudaEventRecord(used, m->work));
    DMUON_CALL(DMuonOptimizerSetLearningRateFactor(
        o->opt, DMuonScheduleFactor(DMUON_SCHEDULE_WSD, step, 2, STEPS, 0.1)));
    DMUON_CALL(DMuonOptimizerStep(o->opt));  // returns as soon as it is queued
    double_forbid_blocking(0);
    if (step == 0 || step == STEPS - 1)  // here, and only here, the host waits
      DMUON_CALL(DMuonMeshCopy(o->mesh, &losses[step != 0], m->loss, sizeof(float)));
  }
  DMUON_CALL(DMuonOptimizerWait(o->opt));
  DMuonStepInfo info = {};
  info.struct_size = sizeof info;
  DMUON_CALL(DMuonOptimizerGetStepInfo(o->opt, &info));
  tap_ok(info.step == STEPS && !info.skipped, "%d steps were made, none skipped", STEPS);
  CUDA(cudaEventDestroy(uploaded));
  CUDA(cudaEventDestroy(used));
  return DMUON_SUCCESS;
}

// ---- the same with plain loops ------------------------------------------------------------------

// c (m x n) = op(a) op(b), k terms
static void product(int ta, int tb, int m, int n, int k, const float *a, const float *b, float *c) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      double sum = 0;
      for (int p = 0; p < k; p++)
        sum += (double)a[ta ? p * m + i : i * k + p] * b[tb ? j * k + p : p * n + j];
      c[i * n + j] = (float)sum;
    }
}

static DMuonErrorCode host_train(objects *o, int rank, float *losses) {
  static float act[L + 1][CELLS], dact[2][CELLS], target[CELLS];
  const void *w;
  void *dw;
  for (int step = 0; step < STEPS; step++) {
    float loss = 0;
    batch(rank, step, act[0], target);
    for (int l = 0; l < L; l++) {
      DMUON_CALL(DMuonGroupForwardBegin(o->layer[l]));
      DMUON_CALL(DMuonGroupGetArrays(o->layer[l], &w, NULL));
      product(0, 1, BATCH, WIDTH, WIDTH, act[l], (const float *)w, act[l + 1]);
      DMUON_CALL(DMuonGroupForwardEnd(o->layer[l]));
      for (int i = 0; i < CELLS; i++) act[l + 1][i] = tanhf(act[l + 1][i]);
    }
    const cells slope = {dact[L % 2], act[L], &loss, target, CELLS};
    for (int i = 0; i < CELLS; i++) loss_slope_body(&slope, i);
    for (int l = L; l-- > 0;) {
      float *dy = dact[(l + 1) % 2], *dx = dact[l % 2];
      for (int i = 0; i < CELLS; i++) dy[i] *= 1 - act[l + 1][i] * act[l + 1][i];
      DMUON_CALL(DMuonGroupBackwardBegin(o->layer[l]));
      DMUON_CALL(DMuonGroupGetArrays(o->layer[l], &w, &dw));
      product(1, 0, WIDTH, WIDTH, BATCH, dy, act[l], (float *)dw);
      if (l) product(0, 0, BATCH, WIDTH, WIDTH, dy, (const float *)w, dx);
      DMUON_CALL(DMuonGroupBackwardEnd(o->layer[l]));
    }
    DMUON_CALL(DMuonOptimizerSetLearningRateFactor(
        o->opt, DMuonScheduleFactor(DMUON_SCHEDULE_WSD, step, 2, STEPS, 0.1)));
    DMUON_CALL(DMuonOptimizerStep(o->opt));
    if (step == 0 || step == STEPS - 1) losses[step != 0] = loss;
  }
  return DMuonOptimizerWait(o->opt);
}

static float on_gpu[L][SIZE], on_host[L][SIZE];

int main(int argc, char **argv) {
  objects gpu = {}, host = {};
  machine m = {};
  float losses[2] = {0, 0}, host_losses[2] = {0, 0};
  tap_mpi_init(&argc, &argv);
  tap_ok(known > 0, "the program's kernels are known");
  DMuonErrorCode code = set_up(&m, tap_rank);
  if (!code) code = make(&gpu, DMUON_DEVICE_CUDA, m.work);
  if (!code) code = set_values(&gpu);
  tap_ok(!code, "set up: %s", code ? DMuonErrorGetMessage() : "done");
  const int taken = pool_calls;
  tap_ok(taken > 0, "the library's memory comes from the program's pool");
  if (!code) code = gpu_train(&gpu, &m, losses);
  tap_ok(!code, "training: %s", code ? DMuonErrorGetMessage() : "done");
  tap_is_int(pool_calls, taken, "steps take nothing from the pool: set-up took it all");
  if (!code) code = get_values(&gpu, on_gpu);
  tap_ok(!code, "the weights are read: %s", code ? DMuonErrorGetMessage() : "done");
  const int gone = !destroy(&gpu);
  tap_ok(gone && pool_live == 0, "all memory is back in the pool (%d of %d pieces are out)",
         pool_live, pool_calls);
  tap_ok(!tear_down(&m), "the program's own things are given back");

  code = make(&host, DMUON_DEVICE_HOST, NULL);
  if (!code) code = set_values(&host);
  if (!code) code = host_train(&host, tap_rank, host_losses);
  if (!code) code = get_values(&host, on_host);
  tap_ok(!code, "the same on the host: %s", code ? DMuonErrorGetMessage() : "done");
  destroy(&host);

  double worst = 0, moved = 0;
  static float first[SIZE];
  for (int l = 0; l < L; l++) {
    start(l, first);
    for (int i = 0; i < SIZE; i++) {
      const double off = fabs((double)on_gpu[l][i] - on_host[l][i]);
      const double way = fabs((double)on_host[l][i] - first[i]);
      worst = off > worst || off != off ? off : worst;
      moved = way > moved ? way : moved;
    }
  }
  // Newton-Schulz may run in other precision there: what counts is far below what was learned.
  tap_ok(worst <= 0.05 * moved, "weights differ by %.2g from the host's, having moved by %.2g",
         worst, moved);
  tap_ok(fabsf(losses[0] - host_losses[0]) <= 1e-5f * host_losses[0],
         "the first losses agree: %g, %g", losses[0], host_losses[0]);
  tap_ok(losses[1] < losses[0], "the loss falls: %g, %g", losses[0], losses[1]);
  return tap_mpi_done();
}
