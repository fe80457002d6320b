/* The kernels that cuBLAS has not: their argument structs (where device.h has none for them), and
 * the handles that C launches them by. A kernel takes one struct by value; what it does is the
 * function dmuon_body_NAME of bodies.h, which is compiled for the GPU by nvcc (kernels.cu) and can
 * be compiled for the CPU by any C++ compiler.
 *
 * There are two kinds. THREAD: dmuon_body_NAME(args, thread, threads) does the part of one thread
 * of the whole grid, in any order. BLOCK: dmuon_body_NAME(args, block, blocks, threads, shared)
 * does the part of a block, its threads between two synchronisations in any order; shared is room
 * for DMUON_SHARED doubles. */
#ifndef DMUON_BACKEND_CUDA_KERNELS_H
#define DMUON_BACKEND_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "device/device.h"

enum {
  DMUON_THREADS = 256, /* of a block */
  DMUON_VECTOR = 8,    /* elements that a thread takes at a time */
  DMUON_TILE = 32,     /* rows and columns of a tile that is transposed */
  DMUON_CHUNK = 512,   /* elements of a row that are summed up together */
  DMUON_LANES = 16,    /* partial sums of a chunk */
  DMUON_GROUP = 1024,  /* chunks that are summed up together */
  DMUON_SHARED = 1408
};

typedef struct {
  int64_t n;
  void *dst;
  const void *src;
  DMuonDType dst_dtype, src_dtype;
} dmuon_cast_args;

typedef struct {
  int64_t n;
  double alpha, beta;
  const void *x;
  void *y;
  DMuonDType dtype;
} dmuon_axpby_args;

typedef struct {
  int64_t n;
  double divisor;
  void *x;
  DMuonDType dtype;
} dmuon_divide_args;

/* As dmuon_copy_matrix; constant: every element becomes 0 (alpha is not used). */
typedef struct {
  dmuon_copy_matrix matrix;
  int constant;
} dmuon_copy_matrix_args;

typedef struct {
  int64_t m, ld;
  double alpha;
  void *c;
  DMuonDType dtype;
} dmuon_diagonal_args;

/* The squares of a matrix, added up chunk by chunk; or its largest element (largest). A block does
 * chunks [block * group, (block + 1) * group): a power of two of them, so that the sums of blocks
 * are whole subtrees. The last kernel of a norm (finish) adds up the partials of count blocks; a
 * norm in one block finishes at once. exponent: where the power of two is found or, by the pass for
 * the largest element, stored; NULL: 0. */
typedef struct {
  int64_t rows, cols, ld;
  int64_t group, count;
  const void *x;
  DMuonDType dtype;
  int largest, finish;
  double *partials;
  double *exponent;
  dmuon_norm *norm;
} dmuon_norm_args;

/* finish as in a norm; partials hold indices. */
typedef struct {
  dmuon_pack pack;
  int64_t count;
  int finish;
  int64_t *partials;
  int64_t *index;
  float *flag;
} dmuon_find_args;

typedef struct {
  int64_t count;
  const float *flags;
  float *any;
  int64_t *skipped;
} dmuon_decide_args;

typedef struct {
  double *seconds;
} dmuon_stamp_args;

/* The lower triangles of `count` m x m matrices onto the upper ones. */
typedef struct {
  int64_t m, ld, count, stride;
  void *c;
  DMuonDType dtype;
} dmuon_mirror_args;

/* Where the operands of the tiles of a symmetric product begin: tile (i, j), j <= i, of `side` rows
 * and columns, is number i (i + 1) / 2 + j of its matrix. Strides in bytes. */
typedef struct {
  int64_t tiles, count;                 /* rows of tiles; matrices */
  int64_t a_step, b_step, c_row, c_col; /* from one tile to the next */
  int64_t a_stride, b_stride, c_stride; /* from one matrix to the next */
  const char *a, *b;
  char *c;
  const void **a_out, **b_out;
  void **c_out;
} dmuon_tiles_args;

/* step_size and root_factor as for `step` steps; the kernel works them out where some were
 * skipped. */
typedef struct {
  dmuon_adamw adamw;
  double step_size, root_factor;
} dmuon_adamw_args;

/* X(name, struct of arguments, kind) */
#define DMUON_KERNELS(X)                         \
  X(cast, dmuon_cast_args, THREAD)               \
  X(pack, dmuon_pack, THREAD)                    \
  X(axpby, dmuon_axpby_args, THREAD)             \
  X(divide, dmuon_divide_args, THREAD)           \
  X(copy_matrix, dmuon_copy_matrix_args, THREAD) \
  X(transpose, dmuon_copy_matrix_args, BLOCK)    \
  X(add_diagonal, dmuon_diagonal_args, THREAD)   \
  X(norm, dmuon_norm_args, BLOCK)                \
  X(find_nonfinite, dmuon_find_args, BLOCK)      \
  X(decide, dmuon_decide_args, BLOCK)            \
  X(stamp, dmuon_stamp_args, THREAD)             \
  X(muon_momentum, dmuon_muon_momentum, THREAD)  \
  X(muon_apply, dmuon_muon_apply, THREAD)        \
  X(adamw, dmuon_adamw_args, THREAD)             \
  X(mirror, dmuon_mirror_args, BLOCK)            \
  X(tiles, dmuon_tiles_args, THREAD)

#ifdef __CUDACC__
#define DMUON_KERNEL(name, args) __global__ void dmuon_kernel_##name(args)
#else
#define DMUON_KERNEL(name, args) void dmuon_kernel_##name(args)
#endif
#define DMUON_DECLARE_KERNEL(name, args, kind) DMUON_KERNEL(name, args);
DMUON_KERNELS(DMUON_DECLARE_KERNEL)
#undef DMUON_DECLARE_KERNEL

#ifdef __cplusplus
}
#endif
#endif
