/* A rank gives up: pending and later calls of every rank say so, with its number and its reason, at
 * once; whatever is under way, a matrix of 64 MB included, keeps nobody from going on, and a new
 * mesh over the same communicator works to the right bits. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "left_to_mpi.h"
#include "step_case.h"
#include "tap_mpi.h"

enum { VICTIM = 2, STEPS = 2 };
#define SOON 60.0 /* seconds: far below the timeout, far above what a loaded machine needs */

static const char reason[] = "cannot read data shard 7";
static uint64_t expected;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void nap(double seconds) {
  struct timespec left = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
  nanosleep(&left, NULL);
}

/* The code, and a message with rank and reason. */
static int is_revoked(DMuonErrorCode code, int rank, const char *why) {
  char who[32];
  snprintf(who, sizeof who, "rank %d of ", rank);
  const int good = code == DMUON_ERR_REVOKED && strstr(DMuonErrorGetMessage(), who) &&
                   strstr(DMuonErrorGetMessage(), "gave up: ") &&
                   strstr(DMuonErrorGetMessage(), why);
  if (!good)
    fprintf(stderr, "# rank %d: %s: %s\n", tap_rank, DMuonErrorGetName(code),
            code ? DMuonErrorGetMessage() : "");
  return good;
}

/* ---- a small model, and what it comes to without accidents ----------------------------------- */

static void goes_on(const char *label) {
  uint64_t hash = 0;
  const DMuonErrorCode code = case_good_run(STEPS, &hash);
  if (!tap_ok(!code && hash == expected, "%s: a new mesh goes on, to the right bits", label) &&
      code)
    fprintf(stderr, "# rank %d: %s\n", tap_rank, DMuonErrorGetMessage());
}

typedef enum { AT_MESH_SET_UP, AT_SET_UP, AT_STEP, AT_STATE, BEHIND_A_STEP, IN_OWN_MPI } place;

/* One rank revokes where the others call. */
static void revoked(const char *label, place where, const char *device) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  static double data[512];
  const int victim = tap_rank == VICTIM;
  DMuonErrorCode code = case_open(MPI_COMM_WORLD, device, where == BEHIND_A_STEP, &mesh, &c);
  if (!code && where > AT_MESH_SET_UP) code = DMuonMeshSetUp(mesh);
  if (!code && where > AT_SET_UP) code = case_set_up(mesh, &c);
  if (!code && where > AT_STEP) code = case_step(&c, 0);
  if (!tap_ok(!code, "%s: until then no call fails", label)) tap_diag("%s", DMuonErrorGetMessage());
  tap_mpi_barrier();
  const double began = now();
  if (victim) {
    if (where != BEHIND_A_STEP) nap(.1); /* the others are waiting by then */
    code = DMuonMeshRevoke(mesh, reason);
  }
  if (where == IN_OWN_MPI) tap_mpi_barrier();
  if (!victim) {
    switch (where) {
      case AT_MESH_SET_UP:
        code = DMuonMeshSetUp(mesh);
        break;
      case AT_SET_UP:
        code = case_set_up(mesh, &c);
        break;
      case AT_STATE:
        code = DMuonOptimizerGetState(c.opt, c.id[0], "momentum", data, DMUON_ALL);
        break;
      case BEHIND_A_STEP: /* the step itself may have been done before */
        code = DMuonOptimizerWait(c.opt);
        if (!code) code = case_step(&c, 1);
        break;
      default:
        code = case_step(&c, 1);
    }
  }
  tap_ok(is_revoked(code, VICTIM, reason), "%s: all hear, with rank and reason", label);
  tap_ok(now() - began < SOON, "%s: soon", label);

  int shard = 0, good = 1;
  const double again = now();
  good &= is_revoked(DMuonMeshRevoke(mesh, "another"), VICTIM, reason);
  good &= is_revoked(DMuonMeshSetUp(mesh), VICTIM, reason);
  good &= is_revoked(DMuonMeshProgress(mesh), VICTIM, reason);
  if (where > AT_SET_UP) {
    char *json = NULL;
    good &= is_revoked(DMuonOptimizerStep(c.opt), VICTIM, reason);
    good &= is_revoked(DMuonOptimizerWait(c.opt), VICTIM, reason);
    good &= is_revoked(DMuonOptimizerSyncArrays(c.opt, 0), VICTIM, reason);
    good &= !DMuonMeshGetSizes(mesh, NULL, &shard, NULL) && shard == tap_size / 2;
    good &= !DMuonMeshView(mesh, "/dev/null") && !DMuonMeshSummary(mesh, &json);
    good &= !DMuonOptimizerView(c.opt, "/dev/null");
    DMuonFree(json);
  }
  tap_ok(good && now() - again < SOON, "%s: later calls say so at once, it can still be viewed",
         label);
  case_destroy(&c);
  tap_ok(!DMuonMeshDestroy(&mesh) && !mesh, "%s: destroyed", label);
  goes_on(label);
}

