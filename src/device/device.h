/* The execution seam: queues, events, memory, and the matrix and vector operations that the layers
 * above are written in. A backend fills one DMuonDeviceOps; nobody above asks which one it is.
 *
 * Order. Operations on one queue take effect in the order issued. event_record marks a point of a
 * queue; event_wait makes another queue's later operations come after it. Nothing else orders
 * anything: an operation that reads what another queue writes needs an event between them.
 * Issuing never blocks. Only queue_sync, event_sync wait, on the calling thread, progressing
 * everything meanwhile, and they are where errors of asynchronous work come out.
 *
 * Matrices are row-major with a leading dimension ld >= columns, in elements. Pointers, scalars
 * passed by pointer (dmuon_norm, indices, stamps) and argument arrays stay valid until the
 * operation is done; argument structs are copied at issue. What the host reads of results lies in
 * memory of alloc_host. fp16 and bf16: inputs are widened, products are accumulated in fp32, and
 * each operation rounds its result once. */
#ifndef DMUON_DEVICE_DEVICE_H
#define DMUON_DEVICE_DEVICE_H

#include "base/context.h"
#include "base/dtype.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

typedef struct dmuon_device dmuon_device;
typedef struct dmuon_queue dmuon_queue; /* of the backend */
typedef struct dmuon_event dmuon_event; /* of the backend; may be recorded again and again */

/* A Frobenius norm that can be neither too large nor too small: sqrt(sum) * 2^exponent. sum is 0
 * for zeros, and infinite or NaN when an element was not finite. */
typedef struct {
  double sum;
  int64_t exponent;
} dmuon_norm;

/* dst (rows x cols, or its transpose cols x rows when transpose) = alpha * src / |divide|, cast.
 * divide NULL: 1. A zero norm gives zeros. */
typedef struct {
  int64_t rows, cols; /* of src */
  const void *src;
  int64_t src_ld;
  DMuonDType src_dtype;
  void *dst;
  int64_t dst_ld;
  DMuonDType dst_dtype;
  int transpose;
  double alpha;
  const dmuon_norm *divide;
} dmuon_copy_matrix;

/* dst = addend + src over n elements, in at least fp32, rounded once to dst's type. addend (its own
 * type) and src may each be NULL and then count as zeros. In place allowed with equal types. */
typedef struct {
  int64_t n;
  void *dst;
  DMuonDType dst_dtype;
  const void *addend;
  DMuonDType addend_dtype;
  const void *src;
  DMuonDType src_dtype;
} dmuon_pack;

typedef enum { DMUON_MOMENTUM_HEAVY_BALL = 0, DMUON_MOMENTUM_EMA } dmuon_momentum_form;

typedef enum {
  DMUON_DECAY_DECOUPLED = 0, /* w *= 1 - lr*wd, before the update */
  DMUON_DECAY_INDEPENDENT,   /* w *= 1 - wd */
  DMUON_DECAY_L2,            /* gradient += wd*w, before momentum */
  DMUON_DECAY_CAUTIOUS,      /* decoupled, only where w*update >= 0 */
  DMUON_DECAY_PALM,          /* w *= 1 - lr^2*wd */
  DMUON_DECAY_NONE
} dmuon_decay;

/* g' = grad_scale*g (+ wd*w for L2); heavy ball: b = mu*b + g' (first: b = g'), u = nesterov ? g' +
 * mu*b : b; EMA: b = b + (1-mu)*(g'-b) (first: from b = 0), u = nesterov ? g' + mu*(b-g') : b.
 * Where all that is read of an element is finite, b and u are: what would overflow becomes the
 * largest finite value of momentum_dtype, with its sign. */
/* skip, here and below: NULL, or a number in device memory: where it is not zero when the operation
 * runs, state and weights stay as they are (and value is still the weight, cast). */
