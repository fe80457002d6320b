/* Calls between steps: learning rates, sample counts, arrays, accumulation, what the last step did.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/glob.h"
#include "mesh/mesh.h"
#include "model/arrays.h"
#include "optim/optimizer.h"

DMuonErrorCode DMuonOptimizerSetLearningRateFactor(DMuonOptimizer opt, double factor) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  if (!(factor >= 0 && factor <= 1e30))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "learning rate factor is %g; it must be between 0 and 1e30",
               factor);
  opt->factor = factor;
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_hyper(DMuonHyper which, double value) {
  static const double high[] = {1e30, 1, 1e30, 1, 1, 1e30};
  if ((int)which < 0 || which > DMUON_HYPER_EPS)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "hyper-parameter %d is none of DMUON_HYPER_...", (int)which);
  if ((which == DMUON_HYPER_BETA1 || which == DMUON_HYPER_BETA2) && !(value >= 0 && value < 1))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is %g; it must be at least 0 and below 1",
               dmuon_hyper_names[which], value);
  if (!(value >= 0 && value <= high[which]))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is %g; it must be between 0 and %g",
               dmuon_hyper_names[which], value, high[which]);
  return DMUON_SUCCESS;
}

static DMuonErrorCode append_rule(DMuonOptimizer opt, const char *pattern, DMuonHyper which,
                                  double value) {
  dmuon_memory *memory = &opt->object.context->memory;
  char *copy = NULL;
  if (opt->hyper_rule_count == opt->hyper_rule_capacity) {
    const int capacity = 2 * opt->hyper_rule_capacity + 4;
    DMUON_TRY(dmuon_memory_resize(memory, &opt->hyper_rules, opt->hyper_rule_capacity, capacity,
                                  sizeof *opt->hyper_rules));
    opt->hyper_rule_capacity = capacity;
  }
  DMUON_TRY(dmuon_memory_strdup(memory, pattern, &copy));
  opt->hyper_rules[opt->hyper_rule_count++] = (dmuon_hyper_rule){copy, which, value};
  return DMUON_SUCCESS;
}

/* Before SetUp a rule is kept and its pattern checked there; after it the values change at once, so
 * a schedule that calls this each step does not grow anything. */
