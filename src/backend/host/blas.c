/* Matrix products of the host backend: general, a a^T, and products known to be symmetric. The one
 * file that calls BLAS.
 *
 * What it decides is the sequence of BLAS calls: a function of shape and dtype alone, since BLAS
 * libraries round differently with other panels. One call does at most about 5 ms of work; between
 * calls communication is polled. Symmetric results compute the lower triangle by halving: two
 * triangles and a rectangle, down to a leaf; then the lower triangle is copied onto the upper.
 *
 * Leaves, by measurement (OpenBLAS 0.3.21, one core, fp32, against the whole product in one call):
 * a a^T takes the BLAS's own rank-k update on the diagonal (0.64 of the time at 64 rows, 0.53 from
 * 512 on), which below about 24 rows loses to the general product; for a b nothing but the general
 * product exists, and halving pays down to 24 rows (0.88 at 48 rows, 0.69 at 128, 0.54 at 1024).
 */
#include "backend/host/tasks.h"

#include <cblas.h>
#include <limits.h>

enum {
  MULTIPLY_ADDS = 256 * 256 * 1024, /* of one call, fp32: 2 to 5 ms on one core */
  DEPTH = 1024,                     /* of one call; longer sums are added up in c */
  TILE = 256,                       /* rows and columns that are efficient at full depth */
  SMALL = 24,                       /* rows where halves stop paying */
  SYRK_LEAF = 256,
  MIRROR_TILE = 32
};

/* Equal pieces of a length, none longer than most, multiples of 16 but the last. */
static int64_t piece_of(int64_t length, int64_t most) {
  if (length <= most) return length;
  int64_t pieces = (length + most - 1) / most;
  return dmuon_host_min(most, ((length + pieces - 1) / pieces + 15) / 16 * 16);
}

static const void *operand_at(const dmuon_host_product *p, const void *data, int transpose,
                              int64_t ld, int64_t row, int64_t col) {
  return dmuon_dtype_at(data, transpose ? col * ld + row : row * ld + col, p->dtype);
}

static void call_gemm(const dmuon_host_product *p, int64_t m, int64_t n, int64_t k, const void *a,
                      const void *b, double beta, void *c) {
  enum CBLAS_TRANSPOSE ta = p->transpose_a ? CblasTrans : CblasNoTrans;
  enum CBLAS_TRANSPOSE tb = p->transpose_b ? CblasTrans : CblasNoTrans;
  if (p->dtype == DMUON_FLOAT64)
    cblas_dgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, p->alpha, a, (int)p->lda, b,
                (int)p->ldb, beta, c, (int)p->ldc);
  else
    cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, (float)p->alpha, a, (int)p->lda, b,
                (int)p->ldb, (float)beta, c, (int)p->ldc);
}

/* Rows and columns of c from (row, col) on. */
static DMuonErrorCode product_block(dmuon_host_engine *engine, const dmuon_host_product *p,
                                    int64_t row, int64_t col, int64_t rows, int64_t cols) {
  int64_t most = p->dtype == DMUON_FLOAT64 ? MULTIPLY_ADDS / 2 : MULTIPLY_ADDS;
  int64_t depth = piece_of(p->k, DEPTH);
  int64_t area = most / (depth > 0 ? depth : 1);
  int64_t width = area / dmuon_host_min(rows, TILE) / 16 * 16;
  width = piece_of(cols, width > TILE / 2 ? width : TILE / 2);
  int64_t height = area / width / 16 * 16;
  height = piece_of(rows, height > 16 ? height : 16);
  for (int64_t i = 0; i < rows; i += height) {
    for (int64_t j = 0; j < cols; j += width) {
      void *c = dmuon_dtype_at(p->c, (row + i) * p->ldc + col + j, p->dtype);
      int64_t l = 0;
      do {
        call_gemm(p, dmuon_host_min(height, rows - i), dmuon_host_min(width, cols - j),
                  dmuon_host_min(depth, p->k - l),
                  operand_at(p, p->a, p->transpose_a, p->lda, row + i, l),
                  operand_at(p, p->b, p->transpose_b, p->ldb, l, col + j), l ? 1.0 : p->beta, c);
        DMUON_TRY(dmuon_host_engine_poll(engine));
        l += depth;
      } while (l < p->k);
    }
  }
  return DMUON_SUCCESS;
}

static void call_syrk(const dmuon_host_product *p, int64_t m, int64_t k, const void *a, double beta,
                      void *c) {
  if (p->dtype == DMUON_FLOAT64)
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)m, (int)k, p->alpha, a, (int)p->lda,
                beta, c, (int)p->ldc);
  else
    cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)m, (int)k, (float)p->alpha, a,
                (int)p->lda, (float)beta, c, (int)p->ldc);
}