typedef struct {
  int64_t n;
  dmuon_momentum_form form;
  int nesterov, first;
  double mu, grad_scale, l2; /* l2: wd, or 0 */
  const void *grad;
  DMuonDType grad_dtype;
  void *momentum; /* in, out */
  DMuonDType momentum_dtype;
  const void *weight; /* read for l2 only */
  DMuonDType weight_dtype;
  void *update; /* out; of momentum_dtype; zeros where skipped */
  const float *skip;
} dmuon_muon_momentum;

/* w = decayed(w) - lr*update; value = cast(w), unless NULL. update already holds the scale. */
typedef struct {
  int64_t n;
  dmuon_decay decay;
  double lr, weight_decay;
  const void *update;
  DMuonDType update_dtype;
  void *weight; /* master; in, out */
  DMuonDType weight_dtype;
  void *value; /* out, or NULL; may be weight with the same type */
  DMuonDType value_dtype;
  const float *skip;
  int64_t *skipped; /* NULL, or a count in device memory that grows by one where skipped */
} dmuon_muon_apply;

/* p *= 1 - lr*wd; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2;
 * p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps), nothing where that denominator is 0;
 * value = cast(p), unless NULL. g is grad_scale times the gradient; a finite one counts for at most
 * the root of state_dtype's largest finite value, so that v cannot overflow, nor m outgrow it. */
typedef struct {
  int64_t n, step; /* step: t, from 1 */
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  const void *grad;
  DMuonDType grad_dtype;
  void *exp_avg, *exp_avg_sq; /* in, out */
  DMuonDType state_dtype;
  void *weight; /* master; in, out */
  DMuonDType weight_dtype;
  void *value;
  DMuonDType value_dtype;
  const float *skip;
  int64_t *skipped; /* the same; with it t = step - *skipped */
} dmuon_adamw;

/* So many products of one shape in one operation, their operands so many elements apart. NULL: one.
 * A batch gives the bits of as many single operations. tile: of a symmetric product, on a device
 * that cuts them (cuts_products): the side of the squares, below 0: do not cut, 0: the device's
 * rule. */
typedef struct {
  int64_t count, stride_a, stride_b, stride_c, tile;
} dmuon_batch;

