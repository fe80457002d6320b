/* Known numbers of the update rules, through the public interface on one rank: two steps of Muon,
 * three of AdamW, momentum forms, decay, masters. */
#include <dmuon.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tap_mpi.h"

/* One parameter on a mesh of its own. */
typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
} world;

static DMuonErrorCode begin(world *w, const char *name, DMuonDType dtype, int ndim,
                            const int64_t *dims, void *weight, const void *gradient) {
  memset(w, 0, sizeof *w);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_SELF, &w->mesh));
  DMUON_CALL(DMuonModelCreate(w->mesh, &w->model));
  DMUON_CALL(DMuonModelAddParamArray(w->model, name, dtype, ndim, dims, weight, gradient, NULL));
  if (!strncmp(name, "muon", 4)) DMUON_CALL(DMuonModelSetRoute(w->model, name, DMUON_ROUTE_MUON));
  DMUON_CALL(DMuonOptimizerCreate(w->model, &w->opt));
  return DMUON_SUCCESS;
}

static void end(world *w) {
  DMuonOptimizerDestroy(&w->opt);
  DMuonModelDestroy(&w->model);
  DMuonMeshDestroy(&w->mesh);
}

static double worst(int64_t n, const double *a, const double *b) {
  double most = 0;
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(a[i] - b[i]) <= most)) most = fabs(a[i] - b[i]);
  return most;
}

/* ---- two steps of Muon ----------------------------------------------------------------------- */

/* The numbers were made with 1e-7 added to the norm of the update, about 5: a relative 2e-8, which
 * the polynomial's slope (up to 30 at 1) multiplies. */
static DMuonErrorCode two_steps(void) {
  static const int64_t dims[] = {2, 3};
  static const double gradients[2][6] = {{1, 0, -1, .5, 2, 1}, {.2, -.3, .4, -1, .5, .25}};
  static const double expected[2][6] = {
      {0.09484971994029286, 0.1991328018502229, 0.30399988144737433, 0.3973088576573678,
       0.4923698269290255, 0.5957185125394013},
      {0.08864558665893184, 0.19818964865556174, 0.30202192921617743, 0.39801629223166196,
       0.4857814733477642, 0.5914609975203821}};
  static const double orthogonal[2][6] = {
      {0.7145113812589892, 0.06743424438467766, -0.6639356979704818, 0.272962885148648,
       0.9569830518252382, 0.4447744037202807},
      {0.8681087493504798, 0.07864774932980849, 0.19773560658780964, -0.21680257343565157,
       0.8088120023552432, 0.44255023878948085}};
  static const double momentum[2][6] = {{1, 0, -1, .5, 2, 1}, {1.15, -.3, -.55, -.525, 2.4, 1.2}};
  const double lr = .02, wd = .1, scale = 0.34641016151377546;
  static const char *const variants[] = {"auto", "gram", "direct"};
  for (int v = 0; v < 3; v++) {
    double weight[6] = {.1, .2, .3, .4, .5, .6}, gradient[6] = {0}, state[6], before[6], step[6];
    int64_t steps = 0;
    world w;
    DMuonNewtonSchulz ns;
    DMUON_CALL(begin(&w, "layers.0.w", DMUON_FLOAT64, 2, dims, weight, gradient));
    DMUON_CALL(DMuonOptimizerSetMuon(w.opt, lr, .95, wd));
    DMUON_CALL(DMuonNewtonSchulzCreate(NULL, &ns));
    DMUON_CALL(DMuonNewtonSchulzSetVariant(ns, variants[v]));
    DMUON_CALL(DMuonOptimizerSetNewtonSchulz(w.opt, ns));
    DMUON_CALL(DMuonNewtonSchulzDestroy(&ns));
    DMUON_CALL(DMuonOptimizerSetUp(w.opt));
    for (int t = 0; t < 2; t++) {
      memcpy(before, weight, sizeof before);
      memcpy(gradient, gradients[t], sizeof gradient);
      DMUON_CALL(DMuonOptimizerStep(w.opt));
      DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "momentum", state, 0));
      DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "step", &steps, 0));
      for (int i = 0; i < 6; i++) step[i] = (before[i] * (1 - lr * wd) - weight[i]) / (lr * scale);
      tap_is_near(worst(6, weight, expected[t]), 0, 8e-9, "%s: weights after step %d", variants[v],
                  t + 1);
      tap_is_near(worst(6, step, orthogonal[t]), 0, 1e-6, "%s: the orthogonal factor of step %d",
                  variants[v], t + 1);
      tap_is_near(worst(6, state, momentum[t]), 0, 1e-15, "%s: momentum after step %d", variants[v],
                  t + 1);
      tap_is_int(steps, t + 1, "%s: the parameter counts step %d", variants[v], t + 1);
    }
    end(&w);
  }
  return DMUON_SUCCESS;
}