static DMuonErrorCode syrk_triangle(dmuon_host_engine *engine, const dmuon_host_product *p,
                                    int64_t first, int64_t size) {
  if (size > SYRK_LEAF) {
    int64_t half = (size / 2 + 15) / 16 * 16;
    DMUON_TRY(syrk_triangle(engine, p, first, half));
    DMUON_TRY(product_block(engine, p, first + half, first, size - half, half));
    DMUON_TRY(syrk_triangle(engine, p, first + half, size - half));
    return DMUON_SUCCESS;
  }
  if (size <= SMALL) {
    DMUON_TRY(product_block(engine, p, first, first, size, size));
    return DMUON_SUCCESS;
  }
  int64_t depth = piece_of(p->k, DEPTH), l = 0;
  void *c = dmuon_dtype_at(p->c, first * p->ldc + first, p->dtype);
  do {
    call_syrk(p, size, dmuon_host_min(depth, p->k - l), operand_at(p, p->a, 0, p->lda, first, l),
              l ? 1.0 : p->beta, c);
    DMUON_TRY(dmuon_host_engine_poll(engine));
    l += depth;
  } while (l < p->k);
  return DMUON_SUCCESS;
}

static DMuonErrorCode symmetric_triangle(dmuon_host_engine *engine, const dmuon_host_product *p,
                                         int64_t first, int64_t size) {
  if (size <= SMALL) {
    DMUON_TRY(product_block(engine, p, first, first, size, size));
    return DMUON_SUCCESS;
  }
  int64_t half = (size / 2 + 15) / 16 * 16;
  DMUON_TRY(symmetric_triangle(engine, p, first, half));
  DMUON_TRY(product_block(engine, p, first + half, first, size - half, half));
  DMUON_TRY(symmetric_triangle(engine, p, first + half, size - half));
  return DMUON_SUCCESS;
}

/* Copies the lower triangle of one square tile pair onto the upper. */
static void mirror_tile(DMuonDType dtype, void *data, int64_t ld, int64_t row, int64_t col,
                        int64_t rows, int64_t cols) {
  if (dtype == DMUON_FLOAT64) {
    double *c = data;
    for (int64_t j = col; j < col + cols; j++)
      for (int64_t i = row > j ? row : j + 1; i < row + rows; i++) c[j * ld + i] = c[i * ld + j];
  } else {
    float *c = data;
    for (int64_t j = col; j < col + cols; j++)
      for (int64_t i = row > j ? row : j + 1; i < row + rows; i++) c[j * ld + i] = c[i * ld + j];
  }
}

