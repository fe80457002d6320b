/* A client whose parameters live in the library's memory: the loop of client_loop.c through the
 * brackets of groups, and the same in arrays. Evaluation between steps, micro-batches added up, a
 * learning-rate schedule, clipping: every loss is that of the arrays to the bit, on all meshes. A
 * rank that gives up in the middle: all build everything anew and end as a run without failure
 * does. */
#include <dmuon.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "left_to_mpi.h"
#include "tap_mpi.h"

enum { L = 3, D = 16, BATCH = 8, MICRO = 4, STEPS = 25, FAIL_STEP = 7 };

/* ---- the application; it knows nothing of the library --------------------------------------- */

static float uniform(uint64_t *s) { /* [-1/2, 1/2) */
  *s ^= *s >> 12;
  *s ^= *s << 25;
  *s ^= *s >> 27;
  return (float)((*s * 2685821657736338717u) >> 40) / (1 << 24) - .5f;
}

static void next_batch(uint64_t *state, float x[BATCH][D], float y[BATCH][D]) {
  for (int i = 0; i < BATCH; i++) {
    for (int j = 0; j < D; j++) x[i][j] = 2 * uniform(state);
    for (int j = 0; j < D; j++) y[i][j] = sinf(3 * x[i][j]) / 2 - x[i][(j + 1) % D];
  }
}

static void layer_forward(const float *w, const float *b, float in[BATCH][D], float out[BATCH][D],
                          int is_last) {
  for (int i = 0; i < BATCH; i++) {
    for (int o = 0; o < D; o++) {
      float s = b[o];
      for (int k = 0; k < D; k++) s += w[o * D + k] * in[i][k];
      out[i][o] = is_last ? s : tanhf(s);
    }
  }
}

static void layer_backward(const float *w, float in[BATCH][D], float out[BATCH][D],
                           float dout[BATCH][D], float din[BATCH][D], float *dw, float *db,
                           int is_last) {
  memset(din, 0, sizeof(float) * BATCH * D);
  for (int i = 0; i < BATCH; i++) {
    for (int o = 0; o < D; o++) {
      const float g = is_last ? dout[i][o] : dout[i][o] * (1 - out[i][o] * out[i][o]);
      db[o] += g;
      for (int k = 0; k < D; k++) {
        dw[o * D + k] += g * in[i][k];
        din[i][k] += g * w[o * D + k];
      }
    }
  }
}

static double loss_and_slope(float out[BATCH][D], float y[BATCH][D], float d[BATCH][D],
                             float scale) {
  double loss = 0;
  for (int i = 0; i < BATCH; i++) {
    for (int j = 0; j < D; j++) {
      const float e = out[i][j] - y[i][j];
      loss += (double)e * e;
      d[i][j] = scale * 2 * e / (BATCH * D);
    }
  }
  return loss / (BATCH * D);
}

/* ---- both forms ------------------------------------------------------------------------------ */

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
} Run;

typedef struct {
  double loss[STEPS], val[STEPS], norm[STEPS];
  int clipped;
} Record;

static float W[L][D * D], B[L][D], DW[L][D * D], DB[L][D]; /* of the form in arrays */

static DMuonErrorCode run_begin(Run *r, int replicate, int is_sharded, const char *order) {
  static const int64_t wdims[] = {D, D}, bdims[] = {D};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &r->mesh));
  DMUON_CALL(DMuonMeshSetTimeout(r->mesh, 60));
  DMUON_CALL(DMuonMeshSetSizes(r->mesh, replicate, DMUON_DECIDE, 1));
  if (order) DMUON_CALL(DMuonMeshSetOption(r->mesh, "opt.order", order));
  DMUON_CALL(DMuonModelCreate(r->mesh, &r->model));
  if (is_sharded) {
    DMUON_CALL(
        DMuonModelAddStack(r->model, "layers.%d.weight", 0, L, DMUON_FLOAT32, 2, wdims, NULL));
    DMUON_CALL(DMuonModelAddStack(r->model, "layers.%d.bias", 0, L, DMUON_FLOAT32, 1, bdims, NULL));
  } else {
    DMUON_CALL(DMuonModelAddStackArray(r->model, "layers.%d.weight", 0, L, DMUON_FLOAT32, 2, wdims,
                                       W, DW, NULL));
    DMUON_CALL(DMuonModelAddStackArray(r->model, "layers.%d.bias", 0, L, DMUON_FLOAT32, 1, bdims, B,
                                       DB, NULL));
  }
  DMUON_CALL(DMuonOptimizerCreate(r->model, &r->opt));
  DMUON_CALL(DMuonOptimizerSetMuon(r->opt, 0.02, 0.95, 0.01));
  DMUON_CALL(DMuonOptimizerSetAdamW(r->opt, 0.01, 0.9, 0.95, 1e-8, 0));
  DMUON_CALL(DMuonOptimizerSetClip(r->opt, DMUON_CLIP_GLOBAL, 0.05));
  return DMuonOptimizerSetUp(r->opt);
}

