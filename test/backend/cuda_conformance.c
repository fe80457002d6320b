/* The CUDA device, over the double, against the conformance suite of the seam: with streams drained
 * in several orders, with symmetric products whole and in tiles, batches one by one and in one
 * call. And what only this backend does: it tells what is missing, keeps the caller's current
 * device and stream, takes memory from his allocator, never waits while operations are issued, and
 * says what failed. */
#include "config.h"

#include "device_conformance.h"

#include "cuda_device.h"
#include "double.h"

/* ---- the suite ---- */

static int run_suite(int cut) {
  dmuon_context context;
  dmuon_device *device = NULL;
  tap_plan(0);
  dmuon_context_init(&context);
  must(cuda_device_try(&context, -1, &device));
  dmuon_cuda_device_set_tile(device, cut ? 16 : 0);
  dmuon_cuda_device_set_one_call_batches(device, cut);
  conformance_run(device, cut ? "cuda in tiles" : "cuda");
  device->ops->destroy(device);
  tap_is_int(context.memory.bytes, 0, "everything was freed");
  dmuon_context_free(&context);
  return tap_done();
}

/* ---- a device and what a test needs of it ---- */

static struct {
  dmuon_context context;
  dmuon_device *device;
  const DMuonDeviceOps *ops;
  dmuon_queue *queue;
} here;

static void open_here(int ordinal) {
  dmuon_context_init(&here.context);
  must(cuda_device_try(&here.context, ordinal, &here.device));
  here.ops = here.device->ops;
  must(here.ops->queue_create(here.device, 1, &here.queue));
}

static void close_here(void) {
  here.ops->queue_destroy(here.queue);
  here.ops->destroy(here.device);
  tap_is_int(here.context.memory.bytes, 0, "everything was freed");
  dmuon_context_free(&here.context);
}

static int message_has(const char *word) {
  if (strstr(DMuonErrorGetMessage(), word)) return 1;
  tap_diag("no '%s' in: %s", word, DMuonErrorGetMessage());
  return 0;
}

/* ---- what is missing ---- */

static int run_missing(const char *word) {
  dmuon_context context;
  dmuon_device *device = NULL;
  dmuon_context_init(&context);
  tap_plan(0);
  tap_is_int(cuda_device_try(&context, -1, &device), DMUON_ERR_UNSUPPORTED,
             "nothing to compute on");
  tap_ok(message_has(word), "the message says what is missing");
  tap_ok(!device && context.memory.bytes == 0, "and nothing was made");
  dmuon_context_free(&context);
  return tap_done();
}

/* ---- two GPUs ---- */

static int run_two(void) {
  int current = -1;
  void *a = NULL, *host = NULL;
  float *other = NULL;
  unsigned char uuid[16];
  dmuon_event *event = NULL;
  tap_plan(0);
  if (cudaSetDevice(0) != cudaSuccess) return 1;
  open_here(1);
  dmuon_text text;
  const char *words = "";
  dmuon_text_init(&text, &here.context.memory);
  dmuon_cuda_module.describe(here.device, &text);
  must(dmuon_text_finish(&text, &words));
  tap_ok(strstr(words, "ordinal 1") != NULL, "described: %s", words);
  dmuon_text_free(&text);
  dmuon_cuda_module.identify(here.device, uuid);
  tap_ok(uuid[0] | uuid[1] | uuid[2] | uuid[3] | uuid[14] | uuid[15], "it has a uuid");
  must(here.ops->alloc(here.device, 4096, &a));
  must(here.ops->alloc_host(here.device, 64, &host));
  must(here.ops->event_create(here.device, &event));
  must(here.ops->zero(here.queue, a, 4096));
  must(here.ops->axpby(here.queue, 1024, DMUON_FLOAT32, 1, a, 1, a));
  must(here.ops->gemm(here.queue, DMUON_FLOAT32, 0, 0, 8, 8, 8, 1, a, 8, (float *)a + 64, 8, 0,
                      (float *)a + 128, 8, NULL));
  must(here.ops->event_record(here.queue, event));
  must(here.ops->event_sync(event));
  must(here.ops->queue_sync(here.queue));
  tap_ok(cudaGetDevice(&current) == cudaSuccess && current == 0,
         "operations on device 1 leave device 0 current");
  if (cudaMalloc((void **)&other, 64) != cudaSuccess) return 1;
  tap_is_int(here.ops->check_pointer(here.device, other, 64), DMUON_ERR_ARGUMENT,
             "an array of the other device cannot be reached");
  tap_ok(message_has("device 0"), "and the message says where it is");
  tap_is_int(here.ops->check_pointer(here.device, a, 4096), DMUON_SUCCESS, "one of this can");
  tap_is_int(here.ops->check_pointer(here.device, host, 64), DMUON_SUCCESS, "pinned memory, too");
  tap_is_int(here.ops->check_pointer(here.device, NULL, 0), DMUON_SUCCESS, "and no array at all");
  char local[16];
  tap_is_int(here.ops->check_pointer(here.device, local, sizeof local), DMUON_ERR_ARGUMENT,
             "memory of the host cannot");
  tap_ok(message_has("DMuonMeshAlloc"), "and the message says what would be right");
  dmuon_context context;
  dmuon_device *device = NULL;
  dmuon_context_init(&context);
  tap_is_int(cuda_device_try(&context, 2, &device), DMUON_ERR_ARGUMENT, "there is no device 2");
  dmuon_context_free(&context);
  (void)cudaFree(other);
  here.ops->event_destroy(event);
  here.ops->free_host(here.device, host);
  here.ops->free(here.device, a);
  close_here();
  tap_ok(cudaGetDevice(&current) == cudaSuccess && current == 0, "and so does its end");
  return tap_done();
}

