/* The CUDA device: its parts, and what the files of this directory know of each other.
 *
 * A queue is a stream, an event an event of CUDA; nothing here blocks but queue_sync and
 * event_sync, which ask again and again (queue.c) and meanwhile advance the rest of the process and
 * look after the communicators. Every entry leaves the caller's current device as it was: the work
 * of an entry stands between dmuon_cuda_enter and dmuon_cuda_leave.
 *
 * The first error of CUDA breaks the device: what came before it is undefined from then on, so
 * every later call fails with the same code. */
#ifndef DMUON_BACKEND_CUDA_CUDA_H
#define DMUON_BACKEND_CUDA_CUDA_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/comms.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/module.h"

enum {
  DMUON_CUDA_RING = 16,       /* events for an edge that is made and taken in one call */
  DMUON_CUDA_PARTIALS = 4096, /* partial results of a reduction, 8 bytes each */
  DMUON_CUDA_POINTERS = 1024, /* operands of a product in tiles, each of the three */
  DMUON_CUDA_MESSAGE = 512,
  DMUON_CUDA_TILE_TABLE = -1,
  /* Of a queue's memory: for results of reductions, and for products in tiles. */
  DMUON_CUDA_QUEUE_BYTES = (DMUON_CUDA_PARTIALS + 2) * 8,
  DMUON_CUDA_TILE_BYTES = 3 * DMUON_CUDA_POINTERS * sizeof(void *)
};

/* A block of device or pinned memory, so that it is counted and can be given back to where it came
 * from. */
typedef struct dmuon_cuda_block {
  struct dmuon_cuda_block *next, *previous;
  void *ptr;
  int64_t bytes;
  int is_host, is_pool; /* of cudaHostAlloc; of the caller's allocator */
} dmuon_cuda_block;

typedef struct dmuon_cuda_device {
  dmuon_module_device module; /* its base first */
  dmuon_device_overhead overhead;
  int ordinal;
  int major, minor; /* compute capability */
  int processors;
  char name[256];
  unsigned char uuid[16];
  int low_priority, high_priority; /* of streams; the smaller number goes first */

  int reduce_nccl, allow_tf32, rank;
  DMuonErrorCode (*progress)(void *argument);
  void *progress_argument;
  DMuonAllocFunction alloc;
  DMuonFreeFunction release;
  void *alloc_context;

  double timeout; /* seconds; 0: for ever */
  DMuonErrorCode broken;
  char message[DMUON_CUDA_MESSAGE]; /* why */

  dmuon_queue *queues; /* all of them */
  cudaStream_t caller; /* the caller's stream */
  cudaEvent_t ring[DMUON_CUDA_RING];
  int ring_next;
  dmuon_cuda_block *blocks;

  cublasHandle_t blas;
  int64_t blas_bytes;   /* of a queue's workspace */
  int one_call_batches; /* a batch is one call of cuBLAS, which may choose by its size */
  int64_t tile;         /* of a symmetric product: DMUON_CUDA_TILE_TABLE, 0 (none), or its side */

  dmuon_cuda_comms comms; /* zero until the first communicator */
} dmuon_cuda_device;

struct dmuon_queue {
  dmuon_cuda_device *device;
  dmuon_queue *next;
  cudaStream_t stream;
  int high_priority;
  double *partials; /* DMUON_CUDA_PARTIALS, and two more for what all of them gave */
  void **pointers;  /* 3 * DMUON_CUDA_POINTERS, on the device; NULL until products are reserved */
  void *blas_workspace;
};

struct dmuon_event {
  dmuon_cuda_device *device;
  cudaEvent_t event;
};

static inline dmuon_cuda_device *dmuon_cuda_of(dmuon_device *device) {
  return (dmuon_cuda_device *)(void *)device;
}

static inline dmuon_memory *dmuon_cuda_memory(dmuon_cuda_device *device) {
  return &device->module.base.context->memory;
}

static inline cudaStream_t dmuon_cuda_stream(const dmuon_queue *queue) {
  return queue->stream;
}

/* ---- errors (error.c) ---- */

/* An answer of CUDA or cuBLAS as a code, its call named: DMUON_ERR_MEMORY for a lack of memory,
 * else DMUON_ERR_DEVICE. */
DMuonErrorCode dmuon_cuda_result(cudaError_t result, const char *call, const char *function,
                                 const char *file, int line);
DMuonErrorCode dmuon_cublas_result(cublasStatus_t result, const char *call, const char *function,
                                   const char *file, int line);