/* ---- a matrix of 64 MB ----------------------------------------------------------------------- */

enum { SIDE = 4096 };

/* Step has returned with the rest behind it; the rank with (or without) the matrix gives up. The
 * matrix goes to AdamW: what counts is its way. */
static void large(const char *axis, int owner, int wait_first) {
  static const int64_t dims[] = {SIDE, SIDE};
  const size_t numel = (size_t)SIDE * SIDE;
  float *w = calloc(numel, sizeof *w), *g = calloc(numel, sizeof *g);
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonPartition part = NULL;
  DMuonOptimizer opt = NULL;
  char label[80];
  snprintf(label, sizeof label, "64 MB on the %s axis, %s", axis,
           owner == VICTIM ? "its owner" : "another than its owner");
  for (size_t i = 0; i < numel; i++) g[i] = (float)(i % 7) - 3;
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  if (!code) code = DMuonMeshSetOption(mesh, axis, "4");
  if (!code) code = DMuonModelCreate(mesh, &model);
  if (!code)
    code = DMuonModelAddParamArray(model, "layers.0.weight", DMUON_FLOAT32, 2, dims, w, g, NULL);
  if (!code) code = DMuonModelSetRoute(model, "*", DMUON_ROUTE_ADAMW);
  if (!code) code = DMuonPartitionCreate(model, &part);
  const int r = *axis == 'r' ? owner : 0, s = *axis == 'r' ? 0 : owner;
  if (!code) code = DMuonPartitionSetOwner(part, "*", r, s, 0);
  if (!code) code = DMuonOptimizerCreate(model, &opt);
  if (!code) code = DMuonOptimizerSetPartition(opt, part);
  if (!code) code = DMuonOptimizerSetAsync(opt, 1);
  if (!code) code = DMuonOptimizerSetInitialRoot(opt, DMUON_ALL);
  if (!code) code = DMuonOptimizerSetUp(opt);
  if (!code) code = DMuonOptimizerStep(opt);
  if (!tap_ok(!code, "%s: a step is under way", label)) tap_diag("%s", DMuonErrorGetMessage());
  const double began = now();
  if (tap_rank == VICTIM) {
    if (wait_first) nap(.05);
    code = DMuonMeshRevoke(mesh, reason);
  } else {
    code = DMuonOptimizerWait(opt);
    if (!code) code = DMuonOptimizerStep(opt);
    if (!code) code = DMuonOptimizerStep(opt);
  }
  tap_ok(is_revoked(code, VICTIM, reason) && now() - began < SOON, "%s: gives up, all hear soon",
         label);
  DMuonOptimizerDestroy(&opt);
  DMuonPartitionDestroy(&part);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
  free(w);
  free(g);
  goes_on(label);
}

/* ---- between brackets ------------------------------------------------------------------------ */

typedef enum { BEFORE_FORWARD, IN_FORWARD, BEFORE_BACKWARD, BEHIND_BACKWARD, PLACES } bracket;
enum { LAYERS = 3, LENT_ROWS = 2048, LENT_COLS = 1024 }; /* 8 MB each */

/* One pass; in its middle layer the victim gives up. The next layer's values, or the last one's
 * gradients, are on their way then. */
