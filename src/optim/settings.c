/* The optimizer's options, and the setters that the program calls before SetUp. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/glob.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"

static const char *const order_names[] = {"registered", "program", NULL};
static const char *const grad_mode_names[] = {"add", "overwrite", NULL};
static const char *const reshard_names[] = {"z3", "z2", NULL};
static const char *const unshard_names[] = {"broadcast", "all_gather", NULL};
const char *const dmuon_clip_names[] = {"none", "global", "by_route", NULL};

#define AT(field) offsetof(dmuon_optimizer_settings, field)
#define RULE(field) (offsetof(dmuon_optimizer_settings, rule) + offsetof(dmuon_rule, field))

/* The last double before 1: AdamW's moments are divided by 1 - beta^t. */
#define BELOW_ONE 0.9999999999999999

/* Defaults are those of the recipe "dmuon"; a test holds the two together. */
static const dmuon_option_spec specs[] = {
    {"rule", DMUON_OPTION_ENUM, AT(recipe), "dmuon", 0, 0, dmuon_recipe_names,
     "published recipe that sets all of the following"},
    {"lr", DMUON_OPTION_REAL, RULE(lr), "0.02", 0, 1e30, NULL, "learning rate of Muon"},
    {"momentum", DMUON_OPTION_REAL, RULE(momentum), "0.95", 0, 1, NULL, "momentum of Muon"},
    {"weight_decay", DMUON_OPTION_REAL, RULE(weight_decay), "0", 0, 1e30, NULL,
     "weight decay of Muon"},
    {"momentum_form", DMUON_OPTION_ENUM, RULE(momentum_form), "heavy_ball", 0, 0,
     dmuon_momentum_form_names, "b = mu b + g, or b = mu b + (1-mu) g"},
    {"nesterov", DMUON_OPTION_BOOL, RULE(nesterov), "1", 0, 1, NULL, "look one step ahead"},
    {"decay", DMUON_OPTION_ENUM, RULE(decay), "decoupled", 0, 0, dmuon_decay_names,
     "how Muon's weight decay acts"},
    {"scale", DMUON_OPTION_ENUM, RULE(scale), "moonlight", 0, 0, dmuon_scale_names,
     "factor of the orthogonal update by shape"},
    {"scale_factor", DMUON_OPTION_REAL, RULE(scale_factor), "1", 0, 1e30, NULL,
     "further factor of the update"},
    {"adamw_lr", DMUON_OPTION_REAL, RULE(adamw_lr), "0.001", 0, 1e30, NULL,
     "learning rate of AdamW"},
    {"adamw_beta1", DMUON_OPTION_REAL, RULE(beta1), "0.9", 0, BELOW_ONE, NULL,
     "decay of AdamW's first moment"},
    {"adamw_beta2", DMUON_OPTION_REAL, RULE(beta2), "0.999", 0, BELOW_ONE, NULL,
     "decay of AdamW's second moment"},
    {"adamw_eps", DMUON_OPTION_REAL, RULE(eps), "1e-8", 0, 1e30, NULL,
     "added to the root of AdamW's second moment"},
    {"adamw_weight_decay", DMUON_OPTION_REAL, RULE(adamw_weight_decay), "0.01", 0, 1e30, NULL,
     "decoupled weight decay of AdamW"},
    {"missing_gradient", DMUON_OPTION_ENUM, RULE(missing_gradient), "skip", 0, 0,
     dmuon_missing_gradient_names, "a parameter without gradient on every rank: skip it, or zeros"},
    {"clip", DMUON_OPTION_ENUM, AT(clip), "none", 0, 0, dmuon_clip_names,
     "clipping by gradient norm"},
    {"clip_norm", DMUON_OPTION_REAL, AT(clip_norm), "1", 0, 1e300, NULL,
     "largest norm that clipping lets through"},
    {"replicate_async", DMUON_OPTION_INT, AT(replicate_async), "-1", -1, 1, NULL,
     "1: Step returns before new values are everywhere (Wait before reading arrays of yours); 0: "
     "it "
     "waits; -1: 1 when all parameters live in the library's memory, else 0"},
    {"initial_root", DMUON_OPTION_INT, AT(initial_root), "0", -1, 2147483647, NULL,
     "data rank whose arrays all ranks start from; -1: equal already"},
    {"order", DMUON_OPTION_ENUM, AT(order), "registered", 0, 0, order_names,
     "order of groups: as registered, or as the program runs them, the same on all ranks"},
    {"grad_mode", DMUON_OPTION_ENUM, AT(grad_mode), "add", 0, 0, grad_mode_names,
     "lent gradients: zeroed and added to, or overwritten"},
    {"reshard", DMUON_OPTION_ENUM, AT(reshard), "z3", 0, 0, reshard_names,
     "z2: every group keeps its buffer until Step"},
    {"prefetch_depth", DMUON_OPTION_INT, AT(prefetch_depth), "1", 0, 16, NULL,
     "groups fetched ahead in forward"},
    {"backward_prefetch_depth", DMUON_OPTION_INT, AT(backward_prefetch_depth), "1", 0, 16, NULL,
     "groups fetched ahead in backward"},
    {"open_groups", DMUON_OPTION_INT, AT(open_groups), "2", 1, 60, NULL,
     "groups that can be open at once: so many buffers of values and of gradients at least"},
    {"post_step_prefetch", DMUON_OPTION_INT, AT(post_step_prefetch), "0", 0, 16, NULL,
     "groups fetched at the end of Step; models on one mesh only"},
    {"delay_stage2_to_optimizer", DMUON_OPTION_BOOL, AT(delay_stage2_to_optimizer), "1", 0, 1, NULL,
     "0: backward waits for the second stage of the mean, too"},
    {"publish_bucket_mb", DMUON_OPTION_REAL, AT(publish_bucket_mb), "0", 0, 1e9, NULL,
     "megabytes of new values published by one operation; 0: a group's all at once"},
    {"muon_forward_unshard", DMUON_OPTION_ENUM, AT(muon_forward_unshard), "broadcast", 0, 0,
     unshard_names,
     "lent Muon parameters come from their owners, or are kept in equal parts and gathered"},
    {"check_invariants", DMUON_OPTION_BOOL, AT(check_invariants), "0", 0, 1, NULL,
     "check after every Step and pass what must hold (DMuonOptimizerCheckInvariants)"},
};
#undef AT
#undef RULE