DMuonErrorCode DMuonOptimizerSetHyper(DMuonOptimizer opt, const char *pattern, DMuonHyper which,
                                      double value) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  DMUON_TRY(dmuon_glob_check(pattern));
  DMUON_TRY(check_hyper(which, value));
  if (!opt->object.is_set_up) return append_rule(opt, pattern, which, value);

  const dmuon_registry *registry = &opt->model->registry;
  int matched = 0;
  for (int p = 0; p < registry->param_count; p++) {
    if (!dmuon_glob_match(pattern, registry->params[p].name)) continue;
    matched = 1;
    const int id = registry->global_to_local[p];
    if (id >= 0) opt->hyper[id].value[which] = value;
  }
  if (!matched) DMUON_FAIL(DMUON_ERR_NOT_FOUND, "pattern \"%s\" matches no parameter", pattern);
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_id(DMuonOptimizer opt, int id) {
  if (id < 0 || id >= opt->model->registry.local_count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter id %d out of range [0,%d)", id,
               opt->model->registry.local_count);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerGetHyper(DMuonOptimizer opt, int id, DMuonHyper which, double *value) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  DMUON_TRY(check_id(opt, id));
  DMUON_TRY(check_hyper(which, 0));
  if (value) *value = opt->hyper[id].value[which] * (which == DMUON_HYPER_LR ? opt->factor : 1);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetSampleCount(DMuonOptimizer opt, double samples) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  if (!(samples >= 0 && isfinite(samples)))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "sample count is %g; it must be finite and not negative",
               samples);
  if (opt->samples < 0 && opt->accumulate_calls > 0)
    DMUON_FAIL(DMUON_ERR_STATE,
               "%d micro-batches were accumulated as means already; say sample counts before the "
               "first, or after Step",
               opt->accumulate_calls);
  opt->samples = samples;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetArrays(DMuonOptimizer opt, int id, void *weights,
                                       const void *gradients) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  if (!opt->object.is_set_up) {
    if (id < 0 || id >= opt->model->count)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter id %d out of range [0,%d)", id, opt->model->count);
    if (!opt->model->arrays[id].has_arrays)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter %d was registered without arrays", id);
    opt->model->arrays[id] =
        (dmuon_param_arrays){.has_arrays = 1, .weights = weights, .gradients = gradients};
    return DMUON_SUCCESS;
  }
  DMUON_TRY(check_id(opt, id));
  const dmuon_param *param = &opt->model->registry.params[opt->model->registry.local_to_global[id]];
  if (param->is_lent)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s lives in the library's memory and has no arrays",
               param->name);
  if (!weights && param->numel > 0)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: weights are NULL; after SetUp they must exist",
               param->name);
  DMUON_TRY(dmuon_optimizer_drain(opt)); /* a step under way still writes the old array */
  const dmuon_param_arrays before = opt->arrays[id];
  opt->arrays[id] =
      (dmuon_param_arrays){.has_arrays = 1, .weights = weights, .gradients = gradients};
  DMuonErrorCode code = dmuon_arrays_check(&opt->object.context->memory, opt->model->count,
                                           opt->model->params, opt->arrays);
  if (!code) code = dmuon_optimizer_check_arrays(opt, param, &opt->arrays[id]);
  if (code) {
    opt->arrays[id] = before;
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "SetArrays changes nothing: %s", dmuon_error_text());
  }
  if (!opt->own_master[id] && opt->states[id].master) opt->states[id].master = weights;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSyncArrays(DMuonOptimizer opt, int root) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  const dmuon_registry *registry = &opt->model->registry;
  for (int m = 0; m < registry->mesh_count; m++) {
    const int ranks = registry->meshes[m].replicate * registry->meshes[m].shard;
    if (root < DMUON_ALL || root >= ranks)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "root %d is no data rank of mesh \"%s\", which has %d", root,
                 registry->meshes[m].name, ranks);
  }
  DMUON_TRY(dmuon_optimizer_drain(opt));
  DMuonMesh mesh = dmuon_optimizer_mesh(opt);
  int equal, other;
  DMUON_TRY(dmuon_agree_equal(mesh->bootstrap, __func__, (uint64_t)(int64_t)root, &equal, &other));
  if (!equal)
    DMUON_FAIL(DMUON_ERR_DISAGREE, "SyncArrays: rank %d passed another root than rank 0; here %d",
               other, root);
  if (root != DMUON_ALL)
    DMUON_TRY(dmuon_optimizer_settle(
        opt, dmuon_runtime_broadcast_arrays(&opt->runtime, root, opt->arrays)));
  return dmuon_optimizer_settle(opt, dmuon_optimizer_refresh_masters(opt));
}

/* ---- accumulation -------------------------------------------------------------------------- */

static DMuonErrorCode make_accumulators(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  dmuon_device *device = opt->runtime.device;
  void **made = NULL;
  DMuonErrorCode code =
      dmuon_memory_alloc(&opt->object.context->memory, registry->local_count, sizeof *made, &made);
  for (int id = 0; !code && id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    if (param->route == DMUON_ROUTE_FROZEN || param->is_lent) continue;
    code = device->ops->alloc(
        device, param->numel * (int64_t)dmuon_dtype_bytes(dmuon_dtype_wide(param->grad_dtype)),
        &made[id]);
  }
  if (code) {
    for (int id = 0; made && id < registry->local_count; id++) device->ops->free(device, made[id]);
    dmuon_memory_free(made);
    return code;
  }
  opt->accumulators = made;
  return DMUON_SUCCESS;
}

