/* The published recipes and the scale rules. A recipe sets the rule and names the Newton-Schulz
 * coefficients; the arithmetic of the iteration stays what the user chose. */
#include "update/rule.h"

#include <math.h>
#include <string.h>

#include "base/glob.h"

const char *const dmuon_momentum_form_names[] = {"heavy_ball", "ema", NULL};
const char *const dmuon_decay_names[] = {"decoupled", "independent", "l2", "cautious",
                                         "palm",      "none",        NULL};
const char *const dmuon_scale_names[] = {"moonlight", "jordan", "spectral",
                                         "unit_rms",  "none",   NULL};
const char *const dmuon_missing_gradient_names[] = {"skip", "zero", NULL};
const char *const dmuon_recipe_names[] = {"dmuon", "jordan", "moonlight", "dion", "emerging", NULL};
const char *const dmuon_hyper_names[] = {"lr", "momentum", "weight_decay", "beta1", "beta2", "eps"};

typedef struct {
  const char *coefficients;
  dmuon_rule rule;
} recipe;

/* In the order of dmuon_recipe_names.
 * jordan: K. Jordan et al., "Muon: an optimizer for hidden layers" (2024), with its auxiliary Adam.
 * moonlight: J. Liu et al., arXiv:2502.16982. dion: the Muon of microsoft/dion.
 * emerging: the Muon of NVIDIA Emerging-Optimizers. */
static const recipe recipes[] = {
    {"polar_express",
     {.lr = 0.02,
      .momentum = 0.95,
      .weight_decay = 0,
      .scale_factor = 1,
      .adamw_lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .adamw_weight_decay = 0.01,
      .momentum_form = DMUON_MOMENTUM_HEAVY_BALL,
      .nesterov = 1,
      .decay = DMUON_DECAY_DECOUPLED,
      .scale = DMUON_SCALE_MOONLIGHT,
      .missing_gradient = DMUON_MISSING_SKIP}},
    {"jordan",
     {.lr = 0.02,
      .momentum = 0.95,
      .weight_decay = 0,
      .scale_factor = 1,
      .adamw_lr = 3e-4,
      .beta1 = 0.9,
      .beta2 = 0.95,
      .eps = 1e-10,
      .adamw_weight_decay = 0,
      .momentum_form = DMUON_MOMENTUM_EMA,
      .nesterov = 1,
      .decay = DMUON_DECAY_DECOUPLED,
      .scale = DMUON_SCALE_JORDAN,
      .missing_gradient = DMUON_MISSING_ZERO}},
    {"jordan",
     {.lr = 1e-3,
      .momentum = 0.95,
      .weight_decay = 0.1,
      .scale_factor = 1,
      .adamw_lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.95,
      .eps = 1e-8,
      .adamw_weight_decay = 0.1,
      .momentum_form = DMUON_MOMENTUM_HEAVY_BALL,
      .nesterov = 1,
      .decay = DMUON_DECAY_DECOUPLED,
      .scale = DMUON_SCALE_MOONLIGHT,
      .missing_gradient = DMUON_MISSING_SKIP}},
    {"dion",
     {.lr = 0.01,
      .momentum = 0.95,
      .weight_decay = 0.01,
      .scale_factor = 1,
      .adamw_lr = 0.01,
      .beta1 = 0.9,
      .beta2 = 0.95,
      .eps = 1e-8,
      .adamw_weight_decay = 0.01,
      .momentum_form = DMUON_MOMENTUM_HEAVY_BALL,
      .nesterov = 0,
      .decay = DMUON_DECAY_DECOUPLED,
      .scale = DMUON_SCALE_UNIT_RMS,
      .missing_gradient = DMUON_MISSING_SKIP}},
    {"you",
     {.lr = 3e-4,
      .momentum = 0.95,
      .weight_decay = 0.01,
      .scale_factor = 1,
      .adamw_lr = 3e-4,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .adamw_weight_decay = 0.01,
      .momentum_form = DMUON_MOMENTUM_EMA,
      .nesterov = 0,
      .decay = DMUON_DECAY_DECOUPLED,
      .scale = DMUON_SCALE_SPECTRAL,
      .missing_gradient = DMUON_MISSING_SKIP}},
};

DMuonErrorCode dmuon_rule_recipe(const char *name, dmuon_rule *rule, const char **coefficients) {
  int count = (int)(sizeof recipes / sizeof recipes[0]);
  if (!name) DMUON_FAIL(DMUON_ERR_ARGUMENT, "rule name is NULL");
  for (int i = 0; i < count; i++) {
    if (strcmp(name, dmuon_recipe_names[i]) != 0) continue;
    if (rule) *rule = recipes[i].rule;
    if (coefficients) *coefficients = recipes[i].coefficients;
    return DMUON_SUCCESS;
  }
  const char *near = dmuon_nearest_name(name, count, dmuon_recipe_names);
  DMUON_FAIL(DMUON_ERR_ARGUMENT,
             "unknown rule \"%s\"%s%s%s; known: dmuon, jordan, moonlight, dion, emerging", name,
             near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

double dmuon_rule_scale(const dmuon_rule *rule, int64_t out, int64_t in) {
  double o = (double)out, i = (double)in, scale = 1;
  if (out < 1 || in < 1) return 0;
  switch ((DMuonScale)rule->scale) {
    case DMUON_SCALE_MOONLIGHT:
      scale = 0.2 * sqrt(o > i ? o : i);
      break;
    case DMUON_SCALE_JORDAN:
      scale = sqrt(o > i ? o / i : 1);
      break;
    case DMUON_SCALE_SPECTRAL:
      scale = sqrt(o > i ? o : i);
      break;
    case DMUON_SCALE_UNIT_RMS:
      scale = sqrt(o / i);
      break;
    case DMUON_SCALE_NONE:
      break;
  }
  return scale * rule->scale_factor;
}
