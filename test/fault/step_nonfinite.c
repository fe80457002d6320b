/* A gradient that is not finite, somewhere on one rank: the step is skipped on all, nothing
 * changes, the next finite step is as if it had not been. And finite gradients so large that their
 * sum would overflow are not taken for it: their mean is finite, and comes out right. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "step_case.h"
#include "tap_mpi.h"

#define CHECKED(call, ...)                                                      \
  do {                                                                          \
    const DMuonErrorCode checked = (call);                                      \
    if (!tap_ok(!checked, __VA_ARGS__)) tap_diag("%s", DMuonErrorGetMessage()); \
  } while (0)

static uint64_t expected; /* weights after two finite steps */
static uint64_t expected_state;

typedef struct {
  const char *label;
  int replicate, shard, async, clip;
  const char *device;
} setting;

static DMuonErrorCode open_case(const setting *s, DMuonMesh *mesh, step_case *c) {
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, mesh));
  DMUON_CALL(DMuonMeshSetSizes(*mesh, s->replicate, s->shard, 1));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "device", s->device));
  DMUON_CALL(case_create(*mesh, c));
  DMUON_CALL(DMuonOptimizerSetAsync(c->opt, s->async));
  if (s->clip) DMUON_CALL(DMuonOptimizerSetClip(c->opt, DMUON_CLIP_GLOBAL, 1e30));
  return case_set_up(*mesh, c);
}

static DMuonErrorCode finite_step(step_case *c, int step) {
  case_fill_gradients(c, step, 0);
  return DMuonOptimizerStep(c->opt);
}

static DMuonErrorCode hashes(step_case *c, uint64_t *weights, uint64_t *state) {
  DMUON_CALL(DMuonOptimizerWait(c->opt));
  *weights = case_hash(c);
  return case_state_hash(c, state);
}

static DMuonErrorCode two_finite_steps(const setting *s) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(s, &mesh, &c));
  for (int t = 0; t < 2; t++) DMUON_CALL(finite_step(&c, t));
  DMUON_CALL(hashes(&c, &expected, &expected_state));
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  return DMUON_SUCCESS;
}

/* Between two finite steps, one with `value` in the last entry of parameter p on the last rank;
 * micro: in the first of two micro-batches. */
static DMuonErrorCode poisoned(const setting *s, int p, double value, int micro) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMuonStepInfo info = {.struct_size = sizeof info};
  uint64_t weights[2] = {0}, state[2] = {0};
  DMUON_CALL(open_case(s, &mesh, &c));
  DMUON_CALL(finite_step(&c, 0));
  DMUON_CALL(hashes(&c, &weights[0], &state[0]));
  case_fill_gradients(&c, 9, 0);
  if (c.rank == c.size - 1) case_store(case_params[p].dtype, c.gradient[p], c.numel[p] - 1, value);
  if (micro) {
    DMUON_CALL(DMuonOptimizerAccumulate(c.opt));
    case_fill_gradients(&c, 9, 1);
  }
  const DMuonErrorCode code = DMuonOptimizerStep(c.opt);
  DMUON_CALL(DMuonOptimizerGetStepInfo(c.opt, &info));
  DMUON_CALL(hashes(&c, &weights[1], &state[1]));
  const int named = info.nonfinite_name && !strcmp(info.nonfinite_name, case_params[p].name);
  if (!tap_ok(!code && info.skipped && named && info.step == 1 && info.newton_schulz_calls == 0,
              "%s: %g in %s%s: skipped everywhere, and named", s->label, value, case_params[p].name,
              micro ? ", accumulated" : ""))
    tap_diag("code %d, skipped %d, name %s, step %d", (int)code, info.skipped,
             info.nonfinite_name ? info.nonfinite_name : "none", (int)info.step);
  int where = -1;
  if (c.rank == c.size - 1) MPI_Comm_rank(MPI_COMM_WORLD, &where);
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, &where, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  tap_is_int(info.nonfinite_rank, where, "and where");
  tap_ok(weights[0] == weights[1] && state[0] == state[1], "nothing changed");
  DMUON_CALL(finite_step(&c, 1));
  DMUON_CALL(DMuonOptimizerGetStepInfo(c.opt, &info));
  DMUON_CALL(hashes(&c, &weights[0], &state[0]));
  tap_ok(weights[0] == expected && state[0] == expected_state && !info.skipped && info.step == 2 &&
             !info.nonfinite_name && info.nonfinite_rank == -1,
         "the next finite step is as if nothing had been");
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  return DMUON_SUCCESS;
}

/* ---- one parameter of a dtype ---------------------------------------------------------------- */

/* Momentum negative: the default. Without it nothing but the mean is as large as the gradients. */

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  unsigned char weight[8 * 16], gradient[8 * 16];
} single;

