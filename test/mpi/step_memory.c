/* The memory that a rank takes at most is what the plan says, on every rank and mesh; and with a
 * few equal matrices a slot, copies of values fall as 1/G, masters and momentum as 1/(R G). */
#include <dmuon.h>

#include "engine/plan.h"
#include "optim/optimizer.h"
#include "tap_mpi.h"

/* Others where the makefile says so. */
#ifndef TEST_DEVICE
#define TEST_DEVICE "host"
#define TEST_SIDE 160
#endif

enum { LAYERS = 4, MATRICES = 4, SIDE = TEST_SIDE };
static const int64_t elements = (int64_t)LAYERS * MATRICES * SIDE * SIDE;
static void *weights[LAYERS][MATRICES], *gradients[LAYERS][MATRICES];

typedef struct {
  const char *what, *reshard, *unshard;
  DMuonDType dtype;
  DMuonRoute route;
  int is_array;
} way;

static const way ways[] = {
    {"fp32, Z3", "z3", "broadcast", DMUON_FLOAT32, DMUON_ROUTE_MUON, 0},
    {"bf16, Z3", "z3", "broadcast", DMUON_BFLOAT16, DMUON_ROUTE_MUON, 0},
    {"bf16, Z2", "z2", "broadcast", DMUON_BFLOAT16, DMUON_ROUTE_MUON, 0},
    {"bf16, gathered", "z3", "all_gather", DMUON_BFLOAT16, DMUON_ROUTE_MUON, 0},
    {"bf16, flat AdamW", "z3", "broadcast", DMUON_BFLOAT16, DMUON_ROUTE_ADAMW_SHARDED, 0},
    {"fp32, arrays of the caller's", "z3", "broadcast", DMUON_FLOAT32, DMUON_ROUTE_MUON, 1},
};

typedef struct {
  DMuonMesh mesh;
  DMuonOptimizer opt;
  int is_array;   /* the matrices; the bias is lent */
  int64_t before; /* bytes, when the optimizer's SetUp began */
} run;

/* The caller's arrays, all zeros, where the mesh computes. */
static DMuonErrorCode make_array(run *u, void **array) {
  static const float zeros[SIDE * SIDE];
  DMUON_CALL(DMuonMeshAlloc(u->mesh, sizeof zeros, array));
  return DMuonMeshCopy(u->mesh, *array, zeros, sizeof zeros);
}

static void close_run(run *u) {
  DMuonOptimizerDestroy(&u->opt);
  for (int l = 0; l < LAYERS; l++)
    for (int m = 0; m < MATRICES; m++) {
      DMuonMeshFree(u->mesh, &weights[l][m]);
      DMuonMeshFree(u->mesh, &gradients[l][m]);
    }
  DMuonMeshDestroy(&u->mesh);
}

static DMuonErrorCode make(run *u, int R, int G, const way *w) {
  const int64_t matrix[] = {SIDE, SIDE}, vector[] = {SIDE};
  DMuonModel model;
  char name[64];
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &u->mesh));
  DMUON_CALL(DMuonMeshSetSizes(u->mesh, R, G, 1));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "device", TEST_DEVICE));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "reshard", w->reshard));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "muon_forward_unshard", w->unshard));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "pack_small_params", "0")); /* each matrix by itself */
  DMUON_CALL(DMuonMeshSetUp(u->mesh));
  DMUON_CALL(DMuonModelCreate(u->mesh, &model));
  for (int l = 0; l < LAYERS; l++) {
    for (int m = 0; m < MATRICES; m++) {
      snprintf(name, sizeof name, "layers.%d.w%d", l, m);
      if (w->is_array) {
        DMUON_CALL(make_array(u, &weights[l][m]));
        DMUON_CALL(make_array(u, &gradients[l][m]));
        DMUON_CALL(DMuonModelAddParamArray(model, name, w->dtype, 2, matrix, weights[l][m],
                                           gradients[l][m], NULL));
      } else {
        DMUON_CALL(DMuonModelAddParam(model, name, w->dtype, 2, matrix, NULL));
      }
      DMUON_CALL(DMuonModelSetRoute(model, name, w->route));
    }
    snprintf(name, sizeof name, "layers.%d.bias", l);
    DMUON_CALL(DMuonModelAddParam(model, name, w->dtype, 1, vector, NULL));
  }
  DMUON_CALL(DMuonOptimizerCreate(model, &u->opt));
  DMUON_CALL(DMuonModelDestroy(&model));
  dmuon_memory *memory = &u->mesh->context.memory;
  u->before = memory->peak_bytes = memory->bytes;
  return DMuonOptimizerSetUp(u->opt);
}

