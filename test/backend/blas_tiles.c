/* How symmetric products are cut into tiles: all of the lower triangle once, within what can be
 * listed, and less work than without. */
#include "tap.h"

#include "backend/cuda/blas_tiles.h"

enum { MOST = 1024 };

/* Every element on and below the diagonal is in a tile that is computed. */
static int covers(const dmuon_cuda_tiles *tiles, int64_t m) {
  return tiles->side > 0 && tiles->rows >= 2 && tiles->rest >= 0 && tiles->rest < tiles->side &&
         tiles->rows * tiles->side + tiles->rest == m && dmuon_cuda_tiles_count(tiles) <= MOST;
}

static void test_given_side(void) {
  dmuon_cuda_tiles tiles = dmuon_cuda_tiles_with(100, 32, MOST);
  tap_is_int(tiles.rows, 3, "100 rows in tiles of 32: rows of tiles");
  tap_is_int(tiles.rest, 4, "and what is left");
  tap_is_int(dmuon_cuda_tiles_count(&tiles), 6, "tiles on and below the diagonal");
  tap_is_int(dmuon_cuda_tiles_with(100, 64, MOST).side, 0, "one row of tiles: not cut");
  tap_is_int(dmuon_cuda_tiles_with(100, 50, MOST).side, 50, "two: cut");
  tap_is_int(dmuon_cuda_tiles_with(100, 0, MOST).side, 0, "no side: not cut");
  tap_is_int(dmuon_cuda_tiles_with(1000, 2, MOST).side, 0, "more tiles than can be listed");
  tap_is_int(dmuon_cuda_tiles_with(6, 2, 6).side, 2, "just as many as can be listed");
  tap_is_int(dmuon_cuda_tiles_with(6, 2, 5).side, 0, "one more than can be listed");
}

static void test_table(void) {
  static const DMuonDType dtypes[] = {DMUON_FLOAT32, DMUON_FLOAT64, DMUON_BFLOAT16, DMUON_FLOAT16};
  int whole = 1, less = 1, cut = 0;
  for (int d = 0; d < 4; d++)
    for (int64_t m = 1; m < 60000; m += m < 5000 ? 7 : 1013) {
      const dmuon_cuda_tiles tiles = dmuon_cuda_tiles_of(m, dtypes[d], MOST);
      if (!tiles.side) continue;
      cut++;
      whole &= covers(&tiles, m);
      /* tiles, and the last rows over all columns */
      const double work = (double)(dmuon_cuda_tiles_count(&tiles) * tiles.side * tiles.side) +
                          (double)(tiles.rest * m);
      less &= work < 0.8 * (double)m * (double)m;
    }
  tap_ok(cut > 1000, "large products are cut (%d shapes)", cut);
  tap_ok(whole, "tiles and the last rows are the whole triangle");
  tap_ok(less, "at less than 0.8 of the work");
  for (int d = 0; d < 4; d++) {
    tap_is_int(dmuon_cuda_tiles_of(256, dtypes[d], MOST).side, 0, "256 rows are not cut");
    const dmuon_cuda_tiles tiles = dmuon_cuda_tiles_of(8192, dtypes[d], MOST);
    tap_ok(tiles.rest == 0 && tiles.side % 128 == 0, "8192 rows are cut without rest, in %d",
           (int)tiles.side);
  }
}

int main(void) {
  tap_plan(0);
  test_given_side();
  test_table();
  return tap_done();
}