typedef struct {
  const char *name; /* "host" */

  DMuonErrorCode (*queue_create)(dmuon_device *device, int high_priority, dmuon_queue **queue);
  void (*queue_destroy)(dmuon_queue *queue); /* waits for nothing: sync first; NULL is fine */
  DMuonErrorCode (*queue_sync)(dmuon_queue *queue);

  DMuonErrorCode (*event_create)(dmuon_device *device,
                                 dmuon_event **event); /* as if recorded and done */
  void (*event_destroy)(dmuon_event *event);
  DMuonErrorCode (*event_record)(dmuon_queue *queue, dmuon_event *event);
  DMuonErrorCode (*event_wait)(dmuon_queue *queue, dmuon_event *event); /* the record last issued */
  DMuonErrorCode (*event_test)(dmuon_event *event, int *done);
  DMuonErrorCode (*event_sync)(dmuon_event *event);

  /* Room for so many operations issued and not yet done, so that issuing them allocates nothing. */
  DMuonErrorCode (*reserve)(dmuon_device *device, int64_t operations);
  /* Room for matrix operations (gemm, syrk, gemm_symmetric) on this queue, on operands of at most
   * rows x cols each, so that issuing and running them allocates nothing. */
  DMuonErrorCode (*reserve_matrix)(dmuon_queue *queue, DMuonDType dtype, int64_t rows,
                                   int64_t cols);
  /* Advances whatever can advance, without waiting: the engines of all live meshes. */
  DMuonErrorCode (*progress)(dmuon_device *device);

  /* Memory that the caller touches himself between operations. lend: all that queue holds now comes
   * before what the caller does from now on (a host waits for it; a device orders the caller's
   * stream behind it). reclaim: what the caller did to these bytes, reading or (written) writing,
   * comes before what is issued on queue from now on. */
  DMuonErrorCode (*lend)(dmuon_queue *queue);
  DMuonErrorCode (*reclaim)(dmuon_queue *queue, const void *ptr, int64_t bytes, int written);
  /* Which of the caller's streams lend and reclaim mean from now on; NULL: the default one. An
   * entry of NULL: the device knows no streams. */
  DMuonErrorCode (*set_stream)(dmuon_device *device, void *stream);
  /* Operations can reach these bytes of the caller's; else DMUON_ERR_ARGUMENT says where they are
   * and what would be right. An entry of NULL: everything can be reached. */
  DMuonErrorCode (*check_pointer)(dmuon_device *device, const void *ptr, int64_t bytes);
  /* The content is not needed any more and undefined until written again (NaN where a device looks
   * for those who read it all the same). */
  DMuonErrorCode (*discard)(dmuon_queue *queue, void *dst, int64_t bytes);

  /* *seconds = the time (of one monotonic clock) at which the queue reached this operation. */
  DMuonErrorCode (*stamp)(dmuon_queue *queue, double *seconds);

  DMuonErrorCode (*alloc)(dmuon_device *device, int64_t bytes, void **ptr); /* 256-byte aligned */
  /* NULL is fine. A buffer that an operation given up may still use is left, not given back. */
  void (*free)(dmuon_device *device, void *ptr);
  /* Memory that the host reads and writes between operations, and operations while they run: what
   * they tell the host. Zeroed, 64-byte aligned. */
  DMuonErrorCode (*alloc_host)(dmuon_device *device, int64_t bytes, void **ptr);
  void (*free_host)(dmuon_device *device, void *ptr);

  DMuonErrorCode (*zero)(dmuon_queue *queue, void *dst, int64_t bytes);
  DMuonErrorCode (*copy)(dmuon_queue *queue, void *dst, const void *src, int64_t bytes);
  DMuonErrorCode (*cast)(dmuon_queue *queue, int64_t n, void *dst, DMuonDType dst_dtype,
                         const void *src, DMuonDType src_dtype);
  DMuonErrorCode (*pack)(dmuon_queue *queue, const dmuon_pack *args);
  DMuonErrorCode (*copy_matrix)(dmuon_queue *queue, const dmuon_copy_matrix *args);

  /* c = alpha * op(a) op(b) + beta * c; m x n x k; beta 0 does not read c. */
  DMuonErrorCode (*gemm)(dmuon_queue *queue, DMuonDType dtype, int transpose_a, int transpose_b,
                         int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
                         const void *b, int64_t ldb, double beta, void *c, int64_t ldc,
                         const dmuon_batch *batch);
  /* c (m x m) = alpha * a a^T + beta * c, a is m x k, c symmetric; all of c is written, its two
   * triangles bit for bit equal. */
  DMuonErrorCode (*syrk)(dmuon_queue *queue, DMuonDType dtype, int64_t m, int64_t k, double alpha,
                         const void *a, int64_t lda, double beta, void *c, int64_t ldc,
                         const dmuon_batch *batch);
  /* c (m x m) = alpha * a b + beta * c where a, b, c are symmetric and a b is known to be (they
   * commute): about half the work. All of c is written, its triangles equal. c is neither a nor b.
   */
  DMuonErrorCode (*gemm_symmetric)(dmuon_queue *queue, DMuonDType dtype, int64_t m, double alpha,
                                   const void *a, int64_t lda, const void *b, int64_t ldb,
                                   double beta, void *c, int64_t ldc, const dmuon_batch *batch);
  /* y = alpha*x + beta*y over n elements, rounded once; beta 0 does not read y; x may be y. */
  DMuonErrorCode (*axpby)(dmuon_queue *queue, int64_t n, DMuonDType dtype, double alpha,
                          const void *x, double beta, void *y);
  /* x = x / divisor over n elements of fp32 or fp64: as dmuon_reduce divides, to the bit. */
  DMuonErrorCode (*divide)(dmuon_queue *queue, int64_t n, DMuonDType dtype, double divisor,
                           void *x);
  /* The diagonal of the m x m matrix c gets alpha added (rounded once). */
  DMuonErrorCode (*add_diagonal)(dmuon_queue *queue, DMuonDType dtype, int64_t m, double alpha,
                                 void *c, int64_t ldc);
  /* *norm of a rows x cols matrix: one association, a function of rows and cols alone. */
  DMuonErrorCode (*norm)(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                         const void *x, int64_t ld, dmuon_norm *norm);
  /* *index (of alloc_host) = the first element of addend + src (as in pack, after its rounding to
   * dst_dtype; dst is not written) that is not finite, or -1. flag: NULL, or a number in device
   * memory that becomes 1 when there is one and stays what it was when there is none. */
  DMuonErrorCode (*find_nonfinite)(dmuon_queue *queue, const dmuon_pack *args, int64_t *index,
                                   float *flag);

  /* *any = 1 where one of the flags[count] is not 0, else 0; *skipped, unless NULL, grows by it.
   * All in device memory. */
  DMuonErrorCode (*decide)(dmuon_queue *queue, int64_t count, const float *flags, float *any,
                           int64_t *skipped);

  DMuonErrorCode (*muon_momentum)(dmuon_queue *queue, const dmuon_muon_momentum *args);
  DMuonErrorCode (*muon_apply)(dmuon_queue *queue, const dmuon_muon_apply *args);
  DMuonErrorCode (*adamw)(dmuon_queue *queue, const dmuon_adamw *args);

  /* NULL where nobody listens, or: what a reader of recorded operations is told of a buffer, of a
   * queue (is_queue), or, object NULL, of what is issued next. */
  void (*note)(dmuon_device *device, const void *object, int is_queue, const char *text);

  void (*destroy)(dmuon_device *device);
} DMuonDeviceOps;

