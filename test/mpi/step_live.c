/* Life around the step: arrays that move, weights that come late, ranks that start differently,
 * steps that nobody waits for, handles given up early, the caller's own traffic; and what a step
 * costs: no allocation, one Newton-Schulz a matrix, the bytes that the plan says. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mesh/mesh.h"
#include "reference.h"
#include "step_case.h"
#include "tap_mpi.h"

enum { STEPS = 3 };

#define CHECKED(call, ...)                                                      \
  do {                                                                          \
    const DMuonErrorCode checked = (call);                                      \
    if (!tap_ok(!checked, __VA_ARGS__)) tap_diag("%s", DMuonErrorGetMessage()); \
  } while (0)

static uint64_t expected[STEPS + 1]; /* hash of the mixed model after so many plain steps */

static DMuonErrorCode open_case(MPI_Comm comm, const char *device, int async, DMuonMesh *mesh,
                                step_case *c) {
  DMUON_CALL(DMuonMeshCreate(comm, mesh));
  if (device) DMUON_CALL(DMuonMeshSetOption(*mesh, "device", device));
  DMUON_CALL(case_create(*mesh, c));
  DMUON_CALL(DMuonOptimizerSetAsync(c->opt, async));
  return DMUON_SUCCESS;
}

static void close_case(DMuonMesh *mesh, step_case *c) {
  case_destroy(c);
  DMuonMeshDestroy(mesh);
}

static DMuonErrorCode step_case_once(step_case *c, int step) {
  case_fill_gradients(c, step, 0);
  return DMuonOptimizerStep(c->opt);
}

static DMuonErrorCode plain_run(void) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 0, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  expected[0] = case_hash(&c);
  for (int t = 0; t < STEPS; t++) {
    DMUON_CALL(step_case_once(&c, t));
    expected[t + 1] = case_hash(&c);
  }
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Weights and gradients live somewhere else in every step; the old memory is spoilt. */
static DMuonErrorCode moving_arrays(int async) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, async, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int t = 0; t < STEPS; t++) {
    DMUON_CALL(DMuonOptimizerWait(c.opt));
    void *old[CASE_PARAMS][2];
    for (int p = 0; p < CASE_PARAMS; p++) {
      const size_t bytes = (size_t)(c.numel[p] + 1) * 8;
      old[p][0] = c.weight[p], old[p][1] = c.gradient[p];
      c.weight[p] = malloc(bytes);
      c.gradient[p] = malloc(bytes);
      memcpy(c.weight[p], old[p][0], bytes);
      memset(old[p][0], 0xff, bytes);
      memset(old[p][1], 0xff, bytes);
      DMUON_CALL(DMuonOptimizerSetArrays(c.opt, c.id[p], c.weight[p], c.gradient[p]));
    }
    DMUON_CALL(step_case_once(&c, t));
    for (int p = 0; p < CASE_PARAMS; p++) free(old[p][0]), free(old[p][1]);
  }
  DMUON_CALL(DMuonOptimizerWait(c.opt));
  tap_ok(case_hash(&c) == expected[STEPS], "arrays that move every step (async %d)", async);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* Registered without arrays: weights come before SetUp, gradients after it. */
