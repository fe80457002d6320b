/* One and three steps of a mixed model on every rank against the fp64 reference of one process, for
 * every setting of the update rule. Ranks have different gradients; each rank computes the
 * reference from all of them. Settings take turns on the meshes that the number of ranks allows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "step_case.h"
#include "tap_mpi.h"

typedef struct {
  const char *label;
  const char *options[5][2]; /* of the optimizer */
  const char *recipe;
  void (*change)(ref_rule *rule); /* what the options mean */
  const char *variant;            /* of Newton-Schulz */
  DMuonClip clip;
  double max_norm;
  int micro;                      /* micro-batches, 0 as 1 */
  int samples, missing, schedule; /* see below */
} setting;
enum { ON_ALL = 1, ON_SOME };

#define WD \
  { "weight_decay", "0.1" }
#define CHANGE(name, ...)            \
  static void name(ref_rule *rule) { \
    __VA_ARGS__;                     \
  }
CHANGE(ema, rule->ema = 1)
CHANGE(plain, rule->nesterov = 0)
CHANGE(ema_plain, rule->ema = 1; rule->nesterov = 0)
CHANGE(decoupled, rule->weight_decay = .1)
CHANGE(independent, rule->weight_decay = .1; rule->decay = REF_INDEPENDENT)
CHANGE(l2, rule->weight_decay = .1; rule->decay = REF_L2)
CHANGE(cautious, rule->weight_decay = .1; rule->decay = REF_CAUTIOUS)
CHANGE(palm, rule->weight_decay = .1; rule->decay = REF_PALM)
CHANGE(no_decay, rule->weight_decay = .1; rule->decay = REF_NO_DECAY)
CHANGE(moonlight_fifth, rule->scale_factor = .2)
CHANGE(jordan_scale, rule->scale = REF_JORDAN)
CHANGE(jordan_fifth, rule->scale = REF_JORDAN; rule->scale_factor = .2)
CHANGE(spectral, rule->scale = REF_SPECTRAL)
CHANGE(spectral_fifth, rule->scale = REF_SPECTRAL; rule->scale_factor = .2)
CHANGE(unit_rms, rule->scale = REF_UNIT_RMS)
CHANGE(unit_rms_fifth, rule->scale = REF_UNIT_RMS; rule->scale_factor = .2)
CHANGE(no_scale, rule->scale = REF_NO_SCALE)
CHANGE(no_scale_fifth, rule->scale = REF_NO_SCALE; rule->scale_factor = .2)
CHANGE(zero, rule->weight_decay = .1; rule->missing_is_zero = 1)
CHANGE(fast_adamw, rule->adamw_lr = .05; rule->beta1 = .8; rule->beta2 = .95; rule->eps = 1e-3;
       rule->adamw_weight_decay = .2)
CHANGE(clip_global, rule->clip = REF_CLIP_GLOBAL; rule->max_norm = .5)
CHANGE(clip_loose, rule->clip = REF_CLIP_GLOBAL; rule->max_norm = 1e6)
CHANGE(clip_by_route, rule->clip = REF_CLIP_BY_ROUTE; rule->max_norm = 1.5)