/* ---- three steps of AdamW -------------------------------------------------------------------- */

static DMuonErrorCode three_adamw_steps(void) {
  static const double gradients[] = {.5, -.25, .1};
  static const double p[] = {0.99899000002, 0.9987136730870784, 0.9983884423935262};
  static const double m[] = {.05, .02, .028}, v[] = {.00025, .00031225, .00032193775};
  double weight = 1, gradient = 0, avg = 0, sq = 0;
  world w;
  DMUON_CALL(begin(&w, "scalar", DMUON_FLOAT64, 0, NULL, &weight, &gradient));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  for (int t = 0; t < 3; t++) {
    gradient = gradients[t];
    DMUON_CALL(DMuonOptimizerStep(w.opt));
    DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "exp_avg", &avg, 0));
    DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "exp_avg_sq", &sq, 0));
    /* The first value is given to 11 digits. */
    tap_is_near(weight, p[t], t == 0 ? 1e-11 : 1e-12, "adamw: value after step %d", t + 1);
    tap_is_near(avg, m[t], 1e-15, "adamw: first moment after step %d", t + 1);
    tap_is_near(sq, v[t], 1e-17, "adamw: second moment after step %d", t + 1);
  }
  end(&w);
  return DMUON_SUCCESS;
}

/* Betas of 1 would divide by zero; so would an eps of 0 where there was no gradient. */
static DMuonErrorCode adamw_limits(void) {
  static const int64_t dims[] = {3};
  static const double betas[][2] = {{1, .999}, {.9, 1}, {-.1, .999}, {.9, NAN}, {1.5, .5}};
  double weight[3] = {1, 1, 1}, gradient[3] = {0, 2, -2};
  int refused = 1;
  world w;
  DMUON_CALL(begin(&w, "vector", DMUON_FLOAT64, 1, dims, weight, gradient));
  for (int i = 0; i < 5; i++)
    refused &=
        DMuonOptimizerSetAdamW(w.opt, .1, betas[i][0], betas[i][1], 0, 0) == DMUON_ERR_ARGUMENT;
  tap_ok(refused, "betas outside [0,1) are refused");
  DMuonOptimizerSetAdamW(w.opt, .1, 1, .9, 0, 0);
  tap_contains(DMuonErrorGetMessage(), "beta1 is 1; it must be at least 0 and below 1", "in words");
  tap_is_int(DMuonOptimizerSetHyper(w.opt, "vector", DMUON_HYPER_BETA2, 1), DMUON_ERR_ARGUMENT,
             "beta2 of 1 by SetHyper");
  DMUON_CALL(DMuonMeshSetOption(w.mesh, "adamw_beta1", "1"));
  tap_is_int(DMuonOptimizerSetUp(w.opt), DMUON_ERR_SETUP, "beta1 of 1 by option");
  DMUON_CALL(DMuonMeshSetOption(w.mesh, "adamw_beta1", "0.9999999999999999"));
  DMUON_CALL(DMuonOptimizerSetAdamW(w.opt, .1, .5, 0, 0, 0));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  for (int t = 0; t < 3; t++) DMUON_CALL(DMuonOptimizerStep(w.opt));
  tap_ok(weight[0] == 1, "without eps: no gradient, no move (%g)", weight[0]);
  tap_is_near(weight[1], .7, 1e-12, "three steps down");
  tap_is_near(weight[2], 1.3, 1e-12, "and up");
  end(&w);
  return DMUON_SUCCESS;
}

/* ---- momentum -------------------------------------------------------------------------------- */

/* A 1x2 matrix: the first gradient is 1, 1, 1, the second 1, 0, 0. What is orthogonalised shows in
 * the quotient of the two updates, which Newton-Schulz of one row keeps. */
static DMuonErrorCode momentum_form(const char *form, const char *nesterov, const double *momentum,
                                    const double *quotient) {
  static const int64_t dims[] = {1, 2};
  double weight[2] = {0, 0}, gradient[2] = {0, 0}, state[2] = {0, 0};
  world w;
  DMUON_CALL(begin(&w, "muon", DMUON_FLOAT64, 2, dims, weight, gradient));
  DMUON_CALL(DMuonMeshSetOption(w.mesh, "momentum_form", form));
  DMUON_CALL(DMuonMeshSetOption(w.mesh, "nesterov", nesterov));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  for (int t = 0; t < 3; t++) {
    double before[2] = {weight[0], weight[1]};
    gradient[0] = 1;
    gradient[1] = t == 0;
    DMUON_CALL(DMuonOptimizerStep(w.opt));
    DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "momentum", state, 0));
    tap_is_near(state[0], momentum[t], 1e-15, "%s, nesterov %s: momentum after step %d", form,
                nesterov, t + 1);
    tap_is_near((weight[0] - before[0]) / (weight[1] - before[1]), quotient[t], 1e-12 * quotient[t],
                "%s, nesterov %s: direction of step %d", form, nesterov, t + 1);
  }
  end(&w);
  return DMUON_SUCCESS;
}

