/* A client: pipeline parallelism with an optimizer for each set of ranks. Two stages of two data
 * ranks each, and the embedding tied by pairs across the stages, so the communicators overlap: 0-1,
 * 2-3 and 0-2, 1-3. Each rank has its two optimizers in the order in which it comes upon them. One
 * call steps them, in an order that all ranks share; one after the other in differing order closes
 * a circle of ranks that wait for each other, which ends within the timeout, and clearly. */
#include <dmuon.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "left_to_mpi.h"
#include "tap_mpi.h"

enum { N = 8, STEPS = 3 };
#define TIMEOUT 2.0

static const int64_t dims[] = {N, N};
static float w[N * N], g[N * N], e[N * N], de[N * N];

static void fill_weights(void) {
  for (int i = 0; i < N * N; i++) {
    w[i] = cosf((float)(i + 7 * (tap_rank / 2)));
    e[i] = sinf((float)(2 * i + tap_rank % 2));
  }
}

static void backward(int step) {
  for (int i = 0; i < N * N; i++) {
    g[i] = sinf((float)(1 + i + 10 * tap_rank + step));
    de[i] = cosf((float)(i + 3 * tap_rank + step));
  }
}

static DMuonErrorCode optimizer_on(MPI_Comm comm, const char *name, void *weights,
                                   const void *gradients, double timeout, DMuonOptimizer *opt) {
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMUON_CALL(DMuonMeshCreate(comm, &mesh));
  DMUON_CALL(DMuonMeshSetName(mesh, name));
  DMUON_CALL(DMuonModelCreate(mesh, &model));
  DMUON_CALL(DMuonModelAddParamArray(model, "layers.0.weight", DMUON_FLOAT32, 2, dims, weights,
                                     gradients, NULL));
  DMUON_CALL(DMuonOptimizerCreate(model, opt));
  DMUON_CALL(DMuonOptimizerSetName(*opt, name));
  DMUON_CALL(DMuonOptimizerSetClip(*opt, DMUON_CLIP_GLOBAL, 1));
  DMUON_CALL(DMuonOptimizerSetUp(*opt));
  DMUON_CALL(DMuonMeshSetTimeout(mesh, timeout));
  DMuonModelDestroy(&model); /* the optimizer keeps them */
  DMuonMeshDestroy(&mesh);
  return DMUON_SUCCESS;
}

/* o[0]: of the stage, o[1]: of the tied embedding. */
static DMuonErrorCode open_both(double timeout, DMuonOptimizer o[2]) {
  MPI_Comm stage, tied;
  char name[2][24];
  snprintf(name[0], sizeof name[0], "stage%d", tap_rank / 2);
  snprintf(name[1], sizeof name[1], "tied%d", tap_rank % 2);
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &stage);
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank % 2, tap_rank, &tied);
  fill_weights();
  DMuonErrorCode code = optimizer_on(stage, name[0], w, g, timeout, &o[0]);
  if (!code) code = optimizer_on(tied, name[1], e, de, timeout, &o[1]);
  MPI_Comm_free(&stage);
  MPI_Comm_free(&tied);
  return code;
}

static void close_both(DMuonOptimizer o[2]) {
  DMuonOptimizerDestroy(&o[0]);
  DMuonOptimizerDestroy(&o[1]);
}

/* 0: stage, tied. 1: tied, stage. 2: tied, stage. 3: stage, tied. */
static void in_own_order(DMuonOptimizer o[2], DMuonOptimizer mine[2]) {
  const int first = tap_rank == 1 || tap_rank == 2;
  mine[0] = o[first];
  mine[1] = o[!first];
}

static void in_one_call(void) {
  static float alone_w[N * N], alone_e[N * N];
  DMuonOptimizer o[2] = {NULL, NULL}, mine[2];
  DMuonStepInfo info = {.struct_size = sizeof info};

  /* What comes out when everybody takes care of the order himself. */
  DMuonErrorCode code = open_both(60, o);
  for (int step = 0; step < STEPS && !code; step++) {
    backward(step);
    code = DMuonOptimizerStep(o[0]);
    if (!code) code = DMuonOptimizerStep(o[1]);
  }
  memcpy(alone_w, w, sizeof w);
  memcpy(alone_e, e, sizeof e);
  close_both(o);
  if (!tap_ok(!code, "in an order that all ranks share")) tap_diag("%s", DMuonErrorGetMessage());

  code = open_both(60, o);
  in_own_order(o, mine);
  for (int step = 0; step < STEPS && !code; step++) {
    backward(step);
    code = DMuonOptimizerStepMany(2, mine);
  }
  if (!tap_ok(!code, "in one call, in an order of each rank's own"))
    tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!memcmp(alone_w, w, sizeof w) && !memcmp(alone_e, e, sizeof e), "to the same bits");

  /* Each skips alone: a NaN in the embedding of the pair 1, 3. */
  backward(STEPS);
  if (tap_rank == 3) de[5] = NAN;
  code = DMuonOptimizerStepMany(2, mine);
  if (!code) code = DMuonOptimizerGetStepInfo(o[1], &info);
  tap_ok(!code && info.skipped == tap_rank % 2, "a NaN: its optimizer skips");
  tap_ok(tap_rank % 2 ? !memcmp(alone_e, e, sizeof e) : memcmp(alone_e, e, sizeof e) != 0,
         "and only that");
  code = DMuonOptimizerGetStepInfo(o[0], &info);
  tap_ok(!code && !info.skipped && info.step == STEPS + 1 && memcmp(alone_w, w, sizeof w),
         "the other one steps");
  close_both(o);
}