static void run_end(Run *r) { /* any order, any state, after any error */
  DMuonOptimizerDestroy(&r->opt);
  DMuonModelDestroy(&r->model);
  DMuonMeshDestroy(&r->mesh);
}

static DMuonErrorCode run_step(Run *r, int step, Record *record) {
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(DMuonOptimizerSetLearningRateFactor(
      r->opt, DMuonScheduleFactor(DMUON_SCHEDULE_COSINE, step, 3, STEPS, 0.1)));
  DMUON_CALL(DMuonOptimizerStep(r->opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(r->opt, &info));
  record->norm[step] = info.grad_norm;
  record->clipped += info.clip_factor < 1;
  return DMUON_SUCCESS;
}

/* ---- in arrays ------------------------------------------------------------------------------- */

static double arrays_pass(uint64_t *data, int backward, float scale) {
  float a[L + 1][BATCH][D], y[BATCH][D], g[2][BATCH][D];
  next_batch(data, a[0], y);
  for (int l = 0; l < L; l++) layer_forward(W[l], B[l], a[l], a[l + 1], l == L - 1);
  const double loss = loss_and_slope(a[L], y, g[L % 2], scale);
  for (int l = L; backward && l-- > 0;)
    layer_backward(W[l], a[l], a[l + 1], g[(l + 1) % 2], g[l % 2], DW[l], DB[l], l == L - 1);
  return loss;
}

static DMuonErrorCode in_arrays(Run *r, Record *record) {
  uint64_t seed = 42, data = 1234567 + 977 * (uint64_t)tap_rank;
  for (int l = 0; l < L; l++)
    for (int i = 0; i < D * D; i++) W[l][i] = uniform(&seed) / 2;
  memset(B, 0, sizeof B);
  DMUON_CALL(run_begin(r, 1, 0, NULL));
  for (int step = 0; step < STEPS; step++) {
    uint64_t held_out = 99;
    if (step % 5 == 0) record->val[step] = arrays_pass(&held_out, 0, 0);
    for (int m = 0; m < MICRO; m++) {
      memset(DW, 0, sizeof DW);
      memset(DB, 0, sizeof DB);
      record->loss[step] += arrays_pass(&data, 1, 1.f / MICRO) / MICRO;
      if (m < MICRO - 1) DMUON_CALL(DMuonOptimizerAccumulate(r->opt));
    }
    DMUON_CALL(run_step(r, step, record));
  }
  return DMUON_SUCCESS;
}

/* ---- in the library's memory ----------------------------------------------------------------- */

static DMuonErrorCode sharded_pass(Run *r, DMuonPass kind, uint64_t *data, float scale,
                                   double *loss) {
  float a[L + 1][BATCH][D], y[BATCH][D], g[2][BATCH][D];
  const void *p[2]; /* weight, bias of one layer, as registered */
  void *d[2];
  DMuonGroup group;
  DMUON_CALL(DMuonOptimizerBeginPass(r->opt, kind));
  next_batch(data, a[0], y);
  for (int l = 0; l < L; l++) {
    DMUON_CALL(DMuonOptimizerGetGroup(r->opt, l, &group));
    DMUON_CALL(DMuonGroupForwardBegin(group));
    DMUON_CALL(DMuonGroupGetArrays(group, p, NULL));
    layer_forward(p[0], p[1], a[l], a[l + 1], l == L - 1);
    DMUON_CALL(DMuonGroupForwardEnd(group));
  }
  *loss = loss_and_slope(a[L], y, g[L % 2], scale);
  for (int l = L; kind != DMUON_PASS_EVAL && l-- > 0;) {
    DMUON_CALL(DMuonOptimizerGetGroup(r->opt, l, &group));
    DMUON_CALL(DMuonGroupBackwardBegin(group));
    DMUON_CALL(DMuonGroupGetArrays(group, p, d));
    layer_backward(p[0], a[l], a[l + 1], g[(l + 1) % 2], g[l % 2], d[0], d[1], l == L - 1);
    DMUON_CALL(DMuonGroupBackwardEnd(group));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_values(Run *r) {
  uint64_t seed = 42;
  float init[D * D];
  for (int l = 0; l < L; l++) { /* one parameter in memory at a time */
    for (int i = 0; i < D * D; i++) init[i] = uniform(&seed) / 2;
    DMUON_CALL(DMuonOptimizerSetParam(r->opt, l, init, DMUON_ALL));
  }
  memset(init, 0, sizeof init);
  for (int l = 0; l < L; l++) DMUON_CALL(DMuonOptimizerSetParam(r->opt, L + l, init, DMUON_ALL));
  return DMUON_SUCCESS;
}

static DMuonErrorCode sharded(Run *r, int replicate, const char *order, int fail_rank,
                              Record *record) {
  uint64_t data = 1234567 + 977 * (uint64_t)tap_rank;
  DMUON_CALL(run_begin(r, replicate, 1, order));
  DMUON_CALL(set_values(r));
  for (int step = 0; step < STEPS; step++) {
    uint64_t held_out = 99;
    double part;
    if (step % 5 == 0)
      DMUON_CALL(sharded_pass(r, DMUON_PASS_EVAL, &held_out, 0, &record->val[step]));
    for (int m = 0; m < MICRO; m++) {
      DMUON_CALL(sharded_pass(r, m < MICRO - 1 ? DMUON_PASS_ACCUMULATE : DMUON_PASS_TRAIN, &data,
                              1.f / MICRO, &part));
      record->loss[step] += part / MICRO;
    }
    if (tap_rank == fail_rank && step == FAIL_STEP)
      return DMuonMeshRevoke(r->mesh, "cannot read data shard 7");
    DMUON_CALL(run_step(r, step, record));
  }
  return DMUON_SUCCESS;
}

/* ---- the test -------------------------------------------------------------------------------- */

static void compare(int replicate, const char *order, const Record *expected) {
  Run r = {0};
  Record record = {0};
  const DMuonErrorCode code = sharded(&r, replicate, order, -1, &record);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && memcmp(&record, expected, sizeof record) == 0,
         "%d x %d, %s order: the losses and norms of the arrays, to the bit", replicate,
         tap_size / replicate, order);
  run_end(&r);
}

static void fail_and_start_again(int fail_rank, const Record *expected) {
  DMuonErrorCode code;
  Record record;
  int tries = 0, heard = 0;
  do {
    Run r = {0};
    memset(&record, 0, sizeof record);
    code = sharded(&r, 2, NULL, tries ? -1 : fail_rank, &record);
    if (!tries) {
      char who[40];
      snprintf(who, sizeof who, "rank %d of %d gave up", fail_rank, tap_size);
      heard = code == DMUON_ERR_REVOKED && strstr(DMuonErrorGetMessage(), who) &&
              strstr(DMuonErrorGetMessage(), "cannot read data shard 7");
    }
    run_end(&r);
  } while (DMuonErrorIsFatal(code) && ++tries < 3);
  tap_ok(heard, "rank %d gives up at step %d: all hear of it, with the reason", fail_rank,
         FAIL_STEP);
  if (!tap_ok(!code && tries == 1, "all build everything anew and start again"))
    tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(memcmp(&record, expected, sizeof record) == 0, "and end as the run without failure");
}

int main(int argc, char **argv) {
  Run r = {0};
  Record expected = {0};
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  const DMuonErrorCode code = in_arrays(&r, &expected);
  run_end(&r);
  if (!tap_ok(!code, "a run in arrays")) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(expected.clipped > 0 && expected.val[STEPS - 5] < expected.val[0],
         "which learns: %.5f to %.5f", expected.val[0], expected.val[STEPS - 5]);
  for (int replicate = 1; replicate <= tap_size; replicate *= 2) {
    compare(replicate, "registered", &expected);
    compare(replicate, "program", &expected);
  }
  fail_and_start_again(0, &expected);
  fail_and_start_again(2, &expected);
  return tap_mpi_done();
}
