/* Into which tiles a symmetric product is cut: those on and below the diagonal are computed, the
 * others mirrored. A pure function of shape and type. */
#ifndef DMUON_BACKEND_CUDA_BLAS_TILES_H
#define DMUON_BACKEND_CUDA_BLAS_TILES_H

#include "base/dtype.h"

/* side 0: the product is not cut. Else `rows` rows of square tiles of that side, and a last row of
 * `rest` rows over all columns (0: none). */
typedef struct {
  int64_t side, rows, rest;
} dmuon_cuda_tiles;

/* m x m of dtype; at most `most` tiles on and below the diagonal. */
dmuon_cuda_tiles dmuon_cuda_tiles_of(int64_t m, DMuonDType dtype, int64_t most);
/* With tiles of this side; not cut when fewer than two rows of them fit, or there are too many. */
dmuon_cuda_tiles dmuon_cuda_tiles_with(int64_t m, int64_t side, int64_t most);
/* Tiles on and below the diagonal, the last row not counted. */
int64_t dmuon_cuda_tiles_count(const dmuon_cuda_tiles *tiles);

#endif