static DMuonErrorCode late_arrays(void) {
  static const int64_t dims[] = {6, 4};
  float early[24], late[24], gradient[2][24];
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  int id[2], rank;
  for (int i = 0; i < 24; i++) early[i] = late[i] = (float)case_weight(0, i);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonModelCreate(mesh, &model));
  DMUON_CALL(DMuonModelAddParamArray(model, "layers.0.early", DMUON_FLOAT32, 2, dims, early,
                                     gradient[0], &id[0]));
  DMUON_CALL(
      DMuonModelAddParamArray(model, "layers.0.late", DMUON_FLOAT32, 2, dims, NULL, NULL, &id[1]));
  DMUON_CALL(DMuonOptimizerCreate(model, &opt));
  const DMuonErrorCode refused = DMuonOptimizerSetUp(opt);
  tap_is_int(refused, DMUON_ERR_SETUP, "no weights at SetUp: refused");
  tap_contains(DMuonErrorGetMessage(), "layers.0.late", "the message names the parameter");
  DMUON_CALL(DMuonOptimizerSetArrays(opt, id[1], late, NULL));
  DMUON_CALL(DMuonOptimizerSetUp(opt));
  DMUON_CALL(DMuonMeshGetDataRank(mesh, &rank, NULL));
  for (int i = 0; i < 24; i++)
    gradient[0][i] = gradient[1][i] = (float)case_gradient(0, i, rank, 0, 0);
  DMUON_CALL(DMuonOptimizerStep(opt));
  int untouched = 1;
  for (int i = 0; i < 24; i++) untouched = untouched && late[i] == (float)case_weight(0, i);
  tap_ok(untouched, "without a gradient anywhere a parameter stays as it is");
  DMUON_CALL(DMuonOptimizerSetArrays(opt, id[1], late, gradient[1]));
  DMUON_CALL(DMuonOptimizerSetArrays(opt, id[0], early, NULL));
  DMUON_CALL(DMuonOptimizerStep(opt));
  tap_ok(!memcmp(early, late, sizeof early), "arrays given late make the same step, later");
  tap_is_int(DMuonOptimizerSetArrays(opt, id[1], NULL, gradient[1]), DMUON_ERR_ARGUMENT,
             "weights cannot go away after SetUp");
  tap_is_int(DMuonOptimizerSetArrays(opt, 2, late, gradient[1]), DMUON_ERR_ARGUMENT,
             "an id that is none");
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
  return DMUON_SUCCESS;
}

/* ---- ranks that start differently ------------------------------------------------------------ */

static void own_weights(step_case *c, int rank) {
  for (int p = 0; p < CASE_PARAMS; p++)
    for (int64_t i = 0; i < c->numel[p]; i++)
      case_store(case_params[p].dtype, c->weight[p], i, case_gradient(p, i, rank, 99, 0));
}

static uint64_t hash_of_own(step_case *c, int rank) {
  own_weights(c, rank);
  return case_hash(c);
}

/* Every parameter's master is its value (in fp32: exactly). */
static DMuonErrorCode masters_follow(step_case *c, int *good) {
  float master[64];
  *good = 1;
  DMUON_CALL(DMuonOptimizerGetState(c->opt, c->id[CASE_BRAIN], "master", master, DMUON_ALL));
  for (int64_t i = 0; i < c->numel[CASE_BRAIN]; i++)
    if (master[i] != (float)case_load(DMUON_BFLOAT16, c->weight[CASE_BRAIN], i)) *good = 0;
  return DMUON_SUCCESS;
}

static DMuonErrorCode initial_root(int root) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  int good, rank;
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 0, &mesh, &c));
  DMUON_CALL(DMuonMeshSetUp(mesh));
  DMUON_CALL(DMuonMeshGetDataRank(mesh, &rank, NULL));
  const uint64_t wanted = hash_of_own(&c, root == DMUON_ALL ? rank : root);
  own_weights(&c, rank);
  DMUON_CALL(DMuonOptimizerSetInitialRoot(c.opt, root));
  DMUON_CALL(case_set_up(mesh, &c));
  tap_ok(case_hash(&c) == wanted, "initial root %d", root);
  if (root != DMUON_ALL) {
    DMUON_CALL(masters_follow(&c, &good));
    tap_ok(good, "initial root %d: masters", root);
  }
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

static DMuonErrorCode sync_arrays(void) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  int good;
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 1, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int root = 0; root < c.size; root++) {
    DMUON_CALL(step_case_once(&c, root));
    DMUON_CALL(DMuonOptimizerWait(c.opt));
    const uint64_t wanted = hash_of_own(&c, root);
    own_weights(&c, c.rank);
    DMUON_CALL(DMuonOptimizerSyncArrays(c.opt, root));
    DMUON_CALL(masters_follow(&c, &good));
    tap_ok(case_hash(&c) == wanted && good, "arrays of data rank %d become everyone's", root);
  }
  own_weights(&c, 77);
  const uint64_t mine = case_hash(&c);
  DMUON_CALL(DMuonOptimizerSyncArrays(c.opt, DMUON_ALL));
  DMUON_CALL(masters_follow(&c, &good));
  tap_ok(case_hash(&c) == mine && good, "equal already: values stay, masters follow");
  tap_is_int(DMuonOptimizerSyncArrays(c.opt, c.size), DMUON_ERR_ARGUMENT, "a root that is none");
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* ---- steps that nobody waits for ------------------------------------------------------------- */