const dmuon_option_table dmuon_optimizer_option_table = {
    "optimizer", (int)(sizeof specs / sizeof specs[0]), specs};

static void program_set(DMuonOptimizer opt, const char *name) {
  opt->program[dmuon_options_find(&dmuon_optimizer_option_table, name)] = 1;
}

static DMuonErrorCode check_setter(DMuonOptimizer opt, const char *call) {
  return dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 0, call);
}

static DMuonErrorCode check_range(const char *what, double value, double low, double high) {
  if (!(value >= low && value <= high))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is %g; it must be between %g and %g", what, value, low,
               high);
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_beta(const char *what, double value) {
  if (!(value >= 0 && value < 1))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is %g; it must be at least 0 and below 1", what, value);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetName(DMuonOptimizer opt, const char *name) {
  DMUON_TRY(check_setter(opt, __func__));
  return dmuon_object_set_name(&opt->object, name);
}

DMuonErrorCode DMuonOptimizerSetPartition(DMuonOptimizer opt, DMuonPartition part) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(dmuon_partition_check(part));
  if (part->model != opt->model)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "the partition is of model \"%s\", the optimizer of \"%s\"",
               part->model->object.name, opt->model->object.name);
  dmuon_partition_retain(part);
  dmuon_partition_release(opt->partition);
  opt->partition = part;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetNewtonSchulz(DMuonOptimizer opt, DMuonNewtonSchulz ns) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(dmuon_ns_check(ns));
  dmuon_ns_retain(ns);
  dmuon_ns_release(opt->ns);
  opt->ns = ns;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetRule(DMuonOptimizer opt, const char *name) {
  dmuon_rule rule;
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(dmuon_rule_recipe(name, &rule, NULL));
  opt->settings.rule = rule;
  for (int i = 0; dmuon_recipe_names[i]; i++)
    if (strcmp(name, dmuon_recipe_names[i]) == 0) opt->settings.recipe = i;
  program_set(opt, "rule");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetMuon(DMuonOptimizer opt, double lr, double momentum,
                                     double weight_decay) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(check_range("lr", lr, 0, 1e30));
  DMUON_TRY(check_range("momentum", momentum, 0, 1));
  DMUON_TRY(check_range("weight_decay", weight_decay, 0, 1e30));
  opt->settings.rule.lr = lr;
  opt->settings.rule.momentum = momentum;
  opt->settings.rule.weight_decay = weight_decay;
  program_set(opt, "lr");
  program_set(opt, "momentum");
  program_set(opt, "weight_decay");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetAdamW(DMuonOptimizer opt, double lr, double beta1, double beta2,
                                      double eps, double weight_decay) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(check_range("lr", lr, 0, 1e30));
  DMUON_TRY(check_beta("beta1", beta1));
  DMUON_TRY(check_beta("beta2", beta2));
  DMUON_TRY(check_range("eps", eps, 0, 1e30));
  DMUON_TRY(check_range("weight_decay", weight_decay, 0, 1e30));
  opt->settings.rule.adamw_lr = lr;
  opt->settings.rule.beta1 = beta1;
  opt->settings.rule.beta2 = beta2;
  opt->settings.rule.eps = eps;
  opt->settings.rule.adamw_weight_decay = weight_decay;
  program_set(opt, "adamw_lr");
  program_set(opt, "adamw_beta1");
  program_set(opt, "adamw_beta2");
  program_set(opt, "adamw_eps");
  program_set(opt, "adamw_weight_decay");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetScale(DMuonOptimizer opt, DMuonScale rule, double factor) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(check_range("scale rule", rule, DMUON_SCALE_MOONLIGHT, DMUON_SCALE_NONE));
  DMUON_TRY(check_range("scale factor", factor, 0, 1e30));
  opt->settings.rule.scale = (int)rule;
  opt->settings.rule.scale_factor = factor;
  program_set(opt, "scale");
  program_set(opt, "scale_factor");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetAsync(DMuonOptimizer opt, int async) {
  DMUON_TRY(check_setter(opt, __func__));
  opt->settings.replicate_async = async != 0;
  program_set(opt, "replicate_async");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetOrder(DMuonOptimizer opt, DMuonOrder order) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(check_range("order", order, DMUON_ORDER_REGISTERED, DMUON_ORDER_PROGRAM));
  opt->settings.order = (int)order;
  program_set(opt, "order");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetGradMode(DMuonOptimizer opt, DMuonGradMode mode) {
  DMUON_TRY(check_setter(opt, __func__));
  DMUON_TRY(check_range("gradient mode", mode, DMUON_GRAD_ADD, DMUON_GRAD_OVERWRITE));
  opt->settings.grad_mode = (int)mode;
  program_set(opt, "grad_mode");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetInit(DMuonOptimizer opt, DMuonInitFunction init, void *ctx) {
  DMUON_TRY(check_setter(opt, __func__));
  opt->init = init;
  opt->init_context = ctx;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetInitialRoot(DMuonOptimizer opt, int root) {
  DMUON_TRY(check_setter(opt, __func__));
  if (root < DMUON_ALL)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "initial root is %d; it must be a data rank or DMUON_ALL", root);
  opt->settings.initial_root = root;
  program_set(opt, "initial_root");
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetClip(DMuonOptimizer opt, DMuonClip kind, double max_norm) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  DMUON_TRY(check_range("clip kind", kind, DMUON_CLIP_NONE, DMUON_CLIP_BY_ROUTE));
  DMUON_TRY(check_range("clip norm", max_norm, 0, 1e300));
  if (opt->object.is_set_up) {
    char text[40];
    dmuon_options *options = &opt->object.context->options;
    DMUON_TRY(dmuon_options_note_live(options, opt->object.name, "clip", dmuon_clip_names[kind]));
    snprintf(text, sizeof text, "%.17g", max_norm);
    DMUON_TRY(dmuon_options_note_live(options, opt->object.name, "clip_norm", text));
  }
  opt->settings.clip = (int)kind;
  opt->settings.clip_norm = max_norm;
  program_set(opt, "clip");
  program_set(opt, "clip_norm");
  return DMUON_SUCCESS;
}

/* The recipe may itself come from an option; it then replaces what the program set singly, and the
 * other options are applied over it. */
DMuonErrorCode dmuon_optimizer_apply_options(DMuonOptimizer opt) {
  dmuon_optimizer_settings settings = opt->settings;
  unsigned char program[sizeof opt->program];
  dmuon_options *options = &opt->object.context->options;
  const int rule = dmuon_options_find(&dmuon_optimizer_option_table, "rule");
  int said;

  memcpy(program, opt->program, sizeof program);
  DMUON_TRY(dmuon_options_peek(options, &specs[rule], opt->object.name, &settings, &said));
  if (said) {
    DMUON_TRY(dmuon_rule_recipe(dmuon_recipe_names[settings.recipe], &settings.rule, NULL));
    memset(program, 0, sizeof program);
  }
  DMUON_TRY(dmuon_options_apply(options, &dmuon_optimizer_option_table, opt->object.name, program,
                                &settings));
  opt->settings = settings;
  return DMUON_SUCCESS;
}

void dmuon_optimizer_resolve_hyper(DMuonOptimizer opt, const dmuon_param *param,
                                   dmuon_hyper *hyper) {
  const dmuon_rule *rule = &opt->settings.rule;
  const int muon = param->route == DMUON_ROUTE_MUON;
  hyper->value[DMUON_HYPER_LR] = muon ? rule->lr : rule->adamw_lr;
  hyper->value[DMUON_HYPER_MOMENTUM] = rule->momentum;
  hyper->value[DMUON_HYPER_WEIGHT_DECAY] = muon ? rule->weight_decay : rule->adamw_weight_decay;
  hyper->value[DMUON_HYPER_BETA1] = rule->beta1;
  hyper->value[DMUON_HYPER_BETA2] = rule->beta2;
  hyper->value[DMUON_HYPER_EPS] = rule->eps;
  for (int i = 0; i < opt->hyper_rule_count; i++)
    if (dmuon_glob_match(opt->hyper_rules[i].pattern, param->name))
      hyper->value[opt->hyper_rules[i].which] = opt->hyper_rules[i].value;
}
