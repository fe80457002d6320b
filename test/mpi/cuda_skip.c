/* A gradient that is not finite, on a GPU (its double): the step is skipped on all ranks, decided
 * there; the host hears of it late, with the parameter's name and the rank; what comes after is as
 * if it had not been. Parameters in arrays on the GPU and in the library's memory, by Muon and by
 * AdamW. */
#include <dmuon.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tap_mpi.h"

enum { N = 24, ROWS = 8, COLS = 3, STEPS = 4, PARAMS = 2 };

static const char *const names[] = {"layers.0.w", "layers.0.norm"};
static const int64_t dims[2][2] = {{ROWS, COLS}, {N, 0}};

typedef struct {
  const char *label;
  const char *device;
  int lent, replicate;
} setting;

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  DMuonGroup group;
  void *weights[PARAMS], *gradients[PARAMS]; /* on the GPU */
} run;

static float start_value(int p, int i) {
  return (float)(i % 5 - 2) * 0.25f + (float)p;
}

/* Other gradients on each rank and in each step. */
static float gradient_value(int p, int step, int i) {
  return (float)((i * 7 + p * 3 + step * 5 + tap_rank * 11) % 13 - 6) * 0.125f;
}

static DMuonErrorCode add(const setting *s, run *r) {
  float value[N];
  for (int p = 0; p < PARAMS; p++) {
    if (s->lent) {
      DMUON_CALL(DMuonModelAddParam(r->model, names[p], DMUON_FLOAT32, p ? 1 : 2, dims[p], NULL));
      continue;
    }
    for (int i = 0; i < N; i++) value[i] = start_value(p, i);
    DMUON_CALL(DMuonMeshAlloc(r->mesh, sizeof value, &r->weights[p]));
    DMUON_CALL(DMuonMeshAlloc(r->mesh, sizeof value, &r->gradients[p]));
    DMUON_CALL(DMuonMeshCopy(r->mesh, r->weights[p], value, sizeof value));
    DMUON_CALL(DMuonModelAddParamArray(r->model, names[p], DMUON_FLOAT32, p ? 1 : 2, dims[p],
                                       r->weights[p], r->gradients[p], NULL));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode open_run(const setting *s, run *r) {
  float value[N];
  memset(r, 0, sizeof *r);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &r->mesh));
  DMUON_CALL(DMuonMeshSetSizes(r->mesh, s->replicate, DMUON_DECIDE, 1));
  DMUON_CALL(DMuonMeshSetOption(r->mesh, "device", s->device));
  DMUON_CALL(DMuonMeshSetUp(r->mesh));
  DMUON_CALL(DMuonModelCreate(r->mesh, &r->model));
  DMUON_CALL(add(s, r));
  DMUON_CALL(DMuonOptimizerCreate(r->model, &r->opt));
  DMUON_CALL(DMuonOptimizerSetUp(r->opt));
  if (!s->lent) return DMUON_SUCCESS;
  for (int p = 0; p < PARAMS; p++) {
    for (int i = 0; i < N; i++) value[i] = start_value(p, i);
    DMUON_CALL(DMuonOptimizerSetParam(r->opt, p, value, 0));
  }
  return DMuonOptimizerGetGroup(r->opt, 0, &r->group);
}

static void close_run(run *r) {
  DMuonOptimizerDestroy(&r->opt);
  DMuonModelDestroy(&r->model);
  for (int p = 0; p < PARAMS; p++) {
    DMuonMeshFree(r->mesh, &r->weights[p]);
    DMuonMeshFree(r->mesh, &r->gradients[p]);
  }
  DMuonMeshDestroy(&r->mesh);
}

/* bad: the parameter with a NaN on the last rank, or -1. */
static DMuonErrorCode step(const setting *s, run *r, int number, int bad) {
  const void *values[PARAMS];
  void *gradients[PARAMS] = {r->gradients[0], r->gradients[1]};
  if (s->lent) {
    DMUON_CALL(DMuonGroupForwardBegin(r->group));
    DMUON_CALL(DMuonGroupForwardEnd(r->group));
    DMUON_CALL(DMuonGroupBackwardBegin(r->group));
    DMUON_CALL(DMuonGroupGetArrays(r->group, values, gradients));
  }
  for (int p = 0; p < PARAMS; p++) {
    float value[N];
    for (int i = 0; i < N; i++) value[i] = gradient_value(p, number, i);
    if (p == bad && tap_rank == tap_size - 1) value[N - 1] = p ? INFINITY : NAN;
    DMUON_CALL(DMuonMeshCopy(r->mesh, gradients[p], value, sizeof value));
  }
  if (s->lent) DMUON_CALL(DMuonGroupBackwardEnd(r->group));
  return DMuonOptimizerStep(r->opt);
}