static const setting settings[] = {
    {.label = "defaults"},
    {"ema", {{"momentum_form", "ema"}}, .change = ema},
    {"heavy ball without nesterov", {{"nesterov", "0"}}, .change = plain},
    {"ema without nesterov", {{"momentum_form", "ema"}, {"nesterov", "0"}}, .change = ema_plain},
    {"decay decoupled", {WD}, .change = decoupled},
    {"decay independent", {WD, {"decay", "independent"}}, .change = independent},
    {"decay l2", {WD, {"decay", "l2"}}, .change = l2},
    {"decay cautious", {WD, {"decay", "cautious"}}, .change = cautious},
    {"decay palm", {WD, {"decay", "palm"}}, .change = palm},
    {"decay none", {WD, {"decay", "none"}}, .change = no_decay},
    {"scale moonlight x 0.2", {{"scale_factor", "0.2"}}, .change = moonlight_fifth},
    {"scale jordan", {{"scale", "jordan"}}, .change = jordan_scale},
    {"scale jordan x 0.2", {{"scale", "jordan"}, {"scale_factor", "0.2"}}, .change = jordan_fifth},
    {"scale spectral", {{"scale", "spectral"}}, .change = spectral},
    {"scale spectral x 0.2",
     {{"scale", "spectral"}, {"scale_factor", "0.2"}},
     .change = spectral_fifth},
    {"scale unit_rms", {{"scale", "unit_rms"}}, .change = unit_rms},
    {"scale unit_rms x 0.2",
     {{"scale", "unit_rms"}, {"scale_factor", "0.2"}},
     .change = unit_rms_fifth},
    {"scale none", {{"scale", "none"}}, .change = no_scale},
    {"scale none x 0.2", {{"scale", "none"}, {"scale_factor", "0.2"}}, .change = no_scale_fifth},
    {"adamw's own values",
     {{"adamw_lr", "0.05"},
      {"adamw_beta1", "0.8"},
      {"adamw_beta2", "0.95"},
      {"adamw_eps", "1e-3"},
      {"adamw_weight_decay", "0.2"}},
     .change = fast_adamw},
    {"missing everywhere, skipped", {WD}, .change = decoupled, .missing = ON_ALL},
    {"missing everywhere, zero",
     {WD, {"missing_gradient", "zero"}},
     .change = zero,
     .missing = ON_ALL},
    {"missing on some ranks, skip", {WD}, .change = decoupled, .missing = ON_SOME},
    {"missing on some ranks, zero",
     {WD, {"missing_gradient", "zero"}},
     .change = zero,
     .missing = ON_SOME},
    {"recipe dmuon", .recipe = "dmuon"},
    {"recipe jordan", .recipe = "jordan"},
    {"recipe moonlight", .recipe = "moonlight"},
    {"recipe dion", .recipe = "dion"},
    {"recipe emerging", .recipe = "emerging"},
    {"recipe emerging by option", {{"rule", "emerging"}}, .recipe = "emerging"},
    {"recipe jordan with weight decay", {WD, {"decay", "l2"}}, .recipe = "jordan", .change = l2},
    {"clip global", .clip = DMUON_CLIP_GLOBAL, .max_norm = .5, .change = clip_global},
    {"clip global, loose", .clip = DMUON_CLIP_GLOBAL, .max_norm = 1e6, .change = clip_loose},
    {"clip by route", .clip = DMUON_CLIP_BY_ROUTE, .max_norm = 1.5, .change = clip_by_route},
    {"clip with something missing", .clip = DMUON_CLIP_GLOBAL, .max_norm = .5,
     .change = clip_global, .missing = ON_ALL},
    {"newton-schulz gram", .variant = "gram"},
    {"newton-schulz direct", .variant = "direct"},
    {"gram, you", .variant = "gram", .recipe = "emerging"},
    {"direct, dion", .variant = "direct", .recipe = "dion"},
    {"1 micro-batch", .micro = 1},
    {"4 micro-batches", .micro = 4},
    {"8 micro-batches, clipped", .micro = 8, .clip = DMUON_CLIP_GLOBAL, .max_norm = .5,
     .change = clip_global},
    {"micro-batches, something missing", .micro = 2, .missing = ON_SOME},
    {"sample counts", .samples = 1},
    {"sample counts of micro-batches", .samples = 1, .micro = 3},
    {"learning rates of a schedule", .schedule = 1},
    {"learning rates, ema, l2",
     {WD, {"decay", "l2"}, {"momentum_form", "ema"}},
     .schedule = 1,
     .change = l2},
};
enum { SETTINGS = sizeof settings / sizeof *settings, STEPS = 3 };

static double distance[CASE_PARAMS][2]; /* of the values, of the masters */

/* Uneven, none on the last rank where there are several. */
static double samples_of(int rank, int size) {
  return size > 1 && rank == size - 1 ? 0 : 3 + 2 * rank;
}

static int is_missing(const setting *s, int param, int rank) {
  const int special = param == CASE_QKV || param == CASE_EMBED || param == CASE_BRAIN;
  if (s->missing == ON_ALL) return special;
  return s->missing == ON_SOME && special && rank % 2 == 1;
}