/* DMUON_TRY(DMUON_CUDA(cudaEventRecord, (event, stream))) */
#define DMUON_CUDA(call, arguments) \
  dmuon_cuda_result(call arguments, #call, __func__, __FILE__, __LINE__)
#define DMUON_CUBLAS(call, arguments) \
  dmuon_cublas_result(call arguments, #call, __func__, __FILE__, __LINE__)
/* For results that are at hand. */
#define dmuon_cuda_error(result, call) \
  dmuon_cuda_result((result), (call), __func__, __FILE__, __LINE__)

/* From now on every call fails with code (the thread's record holds the message), communicators are
 * given up. The first one counts. */
void dmuon_cuda_break(dmuon_cuda_device *device, DMuonErrorCode code);
/* The failure of a broken device; success while it works. */
DMuonErrorCode dmuon_cuda_check(dmuon_cuda_device *device);

/* ---- the current device (device.c) ---- */

/* Makes this device the thread's current one and says which it was; leave puts it back. */
int dmuon_cuda_enter(dmuon_cuda_device *device);
void dmuon_cuda_leave(dmuon_cuda_device *device, int previous);
/* The body of an entry: a device that works, the call on it, the caller's device again; an error
 * that is fatal breaks the device. Returns. */
#define DMUON_CUDA_WITHIN(device, call)                                 \
  do {                                                                  \
    dmuon_cuda_device *device_ = (device);                              \
    DMUON_TRY(dmuon_cuda_check(device_));                               \
    const int previous_ = dmuon_cuda_enter(device_);                    \
    DMuonErrorCode result_ = (call);                                    \
    if (DMuonErrorIsFatal(result_)) dmuon_cuda_break(device_, result_); \
    dmuon_cuda_leave(device_, previous_);                               \
    DMUON_TRY(result_);                                                 \
    return DMUON_SUCCESS;                                               \
  } while (0)

/* ---- streams, events, waits (queue.c, event.c) ---- */

/* later's operations from now on come after those issued on earlier so far. */
DMuonErrorCode dmuon_cuda_order(dmuon_cuda_device *device, cudaStream_t earlier,
                                cudaStream_t later);
/* One turn of a wait that began at `since` (dmuon_cuda_seconds): the rest of the process advances,
 * communicators are looked at, the timeout is watched (what names what is waited for), another
 * process gets the processor. Fails when the device is broken, and breaks it when the time is over.
 * turn: how many came before. */
DMuonErrorCode dmuon_cuda_pause(dmuon_cuda_device *device, double since, int64_t turn,
                                const char *what);
double dmuon_cuda_seconds(void);
/* The rest of the process and the communicators, once. */
DMuonErrorCode dmuon_cuda_advance(dmuon_cuda_device *device);
DMuonErrorCode dmuon_cuda_progress(dmuon_device *device);

/* ---- memory (memory.c) ---- */

/* Device memory, 256-byte aligned; counted as the context's. */
DMuonErrorCode dmuon_cuda_alloc(dmuon_cuda_device *device, int64_t bytes, void **ptr);
void dmuon_cuda_free(dmuon_cuda_device *device, void *ptr);
DMuonErrorCode dmuon_cuda_alloc_host(dmuon_cuda_device *device, int64_t bytes, void **ptr);
void dmuon_cuda_free_host(dmuon_cuda_device *device, void *ptr);

/* ---- kernels (launch.c) ---- */

/* A kernel's handle with its one argument struct, copied at once. */
DMuonErrorCode dmuon_cuda_launch(dmuon_queue *queue, const void *handle, int64_t blocks,
                                 int threads, const void *args);
/* The blocks of DMUON_THREADS threads for an element loop over n elements, DMUON_VECTOR a thread
 * and turn: at least one, and not more than keep the device busy. */
int64_t dmuon_cuda_blocks(const dmuon_cuda_device *device, int64_t n);

/* ---- the parts of the table ---- */

/* queue.c, event.c */
DMuonErrorCode dmuon_cuda_queue_create(dmuon_device *device, int high_priority,
                                       dmuon_queue **queue);
void dmuon_cuda_queue_destroy(dmuon_queue *queue);
DMuonErrorCode dmuon_cuda_queue_sync(dmuon_queue *queue);
DMuonErrorCode dmuon_cuda_event_create(dmuon_device *device, dmuon_event **event);
void dmuon_cuda_event_destroy(dmuon_event *event);
DMuonErrorCode dmuon_cuda_event_record(dmuon_queue *queue, dmuon_event *event);
DMuonErrorCode dmuon_cuda_event_wait(dmuon_queue *queue, dmuon_event *event);
DMuonErrorCode dmuon_cuda_event_test(dmuon_event *event, int *done);
DMuonErrorCode dmuon_cuda_event_sync(dmuon_event *event);
DMuonErrorCode dmuon_cuda_lend(dmuon_queue *queue);
DMuonErrorCode dmuon_cuda_reclaim(dmuon_queue *queue, const void *ptr, int64_t bytes, int written);
/* memory.c: these bytes are memory that kernels of this device reach. */
DMuonErrorCode dmuon_cuda_check_pointer(dmuon_device *device, const void *ptr, int64_t bytes);
/* loops.c; n may be 0. Also for the files of this directory. */
DMuonErrorCode dmuon_cuda_zero(dmuon_queue *queue, void *dst, int64_t bytes);
DMuonErrorCode dmuon_cuda_copy(dmuon_queue *queue, void *dst, const void *src, int64_t bytes);
DMuonErrorCode dmuon_cuda_discard(dmuon_queue *queue, void *dst, int64_t bytes);
DMuonErrorCode dmuon_cuda_stamp(dmuon_queue *queue, double *seconds);
DMuonErrorCode dmuon_cuda_cast(dmuon_queue *queue, int64_t n, void *dst, DMuonDType dst_dtype,
                               const void *src, DMuonDType src_dtype);
DMuonErrorCode dmuon_cuda_pack(dmuon_queue *queue, const dmuon_pack *args);
DMuonErrorCode dmuon_cuda_copy_matrix(dmuon_queue *queue, const dmuon_copy_matrix *args);
DMuonErrorCode dmuon_cuda_axpby(dmuon_queue *queue, int64_t n, DMuonDType dtype, double alpha,
                                const void *x, double beta, void *y);
DMuonErrorCode dmuon_cuda_divide(dmuon_queue *queue, int64_t n, DMuonDType dtype, double divisor,
                                 void *x);
DMuonErrorCode dmuon_cuda_add_diagonal(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                       double alpha, void *c, int64_t ldc);
DMuonErrorCode dmuon_cuda_norm(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                               const void *x, int64_t ld, dmuon_norm *norm);
DMuonErrorCode dmuon_cuda_find_nonfinite(dmuon_queue *queue, const dmuon_pack *args, int64_t *index,
                                         float *flag);
DMuonErrorCode dmuon_cuda_decide(dmuon_queue *queue, int64_t count, const float *flags, float *any,
                                 int64_t *skipped);
DMuonErrorCode dmuon_cuda_muon_momentum(dmuon_queue *queue, const dmuon_muon_momentum *args);
DMuonErrorCode dmuon_cuda_muon_apply(dmuon_queue *queue, const dmuon_muon_apply *args);
DMuonErrorCode dmuon_cuda_adamw(dmuon_queue *queue, const dmuon_adamw *args);
/* c = factor * c; 0 does not read c. From within an entry. */
DMuonErrorCode dmuon_cuda_scale(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                                double factor, void *c, int64_t ld);
/* blas.c, blas_symmetric.c */
DMuonErrorCode dmuon_cuda_gemm(dmuon_queue *queue, DMuonDType dtype, int transpose_a,
                               int transpose_b, int64_t m, int64_t n, int64_t k, double alpha,
                               const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                               void *c, int64_t ldc, const dmuon_batch *batch);
DMuonErrorCode dmuon_cuda_syrk(dmuon_queue *queue, DMuonDType dtype, int64_t m, int64_t k,
                               double alpha, const void *a, int64_t lda, double beta, void *c,
                               int64_t ldc, const dmuon_batch *batch);
DMuonErrorCode dmuon_cuda_gemm_symmetric(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                         double alpha, const void *a, int64_t lda, const void *b,
                                         int64_t ldb, double beta, void *c, int64_t ldc,
                                         const dmuon_batch *batch);
/* What products need of a queue: a workspace, and operands of tiles. */
DMuonErrorCode dmuon_cuda_queue_products(dmuon_queue *queue);

/* ---- between blas.c and blas_symmetric.c ---- */

typedef struct {
  DMuonDType dtype;
  int transpose_a, transpose_b;
  int64_t m, n, k;
  double alpha, beta;
  const void *a, *b;
  void *c;
  int64_t lda, ldb, ldc;
  dmuon_batch batch;
} dmuon_cuda_product;

/* The handle works on this queue, in its workspace. */
DMuonErrorCode dmuon_cuda_blas_on(dmuon_queue *queue);
DMuonErrorCode dmuon_cuda_product_check(const dmuon_cuda_product *product);
/* One product after another, or a batch in one call. */
DMuonErrorCode dmuon_cuda_products(dmuon_queue *queue, const dmuon_cuda_product *product);
/* count products whose operands are listed on the device. */
DMuonErrorCode dmuon_cuda_listed_products(dmuon_queue *queue, const dmuon_cuda_product *product,
                                          const void *const *a, const void *const *b,
                                          void *const *c, int64_t count);

/* ---- device.c ---- */

DMuonErrorCode dmuon_cuda_device_create(dmuon_context *context, const dmuon_module_request *request,
                                        dmuon_device **device);
void dmuon_cuda_device_describe(const dmuon_device *device, dmuon_text *text);
/* How symmetric products are cut: see tile above. */
void dmuon_cuda_device_set_tile(dmuon_device *device, int64_t tile);
/* A batch in one call, whose bits may depend on how many there are. */
void dmuon_cuda_device_set_one_call_batches(dmuon_device *device, int on);

#endif
