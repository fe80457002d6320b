/* A client: what stands around the step in a training code that keeps its own arrays. Evaluation
 * between steps, gradients of several micro-batches accumulated by the library, a learning-rate
 * schedule, clipping, errors without abort: a rank that gives up in the middle, after which all
 * build everything anew and start again. The application is a small multi-layer perceptron. */
#include <dmuon.h>
#include <math.h>
#include <string.h>

#include "left_to_mpi.h"
#include "tap_mpi.h"

enum { L = 3, D = 16, BATCH = 8, MICRO = 4, STEPS = 120, FAIL_STEP = 7 };

/* ---- the application; it knows nothing of the library --------------------------------------- */

static float W[L][D][D], B[L][D], DW[L][D][D], DB[L][D];

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

static void layer_forward(int l, float in[BATCH][D], float out[BATCH][D]) {
  for (int i = 0; i < BATCH; i++) {
    for (int o = 0; o < D; o++) {
      float s = B[l][o];
      for (int k = 0; k < D; k++) s += W[l][o][k] * in[i][k];
      out[i][o] = l == L - 1 ? s : tanhf(s);
    }
  }
}

static void layer_backward(int l, float in[BATCH][D], float out[BATCH][D], float dout[BATCH][D],
                           float din[BATCH][D]) {
  memset(din, 0, sizeof(float) * BATCH * D);
  for (int i = 0; i < BATCH; i++) {
    for (int o = 0; o < D; o++) {
      const float g = l == L - 1 ? dout[i][o] : dout[i][o] * (1 - out[i][o] * out[i][o]);
      DB[l][o] += g;
      for (int k = 0; k < D; k++) {
        DW[l][o][k] += g * in[i][k];
        din[i][k] += g * W[l][o][k];
      }
    }
  }
}

/* The loss of the next batch; with scale, gradients of scale times it are added to DW and DB. */
static double pass(uint64_t *state, float scale) {
  float a[L + 1][BATCH][D], y[BATCH][D], g[2][BATCH][D];
  double loss = 0;
  next_batch(state, a[0], y);
  for (int l = 0; l < L; l++) layer_forward(l, a[l], a[l + 1]);
  for (int i = 0; i < BATCH; i++) {
    for (int j = 0; j < D; j++) {
      const float e = a[L][i][j] - y[i][j];
      loss += (double)e * e;
      g[L % 2][i][j] = scale * 2 * e / (BATCH * D);
    }
  }
  for (int l = L; scale > 0 && l-- > 0;) {
    layer_backward(l, a[l], a[l + 1], g[(l + 1) % 2], g[l % 2]);
  }
  return loss / (BATCH * D);
}

static double validate(void) { /* own arrays: evaluation is nobody's business */
  double loss = 0;
  for (uint64_t v = 99; v < 99 + 8; v++) {
    uint64_t state = v;
    loss += pass(&state, 0) / 8;
  }
  return loss;
}

/* ---- the loop ------------------------------------------------------------------------------- */

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
} Run;

static DMuonErrorCode run_begin(Run *r) {
  static const int64_t wdims[] = {D, D}, bdims[] = {D};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &r->mesh));
  DMUON_CALL(DMuonMeshSetTimeout(r->mesh, 60)); /* no rank waits for ever for one that is gone */
  DMUON_CALL(DMuonModelCreate(r->mesh, &r->model));
  DMUON_CALL(DMuonModelAddStackArray(r->model, "layers.%d.weight", 0, L, DMUON_FLOAT32, 2, wdims, W,
                                     DW, NULL));
  DMUON_CALL(DMuonModelAddStackArray(r->model, "layers.%d.bias", 0, L, DMUON_FLOAT32, 1, bdims, B,
                                     DB, NULL));
  DMUON_CALL(DMuonOptimizerCreate(r->model, &r->opt));
  DMUON_CALL(DMuonOptimizerSetMuon(r->opt, 0.02, 0.95, 0.01));
  DMUON_CALL(DMuonOptimizerSetAdamW(r->opt, 0.01, 0.9, 0.95, 1e-8, 0));
  DMUON_CALL(DMuonOptimizerSetClip(r->opt, DMUON_CLIP_GLOBAL, 0.05));
  DMUON_CALL(DMuonOptimizerSetUp(r->opt));
  return DMUON_SUCCESS;
}