static DMuonErrorCode single_open(DMuonDType dtype, DMuonRoute route, double momentum,
                                  int replicate, single *w) {
  static const int64_t dims[] = {4, 4};
  memset(w, 0, sizeof *w);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &w->mesh));
  DMUON_CALL(DMuonMeshSetSizes(w->mesh, replicate, DMUON_DECIDE, 1));
  DMUON_CALL(DMuonModelCreate(w->mesh, &w->model));
  DMUON_CALL(DMuonModelAddParamArray(w->model, "layers.0.w", dtype, 2, dims, w->weight, w->gradient,
                                     NULL));
  DMUON_CALL(DMuonModelSetRoute(w->model, "layers.0.w", route));
  DMUON_CALL(DMuonOptimizerCreate(w->model, &w->opt));
  if (momentum >= 0) DMUON_CALL(DMuonOptimizerSetMuon(w->opt, .02, momentum, 0));
  return DMuonOptimizerSetUp(w->opt);
}

static void single_close(single *w) {
  DMuonOptimizerDestroy(&w->opt);
  DMuonModelDestroy(&w->model);
  DMuonMeshDestroy(&w->mesh);
}

static DMuonErrorCode half_precision(DMuonDType dtype, double value) {
  single w;
  unsigned char before[sizeof w.weight];
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(single_open(dtype, DMUON_ROUTE_MUON, 0, 2, &w));
  for (int i = 0; i < 16; i++) case_store(dtype, w.gradient, i, 1 + i);
  DMUON_CALL(DMuonOptimizerStep(w.opt));
  memcpy(before, w.weight, sizeof before);
  if (tap_rank == tap_size - 1) case_store(dtype, w.gradient, 7, value);
  DMUON_CALL(DMuonOptimizerStep(w.opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(w.opt, &info));
  tap_ok(info.skipped && info.nonfinite_rank == tap_size - 1 &&
             !memcmp(before, w.weight, sizeof before),
         "%g in %s", value, dtype == DMUON_BFLOAT16 ? "bf16" : "fp16");
  single_close(&w);
  return DMUON_SUCCESS;
}

/* All ranks have the same value v: the mean is v, whatever the sum would be. What is kept as
 * momentum is the mean itself. */
static DMuonErrorCode huge(DMuonDType dtype, double v, int replicate) {
  single w;
  double momentum[16] = {0}, value = 0;
  DMuonStepInfo info = {.struct_size = sizeof info};
  const DMuonDType wide = dtype == DMUON_FLOAT64 ? dtype : DMUON_FLOAT32;
  int good = 1;
  DMUON_CALL(single_open(dtype, DMUON_ROUTE_MUON, 0, replicate, &w));
  for (int i = 0; i < 16; i++) case_store(dtype, w.gradient, i, i % 3 ? v : -v);
  value = case_load(dtype, w.gradient, 1);
  DMUON_CALL(DMuonOptimizerStep(w.opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(w.opt, &info));
  DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "momentum", momentum, DMUON_ALL));
  for (int i = 0; i < 16; i++) {
    const double got = case_load(wide, momentum, i), weight = case_load(dtype, w.weight, i);
    if (got != (i % 3 ? value : -value) || !isfinite(weight)) good = 0;
    if (!good && i == 0) tap_diag("mean %g, weight %g", got, weight);
  }
  tap_ok(!info.skipped && good, "%g everywhere is finite, and its own mean (dtype %d, R %d)", v,
         (int)dtype, replicate);
  single_close(&w);
  return DMUON_SUCCESS;
}

/* The same with the default momentum, which outgrows them, and with AdamW, which squares them: ten
 * such steps, then ten with gradients of 1 the other way. No step moves a weight further than one
 * with ordinary gradients can. */
static DMuonErrorCode sustained(DMuonDType dtype, DMuonRoute route, double v) {
  single w;
  DMuonStepInfo info = {.struct_size = sizeof info};
  const char *const name = route == DMUON_ROUTE_MUON ? "momentum" : "exp_avg_sq";
  const double most = .02; /* Muon: 1.13 * 0.2 sqrt(4) * lr 0.02; AdamW: about 7.3 * lr 0.001 */
  double state[16] = {0}, before[16] = {0}, furthest = 0;
  const DMuonDType wide = dtype == DMUON_FLOAT64 ? dtype : DMUON_FLOAT32;
  int finite = 1;
  DMUON_CALL(single_open(dtype, route, -1, 2, &w));
  for (int step = 0; step < 20; step++) {
    for (int i = 0; i < 16; i++) {
      const double size = step < 10 ? v : -1;
      case_store(dtype, w.gradient, i, i % 3 ? size : -size);
    }
    DMUON_CALL(DMuonOptimizerStep(w.opt));
    DMUON_CALL(DMuonOptimizerGetStepInfo(w.opt, &info));
    DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, name, state, DMUON_ALL));
    for (int i = 0; i < 16; i++) {
      const double weight = case_load(dtype, w.weight, i);
      if (!isfinite(weight) || !isfinite(case_load(wide, state, i)) || info.skipped) finite = 0;
      if (fabs(weight - before[i]) > furthest) furthest = fabs(weight - before[i]);
      before[i] = weight;
    }
  }
  if (!tap_ok(finite && furthest > 0 && furthest < most, "%s: %g in dtype %d, step after step",
              name, v, (int)dtype))
    tap_diag("finite %d, the longest step %g, weight %g", finite, furthest, before[1]);
  single_close(&w);
  return DMUON_SUCCESS;
}

