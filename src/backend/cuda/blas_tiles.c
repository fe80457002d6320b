/* The cut with the least work, counted in blocks of 128 x 128, which is what a GPU computes whole.
 * Small tiles waste least on the diagonal; but a product of a batch must be large enough to run at
 * full rate, and a matrix that fills the GPU only once gains nothing by halves. Those bounds are
 * assumptions, not measured yet. */
#include "backend/cuda/blas_tiles.h"

enum { BLOCK = 128 };

static int64_t padded(int64_t length) {
  return (length + BLOCK - 1) / BLOCK * BLOCK;
}

int64_t dmuon_cuda_tiles_count(const dmuon_cuda_tiles *tiles) {
  return tiles->rows * (tiles->rows + 1) / 2;
}

dmuon_cuda_tiles dmuon_cuda_tiles_with(int64_t m, int64_t side, int64_t most) {
  dmuon_cuda_tiles tiles = {0, 0, 0};
  if (side <= 0 || m / side < 2) return tiles;
  tiles.side = side;
  tiles.rows = m / side;
  tiles.rest = m % side;
  if (dmuon_cuda_tiles_count(&tiles) > most) tiles = (dmuon_cuda_tiles){0, 0, 0};
  return tiles;
}

static int64_t work(const dmuon_cuda_tiles *tiles, int64_t m) {
  return dmuon_cuda_tiles_count(tiles) * padded(tiles->side) * padded(tiles->side) +
         padded(tiles->rest) * padded(m);
}

/* The rows from which a cut pays, and the smallest tile: products of 16-bit numbers are about ten
 * times as fast as others, and so need to be larger. */
static void bounds(int64_t m, DMuonDType dtype, int64_t *least_rows, int64_t *least_side) {
  const int is_half = dtype == DMUON_BFLOAT16 || dtype == DMUON_FLOAT16;
  *least_rows = is_half ? 2048 : 768;
  *least_side = !is_half ? 128 : m < 4096 ? 256 : 512;
}

dmuon_cuda_tiles dmuon_cuda_tiles_of(int64_t m, DMuonDType dtype, int64_t most) {
  dmuon_cuda_tiles best = {0, 0, 0};
  int64_t least_rows, least_side;
  bounds(m, dtype, &least_rows, &least_side);
  if (m < least_rows) return best;
  for (int64_t side = least_side; side <= m / 2; side += BLOCK) {
    const dmuon_cuda_tiles tiles = dmuon_cuda_tiles_with(m, side, most);
    if (!tiles.side) continue;
    if (!best.side || work(&tiles, m) < work(&best, m)) best = tiles;
  }
  return best;
}