static void run_end(Run *r) { /* any order, any state, after any error */
  DMuonOptimizerDestroy(&r->opt);
  DMuonModelDestroy(&r->model);
  DMuonMeshDestroy(&r->mesh);
}

typedef struct {
  double first, last; /* validation losses */
  int clipped, skipped;
} Result;

static DMuonErrorCode run(Run *r, int fail_rank, Result *result) {
  uint64_t seed = 42, data;
  int rank;
  for (int i = 0; i < L * D * D; i++) (&W[0][0][0])[i] = uniform(&seed) / 2;
  memset(B, 0, sizeof B);
  memset(result, 0, sizeof *result);
  DMUON_CALL(run_begin(r));
  DMUON_CALL(DMuonMeshGetDataRank(r->mesh, &rank, NULL));
  data = 1234567 + 977 * (uint64_t)rank;
  result->first = validate();
  for (int step = 0; step < STEPS; step++) {
    DMuonStepInfo info = {.struct_size = sizeof info};
    double loss = 0;
    for (int m = 0; m < MICRO; m++) {
      memset(DW, 0, sizeof DW);
      memset(DB, 0, sizeof DB);
      loss += pass(&data, 1.f / MICRO) / MICRO;
      if (m < MICRO - 1) DMUON_CALL(DMuonOptimizerAccumulate(r->opt));
    }
    if (rank == fail_rank && step == FAIL_STEP)
      return DMuonMeshRevoke(r->mesh, "cannot read data shard 7");
    DMUON_CALL(DMuonOptimizerSetLearningRateFactor(
        r->opt, DMuonScheduleFactor(DMUON_SCHEDULE_COSINE, step, 3, STEPS, 0.1)));
    DMUON_CALL(DMuonOptimizerStep(r->opt));
    DMUON_CALL(DMuonOptimizerGetStepInfo(r->opt, &info));
    result->clipped += info.clip_factor < 1;
    result->skipped += info.skipped != 0;
    if (step % 20 == 0) {
      tap_diag("step %d loss %.5f val %.5f norm %.4f clip %.3f", step, loss, validate(),
               info.grad_norm, info.clip_factor);
    }
  }
  result->last = validate();
  return DMUON_SUCCESS;
}

/* The same with a rank that gives up the first time: rebuilt by all, the second try ends as a run
 * without failure does. */
static void fail_and_start_again(int fail_rank, const Result *straight) {
  static float weights[L][D][D], biases[L][D];
  DMuonErrorCode code;
  Result result;
  int tries = 0, heard = 0;
  memcpy(weights, W, sizeof W);
  memcpy(biases, B, sizeof B);
  do {
    Run r = {0};
    code = run(&r, tries ? -1 : fail_rank, &result);
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
  tap_ok(!memcmp(weights, W, sizeof W) && !memcmp(biases, B, sizeof B) &&
             result.last == straight->last && result.clipped == straight->clipped,
         "and end with the same weights as the run without failure");
}

int main(int argc, char **argv) {
  Run r = {0};
  Result result = {0};
  double root;
  tap_mpi_init(&argc, &argv);
  tap_plan(11);
  const DMuonErrorCode code = run(&r, -1, &result);
  if (!tap_ok(code == DMUON_SUCCESS, "no call fails")) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(result.last < 0.5 * result.first, "the validation loss falls: %.5f to %.5f", result.first,
         result.last);
  tap_is_int(result.skipped, 0, "no step is skipped");
  tap_ok(result.clipped > 0, "clipping was at work in %d steps", result.clipped);
  MPI_Request request;
  root = result.last; /* the same weights on every rank: the same loss to the bit */
  MPI_Ibcast(&root, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  tap_ok(root == result.last, "all ranks end with the same loss");
  run_end(&r);
  fail_and_start_again(0, &result);
  fail_and_start_again(2, &result);
  return tap_mpi_done();
}
