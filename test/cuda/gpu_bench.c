/* What a real GPU does: Newton-Schulz of the library against the plain direct form with cuBLAS
 * products in bf16, in turn on the same matrix; its accuracy; the element loops against the
 * bandwidth of a copy. Each result is one line of JSON on stdout. Not a part of make check:
 * gpu_check.sh runs it.
 *
 *   gpu_bench ns ROWSxCOLS... | accuracy [ROWSxCOLS] | loops | nccl */
#define _POSIX_C_SOURCE 200809L
#include "config.h"

#include <dmuon.h>
#include <stdio.h>
#include <time.h>

#include "backend/cuda/cuda.h"
#include "spectra.h"

enum { REPEATS = 9, STEPS = 5 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void must(DMuonErrorCode code) {
  if (!code) return;
  fprintf(stderr, "%s\n", DMuonErrorGetMessage());
  exit(code == DMUON_ERR_UNSUPPORTED || code == DMUON_ERR_SETUP ? 77 : 1);
}

static void cuda(int code, const char *what) {
  if (!code) return;
  fprintf(stderr, "%s failed: %d\n", what, code);
  exit(1);
}
#define CUDA(call) cuda((int)(call), #call)

static double median(int count, double *values) {
  for (int i = 1; i < count; i++)
    for (int j = i; j > 0 && values[j] < values[j - 1]; j--) {
      const double kept = values[j];
      values[j] = values[j - 1];
      values[j - 1] = kept;
    }
  return values[count / 2];
}

static DMuonMesh make_mesh(void) {
  DMuonMesh mesh = NULL;
  must(DMuonMeshCreate(MPI_COMM_SELF, &mesh));
  must(DMuonMeshSetDevice(mesh, DMUON_DEVICE_CUDA, DMUON_DECIDE));
  must(DMuonMeshSetUp(mesh));
  return mesh;
}

static DMuonNewtonSchulz make_ns(DMuonMesh mesh, const char *variant, int dtype) {
  DMuonNewtonSchulz ns = NULL;
  must(DMuonNewtonSchulzCreate(mesh, &ns));
  if (variant) must(DMuonNewtonSchulzSetVariant(ns, variant));
  if (dtype >= 0) must(DMuonNewtonSchulzSetDType(ns, (DMuonDType)dtype));
  must(DMuonNewtonSchulzSetUp(ns));
  return ns;
}

/* ---- the plain direct form ------------------------------------------------------------------- */

/* Row-major m x n matrices are column-major n x m ones to cuBLAS. */
typedef struct {
  int m, n;
  cublasHandle_t blas;
  cudaStream_t stream;
  void *start, *x, *y, *a, *b; /* bf16 */
} plain;

static void product(const plain *p, cublasOperation_t ta, int m, int n, int k, float alpha,
                    const void *a, int lda, const void *b, int ldb, float beta, void *c, int ldc) {
  CUDA(cublasGemmEx(p->blas, ta, CUBLAS_OP_N, m, n, k, &alpha, a, CUDA_R_16BF, lda, b, CUDA_R_16BF,
                    ldb, &beta, c, CUDA_R_16BF, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static void copy(const plain *p, void *dst, const void *src, int64_t elements) {
  CUDA(cudaMemcpyAsync(dst, src, (size_t)elements * 2, cudaMemcpyDeviceToDevice, p->stream));
}

static double run_plain(plain *p) {
  static const float table[STEPS][3] = {{7.8926f, -20.383f, 13.5553f},
                                        {3.9115f, -2.5465f, 0.4268f},
                                        {3.7607f, -2.5128f, 0.4323f},
                                        {3.1604f, -2.1496f, 0.3997f},
                                        {2.1911f, -1.4417f, 0.3281f}};
  const int m = p->m, n = p->n;
  const double begin = seconds();
  copy(p, p->x, p->start, (int64_t)m * n);
  for (int s = 0; s < STEPS; s++) {
    product(p, CUBLAS_OP_T, m, m, n, 1, p->x, n, p->x, n, 0, p->a, m);
    copy(p, p->b, p->a, (int64_t)m * m);
    product(p, CUBLAS_OP_N, m, m, m, table[s][2], p->a, m, p->a, m, table[s][1], p->b, m);
    copy(p, p->y, p->x, (int64_t)m * n);
    product(p, CUBLAS_OP_N, n, m, m, 1, p->x, n, p->b, m, table[s][0], p->y, n);
    void *kept = p->x;
    p->x = p->y;
    p->y = kept;
  }
  CUDA(cudaStreamSynchronize(p->stream));
  return seconds() - begin;
}

static void *room(int64_t elements) {
  void *ptr = NULL;
  CUDA(cudaMalloc(&ptr, (size_t)elements * 2));
  return ptr;
}

/* Random numbers of Frobenius norm about 1, as bf16. */
static void fill(const plain *p, int64_t elements) {
  uint16_t *host = malloc((size_t)elements * 2);
  if (!host) exit(1);
  spectra_random r = {7};
  const double scale = 1 / sqrt((double)elements / 3);
  for (int64_t i = 0; i < elements; i++)
    host[i] = dmuon_f32_to_bf16((float)((2 * random_uniform(&r) - 1) * scale));
  CUDA(cudaMemcpyAsync(p->start, host, (size_t)elements * 2, cudaMemcpyHostToDevice, p->stream));
  CUDA(cudaStreamSynchronize(p->stream));
  free(host);
}

static plain make_plain(int m, int n) {
  plain p = {.m = m, .n = n};
  const int64_t big = (int64_t)m * n, small = (int64_t)m * m;
  CUDA(cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking));
  CUDA(cublasCreate(&p.blas));
  CUDA(cublasSetStream(p.blas, p.stream));
  p.start = room(big), p.x = room(big), p.y = room(big), p.a = room(small), p.b = room(small);
  fill(&p, big);
  return p;
}

static void free_plain(plain *p) {
  CUDA(cudaFree(p->start));
  CUDA(cudaFree(p->x));
  CUDA(cudaFree(p->y));
  CUDA(cudaFree(p->a));
  CUDA(cudaFree(p->b));
  CUDA(cublasDestroy(p->blas));
  CUDA(cudaStreamDestroy(p->stream));
}

/* Operations a second of one large product. */
static double measure_peak(int side) {
  plain p = make_plain(side, side);
  double times[REPEATS];
  for (int i = -2; i < REPEATS; i++) {
    const double begin = seconds();
    product(&p, CUBLAS_OP_N, side, side, side, 1, p.start, side, p.start, side, 0, p.x, side);
    CUDA(cudaStreamSynchronize(p.stream));
    if (i >= 0) times[i] = seconds() - begin;
  }
  free_plain(&p);
  return 2.0 * side * side * side / median(REPEATS, times);
}

static void bench_shape(DMuonMesh mesh, int m, int n, double peak) {
  static const char *const variants[] = {"auto", "gram", "direct"};
  const double work = STEPS * (4.0 * m * m * n + 2.0 * m * m * (double)m);
  plain p = make_plain(m, n);
  void *out = room((int64_t)m * n);
  for (int v = 0; v < 3; v++) {
    DMuonNewtonSchulz ns = make_ns(mesh, variants[v], -1);
    double ours[REPEATS], theirs[REPEATS];
    for (int i = -2; i < REPEATS; i++) {
      const double theirs_now = run_plain(&p), begin = seconds();
      must(DMuonNewtonSchulzApply(ns, m, n, DMUON_BFLOAT16, p.start, n, out, n));
      const double ours_now = seconds() - begin;
      if (i >= 0) ours[i] = ours_now, theirs[i] = theirs_now;
    }
    const double us = median(REPEATS, ours), them = median(REPEATS, theirs);
    printf(
        "{\"part\": \"ns\", \"shape\": [%d, %d], \"variant\": \"%s\", \"seconds\": %.6g, "
        "\"plain_seconds\": %.6g, \"ratio\": %.3f, \"share_of_peak\": %.3f, "
        "\"plain_share_of_peak\": %.3f}\n",
        m, n, variants[v], us, them, them / us, work / us / peak, work / them / peak);
    fflush(stdout);
    must(DMuonNewtonSchulzDestroy(&ns));
  }
  CUDA(cudaFree(out));
  free_plain(&p);
}

static int bench_ns(int argc, char **argv) {
  DMuonMesh mesh = make_mesh();
  int first = 0;
  if (argc > 0) first = atoi(argv[0]);
  const double peak = measure_peak(first >= 1024 ? 8192 : 4 * first + 1);
  printf("{\"part\": \"peak\", \"bf16_tflops\": %.1f}\n", peak * 1e-12);
  for (int i = 0; i < argc; i++) {
    int m = 0, n = 0;
    if (sscanf(argv[i], "%dx%d", &m, &n) == 2 && m > 0 && n >= m) bench_shape(mesh, m, n, peak);
  }
  must(DMuonMeshDestroy(&mesh));
  return 0;
}

/* ---- accuracy -------------------------------------------------------------------------------- */

static double distance(int64_t n, const double *x, const double *y) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum / dot(n, y, y));
}

typedef struct {
  const char *variant;
  DMuonDType dtype; /* of the iteration; the matrix is fp32 */
  double bound; /* on the distance: so many roundings of the dtype, and what restarts let grow */
} accuracy_case;

static int bench_accuracy(int m, int n) {
  static const accuracy_case cases[] = {
      {"direct", DMUON_FLOAT32, 1e-4},  {"gram", DMUON_FLOAT32, 1e-3},
      {"direct", DMUON_FLOAT16, 2e-2},  {"gram", DMUON_FLOAT16, 2e-2},
      {"direct", DMUON_BFLOAT16, 1e-1}, {"gram", DMUON_BFLOAT16, 1e-1}};
  const int64_t big = (int64_t)m * n;
  double *ut = malloc(sizeof *ut * (size_t)(m * m)), *vt = malloc(sizeof *vt * (size_t)big);
  double *s = malloc(sizeof *s * (size_t)m), *p = malloc(sizeof *p * (size_t)m);
  double *a = malloc(sizeof *a * (size_t)big), *truth = malloc(sizeof *truth * (size_t)big);
  float *narrow = malloc(sizeof *narrow * (size_t)big);
  if (!ut || !vt || !s || !p || !a || !truth || !narrow) return 1;
  DMuonMesh mesh = make_mesh();
  void *device = NULL;
  int wrong = 0;
  must(DMuonMeshAlloc(mesh, big * 4, &device));
  spectra_random r = {1};
  orthonormal_rows(m, m, ut, &r);
  orthonormal_rows(m, n, vt, &r);
  for (int kind = 0; kind < SPECTRUM_COUNT; kind++) {
    make_spectrum(kind, m, s, &r);
    const double norm = sqrt(dot(m, s, s));
    for (int i = 0; i < m; i++) s[i] /= norm;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      compose(m, n, ut, s, vt, a);
      for (int64_t i = 0; i < big; i++) narrow[i] = (float)a[i];
      DMuonNewtonSchulz ns = make_ns(mesh, cases[c].variant, (int)cases[c].dtype);
      must(DMuonMeshCopy(mesh, device, narrow, big * 4));
      must(DMuonNewtonSchulzApply(ns, m, n, DMUON_FLOAT32, device, n, device, n));
      must(DMuonMeshCopy(mesh, narrow, device, big * 4));
      for (int i = 0; i < m; i++) must(DMuonNewtonSchulzEvaluate(ns, s[i], &p[i]));
      must(DMuonNewtonSchulzDestroy(&ns));
      if (c == 0) compose(m, n, ut, p, vt, truth);
      for (int64_t i = 0; i < big; i++) a[i] = narrow[i];
      const double error = distance(big, a, truth);
      const int good = error <= cases[c].bound;
      wrong += !good;
      printf(
          "{\"part\": \"accuracy\", \"shape\": [%d, %d], \"spectrum\": \"%s\", \"variant\": "
          "\"%s\", "
          "\"dtype\": \"%s\", \"error\": %.3e, \"bound\": %.0e, \"ok\": %s}\n",
          m, n, spectrum_names[kind], cases[c].variant, dmuon_dtype_name(cases[c].dtype), error,
          cases[c].bound, good ? "true" : "false");
      fflush(stdout);
    }
  }
  must(DMuonMeshFree(mesh, &device));
  must(DMuonMeshDestroy(&mesh));
  free(ut), free(vt), free(s), free(p), free(a), free(truth), free(narrow);
  return wrong != 0;
}