static DMuonErrorCode pass(run *u, DMuonPass kind) {
  DMuonGroup group;
  void *grad;
  DMUON_CALL(DMuonOptimizerBeginPass(u->opt, kind));
  for (int g = 0; g < LAYERS; g++) {
    DMUON_CALL(DMuonOptimizerGetGroup(u->opt, g, &group));
    DMUON_CALL(DMuonGroupForwardBegin(group));
    DMUON_CALL(DMuonGroupForwardEnd(group));
  }
  for (int g = LAYERS; kind != DMUON_PASS_EVAL && g-- > 0;) {
    const int *ids;
    int count;
    DMUON_CALL(DMuonOptimizerGetGroup(u->opt, g, &group));
    DMUON_CALL(DMuonGroupBackwardBegin(group));
    DMUON_CALL(DMuonGroupGetParams(group, &count, &ids));
    for (int i = 0; i < count; i++)
      if (!u->is_array || i == count - 1) DMUON_CALL(DMuonGroupGetGrad(group, ids[i], &grad));
    DMUON_CALL(DMuonGroupBackwardEnd(group));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode train(run *u) {
  DMUON_CALL(pass(u, DMUON_PASS_TRAIN));
  DMUON_CALL(DMuonOptimizerStep(u->opt));
  DMUON_CALL(pass(u, DMUON_PASS_EVAL));
  DMUON_CALL(pass(u, DMUON_PASS_TRAIN));
  DMUON_CALL(pass(u, DMUON_PASS_TRAIN));
  DMUON_CALL(DMuonOptimizerStep(u->opt));
  return DMuonOptimizerWait(u->opt);
}

static dmuon_memory_plan plan_of(const run *u) {
  const dmuon_plan plan = {&u->opt->model->registry, &u->opt->runtime.packing, &u->opt->lend.groups,
                           &u->opt->lend.settings};
  return dmuon_plan_memory(&plan, u->opt->plans);
}

/* The largest distance over the ranks, as a part of the plan. */
static double distance(int64_t measured, int64_t planned) {
  double mine = fabs((double)(measured - planned)) / (double)planned, worst;
  MPI_Request request;
  if (mine > .05)
    fprintf(stderr, "# rank %d: %lld bytes, planned %lld\n", tap_rank, (long long)measured,
            (long long)planned);
  MPI_Iallreduce(&mine, &worst, 1, MPI_DOUBLE, MPI_MAX, tap_comm, &request);
  tap_mpi_wait(&request);
  return worst;
}

static int is_near(int64_t got, int64_t want) {
  return llabs(got - want) <= want / 50 + 4096;
}

static void check(int R, int G, const way *w) {
  run u = {.is_array = w->is_array};
  dmuon_memory_plan plan = {0};
  const int64_t value = w->dtype == DMUON_BFLOAT16 ? 2 : 4;
  DMuonErrorCode code = make(&u, R, G, w);
  const dmuon_memory *memory = code ? NULL : &u.mesh->context.memory;
  if (!code) code = train(&u);
  if (code) fprintf(stderr, "# %s\n", DMuonErrorGetMessage());
  if (!tap_ok(!code, "%d x %d, %s: runs", R, G, w->what)) return;
  plan = plan_of(&u);
  /* What is the same for every model hides nothing. */
  const int64_t queues = plan.queues;
  double off =
      distance(memory->peak_bytes - u.before - queues, dmuon_memory_plan_total(&plan) - queues);
  tap_ok(off <= .05, "%d x %d, %s: high-water within 5%% of the plan (%.1f%%; here %.2f MB)", R, G,
         w->what, 100 * off, 1e-6 * (double)(memory->peak_bytes - u.before));

  code = w->is_array ? DMuonOptimizerAccumulate(u.opt) : DMUON_SUCCESS;
  if (!code) code = pass(&u, DMUON_PASS_ACCUMULATE);
  if (!code) code = pass(&u, DMUON_PASS_TRAIN);
  if (!code) code = DMuonOptimizerStep(u.opt);
  off = distance(memory->peak_bytes - u.before - queues,
                 dmuon_memory_plan_total(&plan) - queues + plan.accumulators);
  tap_ok(!code && off <= .05, "%d x %d, %s: local accumulation too (%.1f%%)", R, G, w->what,
         100 * off);

  const int is_adamw = w->route != DMUON_ROUTE_MUON;
  const int64_t staged = strcmp(w->unshard, "broadcast") != 0 ? value * elements / (R * G)
                                                              : 0; /* on their way to homes */
  tap_ok(is_near(plan.homes, w->is_array ? 0 : value * elements / G + staged) &&
             is_near(plan.masters, value == 4 ? 0 : 4 * elements / (R * G)) &&
             is_near(plan.state, (is_adamw ? 8 : 4) * elements / (R * G)),
         "%d x %d, %s: values are 1/G, masters and state 1/(R G)", R, G, w->what);
  close_run(&u);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  for (int R = 1; R <= tap_size; R++)
    for (size_t w = 0; tap_size % R == 0 && w < sizeof ways / sizeof ways[0]; w++)
      check(R, tap_size / R, &ways[w]);
  return tap_mpi_done();
}
