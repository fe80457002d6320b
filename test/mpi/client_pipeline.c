/* A client: pipeline parallelism. Two stages of two data ranks each, two chunks of layers a rank
 * (interleaved), input and output embedding tied. One optimizer: each parameter says on which mesh
 * it lives, so there is one Step, one gradient norm over all stages with the tied matrix counted
 * once, and one decision to skip. */
#include <dmuon.h>
#include <math.h>
#include <string.h>

#include "tap_mpi.h"

enum { N = 8, STAGES = 2, CHUNKS = 2 };

static float w[CHUNKS][N * N], g[CHUNKS][N * N], e[N * N], de[N * N];

/* Stands for what the pipeline schedule leaves in this stage's gradients. */
static float layer_gradient(int rank, int chunk, int i, int step) {
  return sinf((float)(1 + i + 10 * rank + 100 * chunk + step));
}
static float tied_gradient(int rank, int i, int step) {
  return cosf((float)(i + 3 * rank + step));
}
static void backward(int rank, int step) {
  for (int i = 0; i < N * N; i++) {
    for (int c = 0; c < CHUNKS; c++) g[c][i] = layer_gradient(rank, c, i, step);
    de[i] = tied_gradient(rank, i, step);
  }
}

/* What one process would call the gradient norm: means over the two data ranks of a stage; of the
 * tied matrix the sum of both uses, each a mean over data ranks. */
static double expected_norm(int step) {
  double squares = 0;
  for (int i = 0; i < N * N; i++) {
    for (int stage = 0; stage < STAGES; stage++) {
      for (int c = 0; c < CHUNKS; c++) {
        double mean = 0;
        for (int d = 0; d < 2; d++) mean += (double)layer_gradient(2 * stage + d, c, i, step) / 2;
        squares += mean * mean;
      }
    }
    double mean = 0;
    for (int r = 0; r < 4; r++) mean += (double)tied_gradient(r, i, step) / 2;
    squares += mean * mean;
  }
  return sqrt(squares);
}

static int all_finite(void) {
  for (int i = 0; i < N * N; i++) {
    if (!isfinite(e[i])) return 0;
    for (int c = 0; c < CHUNKS; c++) {
      if (!isfinite(w[c][i])) return 0;
    }
  }
  return 1;
}

static DMuonErrorCode one_optimizer(int rank) {
  static const int64_t dims[] = {N, N};
  const int stage = rank / 2;
  MPI_Comm stage_comm;
  DMuonMesh all, mine;
  DMuonModel model;
  DMuonOptimizer opt;
  DMuonStepInfo info = {.struct_size = sizeof info};
  MPI_Comm_split(MPI_COMM_WORLD, stage, rank, &stage_comm);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &all));
  DMUON_CALL(DMuonMeshCreate(stage_comm, &mine));
  MPI_Comm_free(&stage_comm); /* the mesh has its own */
  DMUON_CALL(DMuonModelCreate(all, &model));
  for (int c = 0; c < CHUNKS; c++) {
    DMUON_CALL(DMuonModelAddStackArray(model, "layers.%d.weight", STAGES * c + stage, 1,
                                       DMUON_FLOAT32, 2, dims, w[c], g[c], NULL));
  }
  DMUON_CALL(DMuonModelAddParamArray(model, "embed.weight", DMUON_FLOAT32, 2, dims, e, de, NULL));
  /* Layers: copies on my stage, mean over my stage. The tied matrix: copies on both stages, its
   * gradients summed; divided by the data ranks of one stage. */
  DMUON_CALL(DMuonModelSetMesh(model, "layers.*", mine, NULL));
  DMUON_CALL(DMuonModelSetMesh(model, "embed.weight", all, mine));
  DMUON_CALL(DMuonOptimizerCreate(model, &opt));
  DMUON_CALL(DMuonOptimizerSetClip(opt, DMUON_CLIP_GLOBAL, 1.0));
  DMUON_CALL(DMuonOptimizerSetUp(opt));

  for (int step = 0; step < 3; step++) {
    const double expected = expected_norm(step);
    backward(rank, step);
    DMUON_CALL(DMuonOptimizerStep(opt));
    DMUON_CALL(DMuonOptimizerGetStepInfo(opt, &info));
    tap_ok(info.skipped == 0 && info.step == step + 1, "step %d is made", step);
    tap_is_near(info.grad_norm, expected, 1e-6 * expected, "step %d: the norm of all stages", step);
    tap_is_near(info.clip_factor, fmin(1, 1 / expected), 1e-5, "step %d: the clip factor", step);
  }
  tap_ok(all_finite() && w[0][0] != 0 && e[0] != 0, "every stage's weights have moved");

  /* One stage sees a NaN: every stage skips. */
  float before[CHUNKS][N * N], tied[N * N];
  memcpy(before, w, sizeof w);
  memcpy(tied, e, sizeof e);
  backward(rank, 3);
  if (rank == 3) g[0][5] = NAN;
  DMUON_CALL(DMuonOptimizerStep(opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(opt, &info));
  tap_ok(info.skipped == 1 && info.step == 3, "a NaN on rank 3: skipped on every rank");
  tap_ok(!memcmp(before, w, sizeof w) && !memcmp(tied, e, sizeof e), "no weight has changed");
  tap_is_string(info.nonfinite_name, "layers.1.weight", "the parameter is named");
  tap_is_int(info.nonfinite_rank, 3, "and its rank");

  /* And goes on as if nothing had been. */
  backward(rank, 4);
  DMUON_CALL(DMuonOptimizerStep(opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(opt, &info));
  tap_is_near(info.grad_norm, expected_norm(4), 1e-6 * expected_norm(4), "the next step's norm");
  tap_ok(info.skipped == 0 && info.step == 4 && memcmp(before, w, sizeof w), "and it is made");
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mine);
  DMuonMeshDestroy(&all);
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  if (tap_size != 4) {
    tap_skip_all("wants 4 ranks");
    return tap_mpi_done();
  }
  const DMuonErrorCode code = one_optimizer(tap_rank);
  if (!tap_ok(code == DMUON_SUCCESS, "no call fails")) tap_diag("%s", DMuonErrorGetMessage());
  return tap_mpi_done();
}