typedef struct {
  float value[PARAMS][N], momentum[N], exp_avg[N], exp_avg_sq[N];
  int64_t step[PARAMS];
} outcome;

static DMuonErrorCode look(const setting *s, run *r, outcome *o) {
  memset(o, 0, sizeof *o);
  for (int p = 0; p < PARAMS; p++) {
    if (s->lent) {
      DMUON_CALL(DMuonOptimizerGetParam(r->opt, p, o->value[p], DMUON_ALL));
    } else {
      DMUON_CALL(DMuonOptimizerWait(r->opt));
      DMUON_CALL(DMuonMeshCopy(r->mesh, o->value[p], r->weights[p], sizeof o->value[p]));
    }
    DMUON_CALL(DMuonOptimizerGetState(r->opt, p, "step", &o->step[p], DMUON_ALL));
  }
  DMUON_CALL(DMuonOptimizerGetState(r->opt, 0, "momentum", o->momentum, DMUON_ALL));
  DMUON_CALL(DMuonOptimizerGetState(r->opt, 1, "exp_avg", o->exp_avg, DMUON_ALL));
  return DMuonOptimizerGetState(r->opt, 1, "exp_avg_sq", o->exp_avg_sq, DMUON_ALL);
}

/* Finite steps alone. */
static DMuonErrorCode straight(const setting *s, outcome *o) {
  run r;
  DMUON_CALL(open_run(s, &r));
  for (int t = 0; t < STEPS; t++) DMUON_CALL(step(s, &r, t, -1));
  DMUON_CALL(look(s, &r, o));
  close_run(&r);
  return DMUON_SUCCESS;
}

/* The same with bad ones among them, the first before all, and two behind each other that nobody
 * asks about. */
static DMuonErrorCode with_bad_ones(const setting *s, outcome *o) {
  run r;
  DMuonStepInfo info = {.struct_size = sizeof info};
  outcome before, behind;
  DMUON_CALL(open_run(s, &r));
  DMUON_CALL(step(s, &r, 90, 1));
  DMUON_CALL(step(s, &r, 0, -1));
  DMUON_CALL(step(s, &r, 1, -1));
  DMUON_CALL(DMuonOptimizerGetStepInfo(r.opt, &info));
  tap_ok(!info.skipped && info.step == 2, "%s: two of three took place", s->label);
  DMUON_CALL(look(s, &r, &before));
  DMUON_CALL(step(s, &r, 91, 0));
  DMUON_CALL(DMuonOptimizerGetStepInfo(r.opt, &info));
  tap_ok(info.skipped && info.step == 2 && info.newton_schulz_calls == 0, "%s: skipped", s->label);
  tap_is_string(info.nonfinite_name ? info.nonfinite_name : "", names[0], "%s: what", s->label);
  tap_is_int(info.nonfinite_rank, tap_size - 1, "%s: where", s->label);
  DMUON_CALL(look(s, &r, &behind));
  tap_ok(!memcmp(&before, &behind, sizeof before), "%s: nothing changed", s->label);
  DMUON_CALL(step(s, &r, 92, 1));
  DMUON_CALL(step(s, &r, 93, 0));
  DMUON_CALL(step(s, &r, 2, -1));
  DMUON_CALL(step(s, &r, 3, -1));
  DMUON_CALL(DMuonOptimizerGetStepInfo(r.opt, &info));
  tap_ok(!info.skipped && info.step == 4 && !info.nonfinite_name, "%s: four took place", s->label);
  DMUON_CALL(look(s, &r, o));
  close_run(&r);
  return DMUON_SUCCESS;
}

static void test(const setting *s) {
  outcome expected, got;
  DMuonErrorCode code = straight(s, &expected);
  if (!tap_ok(!code, "%s: finite steps", s->label)) tap_diag("%s", DMuonErrorGetMessage());
  if (code) return;
  code = with_bad_ones(s, &got);
  if (!tap_ok(!code, "%s: no call fails", s->label)) tap_diag("%s", DMuonErrorGetMessage());
  if (code) return;
  tap_ok(expected.step[0] == STEPS && expected.step[1] == STEPS, "%s: steps are counted", s->label);
  tap_ok(!memcmp(&expected, &got, sizeof got), "%s: the end is that of the finite steps alone",
         s->label);
}

int main(int argc, char **argv) {
  static const setting settings[] = {
      {"arrays, host", "host", 0, 2},  {"arrays, 1 x 4", "cuda", 0, 1},
      {"arrays, 2 x 2", "cuda", 0, 2}, {"lent, 2 x 2", "cuda", 1, 2},
      {"lent, 4 x 1", "cuda", 1, 4},   {"lent, staged", "cuda:staged", 1, 2}};
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) test(&settings[i]);
  return tap_mpi_done();
}
