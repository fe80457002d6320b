/* Small programs against the CUDA, cuBLAS and NCCL interfaces: with no argument, a right one that
 * uses all of the double and checks its results; with the name of a fault, the same with that fault
 * planted. double_faults.sh runs them and looks whether the double finds each and names it. */
#include "double.h"

#include <cublas_v2.h>
#include <math.h>
#include <mpi.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct axpby { /* y = a x + b y */
  float a, b;
  const float *x;
  float *y;
  int n;
};
extern "C" void kernel_axpby(struct axpby) {
}
extern "C" void kernel_liar(struct axpby) {
}

static void axpby_touches(const void *p, dim3, dim3, double_touches *t) {
  const axpby *k = (const axpby *)p;
  double_touch(t, k->x, k->n, sizeof(float), DOUBLE_READ);
  double_touch(t, k->y, k->n, sizeof(float), k->b != 0 ? DOUBLE_UPDATE : DOUBLE_WRITE);
}
static void liar_touches(const void *p, dim3, dim3,
                         double_touches *t) { /* forgets what it writes */
  const axpby *k = (const axpby *)p;
  double_touch(t, k->x, k->n, sizeof(float), DOUBLE_READ);
}
static void axpby_run(const void *p, dim3 grid, dim3 block) {
  const axpby *k = (const axpby *)p;
  int threads = (int)(grid.x * block.x);
  for (int t = 0; t < threads; t++)
    for (int i = t; i < k->n; i += threads)
      k->y[i] = k->a * k->x[i] + (k->b != 0 ? k->b * k->y[i] : 0);
}
static const double_kernel table[] = {
    {(const void *)kernel_axpby, "axpby", sizeof(axpby), axpby_touches, axpby_run},
    {(const void *)kernel_liar, "liar", sizeof(axpby), liar_touches, axpby_run}};
static const int known = double_register(table, 2);

static const char *fault = "";
static int wrong(const char *name) {
  return strcmp(fault, name) == 0;
}

static int failures;
static void expect(bool right, const char *what) {
  if (right) return;
  fprintf(stderr, "wrong: %s\n", what);
  failures++;
}
#define CUDA(call) expect((call) == cudaSuccess, #call)

enum { N = 3000 };
static cudaStream_t s, t;
static cudaEvent_t event;
static float *x, *y, *c, *pinned, *result, host[N];
static cublasHandle_t blas;
static void *workspace;

static void wait_for(cudaStream_t stream) { /* as a backend does, without blocking calls */
  while (cudaStreamQuery(stream) == cudaErrorNotReady) sched_yield();
}

static void launch(const void *handle, cudaStream_t stream, float a, const float *in, float b,
                   float *out, int n) {
  axpby k = {a, b, in, out, n};
  void *args[] = {&k};
  CUDA(cudaLaunchKernel(handle, dim3(7), dim3(32), args, 0, stream));
}

static void *from_another_thread(void *comm) {
  ncclBroadcast(x, x, 4, ncclFloat, 0, (ncclComm_t)comm, s);
  return NULL;
}