/* Gradients are overwritten with rubbish as soon as Step is back. */
static DMuonErrorCode overwritten(const char *device) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(MPI_COMM_WORLD, device, 1, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int t = 0; t < STEPS; t++) {
    DMUON_CALL(step_case_once(&c, t));
    for (int p = 0; p < CASE_PARAMS; p++) memset(c.gradient[p], 0xff, (size_t)c.numel[p] * 2);
  }
  DMUON_CALL(DMuonOptimizerWait(c.opt));
  tap_ok(case_hash(&c) == expected[STEPS], "gradients overwritten right after Step, %s", device);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* Two optimizers on two meshes of one communicator take turns. */
static DMuonErrorCode interleaved(int async) {
  DMuonMesh mesh[2] = {NULL, NULL};
  step_case c[2] = {{0}, {0}};
  int step[2] = {0, 0};
  static const int turns[] = {0, 1, 1, 0, 0, 1};
  for (int k = 0; k < 2; k++) {
    DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, async, &mesh[k], &c[k]));
    DMUON_CALL(case_set_up(mesh[k], &c[k]));
  }
  for (int i = 0; i < 2 * STEPS; i++) {
    const int k = turns[i];
    DMUON_CALL(step_case_once(&c[k], step[k]++));
  }
  for (int k = 0; k < 2; k++) DMUON_CALL(DMuonOptimizerWait(c[k].opt));
  tap_ok(case_hash(&c[0]) == expected[STEPS] && case_hash(&c[1]) == expected[STEPS],
         "two optimizers take turns on one communicator (async %d)", async);
  close_case(&mesh[1], &c[1]);
  close_case(&mesh[0], &c[0]);
  return DMUON_SUCCESS;
}

/* Two optimizers of two models on one mesh. */
static DMuonErrorCode one_mesh(void) {
  DMuonMesh mesh = NULL;
  step_case c[2] = {{0}, {0}};
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 1, &mesh, &c[0]));
  DMUON_CALL(case_create(mesh, &c[1]));
  DMUON_CALL(DMuonOptimizerSetName(c[1].opt, "other"));
  DMUON_CALL(DMuonOptimizerSetAsync(c[1].opt, 1));
  for (int k = 0; k < 2; k++) DMUON_CALL(case_set_up(mesh, &c[k]));
  for (int t = 0; t < STEPS; t++)
    for (int k = 0; k < 2; k++) DMUON_CALL(step_case_once(&c[k], t));
  for (int k = 0; k < 2; k++) DMUON_CALL(DMuonOptimizerWait(c[k].opt));
  tap_ok(case_hash(&c[0]) == expected[STEPS] && case_hash(&c[1]) == expected[STEPS],
         "two optimizers on one mesh");
  case_destroy(&c[0]);
  close_case(&mesh, &c[1]);
  return DMUON_SUCCESS;
}

/* Handles go in this order, with a step under way; the communicator before anything else. */
static DMuonErrorCode given_up(const char *order, const char *device) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  DMuonErrorCode code = open_case(comm, device, 1, &mesh, &c);
  MPI_Comm_free(&comm);
  if (!code) code = case_set_up(mesh, &c);
  for (int t = 0; t < 2 && !code; t++) code = step_case_once(&c, t);
  for (; *order && !code; order++) {
    if (*order == 'm') code = DMuonMeshDestroy(&mesh);
    if (*order == 'o') code = DMuonOptimizerDestroy(&c.opt);
    if (*order == 'd') code = DMuonModelDestroy(&c.model);
    if (*order == 's') { /* the optimizer keeps what it needs */
      code = step_case_once(&c, 2);
      if (!code) code = DMuonOptimizerWait(c.opt);
      if (!code && case_hash(&c) != expected[3]) code = DMUON_ERR_INTERNAL;
    }
  }
  close_case(&mesh, &c);
  return code;
}

