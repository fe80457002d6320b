/* The traced device and its handles. Internal to this room's device.c, operations.c and comm.c. */
#ifndef DMUON_BACKEND_TRACE_DEVICE_STATE_H
#define DMUON_BACKEND_TRACE_DEVICE_STATE_H

#include "backend/trace/trace.h"

typedef struct {
  dmuon_device base;
  dmuon_device *inner;            /* NULL: nothing is carried out */
  const DMuonCommOps *inner_comm; /* of the inner device */
  dmuon_trace_log log;
} trace_device;

/* What dmuon_queue and dmuon_event are here. */
typedef struct {
  trace_device *device;
  dmuon_queue *inner;
  int64_t number;
} trace_queue;

typedef struct {
  trace_device *device;
  dmuon_event *inner;
  int64_t number;
} trace_event;

static inline trace_queue *traced(dmuon_queue *queue) {
  return (trace_queue *)(void *)queue;
}

extern const DMuonDeviceOps dmuon_trace_device_ops;

/* operations.c: fills in the entries that work on memory. */
DMuonErrorCode dmuon_trace_zero(dmuon_queue *queue, void *dst, int64_t bytes);
DMuonErrorCode dmuon_trace_copy_bytes(dmuon_queue *queue, void *dst, const void *src,
                                      int64_t bytes);
DMuonErrorCode dmuon_trace_discard(dmuon_queue *queue, void *dst, int64_t bytes);
DMuonErrorCode dmuon_trace_cast(dmuon_queue *queue, int64_t n, void *dst, DMuonDType dst_dtype,
                                const void *src, DMuonDType src_dtype);
DMuonErrorCode dmuon_trace_pack(dmuon_queue *queue, const dmuon_pack *args);
DMuonErrorCode dmuon_trace_copy_matrix(dmuon_queue *queue, const dmuon_copy_matrix *args);
DMuonErrorCode dmuon_trace_gemm(dmuon_queue *queue, DMuonDType dtype, int transpose_a,
                                int transpose_b, int64_t m, int64_t n, int64_t k, double alpha,
                                const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                                void *c, int64_t ldc, const dmuon_batch *batch);
DMuonErrorCode dmuon_trace_syrk(dmuon_queue *queue, DMuonDType dtype, int64_t m, int64_t k,
                                double alpha, const void *a, int64_t lda, double beta, void *c,
                                int64_t ldc, const dmuon_batch *batch);
DMuonErrorCode dmuon_trace_gemm_symmetric(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                          double alpha, const void *a, int64_t lda, const void *b,
                                          int64_t ldb, double beta, void *c, int64_t ldc,
                                          const dmuon_batch *batch);
DMuonErrorCode dmuon_trace_axpby(dmuon_queue *queue, int64_t n, DMuonDType dtype, double alpha,
                                 const void *x, double beta, void *y);
DMuonErrorCode dmuon_trace_divide(dmuon_queue *queue, int64_t n, DMuonDType dtype, double divisor,
                                  void *x);
DMuonErrorCode dmuon_trace_add_diagonal(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                        double alpha, void *c, int64_t ldc);
DMuonErrorCode dmuon_trace_norm(dmuon_queue *queue, DMuonDType dtype, int64_t rows, int64_t cols,
                                const void *x, int64_t ld, dmuon_norm *norm);
DMuonErrorCode dmuon_trace_find_nonfinite(dmuon_queue *queue, const dmuon_pack *args,
                                          int64_t *index, float *flag);
DMuonErrorCode dmuon_trace_decide(dmuon_queue *queue, int64_t count, const float *flags, float *any,
                                  int64_t *skipped);
DMuonErrorCode dmuon_trace_muon_momentum(dmuon_queue *queue, const dmuon_muon_momentum *args);
DMuonErrorCode dmuon_trace_muon_apply(dmuon_queue *queue, const dmuon_muon_apply *args);
DMuonErrorCode dmuon_trace_adamw(dmuon_queue *queue, const dmuon_adamw *args);

#endif