static DMuonErrorCode momentum_forms(void) {
  static const double ema[] = {.05, .0975, .142625}, ball[] = {1, 1.95, 2.8525};
  static const double ema_ahead[] = {1, .142625 / .045125, .18549375 / .04286875};
  static const double ball_ahead[] = {1, 2.8525 / .9025, 3.709875 / .857375};
  static const double plain[] = {1, 1.95 / .95, 2.8525 / .9025};
  DMUON_CALL(momentum_form("ema", "1", ema, ema_ahead));
  DMUON_CALL(momentum_form("ema", "0", ema, plain));
  DMUON_CALL(momentum_form("heavy_ball", "1", ball, ball_ahead));
  DMUON_CALL(momentum_form("heavy_ball", "0", ball, plain));
  return DMUON_SUCCESS;
}

/* ---- decay ----------------------------------------------------------------------------------- */

/* Zero gradients: exactly zero comes out of Newton-Schulz, decay acts all the same. */
static DMuonErrorCode decays(void) {
  static const int64_t dims[] = {4, 4};
  static const struct {
    const char *kind;
    double lr, decay, expected;
  } cases[] = {{"decoupled", .1, 10, 0},  {"decoupled", .1, .5, .95}, {"independent", .1, .5, .5},
               {"cautious", .1, .5, .95}, {"palm", .1, .5, .995},     {"none", .1, .5, 1},
               {"independent", .1, 1, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    float weight[16], gradient[16] = {0};
    int same = 1;
    world w;
    for (int j = 0; j < 16; j++) weight[j] = 1;
    DMUON_CALL(begin(&w, "layers.0.w", DMUON_FLOAT32, 2, dims, weight, gradient));
    DMUON_CALL(DMuonOptimizerSetMuon(w.opt, cases[i].lr, .95, cases[i].decay));
    DMUON_CALL(DMuonMeshSetOption(w.mesh, "decay", cases[i].kind));
    DMUON_CALL(DMuonOptimizerSetUp(w.opt));
    DMUON_CALL(DMuonOptimizerStep(w.opt));
    for (int j = 0; j < 16; j++) same = same && fabs(weight[j] - cases[i].expected) <= 6e-8;
    tap_ok(same, "decay %s by %g at rate %g: 1 becomes %g (%.9g)", cases[i].kind, cases[i].decay,
           cases[i].lr, cases[i].expected, weight[0]);
    end(&w);
  }
  return DMUON_SUCCESS;
}

/* 100 steps of length 1e-4 in bf16: each alone is lost in the value, not in its fp32 master. */
static DMuonErrorCode small_steps(void) {
  static const int64_t dims[] = {1, 1};
  const uint16_t one = 0x3f80, expected = 0x3f7d; /* 0.98828125 */
  uint16_t weight = one, gradient = one;
  float master = 0;
  world w;
  DMUON_CALL(begin(&w, "muon", DMUON_BFLOAT16, 2, dims, &weight, &gradient));
  DMUON_CALL(DMuonOptimizerSetMuon(w.opt, 1e-4, .95, 0));
  DMUON_CALL(DMuonOptimizerSetScale(w.opt, DMUON_SCALE_NONE, 1 / 1.0190269326));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  for (int t = 0; t < 100; t++) DMUON_CALL(DMuonOptimizerStep(w.opt));
  DMUON_CALL(DMuonOptimizerGetState(w.opt, 0, "master", &master, 0));
  tap_is_near(master, .99, 1e-5, "bf16: the fp32 master after 100 small steps");
  tap_is_int(weight, expected, "bf16: the value is the rounded master");
  end(&w);
  return DMUON_SUCCESS;
}

/* ---- Newton-Schulz of special matrices ------------------------------------------------------- */

/* value: the diagonal that comes out when 1e-7 is added to the norm. We add nothing; the polynomial
 * at both places ties the two together. */
static DMuonErrorCode special(const char *label, int n, double norm, const char *coefficients,
                              double value) {
  const int64_t dims[] = {n, n};
  double weight[256] = {0}, gradient[256] = {0}, expected[256] = {0};
  double ours = 0, theirs = 0;
  DMuonNewtonSchulz ns;
  world w;
  DMUON_CALL(begin(&w, "muon", DMUON_FLOAT64, 2, dims, weight, gradient));
  DMUON_CALL(DMuonOptimizerSetMuon(w.opt, 1, .95, 0));
  DMUON_CALL(DMuonOptimizerSetScale(w.opt, DMUON_SCALE_NONE, 1));
  DMUON_CALL(DMuonMeshSetOption(w.mesh, "nesterov", "0"));
  DMUON_CALL(DMuonNewtonSchulzCreate(NULL, &ns));
  DMUON_CALL(DMuonNewtonSchulzSetCoefficients(ns, coefficients));
  DMUON_CALL(DMuonNewtonSchulzSetUp(ns));
  if (norm > 0) {
    const double sigma = 1 / sqrt(n);
    DMUON_CALL(DMuonNewtonSchulzEvaluate(ns, sigma, &ours));
    DMUON_CALL(DMuonNewtonSchulzEvaluate(ns, sigma * norm / (norm + 1e-7), &theirs));
  }
  for (int i = 0; i < n; i++) {
    gradient[i * n + i] = norm / sqrt(n);
    expected[i * n + i] = -ours;
  }
  DMUON_CALL(DMuonOptimizerSetNewtonSchulz(w.opt, ns));
  DMUON_CALL(DMuonNewtonSchulzDestroy(&ns));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  DMUON_CALL(DMuonOptimizerStep(w.opt));
  tap_is_near(theirs, value, 1e-10, "%s, %s: the known number", label, coefficients);
  tap_is_near(worst(n * n, weight, expected), 0, norm > 0 ? 1e-12 : 0, "%s, %s: the update", label,
              coefficients);
  end(&w);
  return DMUON_SUCCESS;
}

static DMuonErrorCode specials(void) {
  DMUON_CALL(special("one number", 1, 3, "polar_express", 1.0190269326));
  DMUON_CALL(special("one number", 1, 3, "you", 0.9783456024));
  DMUON_CALL(special("zeros", 4, 0, "polar_express", 0));
  DMUON_CALL(special("identity of 2", 2, sqrt(2), "polar_express", 0.8784042454));
  DMUON_CALL(special("identity of 4", 4, 2, "polar_express", 0.8849242541));
  DMUON_CALL(special("identity of 16", 16, 4, "polar_express", 0.9754071345));
  DMUON_CALL(special("identity of 2", 2, sqrt(2), "you", 1.0256120651));
  DMUON_CALL(special("identity of 16", 16, 4, "you", 0.9872180488));
  return DMUON_SUCCESS;
}

/* ---- what is in force ------------------------------------------------------------------------ */

static DMuonErrorCode in_force(void) {
  static const int64_t dims[] = {2, 3};
  static const double muon[] = {.02, .95, 0}, adamw[] = {1e-3, 0, .01, .9, .999, 1e-8};
  double weight[6] = {0}, gradient[6] = {0}, value;
  int good = 1;
  world w;
  DMUON_CALL(begin(&w, "layers.0.w", DMUON_FLOAT64, 2, dims, weight, gradient));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  for (int h = DMUON_HYPER_LR; h <= DMUON_HYPER_WEIGHT_DECAY; h++) {
    DMUON_CALL(DMuonOptimizerGetHyper(w.opt, 0, (DMuonHyper)h, &value));
    good = good && value == muon[h];
  }
  tap_ok(good, "defaults of Muon");
  DMUON_CALL(DMuonOptimizerSetLearningRateFactor(w.opt, .25));
  DMUON_CALL(DMuonOptimizerGetHyper(w.opt, 0, DMUON_HYPER_LR, &value));
  tap_is_near(value, .005, 1e-18, "the factor is in the rate in force");
  end(&w);
  DMUON_CALL(begin(&w, "w", DMUON_FLOAT64, 2, dims, weight, gradient));
  DMUON_CALL(DMuonOptimizerSetUp(w.opt));
  good = 1;
  for (int h = DMUON_HYPER_LR; h <= DMUON_HYPER_EPS; h++) {
    if (h == DMUON_HYPER_MOMENTUM) continue;
    DMUON_CALL(DMuonOptimizerGetHyper(w.opt, 0, (DMuonHyper)h, &value));
    good = good && value == adamw[h];
  }
  tap_ok(good, "defaults of AdamW");
  end(&w);
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    DMuonErrorCode (*run)(void);
  } parts[] = {{"two steps of Muon", two_steps},
               {"AdamW", three_adamw_steps},
               {"limits of AdamW", adamw_limits},
               {"momentum", momentum_forms},
               {"decay", decays},
               {"small steps", small_steps},
               {"special matrices", specials},
               {"values in force", in_force}};
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const DMuonErrorCode code = parts[i].run();
    if (!tap_ok(!code, "%s: no call fails", parts[i].name)) tap_diag("%s", DMuonErrorGetMessage());
  }
  return tap_mpi_done();
}