static DMuonErrorCode pass(DMuonMesh mesh, DMuonOptimizer opt, bracket where) {
  DMuonGroup group;
  const void *data;
  void *grad;
  const int at = tap_rank == VICTIM ? LAYERS / 2 : -1;
  DMUON_CALL(DMuonOptimizerBeginPass(opt, DMUON_PASS_TRAIN));
  for (int l = 0; l < LAYERS; l++) {
    DMUON_CALL(DMuonOptimizerGetGroup(opt, l, &group));
    if (l == at && where == BEFORE_FORWARD) return DMuonMeshRevoke(mesh, reason);
    DMUON_CALL(DMuonGroupForwardBegin(group));
    DMUON_CALL(DMuonGroupGetArrays(group, &data, NULL));
    if (l == at && where == IN_FORWARD) return DMuonMeshRevoke(mesh, reason);
    DMUON_CALL(DMuonGroupForwardEnd(group));
  }
  for (int l = LAYERS; l-- > 0;) {
    DMUON_CALL(DMuonOptimizerGetGroup(opt, l, &group));
    if (l == at && where == BEFORE_BACKWARD) return DMuonMeshRevoke(mesh, reason);
    DMUON_CALL(DMuonGroupBackwardBegin(group));
    DMUON_CALL(DMuonGroupGetArrays(group, &data, &grad));
    memset(grad, 0, sizeof(float) * LENT_ROWS * LENT_COLS);
    DMUON_CALL(DMuonGroupBackwardEnd(group));
    if (l == at && where == BEHIND_BACKWARD) return DMuonMeshRevoke(mesh, reason);
  }
  return DMuonOptimizerStep(opt);
}

static void lent(bracket where, const char *device) {
  static const int64_t dims[] = {LENT_ROWS, LENT_COLS};
  static const char *const names[PLACES] = {"before a forward", "in a forward", "before a backward",
                                            "behind a backward"};
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  DMuonGroup group;
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  if (!code) code = DMuonMeshSetSizes(mesh, 2, 2, 1);
  if (!code) code = DMuonMeshSetOption(mesh, "device", device);
  if (!code) code = DMuonModelCreate(mesh, &model);
  if (!code)
    code = DMuonModelAddStack(model, "layers.%d.weight", 0, LAYERS, DMUON_FLOAT32, 2, dims, NULL);
  if (!code) code = DMuonModelSetRoute(model, "*", DMUON_ROUTE_ADAMW);
  if (!code) code = DMuonOptimizerCreate(model, &opt);
  if (!code) code = DMuonOptimizerSetUp(opt);
  if (!code) code = pass(mesh, opt, PLACES); /* all is well */
  if (!tap_ok(!code, "%s, %s: until then no call fails", names[where], device))
    tap_diag("%s", DMuonErrorGetMessage());
  const double began = now();
  if (!code) code = pass(mesh, opt, where);
  /* An asynchronous Step returns before anything of it is waited for. */
  if (!code) code = DMuonOptimizerWait(opt);
  tap_ok(is_revoked(code, VICTIM, reason) && now() - began < SOON, "%s, %s: all hear, soon",
         names[where], device);
  int good = is_revoked(DMuonOptimizerBeginPass(opt, DMUON_PASS_TRAIN), VICTIM, reason);
  if (DMuonOptimizerGetGroup(opt, 0, &group) == DMUON_SUCCESS)
    good &= is_revoked(DMuonGroupForwardBegin(group), VICTIM, reason);
  tap_ok(good, "%s, %s: later calls say so", names[where], device);
  DMuonModelDestroy(&model);
  DMuonOptimizerDestroy(&opt);
  DMuonMeshDestroy(&mesh);
  goes_on(names[where]);
}

/* ---- several meshes -------------------------------------------------------------------------- */