/* Large ones of both signs whose mean is small, and one rank alone with a large one. */
static DMuonErrorCode cancelling(void) {
  single w;
  float momentum[16];
  int good = 1;
  DMUON_CALL(single_open(DMUON_FLOAT32, DMUON_ROUTE_MUON, 0, 1, &w));
  for (int i = 0; i < 16; i++) {
    const double large = i < 8 ? (tap_rank % 2 ? 3e38 : -3e38) : tap_rank == 0 ? 3e38 : 0;
    case_store(DMUON_FLOAT32, w.gradient, i, large);
  }
  DMUON_CALL(DMuonOptimizerStep(w.opt));
  DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "momentum", momentum, DMUON_ALL));
  for (int i = 0; i < 16; i++)
    if (fabs(momentum[i] - (i < 8 ? 0 : 3e38 / tap_size)) > 1e32) good = 0;
  tap_ok(good, "large ones that cancel, and one alone (%g, %g)", momentum[0], momentum[8]);
  single_close(&w);
  return DMUON_SUCCESS;
}

/* Micro-batches that are finite each, not together: nothing finite could be sent. */
static DMuonErrorCode accumulated_overflow(void) {
  single w;
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(single_open(DMUON_FLOAT32, DMUON_ROUTE_ADAMW, 0, 1, &w));
  for (int i = 0; i < 16; i++) case_store(DMUON_FLOAT32, w.gradient, i, FLT_MAX);
  DMUON_CALL(DMuonOptimizerAccumulate(w.opt));
  DMUON_CALL(DMuonOptimizerStep(w.opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(w.opt, &info));
  tap_ok(info.skipped && info.nonfinite_rank == 0, "micro-batches whose sum overflows are skipped");
  single_close(&w);
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  static const setting settings[] = {
      {"1 x 4", 1, 4, 0, 0, "host"},
      {"4 x 1, async", 4, 1, 1, 0, "host"},
      {"2 x 2, clipped", 2, 2, 0, 1, "host"},
      {"2 x 2, deferred, async", 2, 2, 1, 0, "host:deferred,seed=2"},
      {"2 x 2, late", 2, 2, 0, 0, "host:late"},
      {"1 x 4, late, clipped", 1, 4, 0, 1, "host:late"},
      {"4 x 1, late, deferred, async", 4, 1, 1, 0, "host:deferred,seed=5,late"}};
  static const double values[] = {INFINITY, -INFINITY, NAN};
  static const int params[] = {0, CASE_EMBED, CASE_DOUBLE, CASE_BRAIN, CASE_BRAIN_BIAS};
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (size_t n = 0; n < sizeof settings / sizeof settings[0]; n++) {
    CHECKED(two_finite_steps(&settings[n]), "%s: finite steps", settings[n].label);
    for (int i = 0; i < 5; i++)
      CHECKED(poisoned(&settings[n], params[i], values[(i + n) % 3], i % 2), "no call fails");
  }
  for (int i = 0; i < 3; i++) {
    CHECKED(half_precision(DMUON_BFLOAT16, values[i]), "no call fails");
    CHECKED(half_precision(DMUON_FLOAT16, values[i]), "no call fails");
  }
  for (int replicate = 1; replicate <= 4; replicate *= 2) {
    CHECKED(huge(DMUON_FLOAT32, 3e38, replicate), "no call fails");
    CHECKED(huge(DMUON_FLOAT64, 1.7e308, replicate), "no call fails");
    CHECKED(huge(DMUON_BFLOAT16, 3e38, replicate), "no call fails");
    CHECKED(huge(DMUON_FLOAT16, 65504, replicate), "no call fails");
  }
  for (int route = DMUON_ROUTE_MUON; route <= DMUON_ROUTE_ADAMW; route++) {
    CHECKED(sustained(DMUON_FLOAT32, (DMuonRoute)route, 3.4e38), "no call fails");
    CHECKED(sustained(DMUON_FLOAT32, (DMuonRoute)route, 1e20), "no call fails");
    CHECKED(sustained(DMUON_FLOAT64, (DMuonRoute)route, 1.79e308), "no call fails");
    CHECKED(sustained(DMUON_BFLOAT16, (DMuonRoute)route, 3.38e38), "no call fails");
    CHECKED(sustained(DMUON_FLOAT16, (DMuonRoute)route, 65504), "no call fails");
  }
  CHECKED(cancelling(), "no call fails");
  CHECKED(accumulated_overflow(), "no call fails");
  return tap_mpi_done();
}