static void pause_a_little(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  const struct timespec nap = {0, (long)(*seed >> 44) * 2}; /* up to 2 ms */
  nanosleep(&nap, NULL);
}

/* The caller's own reductions between, and around, asynchronous steps; ranks dawdle. */
static DMuonErrorCode beside(void) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  uint64_t seed = 1 + (uint64_t)tap_rank;
  int sums = 1;
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 1, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int t = 0; t < STEPS; t++) {
    pause_a_little(&seed);
    DMUON_CALL(step_case_once(&c, t));
    for (int i = 0; i < 5; i++) {
      int mine = tap_rank + i, sum = 0;
      pause_a_little(&seed);
      MPI_Request request;
      MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
      tap_mpi_wait(&request);
      if (sum != tap_size * (tap_size - 1) / 2 + i * tap_size) sums = 0;
    }
    DMUON_CALL(DMuonMeshProgress(mesh));
  }
  DMUON_CALL(DMuonOptimizerWait(c.opt));
  tap_ok(sums && case_hash(&c) == expected[STEPS], "beside the caller's own reductions");
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* ---- some matrices against the reference ----------------------------------------------------- */

enum { MOST = 24 };
typedef struct {
  int count;
  int64_t rows[MOST], cols[MOST];
  float *weight[MOST], *gradient[MOST];
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  int rank, size;
} bunch;

static DMuonErrorCode bunch_open(MPI_Comm comm, int count, const int64_t (*shapes)[2], bunch *b) {
  memset(b, 0, sizeof *b);
  b->count = count;
  DMUON_CALL(DMuonMeshCreate(comm, &b->mesh));
  DMUON_CALL(DMuonModelCreate(b->mesh, &b->model));
  for (int i = 0; i < count; i++) {
    char name[40];
    snprintf(name, sizeof name, "layers.%d.w", i);
    b->rows[i] = shapes[i][0], b->cols[i] = shapes[i][1];
    b->weight[i] = calloc((size_t)(b->rows[i] * b->cols[i]), sizeof(float));
    b->gradient[i] = calloc((size_t)(b->rows[i] * b->cols[i]), sizeof(float));
    for (int64_t j = 0; j < b->rows[i] * b->cols[i]; j++)
      b->weight[i][j] = (float)case_weight(0, 100000 * i + j);
    DMUON_CALL(DMuonModelAddParamArray(b->model, name, DMUON_FLOAT32, 2, shapes[i], b->weight[i],
                                       b->gradient[i], NULL));
  }
  return DMuonOptimizerCreate(b->model, &b->opt);
}

static void bunch_close(bunch *b) {
  DMuonOptimizerDestroy(&b->opt);
  DMuonModelDestroy(&b->model);
  DMuonMeshDestroy(&b->mesh);
  for (int i = 0; i < b->count; i++) free(b->weight[i]), free(b->gradient[i]);
}

static DMuonErrorCode bunch_step(bunch *b, int step) {
  for (int i = 0; i < b->count; i++)
    for (int64_t j = 0; j < b->rows[i] * b->cols[i]; j++)
      b->gradient[i][j] = (float)case_gradient(0, 100000 * i + j, b->rank, step, 0);
  return DMuonOptimizerStep(b->opt);
}

