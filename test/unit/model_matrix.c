/* Shapes, matrix views, row blocks, fans and the hash of a parameter. */
#include "base/hash.h"
#include "model/param.h"

#include "tap.h"

static dmuon_param make(int ndim, const int64_t *dims) {
  dmuon_param param = {.name = (char *)(uintptr_t) "w", .ndim = ndim, .repeat = 1};
  for (int i = 0; i < ndim; i++) param.dims[i] = dims[i];
  return param;
}

static void is_view(int ndim, const int64_t *dims, int nbatch, int nrow, int64_t batch,
                    int64_t rows, int64_t cols, int is_vector) {
  dmuon_param param = make(ndim, dims);
  DMuonErrorCode code = dmuon_param_view(&param, nbatch, nrow);
  tap_ok(!code && param.batch == batch && param.rows == rows && param.cols == cols,
         "%d dims seen by (%d, %d): %lld of %lldx%lld", ndim, nbatch, nrow, (long long)batch,
         (long long)rows, (long long)cols);
  tap_is_int(dmuon_param_is_vector(&param), is_vector, "and whether it is a vector");
}

static void is_numel(int ndim, const int64_t *dims, int64_t expected) {
  int64_t numel = -7;
  DMuonErrorCode code = dmuon_shape_check("w", DMUON_FLOAT32, ndim, dims, &numel);
  tap_is_int(code ? -1 : numel, expected, "numel of %d dims", ndim);
  if (code) tap_is_int(numel, -7, "and nothing set");
}

int main(void) {
  tap_plan(0);
  const int64_t d[] = {4, 3, 2, 5};
  is_view(0, NULL, -1, -1, 1, 1, 1, 1);
  is_view(1, d, -1, -1, 1, 4, 1, 1);
  is_view(2, d, -1, -1, 1, 4, 3, 0);
  is_view(4, d, -1, -1, 1, 4, 30, 0);
  is_view(4, d, 1, 1, 4, 3, 10, 0);
  is_view(4, d, 1, 2, 4, 6, 5, 0);
  is_view(4, d, 0, 4, 1, 120, 1, 1);
  is_view(3, d, 2, 1, 12, 2, 1, 1);
  is_view(2, (const int64_t[]){1, 5}, -1, -1, 1, 1, 5, 0);
  is_view(2, (const int64_t[]){0, 8}, -1, -1, 1, 0, 8, 0);
  is_view(2, (const int64_t[]){8, 0}, -1, -1, 1, 8, 0, 0);
  dmuon_param small = make(2, d);
  tap_is_int(dmuon_param_view(&small, 2, 1), DMUON_ERR_SETUP, "more dims wanted than there are");
  tap_contains(DMuonErrorGetMessage(), "4x3", "names the shape");

  is_numel(0, NULL, 1);
  is_numel(4, d, 120);
  is_numel(2, (const int64_t[]){0, 8}, 0);
  is_numel(1, (const int64_t[]){-1}, -1);
  is_numel(9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, -1);
  is_numel(1, NULL, -1);
  is_numel(2, (const int64_t[]){INT64_C(1) << 31, INT64_C(1) << 31}, -1);
  is_numel(2, (const int64_t[]){INT64_C(1) << 31, INT64_C(1) << 29}, INT64_C(1) << 60);
  is_numel(3, (const int64_t[]){INT64_C(1) << 31, 0, INT64_C(1) << 31}, -1);
  int64_t numel;
  tap_is_int(dmuon_shape_check("w", (DMuonDType)9, 0, NULL, &numel), DMUON_ERR_ARGUMENT,
             "an unknown dtype is refused");

  /* A fused 80x64, row blocks 64, 8, 8; gated 4, 4, 2, 2 twice over. */
  dmuon_param fused = make(2, (const int64_t[]){80, 64});
  int64_t qkv[] = {64, 8, 8}, gated[] = {4, 4, 2, 2}, out, in;
  dmuon_param_view(&fused, -1, -1);
  dmuon_param_fans(&fused, 0, &out, &in);
  tap_ok(out == 80 && in == 64, "fans of the whole: 80, 64");
  fused.output = DMUON_COLS;
  dmuon_param_fans(&fused, 0, &out, &in);
  tap_ok(out == 64 && in == 80, "the output side is the columns: 64, 80");
  fused.output = DMUON_ROWS;
  fused.nblocks = 3;
  fused.blocks = qkv;
  tap_is_int(dmuon_param_check_blocks(&fused), DMUON_SUCCESS, "64 + 8 + 8 = 80");
  dmuon_param_fans(&fused, 1, &out, &in);
  tap_ok(out == 8 && in == 64, "fans of block 1: 8, 64");
  fused.nblocks = 4;
  fused.blocks = gated;
  tap_is_int(dmuon_param_check_blocks(&fused), DMUON_ERR_SETUP, "4 + 4 + 2 + 2 is not 80");
  tap_contains(DMuonErrorGetMessage(), "1 x 12 = 12", "names the sum");
  tap_contains(DMuonErrorGetMessage(), "80", "and the side");
  dmuon_param repeated = make(2, (const int64_t[]){64, 24});
  dmuon_param_view(&repeated, -1, -1);
  repeated.output = DMUON_COLS;
  repeated.nblocks = 4;
  repeated.blocks = gated;
  repeated.repeat = 2;
  tap_is_int(dmuon_param_check_blocks(&repeated), DMUON_SUCCESS, "2 x 12 columns");
  dmuon_param_fans(&repeated, 2, &out, &in);
  tap_ok(out == 4 && in == 64, "part 2 of both repeats: 4, 64");
  int64_t huge[] = {INT64_MAX, INT64_MAX};
  repeated.nblocks = 2;
  repeated.blocks = huge;
  tap_is_int(dmuon_param_check_blocks(&repeated), DMUON_ERR_SETUP, "an overflowing sum is refused");
  char text[80];
  repeated.nblocks = 4;
  repeated.blocks = gated;
  tap_is_string(dmuon_view_text(text, sizeof text, &repeated), "64x24, blocks 2x(4,4,2,2)",
                "the view in words");
  tap_is_string(dmuon_shape_text(text, 6, 4, d), "4x3x2", "words are cut short, not overrun");

  /* The hash sees each thing that ranks must agree on. */
  dmuon_param a = make(2, d), b = a;
  dmuon_param_view(&a, -1, -1);
  a.group = (char *)(uintptr_t) "g";
  uint64_t hash = dmuon_param_hash(&a, 0);
  tap_ok(hash != dmuon_param_hash(&a, 1), "the hash sees the order");
#define SEES(field, value) \
  b = a;                   \
  b.field = (value);       \
  tap_ok(hash != dmuon_param_hash(&b, 0), "the hash sees " #field)
  SEES(name, (char *)(uintptr_t) "v");
  SEES(dims[1], 4);
  SEES(dtype, DMUON_BFLOAT16);
  SEES(grad_dtype, DMUON_BFLOAT16);
  SEES(master_dtype, DMUON_FLOAT64);
  SEES(state_dtype, DMUON_FLOAT64);
  SEES(route, DMUON_ROUTE_FROZEN);
  SEES(group, (char *)(uintptr_t) "h");
  SEES(output, DMUON_COLS);
  SEES(nrow, 2);
  SEES(mesh, 1);
  SEES(losses, 1);
  b = a;
  b.route_reason = (char *)(uintptr_t) "said so";
  tap_ok(hash == dmuon_param_hash(&b, 0), "but not the reason");
  return tap_done();
}