/* ---- element loops --------------------------------------------------------------------------- */

enum { ELEMENTS = 1 << 26, LAUNCHES = 20 };

typedef struct {
  const DMuonDeviceOps *ops;
  dmuon_queue *queue;
  void *f[4]; /* fp32 arrays */
  void *half; /* bf16 */
} loops;

static DMuonErrorCode run_copy(loops *l) {
  return l->ops->copy(l->queue, l->f[1], l->f[0], (int64_t)ELEMENTS * 4);
}

static DMuonErrorCode run_momentum(loops *l) {
  const dmuon_muon_momentum args = {.n = ELEMENTS,
                                    .nesterov = 1,
                                    .mu = 0.95,
                                    .grad_scale = 1,
                                    .grad = l->f[0],
                                    .momentum = l->f[1],
                                    .update = l->f[2]};
  return l->ops->muon_momentum(l->queue, &args);
}

static DMuonErrorCode run_momentum_bf16(loops *l) {
  const dmuon_muon_momentum args = {.n = ELEMENTS,
                                    .nesterov = 1,
                                    .mu = 0.95,
                                    .grad_scale = 1,
                                    .grad = l->half,
                                    .grad_dtype = DMUON_BFLOAT16,
                                    .momentum = l->f[1],
                                    .update = l->f[2]};
  return l->ops->muon_momentum(l->queue, &args);
}

