/* Products known to be symmetric at half the work: the square tiles on and below the diagonal are
 * products of one shape, which cuBLAS takes in one call with their operands listed on the device;
 * then the lower triangle is copied onto the upper. Which tiles is decided in blas_tiles.c; what is
 * left over at the lower edge is one more product, over all columns. Where nothing is cut, the
 * whole product is computed and mirrored all the same: its triangles need not be equal to the
 * bit. */
#include "backend/cuda/blas_tiles.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels.h"

typedef struct {
  dmuon_cuda_product whole; /* of one matrix, or of a batch in one call */
  dmuon_cuda_tiles tiles;
  int64_t b_step; /* elements of b from one column of tiles to the next */
} symmetric;

static DMuonErrorCode mirror(dmuon_queue *queue, const dmuon_cuda_product *p) {
  const int64_t rows = (p->m + DMUON_TILE - 1) / DMUON_TILE;
  const dmuon_mirror_args args = {p->m, p->ldc, p->batch.count, p->batch.stride_c, p->c, p->dtype};
  DMUON_TRY(dmuon_cuda_launch(queue, (const void *)dmuon_kernel_mirror,
                              rows * (rows + 1) / 2 * p->batch.count, DMUON_THREADS, &args));
  return DMUON_SUCCESS;
}

/* The full tiles of matrices [first, first + count) of the batch. */
static DMuonErrorCode full_tiles(dmuon_queue *queue, const symmetric *s, int64_t first,
                                 int64_t count) {
  const dmuon_cuda_product *p = &s->whole;
  const int64_t bytes = (int64_t)dmuon_dtype_bytes(p->dtype), side = s->tiles.side;
  const void **a_out = (const void **)queue->pointers, **b_out = a_out + DMUON_CUDA_POINTERS;
  void **c_out = queue->pointers + 2 * DMUON_CUDA_POINTERS;
  const dmuon_tiles_args args = {
      .tiles = s->tiles.rows,
      .count = count,
      .a_step = side * p->lda * bytes,
      .b_step = s->b_step * bytes,
      .c_row = side * p->ldc * bytes,
      .c_col = side * bytes,
      .a_stride = p->batch.stride_a * bytes,
      .b_stride = p->batch.stride_b * bytes,
      .c_stride = p->batch.stride_c * bytes,
      .a = dmuon_dtype_at(p->a, first * p->batch.stride_a, p->dtype),
      .b = dmuon_dtype_at(p->b, first * p->batch.stride_b, p->dtype),
      .c = dmuon_dtype_at(p->c, first * p->batch.stride_c, p->dtype),
      .a_out = a_out,
      .b_out = b_out,
      .c_out = c_out,
  };
  const int64_t all = dmuon_cuda_tiles_count(&s->tiles) * count;
  DMUON_TRY(dmuon_cuda_launch(queue, (const void *)dmuon_kernel_tiles,
                              dmuon_cuda_blocks(queue->device, all * DMUON_VECTOR), DMUON_THREADS,
                              &args));
  dmuon_cuda_product tile = *p;
  tile.m = tile.n = side;
  DMUON_TRY(dmuon_cuda_listed_products(queue, &tile, a_out, b_out, c_out, all));
  return DMUON_SUCCESS;
}

static DMuonErrorCode last_rows(dmuon_queue *queue, const symmetric *s) {
  const int64_t row = s->tiles.rows * s->tiles.side;
  dmuon_cuda_product p = s->whole;
  p.a = dmuon_dtype_at(p.a, row * p.lda, p.dtype);
  p.c = dmuon_dtype_at(p.c, row * p.ldc, p.dtype);
  p.m = s->tiles.rest;
  DMUON_TRY(dmuon_cuda_products(queue, &p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode in_tiles(dmuon_queue *queue, const symmetric *s) {
  const int64_t count = s->whole.batch.count;
  const int64_t room = DMUON_CUDA_POINTERS / dmuon_cuda_tiles_count(&s->tiles);
  const int64_t at_once = queue->device->one_call_batches ? room : 1;
  for (int64_t i = 0; i < count; i += at_once)
    DMUON_TRY(full_tiles(queue, s, i, count - i < at_once ? count - i : at_once));
  if (s->tiles.rest) DMUON_TRY(last_rows(queue, s));
  return DMUON_SUCCESS;
}

static dmuon_cuda_tiles choose(const dmuon_cuda_device *device, const dmuon_cuda_product *p) {
  if (p->k <= 0 || p->batch.tile < 0) return (dmuon_cuda_tiles){0, 0, 0};
  if (p->batch.tile > 0) return dmuon_cuda_tiles_with(p->m, p->batch.tile, DMUON_CUDA_POINTERS);
  if (device->tile == DMUON_CUDA_TILE_TABLE)
    return dmuon_cuda_tiles_of(p->m, p->dtype, DMUON_CUDA_POINTERS);
  return dmuon_cuda_tiles_with(p->m, device->tile, DMUON_CUDA_POINTERS);
}

static DMuonErrorCode run(dmuon_queue *queue, symmetric *s) {
  DMUON_TRY(dmuon_cuda_product_check(&s->whole));
  DMUON_TRY(dmuon_cuda_blas_on(queue));
  s->tiles = choose(queue->device, &s->whole);
  s->b_step = s->whole.transpose_b ? s->tiles.side * s->whole.ldb : s->tiles.side;
  if (s->tiles.side)
    DMUON_TRY(in_tiles(queue, s));
  else
    DMUON_TRY(dmuon_cuda_products(queue, &s->whole));
  DMUON_TRY(mirror(queue, &s->whole));
  return DMUON_SUCCESS;
}

static dmuon_batch batch_of(const dmuon_batch *batch) {
  return batch ? *batch : (dmuon_batch){.count = 1};
}

DMuonErrorCode dmuon_cuda_syrk(dmuon_queue *queue, DMuonDType dtype, int64_t m, int64_t k,
                               double alpha, const void *a, int64_t lda, double beta, void *c,
                               int64_t ldc, const dmuon_batch *batch) {
  symmetric s = {
      .whole = {dtype, 0, 1, m, m, k, alpha, beta, a, a, c, lda, lda, ldc, batch_of(batch)}};
  s.whole.batch.stride_b = s.whole.batch.stride_a;
  if (m <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device, run(queue, &s));
}

DMuonErrorCode dmuon_cuda_gemm_symmetric(dmuon_queue *queue, DMuonDType dtype, int64_t m,
                                         double alpha, const void *a, int64_t lda, const void *b,
                                         int64_t ldb, double beta, void *c, int64_t ldc,
                                         const dmuon_batch *batch) {
  symmetric s = {
      .whole = {dtype, 0, 0, m, m, m, alpha, beta, a, b, c, lda, ldb, ldc, batch_of(batch)}};
  if (m <= 0) return DMUON_SUCCESS;
  DMUON_CUDA_WITHIN(queue->device, run(queue, &s));
}
