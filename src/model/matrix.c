/* Decides how a tensor is seen as matrices: batch, rows, columns, row blocks, output and input
 * side; and what ranks must agree on about it (its hash). Nothing here allocates. */
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "model/param.h"

DMuonErrorCode dmuon_shape_check(const char *name, DMuonDType dtype, int ndim, const int64_t *dims,
                                 int64_t *numel) {
  if (!dmuon_dtype_is_valid(dtype))
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "%s: dtype %d is none of DMUON_FLOAT32 (0) to DMUON_FLOAT16 (%d)", name, (int)dtype,
               DMUON_FLOAT16);
  if (ndim < 0 || ndim > DMUON_MAX_DIMS)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: ndim %d out of range [0, %d]", name, ndim, DMUON_MAX_DIMS);
  if (ndim > 0 && !dims) DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: dims is NULL, ndim is %d", name, ndim);
  int64_t product = 1, limit = INT64_MAX / (int64_t)dmuon_dtype_bytes(dtype);
  int empty = 0;
  for (int i = 0; i < ndim; i++) {
    if (dims[i] < 0)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: dims[%d] is %lld; at least 0 would be right", name, i,
                 (long long)dims[i]);
    if (dims[i] == 0) {
      empty = 1;
      continue;
    }
    if (dims[i] > limit / product) {
      char shape[200];
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: %s elements of %s do not fit into 2^63 bytes", name,
                 dmuon_shape_text(shape, sizeof shape, ndim, dims), dmuon_dtype_name(dtype));
    }
    product *= dims[i];
  }
  *numel = empty ? 0 : product;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_param_view(dmuon_param *param, int nbatch, int nrow) {
  if (nbatch < 0) {
    nbatch = 0;
    nrow = param->ndim > 0 ? 1 : 0;
  } else if (nrow > param->ndim - nbatch) {
    char shape[200];
    DMUON_FAIL(DMUON_ERR_SETUP, "%s: %d batch and %d row dims wanted, but %s has %d", param->name,
               nbatch, nrow, dmuon_shape_text(shape, sizeof shape, param->ndim, param->dims),
               param->ndim);
  }
  int64_t extent[3] = {1, 1, 1};
  for (int i = 0; i < param->ndim; i++)
    extent[i < nbatch ? 0 : i < nbatch + nrow ? 1 : 2] *= param->dims[i];
  param->nbatch = nbatch;
  param->nrow = nrow;
  param->batch = extent[0];
  param->rows = extent[1];
  param->cols = extent[2];
  return DMUON_SUCCESS;
}

int dmuon_param_is_vector(const dmuon_param *param) {
  return param->nrow == 0 || param->nbatch + param->nrow >= param->ndim;
}

int64_t dmuon_param_output_side(const dmuon_param *param) {
  return param->output == DMUON_ROWS ? param->rows : param->cols;
}

DMuonErrorCode dmuon_param_check_blocks(const dmuon_param *param) {
  if (param->nblocks == 0) return DMUON_SUCCESS;
  int64_t side = dmuon_param_output_side(param), sum = 0, total;
  int over = 0;
  for (int i = 0; i < param->nblocks; i++)
    over = over || __builtin_add_overflow(sum, param->blocks[i], &sum);
  over = over || __builtin_mul_overflow(sum, (int64_t)param->repeat, &total);
  if (over)
    DMUON_FAIL(DMUON_ERR_SETUP,
               "%s: %d x its %d blocks are more than 2^63 long; its output side is %lld",
               param->name, param->repeat, param->nblocks, (long long)side);
  if (total != side)
    DMUON_FAIL(DMUON_ERR_SETUP,
               "%s: blocks cover %d x %lld = %lld of its output side (%s), which is %lld",
               param->name, param->repeat, (long long)sum, (long long)total,
               dmuon_side_name(param->output), (long long)side);
  return DMUON_SUCCESS;
}

void dmuon_param_fans(const dmuon_param *param, int block, int64_t *out, int64_t *in) {
  *out = param->nblocks ? param->blocks[block] * param->repeat : dmuon_param_output_side(param);
  *in = param->output == DMUON_ROWS ? param->cols : param->rows;
}

uint64_t dmuon_param_hash(const dmuon_param *param, int64_t ordinal) {
  const int64_t values[] = {
      ordinal,       param->dtype,  param->grad_dtype, param->master_dtype, param->state_dtype,
      param->ndim,   param->nbatch, param->nrow,       param->output,       param->nblocks,
      param->repeat, param->route,  param->mesh,       param->losses,       param->is_lent,
      param->reshard};
  uint64_t hash = dmuon_hash_string(DMUON_HASH_SEED, param->name);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    hash = dmuon_hash_int(hash, values[i]);
  for (int i = 0; i < param->ndim; i++) hash = dmuon_hash_int(hash, param->dims[i]);
  for (int i = 0; i < param->nblocks; i++) hash = dmuon_hash_int(hash, param->blocks[i]);
  return dmuon_hash_string(hash, param->group ? param->group : "");
}
