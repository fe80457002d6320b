/* Parameters of one shape that one rank updates: together or one by one, the same bits, also when
 * one of them has no gradient in some step; and the memory it takes is what the plan says. */
#include <dmuon.h>
#include <stdio.h>
#include <string.h>

#include "engine/plan.h"
#include "optim/optimizer.h"
#include "tap_mpi.h"

enum { ALIKE = 7, ROWS = 24, COLS = 40, ODD = 40 * 8, EACH = ROWS * COLS, STEPS = 3 };

typedef struct {
  float alike[ALIKE][EACH], odd[ODD];
} values;

static void fill(int64_t n, float *x, unsigned key) {
  unsigned state = key * 2654435761u + 12345u;
  for (int64_t i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    x[i] = (float)((int)(state >> 20) - 2048) / 2048;
  }
}

typedef struct {
  DMuonMesh mesh;
  DMuonOptimizer opt;
  int id[ALIKE + 1];
  values weights, gradients;
} run;

static DMuonErrorCode make(run *u, const char *device, const char *batch) {
  static const int64_t dims[] = {ROWS, COLS}, odd[] = {40, 8};
  DMuonModel model;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &u->mesh));
  DMUON_CALL(DMuonMeshSetSizes(u->mesh, 1, DMUON_DECIDE, 1));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "device", device));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "ns_batch", batch));
  DMUON_CALL(DMuonModelCreate(u->mesh, &model));
  for (int k = 0; k <= ALIKE; k++) {
    char name[40];
    float *weights = k < ALIKE ? u->weights.alike[k] : u->weights.odd;
    float *gradients = k < ALIKE ? u->gradients.alike[k] : u->gradients.odd;
    snprintf(name, sizeof name, "layers.0.w%d", k);
    fill(k < ALIKE ? EACH : ODD, weights, (unsigned)k + 1);
    DMUON_CALL(DMuonModelAddParamArray(model, name, DMUON_FLOAT32, 2, k < ALIKE ? dims : odd,
                                       weights, gradients, &u->id[k]));
    DMUON_CALL(DMuonModelSetRoute(model, name, DMUON_ROUTE_MUON));
  }
  DMUON_CALL(DMuonOptimizerCreate(model, &u->opt));
  DMUON_CALL(DMuonModelDestroy(&model));
  return DMuonOptimizerSetUp(u->opt);
}

/* In the second step one of them has no gradient on any rank. */
static DMuonErrorCode train(run *u) {
  for (int t = 0; t < STEPS; t++) {
    for (int k = 0; k < ALIKE; k++)
      fill(EACH, u->gradients.alike[k], (unsigned)(100 * t + 10 * tap_rank + k + 50));
    fill(ODD, u->gradients.odd, (unsigned)(100 * t + 10 * tap_rank + 70));
    DMUON_CALL(DMuonOptimizerSetArrays(u->opt, u->id[2], u->weights.alike[2],
                                       t == 1 ? NULL : u->gradients.alike[2]));
    DMUON_CALL(DMuonOptimizerStep(u->opt));
  }
  return DMuonOptimizerWait(u->opt);
}

/* The most that run together on this rank. */
static int64_t together(const run *u) {
  int64_t most = 0;
  for (int k = 0; k < ALIKE; k++)
    if (u->opt->plans[u->id[k]].together > most) most = u->opt->plans[u->id[k]].together;
  return most;
}

static void check(const char *device, const char *batch, int64_t expected, const values *first) {
  static run u;
  int64_t most = 0, mine = 0;
  MPI_Request request;
  memset(&u, 0, sizeof u);
  DMuonErrorCode code = make(&u, device, batch);
  const int64_t before = code ? 0 : together(&u);
  if (!code) code = train(&u);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && (!first || !memcmp(&u.weights, first, sizeof *first)),
         "%s, ns_batch %s: the bits of one by one", device, batch);
  if (code) return;
  MPI_Iallreduce(&before, &most, 1, MPI_INT64_T, MPI_MAX, tap_comm, &request);
  tap_mpi_wait(&request);
  tap_ok(expected == 1 ? most == 1 : most > 1 && most <= expected, "%lld together, of at most %lld",
         (long long)most, (long long)expected);
  const dmuon_plan plan = {&u.opt->model->registry, &u.opt->runtime.packing, &u.opt->lend.groups,
                           &u.opt->lend.settings};
  const dmuon_memory_plan memory = dmuon_plan_memory(&plan, u.opt->plans);
  for (int k = 0; k <= ALIKE; k++) {
    const dmuon_update_plan *p = &u.opt->plans[u.id[k]];
    if (p->piece_count > 0 && p->workspace_bytes > mine) mine = p->workspace_bytes;
  }
  tap_ok(memory.workspace == mine, "the plan has the workspace (%lld bytes)",
         (long long)memory.workspace);
  DMuonOptimizerDestroy(&u.opt);
  DMuonMeshDestroy(&u.mesh);
}

int main(int argc, char **argv) {
  static run plain;
  tap_mpi_init(&argc, &argv);
  if (make(&plain, "host", "1") || train(&plain)) {
    fprintf(stderr, "%s\n", DMuonErrorGetMessage());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  check("host", "0", 1, &plain.weights);
  check("host", "1", 1, &plain.weights);
  check("host", "2", 2, &plain.weights);
  check("host", "3", 3, &plain.weights);
  check("host", "64", ALIKE, &plain.weights);
  check("host:deferred,seed=5", "4", 4, &plain.weights);
  check("host:late", "4", 4, &plain.weights);
  DMuonOptimizerDestroy(&plain.opt);
  DMuonMeshDestroy(&plain.mesh);
  return tap_mpi_done();
}
