/* The compute tasks of the host backend: their arguments (where device.h has no struct for them)
 * and their classes. device.c issues them; blas.c, loops.c, norm.c and update_loops.c carry them
 * out. Each polls communication between pieces of work, and none depends on what the polls find. */
#ifndef DMUON_BACKEND_HOST_TASKS_H
#define DMUON_BACKEND_HOST_TASKS_H

#include "backend/host/engine.h"

/* Elements an element loop works on before it polls, and a chunk that stays in the first cache. */
#define DMUON_HOST_POLL_ELEMENTS 1000000
#define DMUON_HOST_CHUNK 512

typedef struct {
  DMuonDType dtype;
  int transpose_a, transpose_b;
  int64_t m, n, k;
  double alpha, beta;
  const void *a, *b; /* b: not for syrk */
  void *c;
  int64_t lda, ldb, ldc;
  dmuon_batch batch; /* count 1: one product */
} dmuon_host_product;

typedef struct {
  int64_t n; /* bytes for zero and copy, else elements */
  void *dst;
  DMuonDType dst_dtype;
  const void *src;
  DMuonDType src_dtype;
  double alpha, beta;
} dmuon_host_vector;

typedef struct {
  DMuonDType dtype;
  int64_t rows, cols;
  const void *x;
  int64_t ld;
  dmuon_norm *norm;
} dmuon_host_norm;

typedef struct {
  DMuonDType dtype;
  int64_t m, ld;
  double alpha;
  void *c;
} dmuon_host_diagonal;

typedef struct {
  dmuon_pack pack;
  int64_t *index;
  float *flag;
} dmuon_host_find;

typedef struct {
  int64_t count;
  const float *flags;
  float *any;
  int64_t *skipped;
} dmuon_host_decide;

extern const dmuon_host_task_class dmuon_host_gemm_task, dmuon_host_syrk_task,
    dmuon_host_gemm_symmetric_task; /* dmuon_host_product */
extern const dmuon_host_task_class dmuon_host_zero_task, dmuon_host_copy_task, dmuon_host_cast_task,
    dmuon_host_axpby_task, dmuon_host_discard_task,
    dmuon_host_divide_task; /* dmuon_host_vector; divide: dst by alpha */
extern const dmuon_host_task_class dmuon_host_pack_task;        /* dmuon_pack */
extern const dmuon_host_task_class dmuon_host_find_task;        /* dmuon_host_find */
extern const dmuon_host_task_class dmuon_host_decide_task;      /* dmuon_host_decide */
extern const dmuon_host_task_class dmuon_host_copy_matrix_task; /* dmuon_copy_matrix */
extern const dmuon_host_task_class dmuon_host_diagonal_task;    /* dmuon_host_diagonal */
extern const dmuon_host_task_class dmuon_host_norm_task;        /* dmuon_host_norm */
extern const dmuon_host_task_class dmuon_host_momentum_task;    /* dmuon_muon_momentum */
extern const dmuon_host_task_class dmuon_host_apply_task;       /* dmuon_muon_apply */
extern const dmuon_host_task_class dmuon_host_adamw_task;       /* dmuon_adamw */

/* Bytes of engine scratch that products need on operands of at most rows x cols each. */
int64_t dmuon_host_product_scratch(DMuonDType dtype, int64_t rows, int64_t cols);

static inline int64_t dmuon_host_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

#endif