/* Two steps; the largest distance from the reference. */
static DMuonErrorCode bunch_run(bunch *b, double *distance) {
  ref_rule rule;
  *distance = 0;
  ref_recipe("dmuon", &rule);
  DMUON_CALL(DMuonOptimizerSetUp(b->opt));
  DMUON_CALL(DMuonMeshGetDataRank(b->mesh, &b->rank, &b->size));
  for (int t = 0; t < 2; t++) DMUON_CALL(bunch_step(b, t));
  for (int i = 0; i < b->count; i++) {
    const int64_t n = b->rows[i] * b->cols[i];
    double *memory = calloc(6 * (size_t)n, sizeof *memory);
    double *gradient = memory + 4 * n, *value = memory + 5 * n;
    ref_info info;
    ref_param p = {.batch = 1,
                   .rows = b->rows[i],
                   .cols = b->cols[i],
                   .weight = memory,
                   .momentum_buffer = memory + n,
                   .exp_avg = memory + 2 * n,
                   .exp_avg_sq = memory + 3 * n};
    for (int64_t j = 0; j < n; j++) p.weight[j] = case_weight(0, 100000 * i + j);
    ref_start(&rule, 1, &p);
    for (int t = 0; t < 2; t++) {
      memset(gradient, 0, (size_t)n * sizeof *gradient);
      for (int r = 0; r < b->size; r++)
        for (int64_t j = 0; j < n; j++)
          gradient[j] += case_gradient(0, 100000 * i + j, r, t, 0) / b->size;
      ref_step(&rule, 1, 1, &p, &gradient, &info);
    }
    for (int64_t j = 0; j < n; j++) value[j] = b->weight[i][j];
    const double d = ref_distance(n, value, p.weight);
    if (!(d <= *distance)) *distance = d;
    free(memory);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode counts(int count) {
  int64_t shapes[MOST][2];
  double distance;
  bunch b;
  DMuonStepInfo info = {.struct_size = sizeof info};
  for (int i = 0; i < count; i++) shapes[i][0] = 4 + i % 3, shapes[i][1] = 6;
  DMUON_CALL(bunch_open(MPI_COMM_WORLD, count, (const int64_t(*)[2])shapes, &b));
  DMUON_CALL(bunch_run(&b, &distance));
  DMUON_CALL(DMuonOptimizerGetStepInfo(b.opt, &info));
  tap_ok(distance <= 1e-5 && info.newton_schulz_calls == count && info.step == 2,
         "%d matrices (distance %.2g)", count, distance);
  bunch_close(&b);
  return DMUON_SUCCESS;
}

static DMuonErrorCode shapes(void) {
  static const int64_t odd[][2] = {{72, 64}, {5, 3}, {10, 4}, {3, 100}, {2, 2}};
  double distance;
  bunch b;
  DMUON_CALL(bunch_open(MPI_COMM_WORLD, 5, odd, &b));
  DMUON_CALL(bunch_run(&b, &distance));
  tap_ok(distance <= 1e-5, "shapes that no number of ranks divides (distance %.2g)", distance);
  bunch_close(&b);
  return DMUON_SUCCESS;
}

/* Communicators that are split, turned round, of one rank. */
static DMuonErrorCode communicators(void) {
  static const int64_t some[][2] = {{8, 5}, {4, 4}, {3, 9}};
  for (int kind = 0; kind < 3; kind++) {
    double distance;
    bunch b;
    MPI_Comm comm;
    const int color = kind == 0 ? tap_rank % 2 : kind == 1 ? 0 : tap_rank;
    MPI_Comm_split(MPI_COMM_WORLD, color, -tap_rank, &comm);
    DMUON_CALL(bunch_open(comm, 3, some, &b));
    MPI_Comm_free(&comm);
    DMUON_CALL(bunch_run(&b, &distance));
    tap_ok(distance <= 1e-5, "a communicator that is %s (distance %.2g)",
           kind == 0   ? "split in two"
           : kind == 1 ? "turned round"
                       : "of one rank",
           distance);
    bunch_close(&b);
  }
  return DMUON_SUCCESS;
}

/* The mean is orthogonalised, not the mean of what ranks would have orthogonalised. */
static DMuonErrorCode mean_first(void) {
  static const int64_t shape[][2] = {{32, 32}};
  enum { N = 32 * 32 };
  static double mean[N], of_one[N], mean_of_all[N], update[N];
  bunch b;
  DMUON_CALL(bunch_open(MPI_COMM_WORLD, 1, shape, &b));
  DMUON_CALL(DMuonOptimizerSetMuon(b.opt, 1, .95, 0));
  DMUON_CALL(DMuonOptimizerSetScale(b.opt, DMUON_SCALE_NONE, 1));
  DMUON_CALL(DMuonOptimizerSetUp(b.opt));
  DMUON_CALL(DMuonMeshGetDataRank(b.mesh, &b.rank, &b.size));
  for (int j = 0; j < N; j++) update[j] = b.weight[0][j];
  DMUON_CALL(bunch_step(&b, 0));
  for (int j = 0; j < N; j++) update[j] -= b.weight[0][j], mean[j] = mean_of_all[j] = 0;
  for (int r = 0; r < b.size; r++) {
    for (int j = 0; j < N; j++) {
      of_one[j] = case_gradient(0, j, r, 0, 0);
      mean[j] += of_one[j] / b.size;
    }
    ref_newton_schulz("polar_express", 32, 32, of_one);
    for (int j = 0; j < N; j++) mean_of_all[j] += of_one[j] / b.size;
  }
  ref_newton_schulz("polar_express", 32, 32, mean);
  const double near = ref_distance(N, update, mean), far = ref_distance(N, update, mean_of_all);
  tap_ok(near <= 1e-4 && (b.size == 1 || far > .3),
         "the mean is orthogonalised: %.2g from that, %.2g from the mean of all", near, far);
  bunch_close(&b);
  return DMUON_SUCCESS;
}

/* ---- what a step costs ----------------------------------------------------------------------- */

static int64_t sum_over_ranks(int64_t value) {
  int64_t sum = 0;
  MPI_Request request;
  MPI_Iallreduce(&value, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  return sum;
}

static DMuonErrorCode micro_batches(int count) {
  static const char key[] = "\"newton_schulz_here\":";
  DMuonMesh mesh = NULL;
  step_case c = {0};
  char *json = NULL;
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 0, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int t = 0; t < STEPS; t++) {
    for (int m = 0; m < count; m++) {
      case_fill_gradients(&c, t, m);
      if (m < count - 1) DMUON_CALL(DMuonOptimizerAccumulate(c.opt));
    }
    DMUON_CALL(DMuonOptimizerStep(c.opt));
  }
  DMUON_CALL(DMuonOptimizerGetStepInfo(c.opt, &info));
  DMUON_CALL(DMuonOptimizerSummary(c.opt, &json));
  const char *at = strstr(json, key);
  tap_is_int(sum_over_ranks(at ? strtoll(at + strlen(key), NULL, 10) : -1),
             STEPS * info.newton_schulz_calls,
             "%d micro-batches: one Newton-Schulz a matrix a step over all ranks", count);
  tap_is_int(info.newton_schulz_calls, 2 + 3 + 3 + 4 + 3 + 3 + 4, "and so many matrices");
  DMuonFree(json);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* Accumulated gradients are forgotten when asked. */
static DMuonErrorCode forgotten(void) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(MPI_COMM_WORLD, NULL, 0, &mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  case_fill_gradients(&c, 40, 0);
  DMUON_CALL(DMuonOptimizerAccumulate(c.opt));
  DMUON_CALL(DMuonOptimizerZeroGrad(c.opt));
  DMUON_CALL(step_case_once(&c, 0));
  tap_ok(case_hash(&c) == expected[1], "ZeroGrad forgets what was accumulated");
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

static DMuonErrorCode allocations(const char *device, int async, DMuonClip clip, int micro) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(open_case(MPI_COMM_WORLD, device, async, &mesh, &c));
  DMUON_CALL(DMuonOptimizerSetClip(c.opt, clip, 1));
  DMUON_CALL(case_set_up(mesh, &c));
  if (micro) { /* the first Accumulate ever allocates */
    case_fill_gradients(&c, 0, 0);
    DMUON_CALL(DMuonOptimizerAccumulate(c.opt));
    DMUON_CALL(DMuonOptimizerZeroGrad(c.opt));
  }
  const int64_t before = mesh->context.memory.allocations;
  for (int t = 0; t < 5; t++) {
    for (int m = 0; m < micro; m++) DMUON_CALL(DMuonOptimizerAccumulate(c.opt));
    DMUON_CALL(step_case_once(&c, t));
    DMUON_CALL(DMuonOptimizerGetStepInfo(c.opt, &info));
    DMUON_CALL(DMuonOptimizerSetLearningRateFactor(c.opt, 1. / (t + 1)));
    DMUON_CALL(DMuonOptimizerSetHyper(c.opt, "layers.*", DMUON_HYPER_WEIGHT_DECAY, .1 * t));
  }
  DMUON_CALL(DMuonOptimizerWait(c.opt));
  const int64_t made = mesh->context.memory.allocations - before;
  tap_is_int(made, 0, "steps allocate nothing: %s, async %d, clip %d, micro %d", device, async,
             (int)clip, micro);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* Two matrices of 64 and 16 elements in one group, with owners given: bytes by hand. */
static DMuonErrorCode bytes_by_hand(int replicate, int shard, int async) {
  static const int64_t dims[2][2] = {{8, 8}, {4, 4}};
  static const int64_t elements[2] = {64, 16};
  const int owner[2][2] = {{0, 0}, {replicate - 1, shard - 1}};
  float weight[2][64] = {{0}}, gradient[2][64] = {{0}};
  DMuonMesh mesh;
  DMuonModel model;
  DMuonPartition part;
  DMuonOptimizer opt;
  int r, s;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonMeshSetSizes(mesh, replicate, shard, 1));
  DMUON_CALL(DMuonModelCreate(mesh, &model));
  for (int i = 0; i < 2; i++)
    DMUON_CALL(DMuonModelAddParamArray(model, i ? "layers.0.b" : "layers.0.a", DMUON_FLOAT32, 2,
                                       dims[i], weight[i], gradient[i], NULL));
  DMUON_CALL(DMuonPartitionCreate(model, &part));
  for (int i = 0; i < 2; i++)
    DMUON_CALL(
        DMuonPartitionSetOwner(part, i ? "layers.0.b" : "layers.0.a", owner[i][0], owner[i][1], 0));
  DMUON_CALL(DMuonOptimizerCreate(model, &opt));
  DMUON_CALL(DMuonOptimizerSetPartition(opt, part));
  DMUON_CALL(DMuonOptimizerSetAsync(opt, async));
  DMUON_CALL(DMuonOptimizerSetUp(opt));
  DMUON_CALL(DMuonMeshGetCoords(mesh, &r, &s, NULL));
  DMuonCommInfo before[2] = {{.struct_size = sizeof before[0]}, {.struct_size = sizeof before[0]}};
  DMuonCommInfo after[2] = {before[0], before[0]};
  static const DMuonAxis axes[] = {DMUON_AXIS_SHARD, DMUON_AXIS_REPLICATE};
  for (int a = 0; a < 2; a++) DMUON_CALL(DMuonMeshGetCommInfo(mesh, axes[a], &before[a]));
  for (int t = 0; t < STEPS; t++) DMUON_CALL(DMuonOptimizerStep(opt));
  DMUON_CALL(DMuonOptimizerWait(opt));
  for (int a = 0; a < 2; a++) DMUON_CALL(DMuonMeshGetCommInfo(mesh, axes[a], &after[a]));
  /* Sent in the reduction, received in the publication: all that is not this rank's. */
  int64_t column = 0, own = 0;
  for (int i = 0; i < 2; i++) {
    if (owner[i][1] != s) continue;
    column += elements[i];
    if (owner[i][0] == r) own += elements[i];
  }
  tap_is_int(after[0].bytes_sent - before[0].bytes_sent, STEPS * 2 * 4 * (80 - column),
             "%d x %d, async %d: bytes on the shard axis", replicate, shard, async);
  tap_is_int(after[1].bytes_sent - before[1].bytes_sent, STEPS * 2 * 4 * (column - own),
             "%d x %d, async %d: bytes on the replicate axis", replicate, shard, async);
  DMuonOptimizerDestroy(&opt);
  DMuonPartitionDestroy(&part);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
  return DMUON_SUCCESS;
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void schedules(void) {
  static const struct {
    DMuonSchedule kind;
    int64_t step, warmup, total;
    double floor, factor;
  } cases[] = {
      {DMUON_SCHEDULE_CONSTANT, 0, 4, 100, 0, .25}, {DMUON_SCHEDULE_CONSTANT, 3, 4, 100, 0, 1},
      {DMUON_SCHEDULE_CONSTANT, 99, 4, 100, 0, 1},  {DMUON_SCHEDULE_LINEAR, 0, 0, 11, .1, 1},
      {DMUON_SCHEDULE_LINEAR, 5, 0, 11, .1, .55},   {DMUON_SCHEDULE_LINEAR, 10, 0, 11, .1, .1},
      {DMUON_SCHEDULE_LINEAR, 500, 0, 11, .1, .1},  {DMUON_SCHEDULE_LINEAR, 1, 2, 13, 0, 1},
      {DMUON_SCHEDULE_LINEAR, 7, 2, 13, 0, .5},     {DMUON_SCHEDULE_COSINE, 0, 0, 11, .2, 1},
      {DMUON_SCHEDULE_COSINE, 5, 0, 11, .2, .6},    {DMUON_SCHEDULE_COSINE, 10, 0, 11, .2, .2},
      {DMUON_SCHEDULE_WSD, 8, 0, 11, 0, 1},         {DMUON_SCHEDULE_WSD, 9, 0, 11, 0, .5},
      {DMUON_SCHEDULE_WSD, 10, 0, 11, 0, 0},        {DMUON_SCHEDULE_WSD, 0, 5, 100, 0, .2},
  };
  int good = 1;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const double got = DMuonScheduleFactor(cases[i].kind, cases[i].step, cases[i].warmup,
                                           cases[i].total, cases[i].floor);
    if (fabs(got - cases[i].factor) > 1e-12) {
      good = 0;
      tap_diag("schedule %d at %d: %g, expected %g", (int)cases[i].kind, (int)cases[i].step, got,
               cases[i].factor);
    }
  }
  tap_ok(good, "learning rate schedules");
}

int main(int argc, char **argv) {
  static const char *const orders[] = {"modx", "mdso", "dms o", "omd", "odm", "dom", "mds", "s"};
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  CHECKED(plain_run(), "plain steps");
  CHECKED(moving_arrays(0), "no call fails");
  CHECKED(moving_arrays(1), "no call fails");
  CHECKED(late_arrays(), "no call fails");
  for (int root = DMUON_ALL; root < tap_size; root++)
    if (root < 2 || root >= tap_size - 2) CHECKED(initial_root(root), "no call fails");
  if (tap_size < 8) CHECKED(sync_arrays(), "no call fails");
  CHECKED(overwritten("host"), "no call fails");
  CHECKED(overwritten("host:deferred,seed=3"), "no call fails");
  CHECKED(interleaved(0), "no call fails");
  CHECKED(interleaved(1), "no call fails");
  CHECKED(one_mesh(), "no call fails");
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
    for (int deferred = 0; deferred < 2; deferred++)
      if (tap_size <= 4 || (int)i % 2 == deferred)
        CHECKED(given_up(orders[i], deferred ? "host:deferred,seed=5" : "host"),
                "handles given up with a step under way: %s%s", orders[i],
                deferred ? ", deferred" : "");
  CHECKED(beside(), "no call fails");
  for (int i = 0; i < 4; i++) CHECKED(counts((int[]){19, 16, 1, 0}[i]), "no call fails");
  CHECKED(shapes(), "no call fails");
  CHECKED(communicators(), "no call fails");
  CHECKED(mean_first(), "no call fails");
  for (int i = 0; i < 3; i++) CHECKED(micro_batches((int[]){1, 4, 8}[i]), "no call fails");
  CHECKED(forgotten(), "no call fails");
  for (int i = 0; i < 8; i++)
    if (tap_size <= 4 || i == 3 || i == 4)
      CHECKED(
          allocations(i & 1 ? "host:deferred,seed=9" : "host", i >> 1 & 1,
                      i >> 2 & 1 ? DMUON_CLIP_GLOBAL : DMUON_CLIP_NONE, i == 0 || i == 7 ? 2 : 0),
          "no call fails");
  for (int shard = 1; shard <= tap_size; shard++)
    if (tap_size % shard == 0)
      CHECKED(bytes_by_hand(tap_size / shard, shard, shard % 2), "no call fails");
  schedules();
  return tap_mpi_done();
}