/* One on all ranks, one on pairs; the second pair's is given up. */
static void overlapping(void) {
  MPI_Comm pair;
  DMuonMesh all = NULL, mine = NULL;
  step_case a = {0}, b = {0};
  const int broken = tap_rank / 2 == VICTIM / 2;
  int good = 1;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &pair);
  DMuonErrorCode code = case_open(MPI_COMM_WORLD, "host", 0, &all, &a);
  if (!code) code = case_set_up(all, &a);
  if (!code) code = DMuonMeshCreate(pair, &mine);
  if (!code) code = DMuonMeshSetName(mine, "pair");
  if (!code) code = case_create(mine, &b);
  if (!code) code = case_set_up(mine, &b);
  if (!code) code = case_step(&b, 0);
  if (!tap_ok(!code, "two meshes")) tap_diag("%s", DMuonErrorGetMessage());
  if (tap_rank == VICTIM) (void)DMuonMeshRevoke(mine, reason);
  for (int t = 0; t < STEPS && !code; t++) code = case_step(&a, t);
  tap_ok(!code && case_hash(&a) == expected, "one is given up, the other goes on");
  code = case_step(&b, 1);
  if (broken)
    good = is_revoked(code, VICTIM % 2, reason) && strstr(DMuonErrorGetMessage(), "\"pair\"");
  else
    good = !code;
  tap_ok(good, "it is broken for its ranks, by name, and fine for another pair");
  code = case_step(&a, STEPS);
  tap_ok(!code, "the other still goes on");
  case_destroy(&b);
  DMuonMeshDestroy(&mine);
  code = DMuonMeshCreate(pair, &mine);
  if (!code) code = DMuonMeshSetUp(mine);
  tap_ok(!code, "a new one on the pairs");
  case_destroy(&a);
  DMuonMeshDestroy(&all);
  DMuonMeshDestroy(&mine);
  MPI_Comm_free(&pair);
}

/* One optimizer on two meshes: giving up the stage of ranks 2 and 3 gives up all of it. */
static void tied(int own_stage, int silent) {
  enum { N = 8 };
  static const int64_t dims[] = {N, N};
  static float w[N * N], e[N * N], g[N * N], h[N * N];
  MPI_Comm stage;
  DMuonMesh all = NULL, mine = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  const char *label = silent ? "a stage that times out" : own_stage ? "a stage" : "the whole";
  for (int i = 0; i < N * N; i++) g[i] = h[i] = (float)(1 + i % 5);
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &stage);
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_WORLD, &all);
  if (!code) code = DMuonMeshCreate(stage, &mine);
  if (!code) code = DMuonModelCreate(all, &model);
  if (!code)
    code = DMuonModelAddStackArray(model, "layers.%d.weight", tap_rank / 2, 1, DMUON_FLOAT32, 2,
                                   dims, w, g, NULL);
  if (!code) code = DMuonModelAddParamArray(model, "embed", DMUON_FLOAT32, 2, dims, e, h, NULL);
  if (!code) code = DMuonModelSetMesh(model, "layers.*", mine, NULL);
  if (!code) code = DMuonModelSetMesh(model, "embed", all, mine);
  if (!code) code = DMuonOptimizerCreate(model, &opt);
  if (!code) code = DMuonOptimizerSetUp(opt);
  if (!code) code = DMuonOptimizerStep(opt);
  if (!tap_ok(!code, "%s: one optimizer on several meshes", label))
    tap_diag("%s", DMuonErrorGetMessage());
  tap_mpi_barrier();
  const double began = now();
  int good;
  if (silent && tap_rank == VICTIM) {
    DMuonMeshSetTimeout(mine, .3);
    code = DMuonMeshView(mine, "/dev/null"); /* its peer in the stage is in Step */
    good = code == DMUON_ERR_TIMEOUT && DMuonOptimizerStep(opt) == DMUON_ERR_TIMEOUT;
  } else {
    if (tap_rank == VICTIM)
      code = DMuonMeshRevoke(own_stage ? mine : all, reason);
    else
      code = DMuonOptimizerStep(opt);
    const int rank = tap_rank == VICTIM && own_stage ? VICTIM % 2 : VICTIM; /* in its mesh */
    good = is_revoked(code, rank, silent ? "within the timeout" : reason);
  }
  tap_ok(good && now() - began < SOON, "%s: all ranks of the model hear", label);
  code = DMuonMeshView(mine, "/dev/null");
  tap_ok(!code && DMuonErrorIsFatal(DMuonMeshProgress(mine)) &&
             DMuonErrorIsFatal(DMuonMeshProgress(all)),
         "%s: both meshes are broken on every rank", label);
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mine);
  DMuonMeshDestroy(&all);
  MPI_Comm_free(&stage);
  goes_on(label);
}