/* The averaged gradient of everything in step, NULL where no rank has one. */
static void mean_gradients(const setting *s, int size, int step, double **mean) {
  const int micro = s->micro ? s->micro : 1;
  double divisor = size;
  if (s->samples) divisor = 0;
  for (int r = 0; s->samples && r < size; r++) divisor += micro * samples_of(r, size);
  for (int p = 0; p < CASE_PARAMS; p++) {
    int present = 0;
    const int64_t n = case_numel(p);
    double *sum = calloc((size_t)n + 1, sizeof *sum);
    for (int r = 0; r < size; r++) {
      if (is_missing(s, p, r)) continue;
      present = 1;
      for (int m = 0; m < micro; m++)
        for (int64_t i = 0; i < n; i++) sum[i] += case_gradient(p, i, r, step, m) / divisor;
    }
    if (!present) free(sum);
    mean[p] = present ? sum : NULL;
  }
}

/* The parameters against the reference: how far, with the bounds of their dtype. */
static int agrees(const setting *s, step_case *c, const ref_param *params, DMuonErrorCode *code) {
  int good = 1;
  *code = DMUON_SUCCESS;
  for (int p = 0; p < CASE_PARAMS && !*code; p++) {
    const DMuonDType dtype = case_params[p].dtype;
    const int narrow = dtype == DMUON_BFLOAT16;
    /* With clipping, the rounding of fp32 gradients reaches fp64 ones through the norm. */
    const double exact = s->clip ? 1e-8 : 1e-11;
    const double bound = dtype == DMUON_FLOAT64 ? exact : narrow ? 4e-3 : 1e-5;
    double *value = calloc((size_t)c->numel[p] + 1, sizeof *value);
    for (int64_t i = 0; i < c->numel[p]; i++) value[i] = case_load(dtype, c->weight[p], i);
    distance[p][0] = ref_distance(c->numel[p], value, params[p].weight);
    distance[p][1] = 0;
    if (!(distance[p][0] <= bound)) {
      good = 0;
      tap_diag("%s: distance %.3g, bound %g", case_params[p].name, distance[p][0], bound);
    }
    if (narrow) { /* the value is the rounded fp32 master */
      float *master = calloc((size_t)c->numel[p] + 1, sizeof *master);
      *code = DMuonOptimizerGetState(c->opt, c->id[p], "master", master, DMUON_ALL);
      for (int64_t i = 0; !*code && i < c->numel[p]; i++) {
        uint16_t rounded;
        case_store(dtype, &rounded, 0, master[i]);
        if (case_load(dtype, &rounded, 0) != value[i]) {
          good = 0;
          tap_diag("%s: %g is not the rounded master %g", case_params[p].name, value[i], master[i]);
        }
        value[i] = master[i];
      }
      distance[p][1] = ref_distance(c->numel[p], value, params[p].weight);
      if (!(distance[p][1] <= 1e-5)) {
        good = 0;
        tap_diag("%s: master at distance %.3g", case_params[p].name, distance[p][1]);
      }
      free(master);
    }
    free(value);
  }
  return good;
}

static int near(double a, double b) {
  return fabs(a - b) <= 2e-6 * fabs(b);
}

static int info_agrees(const setting *s, const DMuonStepInfo *info, const ref_info *expected,
                       int step, int size) {
  double samples = 0;
  int good = info->step == step + 1 && !info->skipped && info->nonfinite_name == NULL &&
             info->nonfinite_rank == -1 && info->newton_schulz_calls == expected->matrices;
  if (s->clip == DMUON_CLIP_NONE)
    good = good && isnan(info->grad_norm) && info->clip_factor == 1;
  else
    good = good && near(info->grad_norm, expected->grad_norm) &&
           near(info->muon_norm, expected->muon_norm) &&
           near(info->adamw_norm, expected->adamw_norm) &&
           near(info->clip_factor, expected->factor);
  for (int r = 0; s->samples && r < size; r++)
    samples += (s->micro ? s->micro : 1) * samples_of(r, size);
  if (!near(info->samples, samples)) good = 0;
  if (!good)
    tap_diag(
        "step %d: step %lld skipped %d ns %lld (%lld) norms %g %g %g (%g %g %g) factor %g (%g) "
        "samples %g (%g)",
        step, (long long)info->step, info->skipped, (long long)info->newton_schulz_calls,
        (long long)expected->matrices, info->grad_norm, info->muon_norm, info->adamw_norm,
        expected->grad_norm, expected->muon_norm, expected->adamw_norm, info->clip_factor,
        expected->factor, info->samples, samples);
  return good;
}