static DMuonErrorCode mirror(dmuon_host_engine *engine, const dmuon_host_product *p) {
  int64_t since_poll = 0;
  for (int64_t i = 0; i < p->m; i += MIRROR_TILE) {
    int64_t rows = dmuon_host_min(MIRROR_TILE, p->m - i);
    for (int64_t j = 0; j <= i; j += MIRROR_TILE)
      mirror_tile(p->dtype, p->c, p->ldc, i, j, rows, dmuon_host_min(MIRROR_TILE, p->m - j));
    since_poll += rows * (i + rows);
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

/* Half precision: operands are widened to fp32 in scratch, the result is rounded once. */

static int64_t aligned_floats(int64_t count) {
  return (count + 15) / 16 * 16;
}

int64_t dmuon_host_product_scratch(DMuonDType dtype, int64_t rows, int64_t cols) {
  if (dtype == DMUON_FLOAT32 || dtype == DMUON_FLOAT64) return 0;
  return 3 * aligned_floats(rows * cols) * (int64_t)sizeof(float);
}

static DMuonErrorCode convert(dmuon_host_engine *engine, int64_t rows, int64_t cols, void *dst,
                              DMuonDType dst_dtype, int64_t dst_ld, const void *src,
                              DMuonDType src_dtype, int64_t src_ld) {
  int64_t since_poll = 0;
  for (int64_t i = 0; i < rows; i++) {
    dmuon_dtype_cast(cols, dst_dtype, dmuon_dtype_at(dst, i * dst_ld, dst_dtype), src_dtype,
                     dmuon_dtype_at(src, i * src_ld, src_dtype));
    since_poll += cols;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

typedef DMuonErrorCode (*product_function)(dmuon_host_engine *engine, const dmuon_host_product *p);

static DMuonErrorCode run_half(dmuon_host_engine *engine, const dmuon_host_product *p,
                               product_function function) {
  int64_t a_rows = p->transpose_a ? p->k : p->m, a_cols = p->transpose_a ? p->m : p->k;
  int64_t b_rows = p->transpose_b ? p->n : p->k, b_cols = p->transpose_b ? p->k : p->n;
  int64_t a_count = aligned_floats(a_rows * a_cols);
  int64_t b_count = p->b ? aligned_floats(b_rows * b_cols) : 0;
  void *scratch = NULL;
  DMUON_TRY(dmuon_host_engine_scratch(
      engine, (a_count + b_count + aligned_floats(p->m * p->n)) * (int64_t)sizeof(float),
      &scratch));
  float *a = scratch, *b = a + a_count, *c = b + b_count;
  dmuon_host_product wide = *p;
  wide.dtype = DMUON_FLOAT32;
  wide.a = a, wide.lda = a_cols > 0 ? a_cols : 1; /* also for an empty sum */
  wide.b = p->b ? b : NULL, wide.ldb = b_cols > 0 ? b_cols : 1;
  wide.c = c, wide.ldc = p->n;
  DMUON_TRY(convert(engine, a_rows, a_cols, a, DMUON_FLOAT32, a_cols, p->a, p->dtype, p->lda));
  if (p->b)
    DMUON_TRY(convert(engine, b_rows, b_cols, b, DMUON_FLOAT32, b_cols, p->b, p->dtype, p->ldb));
  if (p->beta != 0)
    DMUON_TRY(convert(engine, p->m, p->n, c, DMUON_FLOAT32, p->n, p->c, p->dtype, p->ldc));
  DMUON_TRY(function(engine, &wide));
  DMUON_TRY(convert(engine, p->m, p->n, p->c, p->dtype, p->ldc, c, DMUON_FLOAT32, p->n));
  return DMUON_SUCCESS;
}

static DMuonErrorCode run(dmuon_host_engine *engine, const dmuon_host_product *p,
                          product_function function) {
  if (p->m <= 0 || p->n <= 0) return DMUON_SUCCESS;
  if (p->lda > INT_MAX || p->ldb > INT_MAX || p->ldc > INT_MAX)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "leading dimensions %lld, %lld, %lld of a product: BLAS takes at most %d",
               (long long)p->lda, (long long)p->ldb, (long long)p->ldc, INT_MAX);
  /* A batch is so many products one after the other: their bits, and nothing gained here. */
  for (int64_t i = 0; i < p->batch.count; i++) {
    dmuon_host_product one = *p;
    one.a = dmuon_dtype_at(p->a, i * p->batch.stride_a, p->dtype);
    one.b = p->b ? dmuon_dtype_at(p->b, i * p->batch.stride_b, p->dtype) : NULL;
    one.c = dmuon_dtype_at(p->c, i * p->batch.stride_c, p->dtype);
    if (p->dtype == DMUON_FLOAT32 || p->dtype == DMUON_FLOAT64)
      DMUON_TRY(function(engine, &one));
    else
      DMUON_TRY(run_half(engine, &one, function));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode gemm(dmuon_host_engine *engine, const dmuon_host_product *p) {
  DMUON_TRY(product_block(engine, p, 0, 0, p->m, p->n));
  return DMUON_SUCCESS;
}

static DMuonErrorCode syrk(dmuon_host_engine *engine, const dmuon_host_product *p) {
  dmuon_host_product rectangles = *p;
  rectangles.b = p->a;
  rectangles.ldb = p->lda;
  rectangles.transpose_b = 1;
  DMUON_TRY(syrk_triangle(engine, &rectangles, 0, p->m));
  DMUON_TRY(mirror(engine, p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode gemm_symmetric(dmuon_host_engine *engine, const dmuon_host_product *p) {
  DMUON_TRY(symmetric_triangle(engine, p, 0, p->m));
  DMUON_TRY(mirror(engine, p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode gemm_advance(dmuon_host_engine *engine, void *args, int *done) {
  *done = 1;
  DMUON_TRY(run(engine, args, gemm));
  return DMUON_SUCCESS;
}

static DMuonErrorCode syrk_advance(dmuon_host_engine *engine, void *args, int *done) {
  *done = 1;
  DMUON_TRY(run(engine, args, syrk));
  return DMUON_SUCCESS;
}

static DMuonErrorCode gemm_symmetric_advance(dmuon_host_engine *engine, void *args, int *done) {
  *done = 1;
  DMUON_TRY(run(engine, args, gemm_symmetric));
  return DMUON_SUCCESS;
}

const dmuon_host_task_class dmuon_host_gemm_task = {.name = "gemm", .advance = gemm_advance};
const dmuon_host_task_class dmuon_host_syrk_task = {.name = "syrk", .advance = syrk_advance};
const dmuon_host_task_class dmuon_host_gemm_symmetric_task = {.name = "gemm_symmetric",
                                                              .advance = gemm_symmetric_advance};