static void one_gpu(void) {
  for (int i = 0; i < N; i++) host[i] = (float)i;
  CUDA(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, s));
  memset(host, 0, sizeof host); /* staged: ours again */
  double_forbid_blocking(1);
  if (wrong("poison")) launch((const void *)kernel_axpby, s, 1, y, 0, c, N);
  if (wrong("copied poison")) {
    CUDA(cudaMemcpyAsync(c, y, N * sizeof(float), cudaMemcpyDefault, s));
    launch((const void *)kernel_axpby, s, 1, c, 0, y, N);
    wait_for(s);
  }
  launch((const void *)kernel_axpby, s, 2, x, 0, y, N);
  CUDA(cudaEventRecord(event, s));
  if (!wrong("wait")) CUDA(cudaStreamWaitEvent(t, event, 0));
  if (wrong("host access")) printf("%g\n", (double)y[0]);
  if (wrong("undeclared")) {
    launch((const void *)kernel_liar, s, 1, x, 0, c, N);
    wait_for(s);
  }
  if (wrong("write after read")) { /* t reads y, then s overwrites it */
    launch((const void *)kernel_axpby, t, 1, y, 0, c, N);
    launch((const void *)kernel_axpby, s, 1, x, 0, y, N);
  }
  float one = 1, zero = 0;
  /* Row-major C (8x8) = X X^T, X the first 8x300 of y. */
  int ld = wrong("leading dimension") ? 299 : 300;
  cublasSetStream(blas, t);
  if (!wrong("workspace")) cublasSetWorkspace(blas, workspace, 4096);
  cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, 8, 8, 300, &one, y, CUDA_R_32F, ld, y, CUDA_R_32F,
               300, &zero, wrong("overlap") ? y : c, CUDA_R_32F, 8, CUBLAS_COMPUTE_32F,
               CUBLAS_GEMM_DEFAULT);
  if (wrong("beyond the end")) launch((const void *)kernel_axpby, t, 1, y, 0, c, N + 1);
  if (wrong("misaligned"))
    launch((const void *)kernel_axpby, t, 1, (float *)((char *)y + 2), 0, c, 9);
  if (wrong("grid"))
    launch((const void *)kernel_axpby, t, 1, y, 0, c, 0),
        cudaLaunchKernel((const void *)kernel_axpby, dim3(1), dim3(2048), NULL, 0, t);
  CUDA(cudaMemcpyAsync(pinned, c, 64 * sizeof(float), cudaMemcpyDefault, t));
  if (wrong("early result")) double_host_reads(pinned, 64 * sizeof(float));
  if (wrong("pageable")) cudaMemcpyAsync(host, c, 64, cudaMemcpyDeviceToHost, t);
  if (wrong("synchronize")) cudaStreamSynchronize(t);
  wait_for(t);
  double_host_reads(pinned, 64 * sizeof(float));
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) {
      double sum = 0;
      for (int k = 0; k < 300; k++) sum += 4.0 * (i * 300 + k) * (j * 300 + k);
      expect(fabs(pinned[i * 8 + j] - sum) <= 1e-5 * sum, "a product");
    }
  for (int i = 0; i < N; i++) pinned[i] = 1;
  CUDA(cudaMemcpyAsync(x, pinned, N * sizeof(float), cudaMemcpyDefault, s));
  if (wrong("changed source")) pinned[5] = 2; /* x must still get 1 */
  launch((const void *)kernel_axpby, s, 3, x, 1, x, N);
  launch((const void *)kernel_axpby, s, 1, x, 0, result, 1); /* straight into pinned memory */
  expect(result[0] != 4 || cudaStreamQuery(s) == cudaSuccess, "a result before its time");
  if (wrong("destroyed event")) cudaEventDestroy(event), cudaStreamWaitEvent(t, event, 0);
  if (wrong("destroyed stream")) cudaStreamDestroy(s), cudaStreamQuery(s);
  wait_for(s);
  double_host_reads(result, sizeof(float));
  expect(result[0] == 4, "a result in pinned memory");
  CUDA(cudaMemcpyAsync(pinned, x, N * sizeof(float), cudaMemcpyDefault, s));
  wait_for(s);
  for (int i = 0; i < N; i++) expect(pinned[i] == 4, "a copy");
  double_forbid_blocking(0);
  struct cudaPointerAttributes a;
  CUDA(cudaPointerGetAttributes(&a, y + 5));
  expect(a.type == cudaMemoryTypeDevice && a.device == 0, "attributes of device memory");
  CUDA(cudaPointerGetAttributes(&a, host));
  expect(a.type == cudaMemoryTypeUnregistered, "attributes of the host's memory");
  void *pool;
  CUDA(cudaMallocAsync(&pool, 100, s));
  CUDA(cudaMemsetAsync(pool, 0, 100, wrong("born elsewhere") ? t : s));
  CUDA(cudaFreeAsync(pool, s));
  if (wrong("after free async")) cudaMemsetAsync(pool, 0, 100, s);
}

static void ready(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress)
    sched_yield();
  expect(state == ncclSuccess, "a communicator");
}