/* ---- the caller's stream ---- */

/* The double fails the process where an order is missing. */
static void test_caller(void) {
  enum { N = 700 };
  open_here(-1);
  void *a = NULL, *told = NULL;
  cudaStream_t stream[2] = {NULL, NULL};
  must(here.ops->alloc(here.device, N * 4, &a));
  must(here.ops->alloc_host(here.device, N * 4, &told));
  for (int s = 0; s < 3; s++) {
    /* The default stream, then two of the caller's own. */
    cudaStream_t caller = NULL;
    if (s > 0) {
      if (cudaStreamCreateWithPriority(&stream[s - 1], cudaStreamNonBlocking, 0) != cudaSuccess)
        tap_ok(0, "a stream");
      caller = stream[s - 1];
      must(here.ops->set_stream(here.device, caller));
    }
    (void)cudaMemsetAsync(a, 0, N * 4, caller);
    must(here.ops->reclaim(here.queue, a, N * 4, 1));
    must(here.ops->add_diagonal(here.queue, DMUON_FLOAT32, N, 1.5 + s, a, 0));
    must(here.ops->lend(here.queue));
    (void)cudaMemcpyAsync(told, a, N * 4, cudaMemcpyDefault, caller);
    (void)cudaMemsetAsync(a, 0, N * 4, caller); /* he writes, and gives it back */
    must(here.ops->reclaim(here.queue, told, N * 4, 0));
    must(here.ops->queue_sync(here.queue));
    double_host_reads(told, 4);
    float first = 0;
    memcpy(&first, told, sizeof first);
    tap_is_near(first, 1.5 + s, 0, "the caller sees what the queue wrote, stream %d", s);
  }
  must(here.ops->set_stream(here.device, NULL));
  for (int s = 0; s < 2; s++) (void)cudaStreamDestroy(stream[s]);
  here.ops->free_host(here.device, told);
  here.ops->free(here.device, a);
  close_here();
}

/* ---- the caller's allocator ---- */

typedef struct {
  int64_t taken, given, bytes;
  int fail, crooked;
} pool;

static void *pool_alloc(void *context, size_t bytes, void *stream) {
  pool *p = context;
  void *ptr = NULL;
  (void)stream;
  if (p->fail || cudaMalloc(&ptr, bytes + 256) != cudaSuccess) return NULL;
  p->taken++;
  p->bytes += (int64_t)bytes;
  return (char *)ptr + (p->crooked ? 8 : 0);
}

static void pool_release(void *context, void *ptr, size_t bytes, void *stream) {
  pool *p = context;
  (void)stream;
  p->given++;
  p->bytes -= (int64_t)bytes;
  (void)cudaFree((char *)ptr - (p->crooked ? 8 : 0));
}