/* ---- arguments and corners ------------------------------------------------------------------- */

static void corners(void) {
  DMuonMesh mesh = NULL, plan = NULL, other = NULL;
  static char endless[3000];
  memset(endless, 'x', sizeof endless - 1);
  tap_is_int(DMuonMeshRevoke(NULL, "why"), DMUON_ERR_ARGUMENT, "no mesh");
  DMuonErrorCode code = DMuonMeshCreatePlan(2, 2, 1, &plan);
  tap_ok(!code && DMuonMeshRevoke(plan, "why") == DMUON_ERR_STATE, "a plan mesh");
  DMuonMeshDestroy(&plan);

  code = DMuonMeshCreate(MPI_COMM_SELF, &mesh);
  if (!code) code = DMuonMeshCreate(MPI_COMM_WORLD, &other);
  if (!code) code = DMuonMeshSetUp(mesh);
  tap_ok(!code && is_revoked(DMuonMeshRevoke(mesh, NULL), 0, "no reason given") &&
             is_revoked(DMuonMeshProgress(mesh), 0, "no reason given"),
         "a mesh of one rank, without a reason");
  tap_ok(!DMuonMeshSetUp(other), "another goes on");
  DMuonMeshDestroy(&mesh);
  tap_mpi_barrier();

  /* All at once, each with its own: the first that a rank knows of stays. */
  char mine[32];
  snprintf(mine, sizeof mine, "tired, says %d", tap_rank);
  code = DMuonMeshRevoke(other, mine);
  char first[512];
  snprintf(first, sizeof first, "%.*s", (int)strcspn(DMuonErrorGetMessage(), "\n"),
           DMuonErrorGetMessage());
  tap_ok(code == DMUON_ERR_REVOKED && strstr(first, "tired, says"), "all give up at once");
  tap_mpi_barrier();
  code = DMuonMeshProgress(other);
  tap_ok(code == DMUON_ERR_REVOKED && !strncmp(first, DMuonErrorGetMessage(), strlen(first)),
         "the first reason stays");
  DMuonMeshDestroy(&other);

  code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  tap_ok(!code, "a mesh");
  if (tap_rank == VICTIM) (void)DMuonMeshRevoke(mesh, endless);
  code = DMuonMeshSetUp(mesh);
  tap_ok(is_revoked(code, VICTIM, "xxxxxxxxxx"), "a reason without end");
  DMuonMeshDestroy(&mesh);

  /* Some ranks never look before they destroy. */
  code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  if (!code) code = DMuonMeshSetUp(mesh);
  if (!code && tap_rank == VICTIM) (void)DMuonMeshRevoke(mesh, reason);
  DMuonMeshDestroy(&mesh);
  tap_ok(!code, "destroyed without looking");
  goes_on("after all of that");
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  if (tap_size != 4) {
    tap_skip_all("wants 4 ranks");
    return tap_mpi_done();
  }
  const DMuonErrorCode code = case_good_run(STEPS, &expected);
  if (!tap_ok(!code, "nobody gives up")) tap_diag("%s", DMuonErrorGetMessage());
  revoked("others set up the mesh", AT_MESH_SET_UP, "host");
  revoked("others set up", AT_SET_UP, "host");
  revoked("others step", AT_STEP, "host");
  revoked("others ask for a state", AT_STATE, "host");
  revoked("a step is under way", BEHIND_A_STEP, "host");
  revoked("a deferred step is under way", BEHIND_A_STEP, "host:deferred,seed=3");
  revoked("others are in communication of their own", IN_OWN_MPI, "host");
  large("shard", VICTIM, 0);
  large("shard", 0, 1);
  large("replicate", VICTIM, 1);
  large("replicate", 3, 0);
  for (int where = 0; where < PLACES; where++) lent((bracket)where, "host");
  lent(IN_FORWARD, "host:deferred,seed=5");
  lent(BEHIND_BACKWARD, "host:deferred,seed=5");
  overlapping();
  tied(1, 0);
  tied(0, 0);
  tied(1, 1);
  corners();
  return tap_mpi_done();
}