static DMuonErrorCode run_apply(loops *l) {
  const dmuon_muon_apply args = {.n = ELEMENTS,
                                 .lr = 1e-3,
                                 .weight_decay = 0.1,
                                 .update = l->f[0],
                                 .weight = l->f[1],
                                 .value = l->half,
                                 .value_dtype = DMUON_BFLOAT16};
  return l->ops->muon_apply(l->queue, &args);
}

static DMuonErrorCode run_adamw(loops *l) {
  const dmuon_adamw args = {.n = ELEMENTS,
                            .step = 3,
                            .lr = 1e-3,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8,
                            .weight_decay = 0.01,
                            .grad_scale = 1,
                            .grad = l->f[0],
                            .exp_avg = l->f[1],
                            .exp_avg_sq = l->f[2],
                            .weight = l->f[3],
                            .value = l->half,
                            .value_dtype = DMUON_BFLOAT16};
  return l->ops->adamw(l->queue, &args);
}

static DMuonErrorCode run_cast(loops *l) {
  const dmuon_pack args = {.n = ELEMENTS,
                           .dst = l->half,
                           .dst_dtype = DMUON_BFLOAT16,
                           .src = l->f[0],
                           .src_dtype = DMUON_FLOAT32};
  return l->ops->pack(l->queue, &args);
}