static void arguments(void) {
  DMuonOptimizer o[2] = {NULL, NULL}, twice[2];
  DMuonErrorCode code = open_both(60, o);
  if (!tap_ok(!code, "two optimizers")) tap_diag("%s", DMuonErrorGetMessage());
  twice[0] = twice[1] = o[0];
  backward(0);
  float before[N * N];
  memcpy(before, w, sizeof w);
  tap_is_int(DMuonOptimizerStepMany(0, NULL), DMUON_SUCCESS, "none is fine");
  tap_is_int(DMuonOptimizerStepMany(-1, o), DMUON_ERR_ARGUMENT, "less than none is not");
  tap_is_int(DMuonOptimizerStepMany(2, NULL), DMUON_ERR_ARGUMENT, "nor NULL");
  tap_is_int(DMuonOptimizerStepMany(2, twice), DMUON_ERR_ARGUMENT, "nor one of them twice");
  twice[1] = NULL;
  tap_is_int(DMuonOptimizerStepMany(2, twice), DMUON_ERR_ARGUMENT, "nor a handle that is NULL");
  tap_ok(!memcmp(before, w, sizeof w), "nothing has stepped");

  /* One fails: those before it in order of name have stepped, those behind it not. */
  DMuonOptimizer mine[2];
  in_own_order(o, mine);
  code = tap_rank % 2 ? DMUON_SUCCESS : DMuonOptimizerSetLearningRateFactor(o[1], tap_rank + 1);
  if (!code) code = DMuonOptimizerStepMany(2, mine);
  tap_is_int(code, tap_rank % 2 ? DMUON_SUCCESS : DMUON_ERR_DISAGREE, "rates that differ");
  tap_ok(tap_rank % 2 || strstr(DMuonErrorGetMessage(), "optimizer \"tied0\", 2 of 2"),
         "which optimizer is said");
  tap_ok(memcmp(before, w, sizeof w), "the one before it has stepped");
  close_both(o);

  /* Two that nobody named. */
  DMuonMesh mesh = NULL;
  DMuonModel model[2] = {NULL, NULL};
  DMuonOptimizer same[2] = {NULL, NULL};
  code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  for (int i = 0; i < 2 && !code; i++) {
    code = DMuonModelCreate(mesh, &model[i]);
    if (!code)
      code = DMuonModelAddParamArray(model[i], "layers.0.weight", DMUON_FLOAT32, 2, dims, i ? e : w,
                                     i ? de : g, NULL);
    if (!code) code = DMuonOptimizerCreate(model[i], &same[i]);
    if (!code && i == 0) code = DMuonOptimizerSetUp(same[i]);
  }
  tap_ok(!code && DMuonOptimizerStepMany(2, same) == DMUON_ERR_STATE, "one is not set up");
  code = DMuonOptimizerSetUp(same[1]);
  tap_ok(!code && DMuonOptimizerStepMany(2, same) == DMUON_ERR_ARGUMENT, "two of one name");
  tap_contains(DMuonErrorGetMessage(), "both named \"opt\"", "says so");
  close_both(same);
  DMuonModelDestroy(&model[0]);
  DMuonModelDestroy(&model[1]);
  DMuonMeshDestroy(&mesh);
}

static void in_a_circle(void) {
  DMuonOptimizer o[2] = {NULL, NULL}, mine[2];
  DMuonErrorCode code = open_both(TIMEOUT, o);
  in_own_order(o, mine);
  backward(0);
  if (!tap_ok(!code, "a circle")) tap_diag("%s", DMuonErrorGetMessage());
  const double began = MPI_Wtime();
  code = DMuonOptimizerStep(mine[0]);
  if (!code) code = DMuonOptimizerStep(mine[1]);
  const double seconds = MPI_Wtime() - began;
  tap_ok(code == DMUON_ERR_TIMEOUT || code == DMUON_ERR_REVOKED, "it ends, on every rank");
  if (!tap_ok(seconds > .9 * TIMEOUT && seconds < 10 * TIMEOUT, "within bounded time"))
    fprintf(stderr, "# %g seconds\n", seconds);
  const char *name = tap_rank == 0   ? "stage0"
                     : tap_rank == 1 ? "tied1"
                     : tap_rank == 2 ? "tied0"
                                     : "stage1";
  if (!tap_ok(strstr(DMuonErrorGetMessage(), name) && strstr(DMuonErrorGetMessage(), "Step") &&
                  strstr(DMuonErrorGetMessage(), "no answer from rank"),
              "and says which mesh, which call and who did not come"))
    fprintf(stderr, "# %d: %s\n", tap_rank, DMuonErrorGetMessage());
  close_both(o);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  if (tap_size != 4) {
    tap_skip_all("wants 4 ranks");
    return tap_mpi_done();
  }
  in_one_call();
  arguments();
  in_a_circle();
  in_one_call();
  return tap_mpi_done();
}