/* What a device takes for itself, in bytes, beside the buffers that are asked of it: for plans. */
typedef struct {
  int64_t buffer;    /* beside a buffer's content */
  int64_t operation; /* an operation that was reserved */
  int64_t queue;
  int64_t products; /* a queue's first reserve_matrix, whatever the size */
  int widens;       /* products of narrow types need room for three operands in fp32, too */
} dmuon_device_overhead;

/* A backend's device begins with this. */
struct dmuon_device {
  const DMuonDeviceOps *ops;
  dmuon_context *context;
  /* Results reach the host long after they were asked for, so a step does not wait for them:
   * whether it is skipped is decided among the operations (skip, above) and read when somebody
   * asks. */
  int decides_late;
  /* Newton-Schulz iterates in fp16 when nobody said in what: much faster here. */
  int prefers_half;
  /* Products of a batch run together, so Newton-Schulz takes small matrices of one shape
   * together. */
  int prefers_batches;
  /* Symmetric products are cut into tiles: worth measuring which. */
  int cuts_products;
  const dmuon_device_overhead *overhead; /* NULL: as on a host */
};

/* Of a device, or (NULL) of a host. */
const dmuon_device_overhead *dmuon_device_overhead_of(const dmuon_device *device);

/* On the way out of an error (code, and the thread's record, which stays): what queue holds is
 * done, or has failed too, before its buffers are freed. queue NULL is fine. */
void dmuon_queue_settle(dmuon_device *device, dmuon_queue *queue, DMuonErrorCode code);

/* What a norm says, and norms of several pieces together (in the order given). */
double dmuon_norm_value(const dmuon_norm *norm);
dmuon_norm dmuon_norm_combine(const dmuon_norm *a, const dmuon_norm *b);

/* Names for readers of recorded operations; nothing at all where none are recorded. */
void dmuon_device_name_queue(dmuon_device *device, const dmuon_queue *queue, const char *name);
void dmuon_device_name_buffer(dmuon_device *device, const void *buffer, const char *format, ...)
    DMUON_PRINTF(3, 4);
/* What is issued from now on belongs to: "forward of h.3". */
void dmuon_device_note(dmuon_device *device, const char *format, ...) DMUON_PRINTF(2, 3);

DMUON_VISIBLE_END

#endif