static DMuonErrorCode run_accumulate(loops *l) {
  const dmuon_pack args = {.n = ELEMENTS,
                           .dst = l->f[0],
                           .addend = l->f[0],
                           .src = l->half,
                           .src_dtype = DMUON_BFLOAT16};
  return l->ops->pack(l->queue, &args);
}

static const struct {
  const char *name;
  DMuonErrorCode (*run)(loops *l);
  int bytes; /* read and written, an element */
} all_loops[] = {{"copy", run_copy, 8},
                 {"momentum", run_momentum, 16},
                 {"momentum, bf16 gradient", run_momentum_bf16, 14},
                 {"apply", run_apply, 14},
                 {"adamw", run_adamw, 30},
                 {"cast to bf16", run_cast, 6},
                 {"accumulate bf16", run_accumulate, 10}};

static int bench_loops(void) {
  const dmuon_module_request request = {.text = "cuda", .ordinal = -1};
  dmuon_context context;
  dmuon_device *device = NULL;
  loops l = {NULL};
  double copied = 0;
  dmuon_context_init(&context);
  must(dmuon_cuda_module.create(&context, &request, &device));
  l.ops = device->ops;
  must(l.ops->queue_create(device, 0, &l.queue));
  for (int i = 0; i < 4; i++) {
    must(l.ops->alloc(device, (int64_t)ELEMENTS * 4, &l.f[i]));
    must(l.ops->zero(l.queue, l.f[i], (int64_t)ELEMENTS * 4));
  }
  must(l.ops->alloc(device, (int64_t)ELEMENTS * 2, &l.half));
  must(l.ops->zero(l.queue, l.half, (int64_t)ELEMENTS * 2));
  must(l.ops->queue_sync(l.queue));
  for (size_t k = 0; k < sizeof all_loops / sizeof *all_loops; k++) {
    double times[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
      const double begin = seconds();
      for (int j = 0; j < LAUNCHES; j++) must(all_loops[k].run(&l));
      must(l.ops->queue_sync(l.queue));
      if (i >= 0) times[i] = (seconds() - begin) / LAUNCHES;
    }
    const double rate = (double)ELEMENTS * all_loops[k].bytes / median(REPEATS, times);
    if (k == 0) copied = rate;
    printf(
        "{\"part\": \"loops\", \"loop\": \"%s\", \"gb_a_second\": %.0f, \"share_of_copy\": %.3f}\n",
        all_loops[k].name, rate * 1e-9, rate / copied);
    fflush(stdout);
  }
  for (int i = 0; i < 4; i++) l.ops->free(device, l.f[i]);
  l.ops->free(device, l.half);
  l.ops->queue_destroy(l.queue);
  l.ops->destroy(device);
  dmuon_context_free(&context);
  return 0;
}