/* On the local queue: a step that is still under way has packed what was accumulated for it, and
 * the rest of it is not waited for. Where the host does not wait for steps it is compute that keeps
 * the order. */
DMuonErrorCode DMuonOptimizerAccumulate(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  const dmuon_registry *registry = &opt->model->registry;
  const DMuonDeviceOps *ops = opt->runtime.device->ops;
  const int late = dmuon_verdict_is_used(&opt->verdict);
  dmuon_queue *queue = late ? opt->runtime.compute : opt->runtime.local;
  if (!opt->accumulators) DMUON_TRY(make_accumulators(opt));
  DMUON_TRY(dmuon_optimizer_take_arrays(opt, queue));
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    const DMuonDType wide = dmuon_dtype_wide(param->grad_dtype);
    if (!opt->accumulators[id] || !opt->arrays[id].gradients) continue;
    DMUON_TRY(ops->pack(queue, &(dmuon_pack){.n = param->numel,
                                             .dst = opt->accumulators[id],
                                             .dst_dtype = wide,
                                             .addend = opt->accumulated[id],
                                             .addend_dtype = wide,
                                             .src = opt->arrays[id].gradients,
                                             .src_dtype = param->grad_dtype}));
    opt->accumulated[id] = opt->accumulators[id];
  }
  opt->accumulate_calls++;
  if (opt->samples >= 0 && !opt->has_lent)
    opt->accumulated_samples += opt->samples; /* else passes count them */
  return dmuon_optimizer_settle(
      opt, late ? dmuon_optimizer_give_arrays(opt, queue) : ops->queue_sync(queue));
}

DMuonErrorCode DMuonOptimizerZeroGrad(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  dmuon_optimizer_forget_accumulated(opt);
  if (dmuon_lend_is_used(&opt->lend)) { /* looks at gradients that are under way end here */
    DMUON_TRY(opt->runtime.device->ops->queue_sync(opt->lend.caller));
    DMUON_TRY(dmuon_verdict_forget(&opt->verdict, &opt->runtime, opt->lend.caller));
  }
  dmuon_lend_forget_sums(&opt->lend);
  return DMUON_SUCCESS;
}

/* ---- what the last step did ---------------------------------------------------------------------
 */

DMuonErrorCode DMuonOptimizerGetStepInfo(DMuonOptimizer opt, DMuonStepInfo *info) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  if (!info || info->struct_size < sizeof info->struct_size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "info is NULL or its struct_size is not set");
  if (opt->verdict.is_open) DMUON_TRY(dmuon_optimizer_drain(opt));
  const size_t size = info->struct_size < sizeof opt->info ? info->struct_size : sizeof opt->info;
  const size_t given = info->struct_size;
  memcpy(info, &opt->info, size);
  info->struct_size = given;
  return DMUON_SUCCESS;
}

/* Linear warm-up from 0 over `warmup` updates, then by kind down to floor at the last of `total`.
 */
double DMuonScheduleFactor(DMuonSchedule kind, int64_t step, int64_t warmup, int64_t total,
                           double floor) {
  const double pi = 3.14159265358979323846;
  if (step < 0) step = 0;
  if (step < warmup) return (double)(step + 1) / (double)warmup;
  if (kind == DMUON_SCHEDULE_CONSTANT) return 1;
  if (total <= warmup + 1 || step >= total - 1)
    return total <= warmup + 1 && step < total ? 1 : floor;
  double part = (double)(step - warmup) / (double)(total - 1 - warmup); /* 0 .. 1 */
  switch (kind) {
    case DMUON_SCHEDULE_LINEAR:
      return 1 - (1 - floor) * part;
    case DMUON_SCHEDULE_COSINE:
      return floor + (1 - floor) * 0.5 * (1 + cos(pi * part));
    case DMUON_SCHEDULE_WSD: /* stable, then down over the last fifth */
      return part <= 0.8 ? 1 : 1 - (1 - floor) * (part - 0.8) / 0.2;
    default:
      return 1;
  }
}
