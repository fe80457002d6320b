/* The update rule: every choice that decides what one step does to one parameter, and the published
 * recipes that set them all at once. Pure. */
#ifndef DMUON_UPDATE_RULE_H
#define DMUON_UPDATE_RULE_H

#include "device/device.h"

typedef enum { DMUON_MISSING_SKIP = 0, DMUON_MISSING_ZERO } dmuon_missing_gradient;

typedef struct {
  double lr, momentum, weight_decay; /* Muon */
  double scale_factor;
  double adamw_lr, beta1, beta2, eps, adamw_weight_decay;
  int momentum_form; /* dmuon_momentum_form */
  int nesterov;
  int decay;            /* dmuon_decay, of Muon; AdamW's is decoupled */
  int scale;            /* DMuonScale */
  int missing_gradient; /* dmuon_missing_gradient */
} dmuon_rule;

/* Names of the values, in order, ending with NULL. */
extern const char *const dmuon_momentum_form_names[];
extern const char *const dmuon_decay_names[];
extern const char *const dmuon_scale_names[];
extern const char *const dmuon_missing_gradient_names[];
extern const char *const dmuon_recipe_names[];
extern const char *const dmuon_hyper_names[]; /* by DMuonHyper */

/* A published recipe: the rule, and the coefficient table its Newton-Schulz uses. */
DMuonErrorCode dmuon_rule_recipe(const char *name, dmuon_rule *rule, const char **coefficients);

/* The factor of the orthogonalised update of a matrix with so many outputs and inputs. */
double dmuon_rule_scale(const dmuon_rule *rule, int64_t out, int64_t in);

#endif