/* ---- NCCL with one rank ---------------------------------------------------------------------- */

static void await_nccl(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  const double begin = seconds();
  while (state == ncclInProgress) {
    cuda((int)ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
    if (seconds() - begin > 60) cuda(-1, "waiting for NCCL");
  }
  cuda((int)state, "a call of NCCL");
}

/* What a call that may go on in the background returns. */
static void issued(ncclResult_t code, ncclComm_t comm, const char *what) {
  if (code != ncclInProgress) cuda((int)code, what);
  await_nccl(comm);
}

static int bench_nccl(void) {
  enum { COUNT = 1 << 20 };
  ncclUniqueId id;
  ncclComm_t comm = NULL, second = NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  cudaStream_t stream;
  float *host = malloc(sizeof *host * COUNT);
  void *from = room(2 * (int64_t)COUNT), *to = room(2 * (int64_t)COUNT);
  int version = 0, wrong = 0;
  if (!host) return 1;
  config.blocking = 0;
  for (int i = 0; i < COUNT; i++) host[i] = (float)i;
  const double begin = seconds();
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMemcpyAsync(from, host, sizeof *host * COUNT, cudaMemcpyHostToDevice, stream));
  CUDA(ncclGetVersion(&version));
  CUDA(ncclGetUniqueId(&id));
  const ncclResult_t made = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  issued(made, comm, "ncclCommInitRankConfig");
  const ncclResult_t split = ncclCommSplit(comm, 0, 0, &second, &config);
  issued(split, comm, "ncclCommSplit");
  await_nccl(second);
  issued(ncclReduce(from, to, COUNT, ncclFloat32, ncclSum, 0, comm, stream), comm, "ncclReduce");
  issued(ncclBroadcast(to, to, COUNT, ncclFloat32, 0, second, stream), second, "ncclBroadcast");
  CUDA(cudaMemcpyAsync(host, to, sizeof *host * COUNT, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < COUNT; i++) wrong += host[i] != (float)i;
  issued(ncclCommFinalize(second), second, "ncclCommFinalize");
  CUDA(ncclCommDestroy(second));
  issued(ncclCommFinalize(comm), comm, "ncclCommFinalize");
  CUDA(ncclCommDestroy(comm));
  printf("{\"part\": \"nccl\", \"version\": %d, \"wrong\": %d, \"seconds\": %.3f}\n", version,
         wrong, seconds() - begin);
  CUDA(cudaFree(from));
  CUDA(cudaFree(to));
  CUDA(cudaStreamDestroy(stream));
  free(host);
  return wrong != 0;
}

int main(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  int m = 256, n = 1024, status = 2;
  MPI_Init(&argc, &argv);
  if (strcmp(verb, "ns") == 0) status = bench_ns(argc - 2, argv + 2);
  if (strcmp(verb, "loops") == 0) status = bench_loops();
  if (strcmp(verb, "nccl") == 0) status = bench_nccl();
  if (strcmp(verb, "accuracy") == 0) {
    if (argc > 2 && (sscanf(argv[2], "%dx%d", &m, &n) != 2 || m < 1 || n < m)) return 2;
    status = bench_accuracy(m, n);
  }
  if (status == 2) fprintf(stderr, "usage: gpu_bench ns SHAPE...|accuracy [SHAPE]|loops|nccl\n");
  MPI_Finalize();
  return status;
}