static void many_gpus(void) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ncclUniqueId id;
  if (rank == 0) ncclGetUniqueId(&id);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t all, pairs = NULL;
  ncclCommInitRankConfig(&all, size, id, rank, &config);
  if (wrong("in progress")) ncclBroadcast(x, x, 4, ncclFloat, 0, all, s);
  ready(all);
  ncclCommSplit(all, rank / 2, -rank, &pairs, NULL); /* the order of ranks turned round */
  ready(all);
  ready(pairs);

  for (int i = 0; i < N; i++) host[i] = (float)(rank * N + i);
  CUDA(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyDefault, s));
  wait_for(s);
  int last = wrong("root") && rank == size - 1, root = last ? 0 : size - 1;
  size_t count = wrong("count") && rank == 0 ? N - 1 : N;
  ncclDataType_t type = wrong("type") && rank == 0 ? ncclInt32 : ncclFloat;
  launch((const void *)kernel_axpby, s, 1, x, 0, y, N);
  if (wrong("thread")) {
    pthread_t thread;
    pthread_create(&thread, NULL, from_another_thread, all);
    pthread_join(thread, NULL);
  }
  if (wrong("communicator order") && rank == 1) {
    ncclReduce(x, c, 4, ncclFloat, ncclSum, 0, pairs, t);
    ready(pairs);
  }
  ncclBroadcast(y, y, count, type, root, all, s);
  if (wrong("launch in progress")) launch((const void *)kernel_axpby, s, 1, x, 0, y, N);
  ready(all);
  if (wrong("launch order") || (wrong("communicator order") && rank != 1)) {
    ncclReduce(x, c, 4, ncclFloat, ncclSum, 0, pairs, t);
    ready(pairs);
  }
  if (wrong("collective order")) { /* rank 0 reduces first */
    for (int i = 0; i < 2; i++) {
      if ((rank == 0) == (i == 0))
        ncclReduce(y, c, 10, ncclFloat, ncclSum, 0, all, s);
      else
        ncclBroadcast(y, y, 10, ncclFloat, 0, all, s);
      ready(all);
    }
  }
  CUDA(cudaMemcpyAsync(pinned, y, N * sizeof(float), cudaMemcpyDefault, s));
  while (cudaStreamQuery(s) == cudaErrorNotReady) {
    ncclResult_t state;
    ncclCommGetAsyncError(all, &state);
    sched_yield();
  }
  for (int i = 0; i < N; i++) expect(pinned[i] == (float)((size - 1) * N + i), "a broadcast");

  CUDA(cudaEventRecord(event, s));
  CUDA(cudaStreamWaitEvent(t, event, 0));
  if (pairs) { /* the other of the pair gets our x; sums to the pair's rank 0 */
    int me = -1, two = 0;
    two = rank / 2 * 2 + 1 < size ? 2 : 1;
    me = two == 2 ? 1 - rank % 2 : 0;
    int other = 1 - me;
    ncclGroupStart();
    if (two == 2) {
      ncclSend(x, wrong("message length") && rank == 0 ? N - 1 : N, ncclFloat, other, pairs, t);
      ncclRecv(y, N, ncclFloat, other, pairs, t);
    }
    if (wrong("group")) exit(0);
    ncclGroupEnd();
    ready(pairs);
    ncclReduce(x, c, N, ncclFloat, ncclSum, 0, pairs, t);
    ready(pairs);
    CUDA(cudaMemcpyAsync(pinned, y, N * sizeof(float), cudaMemcpyDefault, t));
    wait_for(t);
    int theirs = rank ^ 1;
    for (int i = 0; two == 2 && i < N; i++)
      expect(pinned[i] == (float)(theirs * N + i), "a message");
    if (me == 0) {
      CUDA(cudaMemcpyAsync(pinned, c, N * sizeof(float), cudaMemcpyDefault, t));
      wait_for(t);
      for (int i = 0; i < N; i++)
        expect(pinned[i] == (float)(rank * N + i) + (two == 2 ? (float)(theirs * N + i) : 0),
               "a sum");
    }
    if (!wrong("communicator leak")) {
      ncclCommFinalize(pairs);
      ready(pairs);
      ncclCommDestroy(pairs);
    }
  }
  ncclCommDestroy(all);
}

int main(int argc, char **argv) {
  bool parallel = argc > 2 && strcmp(argv[2], "mpi") == 0;
  if (argc > 1) fault = argv[1];
  if (wrong("communicator order")) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  if (parallel) MPI_Init(&argc, &argv);
  int count = -1;
  cudaError_t there = cudaGetDeviceCount(&count);
  if (wrong("no device")) { /* rank 0 has no GPU, rank 1 no driver */
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    expect(there == (rank ? cudaErrorInsufficientDriver : cudaErrorNoDevice), "no device");
    expect(count == -1, "the count is left as it was");
    expect(cudaMalloc((void **)&x, 4) == there, "no memory without a device");
    expect(cublasCreate(&blas) == CUBLAS_STATUS_NOT_INITIALIZED, "no cuBLAS without a device");
    MPI_Finalize();
    return failures != 0;
  }
  expect(there == cudaSuccess && count == 1, "one device");
  int least, greatest;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest));
  CUDA(cudaStreamCreateWithPriority(&t, cudaStreamNonBlocking, least));
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA(cudaMalloc((void **)&x, N * sizeof(float)));
  CUDA(cudaMalloc((void **)&y, N * sizeof(float)));
  CUDA(cudaMalloc((void **)&c, N * sizeof(float)));
  CUDA(cudaMalloc(&workspace, 4096));
  CUDA(cudaHostAlloc((void **)&pinned, N * sizeof(float), 0));
  CUDA(cudaHostAlloc((void **)&result, sizeof(float), 0));
  cublasCreate(&blas);
  if (wrong("workspace")) cublasSetWorkspace(blas, workspace, 4096);

  if (parallel)
    many_gpus();
  else
    one_gpu();

  launch((const void *)kernel_axpby, s, 1, x, 0, x, N);
  if (!wrong("early free")) wait_for(s);
  if (wrong("use after free"))
    CUDA(cudaFree(y)), launch((const void *)kernel_axpby, s, 1, y, 0, x, N);
  CUDA(cudaFree(x));
  CUDA(cudaFree(y));
  CUDA(cudaFree(c));
  if (!wrong("memory leak")) CUDA(cudaFree(workspace));
  if (!wrong("pinned leak")) CUDA(cudaFreeHost(result));
  CUDA(cudaFreeHost(pinned));
  if (!wrong("handle leak")) cublasDestroy(blas);
  if (!wrong("stream leak")) CUDA(cudaStreamDestroy(s));
  CUDA(cudaStreamDestroy(t));
  if (!wrong("event leak")) CUDA(cudaEventDestroy(event));
  if (parallel) MPI_Finalize();
  return failures != 0;
}
