/* A client: mixture of experts on 2 expert-parallel x 2 data-parallel ranks. Rank (d, x) holds a
 * copy of the dense matrix and of experts 2x and 2x + 1, whose other copies are on the ranks of the
 * same x. Tokens travel to their expert within a group of equal d. Two questions, two meshes: who
 * holds a copy of an expert (the ranks of equal x), and whose losses its gradient has seen (all).
 */
#include <dmuon.h>
#include <math.h>
#include <string.h>

#include "tap_mpi.h"

enum { D = 8, EP = 2, LOCAL = 2, TOKENS = 12, EXPERTS = EP * LOCAL };

static float dense[D * D], ddense[D * D], expert[LOCAL][D * D], dexpert[LOCAL][D * D];

static float noise(int a, int b, int c) {
  return sinf(12.9898f * (float)a + 78.233f * (float)b + 37.719f * (float)c) / 2;
}

/* The expert of a token: uneven on purpose. */
static int route(int rank, int t) {
  return (7 * rank + 5 * t + t * t) % EXPERTS;
}

/* One token: h = dense x, y = expert h, loss |y - x|^2 / 2 over the mean of the rank's tokens; adds
 * to the gradients given. */
static void token(int rank, int t, const float *wd, const float *we, float *gd, float *ge) {
  float x[D], h[D] = {0}, y[D] = {0}, dh[D] = {0};
  for (int i = 0; i < D; i++) x[i] = noise(rank, t, i);
  for (int i = 0; i < D; i++) {
    for (int j = 0; j < D; j++) h[i] += wd[i * D + j] * x[j];
  }
  for (int i = 0; i < D; i++) {
    for (int j = 0; j < D; j++) y[i] += we[i * D + j] * h[j];
  }
  for (int i = 0; i < D; i++) {
    const float dy = (y[i] - x[i]) / TOKENS;
    for (int j = 0; j < D; j++) {
      ge[i * D + j] += dy * h[j];
      dh[j] += dy * we[i * D + j];
    }
  }
  for (int i = 0; i < D; i++) {
    for (int j = 0; j < D; j++) gd[i * D + j] += dh[i] * x[j];
  }
}

/* The norm on one process: every token of every rank; the dense matrix's gradient is the mean of
 * the ranks' losses, the experts' theirs divided by losses: 4 is right. */
static double norm_of(float all[EXPERTS][D * D], double losses) {
  float gd[D * D] = {0}, ge[EXPERTS][D * D] = {{0}};
  double squares = 0;
  for (int r = 0; r < 4; r++) {
    for (int t = 0; t < TOKENS; t++) {
      token(r, t, dense, all[route(r, t)], gd, ge[route(r, t)]);
    }
  }
  for (int i = 0; i < D * D; i++) {
    squares += pow(gd[i] / 4., 2);
    for (int k = 0; k < EXPERTS; k++) squares += pow(ge[k][i] / losses, 2);
  }
  return sqrt(squares);
}

/* right: the experts' gradients are divided by all ranks; else by the copies, which is wrong. */
static DMuonErrorCode train(int rank, int right) {
  static const int64_t dims[] = {D, D};
  const int x = rank % EP, d = rank / EP;
  MPI_Comm same;
  DMuonMesh all, copies;
  DMuonModel model;
  DMuonOptimizer opt;
  DMuonStepInfo info = {.struct_size = sizeof info};
  float every[EXPERTS][D * D], scrap[D * D] = {0};
  for (int i = 0; i < D * D; i++) {
    dense[i] = noise(1, 2, i);
    for (int k = 0; k < EXPERTS; k++) every[k][i] = noise(3, k, i);
    for (int k = 0; k < LOCAL; k++) expert[k][i] = every[x * LOCAL + k][i];
  }
  const double truth = norm_of(every, 4), wrong = norm_of(every, 2);
  MPI_Comm_split(MPI_COMM_WORLD, x, d, &same);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &all));
  DMUON_CALL(DMuonMeshCreate(same, &copies));
  DMUON_CALL(DMuonMeshSetName(copies, "expert copies"));
  DMUON_CALL(DMuonModelCreate(all, &model));
  DMUON_CALL(DMuonModelAddParamArray(model, "layers.0.attn.weight", DMUON_FLOAT32, 2, dims, dense,
                                     ddense, NULL));
  DMUON_CALL(DMuonModelAddStackArray(model, "layers.0.experts.%d.weight", x * LOCAL, LOCAL,
                                     DMUON_FLOAT32, 2, dims, expert, dexpert, NULL));
  DMUON_CALL(DMuonModelSetMesh(model, "*.experts.*", copies, right ? all : NULL));
  DMUON_CALL(DMuonOptimizerCreate(model, &opt));
  DMUON_CALL(DMuonOptimizerSetClip(opt, DMUON_CLIP_GLOBAL, 1e9)); /* for its norm */
  DMUON_CALL(DMuonOptimizerSetUp(opt));

  memset(ddense, 0, sizeof ddense);
  memset(dexpert, 0, sizeof dexpert);
  for (int t = 0; t < TOKENS; t++) { /* my tokens: the dense part */
    token(rank, t, dense, every[route(rank, t)], ddense, scrap);
  }
  for (int r = d * EP; r < (d + 1) * EP; r++) { /* what all-to-all brings to my experts */
    for (int t = 0; t < TOKENS; t++) {
      const int k = route(r, t) - x * LOCAL;
      if (k >= 0 && k < LOCAL) token(r, t, dense, expert[k], scrap, dexpert[k]);
    }
  }
  DMUON_CALL(DMuonOptimizerStep(opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(opt, &info));
  if (right) {
    tap_is_near(info.grad_norm, truth, 1e-6 * truth, "losses on all ranks: the true norm");
    tap_is_int(info.newton_schulz_calls, 1 + EXPERTS, "one Newton-Schulz a matrix");
  } else {
    tap_is_near(info.grad_norm, wrong, 1e-6 * wrong, "losses of the copies alone: that norm");
    tap_ok(wrong > 1.1 * truth, "which is not the true one");
  }

  /* Copies agree: compare with the rank that holds the same experts, and the dense one with all. */
  float theirs[LOCAL + 1][D * D], mine[LOCAL + 1][D * D];
  MPI_Request request;
  memcpy(mine[0], dense, sizeof dense);
  memcpy(mine[1], expert, sizeof expert);
  memcpy(theirs, mine, sizeof mine);
  MPI_Ibcast(theirs, (LOCAL + 1) * D * D, MPI_FLOAT, 0, same, &request);
  tap_mpi_wait(&request);
  tap_ok(!memcmp(theirs, mine, sizeof mine), "copies of an expert are equal after the step");
  MPI_Ibcast(theirs[0], D * D, MPI_FLOAT, 0, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  tap_ok(!memcmp(theirs[0], mine[0], sizeof mine[0]), "so are those of the dense matrix");
  tap_ok(memcmp(expert[0], every[x * LOCAL], sizeof expert[0]) != 0, "and they have moved");

  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&copies);
  DMuonMeshDestroy(&all);
  MPI_Comm_free(&same);
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  if (tap_size != 4) {
    tap_skip_all("wants 4 ranks");
    return tap_mpi_done();
  }
  for (int right = 1; right >= 0; right--) {
    const DMuonErrorCode code = train(tap_rank, right);
    if (!tap_ok(code == DMUON_SUCCESS, "no call fails")) tap_diag("%s", DMuonErrorGetMessage());
  }
  return tap_mpi_done();
}
