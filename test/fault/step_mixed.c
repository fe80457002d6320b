/* Ranks that make different calls of the same kind, and arrays handed over late that are not apart:
 * refused everywhere, named, with nothing changed, and everything goes on. */
#include <string.h>

#include <dmuon.h>

#include "tap_mpi.h"

enum { N = 8 };
static float w[2][N * N], g[2][N * N], spare[N * N];
static DMuonMesh mesh;
static DMuonModel model[2];
static DMuonOptimizer opt[2]; /* "gen" and "disc": of one size, on one mesh */

static DMuonErrorCode create(void) {
  const int64_t dims[2][2] = {{N, N}, {N / 2, 2 * N}};
  const char *const names[] = {"gen", "disc"};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonMeshSetOption(mesh, "gen.rule", "dmuon"));
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < N * N; i++) {
      w[k][i] = cosf((float)(i + 5 * k));
      g[k][i] = sinf((float)(i + 3 * k + tap_rank));
    }
    DMUON_CALL(DMuonModelCreate(mesh, &model[k]));
    DMUON_CALL(DMuonModelAddParamArray(model[k], "layers.0.weight", DMUON_FLOAT32, 2, dims[k], w[k],
                                       g[k], NULL));
    DMUON_CALL(DMuonOptimizerCreate(model[k], &opt[k]));
    DMUON_CALL(DMuonOptimizerSetName(opt[k], names[k]));
    DMUON_CALL(DMuonOptimizerSetMuon(opt[k], 0.5, 0.95, 0));
    DMUON_CALL(DMuonOptimizerSetUp(opt[k]));
  }
  return DMUON_SUCCESS;
}

/* One rank steps them the other way round. */
static void stepped_in_another_order(void) {
  float before[2][N * N];
  const int late = tap_rank == tap_size - 1 && tap_size > 1;
  memcpy(before, w, sizeof w);
  DMuonErrorCode code = DMuonOptimizerStep(opt[late]);
  if (tap_size > 1) {
    tap_ok(code == DMUON_ERR_DISAGREE, "Step of two optimizers in differing order is refused");
    tap_contains(DMuonErrorGetMessage(), "another optimizer", "and named");
    tap_ok(!memcmp(before, w, sizeof w), "nothing changed");
  }
  tap_ok(!DMuonOptimizerStep(opt[0]) && !DMuonOptimizerStep(opt[1]), "in the same order they step");
  tap_ok(memcmp(before[0], w[0], sizeof w[0]) && memcmp(before[1], w[1], sizeof w[1]), "both");
}

static void asked_for_another_state(void) {
  float state[N * N];
  const int other = tap_rank == tap_size - 1 && tap_size > 1;
  if (tap_size > 1) {
    tap_ok(DMuonOptimizerGetState(opt[0], 0, other ? "master" : "momentum", state, DMUON_ALL) ==
               DMUON_ERR_DISAGREE,
           "GetState of differing names is refused on all ranks");
    tap_ok(
        DMuonOptimizerGetState(opt[0], 0, "momentum", state, other ? 1 : 0) == DMUON_ERR_DISAGREE,
        "of differing roots too");
  }
  tap_ok(!DMuonOptimizerGetState(opt[0], 0, "momentum", state, DMUON_ALL), "of the same it is not");
  tap_ok(DMuonOptimizerGetState(opt[0], 0, "exp_avg", state, DMUON_ALL) == DMUON_ERR_NOT_FOUND,
         "a state that there is not is not found");
}

static void arrays_that_are_not_apart(void) {
  float before[N * N];
  memcpy(before, w[0], sizeof before);
  tap_ok(DMuonOptimizerSetArrays(opt[0], 0, g[0], g[0]) == DMUON_ERR_ARGUMENT,
         "weights that are the gradients are refused");
  tap_contains(DMuonErrorGetMessage(), "layers.0.weight", "and named");
  tap_ok(!DMuonOptimizerStep(opt[0]) && memcmp(before, w[0], sizeof before),
         "the arrays from before are still in use");
  memcpy(spare, w[0], sizeof spare);
  tap_ok(!DMuonOptimizerSetArrays(opt[0], 0, spare, g[0]), "an array of its own is taken");
  memcpy(before, spare, sizeof before);
  tap_ok(!DMuonOptimizerStep(opt[0]) && memcmp(before, spare, sizeof before), "and updated");
}

static void values_out_of_range(void) {
  double lr;
  tap_ok(DMuonOptimizerSetLearningRateFactor(opt[0], 1e300) == DMUON_ERR_ARGUMENT &&
             DMuonOptimizerSetLearningRateFactor(opt[0], NAN) == DMUON_ERR_ARGUMENT &&
             DMuonOptimizerSetLearningRateFactor(opt[0], -1) == DMUON_ERR_ARGUMENT,
         "learning rate factors that make no sense are refused");
  tap_ok(!DMuonOptimizerGetHyper(opt[0], 0, DMUON_HYPER_LR, &lr) && lr == 0.02,
         "the rule said as an option replaced the program's rate, and stays");
  tap_ok(!DMuonOptimizerGetHyper(opt[1], 0, DMUON_HYPER_LR, &lr) && lr == 0.5,
         "of the optimizer it was said of alone");
  const char *value, *source;
  tap_ok(!DMuonMeshGetOption(mesh, "gen.rule", &value, &source), "the option can be asked for");
  tap_is_string(value, "dmuon", "it has its value");
  tap_is_string(source, "command line", "and its source");
}

/* A plan without ranks cannot be stepped, and says so with a name. */
static void plan_refused(void) {
  const int64_t dims[] = {N, N};
  DMuonMesh plan = NULL;
  DMuonModel parameters = NULL;
  DMuonOptimizer none = NULL;
  tap_ok(!DMuonMeshCreatePlan(2, 2, 1, &plan) && !DMuonModelCreate(plan, &parameters) &&
             !DMuonModelAddParam(parameters, "layers.0.w", DMUON_FLOAT32, 2, dims, NULL) &&
             !DMuonOptimizerCreate(parameters, &none),
         "an optimizer on a plan");
  tap_ok(DMuonOptimizerSetUp(none) == DMUON_ERR_UNSUPPORTED, "is not set up");
  tap_contains(DMuonErrorGetMessage(), "mesh \"mesh\" is a plan", "and says why");
  DMuonOptimizerDestroy(&none);
  DMuonModelDestroy(&parameters);
  DMuonMeshDestroy(&plan);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_ok(!create(), "two optimizers");
  stepped_in_another_order();
  asked_for_another_state();
  arrays_that_are_not_apart();
  values_out_of_range();
  plan_refused();
  for (int k = 0; k < 2; k++) {
    DMuonOptimizerDestroy(&opt[k]);
    DMuonModelDestroy(&model[k]);
  }
  DMuonMeshDestroy(&mesh);
  return tap_mpi_done();
}