/* Live values: the same said to the library and to the reference. */
static DMuonErrorCode change_live(step_case *c, ref_param *params, int step, double *factor) {
  *factor = DMuonScheduleFactor(DMUON_SCHEDULE_LINEAR, step, 2, 6, .1);
  DMUON_CALL(DMuonOptimizerSetLearningRateFactor(c->opt, *factor));
  if (step == 1) {
    DMUON_CALL(DMuonOptimizerSetHyper(c->opt, "layers.1.*|embed.*", DMUON_HYPER_LR, .007));
    DMUON_CALL(DMuonOptimizerSetHyper(c->opt, "*.square", DMUON_HYPER_MOMENTUM, .5));
    DMUON_CALL(DMuonOptimizerSetHyper(c->opt, "layers.2.*", DMUON_HYPER_WEIGHT_DECAY, .03));
    DMUON_CALL(DMuonOptimizerSetHyper(c->opt, "*bias", DMUON_HYPER_BETA1, .7));
    DMUON_CALL(DMuonOptimizerSetHyper(c->opt, "*bias", DMUON_HYPER_BETA2, .9));
    DMUON_CALL(DMuonOptimizerSetHyper(c->opt, "scalar", DMUON_HYPER_EPS, .01));
    for (int p = 0; p < CASE_PARAMS; p++) {
      const char *name = case_params[p].name;
      if (!strncmp(name, "layers.1.", 9) || p == CASE_EMBED) params[p].lr = .007;
      if (p == CASE_SQUARE) params[p].momentum = .5;
      if (!strncmp(name, "layers.2.", 9)) params[p].weight_decay = .03;
      if (strlen(name) > 4 && !strcmp(name + strlen(name) - 4, "bias"))
        params[p].beta1 = .7, params[p].beta2 = .9;
      if (!strcmp(name, "scalar")) params[p].eps = .01;
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode one_step(const setting *s, step_case *c, int step, DMuonStepInfo *info) {
  const int micro = s->micro ? s->micro : 1;
  for (int p = 0; p < CASE_PARAMS; p++)
    DMUON_CALL(DMuonOptimizerSetArrays(c->opt, c->id[p], c->weight[p],
                                       is_missing(s, p, c->rank) ? NULL : c->gradient[p]));
  if (s->samples) DMUON_CALL(DMuonOptimizerSetSampleCount(c->opt, samples_of(c->rank, c->size)));
  for (int m = 0; m < micro; m++) {
    case_fill_gradients(c, step, m);
    if (m < micro - 1) DMUON_CALL(DMuonOptimizerAccumulate(c->opt));
  }
  DMUON_CALL(DMuonOptimizerStep(c->opt));
  return DMuonOptimizerGetStepInfo(c->opt, info);
}

static DMuonErrorCode prepare(const setting *s, int number, DMuonMesh mesh,
                              const char *coefficients, step_case *c) {
  char name[32], option[64];
  snprintf(name, sizeof name, "case%d", number);
  DMUON_CALL(DMuonOptimizerSetName(c->opt, name));
  const int rule_is_option = s->options[0][0] && !strcmp(s->options[0][0], "rule");
  if (s->recipe && !rule_is_option) DMUON_CALL(DMuonOptimizerSetRule(c->opt, s->recipe));
  for (int i = 0; i < 5 && s->options[i][0]; i++) {
    snprintf(option, sizeof option, "%s.%s", name, s->options[i][0]);
    DMUON_CALL(DMuonMeshSetOption(mesh, option, s->options[i][1]));
  }
  if (s->clip != DMUON_CLIP_NONE) DMUON_CALL(DMuonOptimizerSetClip(c->opt, s->clip, s->max_norm));
  if (s->variant) {
    DMuonNewtonSchulz ns;
    DMUON_CALL(DMuonNewtonSchulzCreate(mesh, &ns));
    DMuonErrorCode code = DMuonNewtonSchulzSetVariant(ns, s->variant);
    if (!code) code = DMuonNewtonSchulzSetCoefficients(ns, coefficients);
    if (!code) code = DMuonOptimizerSetNewtonSchulz(c->opt, ns);
    DMuonNewtonSchulzDestroy(&ns);
    DMUON_CALL(code);
  }
  return case_set_up(mesh, c);
}

static DMuonErrorCode run(const setting *s, int number, DMuonMesh mesh, step_case *c,
                          ref_param *params, int *good) {
  ref_rule rule;
  if (!ref_recipe(s->recipe ? s->recipe : "dmuon", &rule)) return DMUON_ERR_ARGUMENT;
  if (s->change) s->change(&rule);
  if (s->options[2][0] && !strcmp(s->options[2][1], "ema")) rule.ema = 1;
  ref_start(&rule, CASE_PARAMS, params);
  DMUON_CALL(case_create(mesh, c));
  DMUON_CALL(prepare(s, number, mesh, rule.coefficients, c));
  for (int step = 0; step < STEPS; step++) {
    DMuonStepInfo info = {.struct_size = sizeof info};
    ref_info expected;
    double *mean[CASE_PARAMS], factor = 1;
    DMuonErrorCode code = DMUON_SUCCESS;
    if (s->schedule) DMUON_CALL(change_live(c, params, step, &factor));
    DMUON_CALL(one_step(s, c, step, &info));
    mean_gradients(s, c->size, step, mean);
    ref_step(&rule, factor, CASE_PARAMS, params, mean, &expected);
    for (int p = 0; p < CASE_PARAMS; p++) free(mean[p]);
    good[step] = info_agrees(s, &info, &expected, step, c->size);
    if (!agrees(s, c, params, &code)) good[step] = 0;
    DMUON_CALL(code);
  }
  return DMUON_SUCCESS;
}

/* The divisors that fit: all in one shard group, all replicated, and the most even of both. */
static int sizes_for(int ranks, int (*sizes)[2]) {
  int count = 0;
  for (int r = 1; r <= ranks; r++)
    if (ranks % r == 0 && (r == 1 || r == ranks || (r >= 2 && r <= 4)))
      sizes[count][0] = r, sizes[count++][1] = ranks / r;
  return count;
}

int main(int argc, char **argv) {
  int sizes[8][2];
  DMuonMesh mesh[8] = {NULL};
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  const int meshes = sizes_for(tap_size, sizes);
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < meshes && !code; i++) {
    code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh[i]);
    if (!code) code = DMuonMeshSetSizes(mesh[i], sizes[i][0], sizes[i][1], 1);
  }
  for (int n = 0; n < SETTINGS; n++) {
    step_case c = {0};
    ref_param params[CASE_PARAMS];
    int good[STEPS] = {0};
    const int at = n % meshes;
    if (tap_size > 4 && n % 2 != tap_size % 2) continue; /* the other half on 8, or 7, ranks */
    case_reference(params);
    if (!code) code = run(&settings[n], n, mesh[at], &c, params, good);
    if (!tap_ok(!code && good[0] && good[1] && good[2], "%s (%d x %d)", settings[n].label,
                sizes[at][0], sizes[at][1]))
      tap_diag("%s: steps %d %d %d%s%s", settings[n].label, good[0], good[1], good[2],
               code ? ", " : "", code ? DMuonErrorGetMessage() : "");
    if (!DMuonErrorIsFatal(code)) code = DMUON_SUCCESS;
    case_destroy(&c);
    case_reference_free(params);
  }
  for (int i = 0; i < meshes; i++) DMuonMeshDestroy(&mesh[i]);
  return tap_mpi_done();
}