static void test_allocator(void) {
  pool p = {0};
  dmuon_module_request request = {.text = "cuda", .ordinal = -1};
  request.alloc = pool_alloc, request.release = pool_release, request.alloc_context = &p;
  dmuon_context_init(&here.context);
  must(dmuon_cuda_module.create(&here.context, &request, &here.device));
  here.ops = here.device->ops;
  must(here.ops->queue_create(here.device, 0, &here.queue));
  must(here.ops->reserve_matrix(here.queue, DMUON_FLOAT32, 64, 64));
  void *a = NULL, *b = NULL;
  const int64_t before = p.taken, counted = here.context.memory.bytes;
  must(here.ops->alloc(here.device, 5000, &a));
  tap_ok(before >= 3 && p.taken == before + 1, "device memory comes from the program's allocator");
  tap_ok(here.context.memory.bytes >= counted + 5000, "and is counted");
  here.ops->free(here.device, a);
  tap_ok(p.given == 1 && here.context.memory.bytes == counted, "and goes back there");
  p.fail = 1;
  tap_is_int(here.ops->alloc(here.device, 5000, &a), DMUON_ERR_MEMORY, "it has none left");
  p.fail = 0, p.crooked = 1;
  tap_is_int(here.ops->alloc(here.device, 5000, &b), DMUON_ERR_ARGUMENT,
             "what it gives is not aligned");
  p.crooked = 0;
  tap_ok(p.taken == p.given + before, "and was given back");
  must(here.ops->queue_sync(here.queue));
  here.context.memory.fail_at = here.context.memory.allocations + 1;
  tap_is_int(here.ops->alloc(here.device, 16, &a), DMUON_ERR_MEMORY,
             "device memory is among the allocations that a test lets fail");
  here.context.memory.fail_at = 0;
  close_here();
  tap_ok(p.taken == p.given && p.bytes == 0, "all of it is back");
}

/* ---- nothing waits ---- */

static void test_issue(void) {
  enum { N = 3000, M = 40 };
  open_here(-1);
  dmuon_queue *other = NULL;
  dmuon_event *event = NULL;
  void *x = NULL, *y = NULL, *z = NULL, *told = NULL;
  must(here.ops->queue_create(here.device, 0, &other));
  must(here.ops->reserve(here.device, 1000));
  must(here.ops->reserve_matrix(other, DMUON_FLOAT32, M, M));
  must(here.ops->event_create(here.device, &event));
  must(here.ops->alloc(here.device, N * 8, &x));
  must(here.ops->alloc(here.device, N * 8, &y));
  must(here.ops->alloc(here.device, N * 8, &z));
  must(here.ops->alloc_host(here.device, 64, &told));
  dmuon_cuda_device_set_tile(here.device, 16);
  dmuon_norm *norm = told;
  const int64_t allocations = here.context.memory.allocations, calls = double_blocking_calls();
  const dmuon_pack pack = {N, z, DMUON_FLOAT32, x, DMUON_FLOAT32, y, DMUON_FLOAT32};
  const dmuon_copy_matrix copy = {M, M, z, M, DMUON_FLOAT32, x, M, DMUON_BFLOAT16, 1, 1, norm};
  double_forbid_blocking(1);
  for (int turn = 0; turn < 3; turn++) {
    must(here.ops->zero(here.queue, x, N * 8));
    must(here.ops->zero(here.queue, y, N * 8));
    must(here.ops->copy(here.queue, z, x, N * 8));
    must(here.ops->cast(here.queue, N, x, DMUON_FLOAT16, y, DMUON_FLOAT32));
    must(here.ops->zero(here.queue, x, N * 8));
    must(here.ops->pack(here.queue, &pack));
    must(here.ops->axpby(here.queue, N, DMUON_FLOAT32, 1, x, 1, y));
    must(here.ops->divide(here.queue, N, DMUON_FLOAT32, 3, y));
    must(here.ops->event_record(here.queue, event));
    must(here.ops->event_wait(other, event));
    must(here.ops->add_diagonal(other, DMUON_FLOAT32, M, 1, x, M));
    must(here.ops->syrk(other, DMUON_FLOAT32, M, M, 1, x, M, 0, z, M, NULL));
    must(here.ops->gemm_symmetric(other, DMUON_FLOAT32, M, 1, x, M, x, M, 0, z, M, NULL));
    must(here.ops->gemm(other, DMUON_FLOAT32, 0, 1, M, M, M, 1, x, M, x, M, 0, y, M, NULL));
    must(here.ops->norm(other, DMUON_FLOAT32, M, M, z, M, norm));
    must(here.ops->copy_matrix(other, &copy));
    must(here.ops->find_nonfinite(other, &pack, (int64_t *)told + 4, NULL));
    must(here.ops->stamp(other, (double *)told + 5));
    must(here.ops->lend(other));
    must(here.ops->reclaim(here.queue, x, 8, 1));
    must(here.ops->event_record(other, event));
    must(here.ops->event_wait(here.queue, event));
    int done = 0;
    must(here.ops->event_test(event, &done));
    must(here.ops->progress(here.device));
  }
  must(here.ops->queue_sync(other));
  must(here.ops->event_sync(event));
  must(here.ops->queue_sync(here.queue));
  double_forbid_blocking(0);
  tap_is_int(double_blocking_calls(), calls, "issuing and waiting make no call that blocks");
  tap_is_int(here.context.memory.allocations, allocations, "and take no memory");
  double_host_reads(told, 48);
  tap_is_near(norm->sum, 40, 1e-6, "the norm came out");
  tap_is_int(((int64_t *)told)[4], -1, "all is finite");
  tap_ok(((double *)told)[5] > 0, "the time is known");
  here.ops->event_destroy(event);
  here.ops->free(here.device, x), here.ops->free(here.device, y), here.ops->free(here.device, z);
  here.ops->free_host(here.device, told);
  here.ops->queue_destroy(other);
  close_here();
}

/* ---- batches ---- */

/* A batch gives the bits of as many single products, of every kind and type. */
static void test_batches(void) {
  enum { M = 37, K = 29, COUNT = 3 };
  dmuon_context_init(&here.context);
  must(cuda_device_try(&here.context, -1, &suite.device));
  suite.ops = suite.device->ops;
  suite.name = "cuda";
  must(suite.ops->queue_create(suite.device, 0, &suite.queue));
  for (int x = 0; x < 16; x++) {
    const DMuonDType dtype = all_dtypes[x % 4];
    const int64_t stride = M * M + 5;
    dmuon_cuda_device_set_tile(suite.device, x & 4 ? 8 : 0);
    dmuon_cuda_device_set_one_call_batches(suite.device, x >> 3);
    array a = array_random(dtype, COUNT * stride, 1), b = array_random(dtype, COUNT * stride, 1);
    for (int kind = 0; kind < 3; kind++) {
      array one = array_random(dtype, COUNT * stride, 1), all = array_new(dtype, COUNT * stride, 0);
      must(suite.ops->queue_sync(suite.queue));
      memcpy(all.value, one.value, (size_t)one.n * sizeof(double));
      array_push(&all);
      const dmuon_batch batch = {COUNT, stride, stride, stride, 0};
      for (int i = -1; i < COUNT; i++) {
        const dmuon_batch *how = i < 0 ? &batch : NULL;
        const int64_t at = i < 0 ? 0 : i * stride;
        void *c = dmuon_dtype_at(i < 0 ? all.device : one.device, at, dtype);
        const void *pa = dmuon_dtype_at(a.device, at, dtype);
        const void *pb = dmuon_dtype_at(b.device, at, dtype);
        if (kind == 0)
          must(suite.ops->gemm(suite.queue, dtype, 1, 0, M, M, K, 0.5, pa, M, pb, M, 0.25, c, M,
                               how));
        if (kind == 1) must(suite.ops->syrk(suite.queue, dtype, M, K, 0.5, pa, M, 0.25, c, M, how));
        if (kind == 2)
          must(
              suite.ops->gemm_symmetric(suite.queue, dtype, M, 0.5, pa, M, pb, M, 0.25, c, M, how));
      }
      array_pull(&one), array_pull(&all);
      tap_ok(!memcmp(one.host, all.host, (size_t)one.n * dmuon_dtype_bytes(dtype)),
             "%s of a batch in %s%s%s: as one by one",
             kind == 0   ? "gemm"
             : kind == 1 ? "syrk"
                         : "gemm_symmetric",
             dmuon_dtype_name(dtype), x & 4 ? ", in tiles" : "", x >> 3 ? ", in one call" : "");
      array_free(&one), array_free(&all);
    }
    array_free(&a), array_free(&b);
  }
  suite.ops->queue_destroy(suite.queue);
  suite.device->ops->destroy(suite.device);
  dmuon_context_free(&here.context);
}

/* ---- failures ---- */

static void test_failures(void) {
  void *a = NULL, *b = NULL;
  open_here(-1);
  must(here.ops->alloc(here.device, 4096, &a));
  double_fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
  tap_is_int(here.ops->alloc(here.device, 4096, &b), DMUON_ERR_MEMORY, "no memory is no end");
  tap_ok(message_has("cudaMalloc"), "the call is named");
  double_fail_call("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  tap_is_int(here.ops->alloc_host(here.device, 64, &b), DMUON_ERR_MEMORY,
             "nor is no pinned memory");
  must(here.ops->zero(here.queue, a, 4096));
  double_fail_call("cudaLaunchKernel", 1, cudaErrorLaunchFailure);
  tap_is_int(here.ops->axpby(here.queue, 100, DMUON_FLOAT32, 1, a, 1, a), DMUON_ERR_DEVICE,
             "a launch that fails");
  tap_ok(message_has("cudaLaunchKernel") && message_has(cudaGetErrorName(cudaErrorLaunchFailure)),
         "call and error are named");
  tap_is_int(here.ops->zero(here.queue, a, 4096), DMUON_ERR_DEVICE, "breaks the device");
  tap_ok(message_has("cudaLaunchKernel"), "which goes on saying why");
  tap_is_int(here.ops->queue_sync(here.queue), DMUON_ERR_DEVICE, "also to those who wait");
  double_forgive_leaks();
  here.ops->free(here.device, a);
  close_here();
}

static DMuonErrorCode bad_progress(void *argument) {
  int *calls = argument;
  if (++*calls < 3) return DMUON_SUCCESS;
  return DMUON_ERROR(DMUON_ERR_PEER, "another rank has given up");
}

/* A wait that is over: it says what for, and the device is broken. */
static void test_timeout(void) {
  open_here(-1);
  dmuon_cuda_device *device = dmuon_cuda_of(here.device);
  const double now = dmuon_cuda_seconds();
  tap_is_int(dmuon_cuda_pause(device, now - 5, 1, "a queue"), DMUON_SUCCESS, "no timeout, no end");
  dmuon_cuda_module.set_timeout(here.device, 2);
  tap_is_int(dmuon_cuda_pause(device, now, 1, "a queue"), DMUON_SUCCESS, "time is left");
  tap_is_int(dmuon_cuda_pause(device, now - 5, 1, "a queue"), DMUON_ERR_TIMEOUT, "time is over");
  tap_ok(message_has("a queue") && message_has("2 seconds"), "the wait is named");
  tap_is_int(here.ops->queue_sync(here.queue), DMUON_ERR_TIMEOUT, "the device stays broken");
  double_forgive_leaks();
  close_here();
}

/* What the rest of the process meets while it advances in a wait ends the wait. */
static void test_progress(void) {
  int calls = 0;
  dmuon_module_request request = {.text = "cuda", .ordinal = -1};
  request.progress = bad_progress, request.progress_argument = &calls;
  dmuon_context_init(&here.context);
  must(dmuon_cuda_module.create(&here.context, &request, &here.device));
  here.ops = here.device->ops;
  must(here.ops->queue_create(here.device, 0, &here.queue));
  must(here.ops->progress(here.device));
  must(here.ops->progress(here.device));
  tap_is_int(here.ops->progress(here.device), DMUON_ERR_PEER, "what fails elsewhere is heard of");
  tap_is_int(here.ops->lend(here.queue), DMUON_ERR_PEER, "and breaks the device");
  close_here();
}

int main(int argc, char **argv) {
  /* One for each way in which the double drains streams. */
  static const char *const suites[][2] = {{"whole", "3"}, {"tiles", "4"}, {"tiles", "5"}};
  if (argc > 1 && !strcmp(argv[1], "whole")) return run_suite(0);
  if (argc > 1 && !strcmp(argv[1], "tiles")) return run_suite(1);
  if (argc > 1 && !strcmp(argv[1], "two")) return run_two();
  if (argc > 1) return run_missing(argv[1]);
  tap_plan(0);
  for (int i = 0; i < 3; i++)
    tap_is_int(cuda_device_rerun(suites[i][0], "CUDA_DOUBLE_SEED", suites[i][1]), 0,
               "the conformance suite, symmetric products %s, seed %s", suites[i][0], suites[i][1]);
  tap_is_int(cuda_device_rerun("two", "CUDA_DOUBLE_GPUS", "2"), 0, "two GPUs");
  tap_is_int(cuda_device_rerun("sees no GPU", "CUDA_DOUBLE_MISSING", "0"), 0, "no GPU");
  tap_is_int(cuda_device_rerun("libcuda.so.1", "CUDA_DOUBLE_MISSING", "0d"), 0, "no driver");
  test_caller();
  test_allocator();
  test_issue();
  test_batches();
  test_progress();
  test_timeout();
  test_failures();
  return tap_done();
}
