/* Step: vote, reduce, (clip,) update, publish.
 *
 * The vote comes first and is the only thing that all ranks wait for: after it every rank knows
 * that the step takes place, with which parameters and which divisor, and the pipeline runs freely.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clip/clip.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"
#include "optim/pass.h"
#include "optim/step.h"
#include "optim/vote.h"

DMuonErrorCode dmuon_optimizer_settle(DMuonOptimizer opt, DMuonErrorCode code) {
  if (code && opt->is_stepping && !DMuonErrorIsFatal(code)) {
    char text[256];
    snprintf(text, sizeof text, "%s", dmuon_error_text());
    code = DMUON_ERROR(DMUON_ERR_INTERNAL, "failed in the middle of a step: %s", text);
  }
  if (DMuonErrorIsFatal(code)) {
    const dmuon_registry *registry = &opt->model->registry;
    for (int m = 0; m < registry->mesh_count; m++)
      if (registry->meshes[m].mesh) dmuon_mesh_break(registry->meshes[m].mesh, code);
    dmuon_mesh_break(dmuon_optimizer_mesh(opt), code);
    opt->pending = 0;
  }
  if (code) opt->is_stepping = 0;
  return code;
}

DMuonErrorCode dmuon_optimizer_check_live(DMuonOptimizer opt, const char *call) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, call));
  return dmuon_mesh_check(dmuon_optimizer_mesh(opt));
}

/* ---- what this rank brings to the vote ----------------------------------------------------- */

static DMuonErrorCode look_for_nonfinite(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  const DMuonDeviceOps *ops = opt->runtime.device->ops;
  const int late = dmuon_verdict_is_used(&opt->verdict);
  DMUON_TRY(dmuon_optimizer_take_arrays(opt, opt->runtime.compute));
  for (int id = 0; id < registry->local_count; id++) {
    const int index = registry->local_to_global[id];
    const dmuon_param *param = &registry->params[index];
    if (!late) opt->nonfinite[id] = -1;
    if (param->route == DMUON_ROUTE_FROZEN) continue;
    if (!opt->arrays[id].gradients && !opt->accumulated[id]) continue;
    DMUON_TRY(ops->find_nonfinite(opt->runtime.compute,
                                  &(dmuon_pack){.n = param->numel,
                                                .dst_dtype = param->grad_dtype,
                                                .addend = opt->accumulated[id],
                                                .addend_dtype = dmuon_dtype_wide(param->grad_dtype),
                                                .src = opt->arrays[id].gradients,
                                                .src_dtype = param->grad_dtype},
                                  &opt->nonfinite[id], dmuon_verdict_flag(&opt->verdict, index)));
  }
  if (late) return DMUON_SUCCESS;
  DMUON_TRY(ops->queue_sync(opt->runtime.compute));
  if (!dmuon_lend_is_used(&opt->lend)) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_lend_look_for_nonfinite(&opt->lend));
  for (int id = 0; id < registry->local_count; id++)
    if (registry->params[registry->local_to_global[id]].is_lent)
      opt->nonfinite[id] = opt->lend.nonfinite[id];
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_weights(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    if (!opt->arrays[id].weights && param->numel > 0 && !param->is_lent)
      DMUON_FAIL(DMUON_ERR_STATE, "%s has no weights; give them with SetArrays", param->name);
  }
  return DMUON_SUCCESS;
}

/* ---- the pipeline ------------------------------------------------------------------------------
 */

int dmuon_step_takes_part(DMuonOptimizer opt, int param) {
  return dmuon_ballot_has_gradient(opt->ballot, param) ||
         opt->settings.rule.missing_gradient == DMUON_MISSING_ZERO;
}

static int choose_active(DMuonOptimizer opt) {
  const dmuon_packing *packing = &opt->runtime.packing;
  int count = 0;
  for (int b = 0; b < packing->bundle_count; b++) {
    int any = 0;
    for (int i = 0; i < packing->bundles[b].count && !any; i++)
      any = dmuon_step_takes_part(opt, packing->bundles[b].params[i].param);
    if (packing->bundles[b].residency == DMUON_RESIDENCY_FROZEN) any = 0;
    if (any) opt->active[count++] = b;
  }
  return count;
}

/* What the sum of a bundle's contributions is divided by. */
static double divisor_of(DMuonOptimizer opt, const dmuon_bundle *bundle) {
  const dmuon_registry_mesh *losses = &opt->model->registry.meshes[bundle->losses];
  const dmuon_ballot_mesh *vote = dmuon_ballot_mesh_at(opt->ballot, bundle->losses);
  if (vote->counted == 0) return (double)losses->replicate * losses->shard;
  return vote->samples > 0 ? vote->samples : 1;
}

static int is_lent(DMuonOptimizer opt, int bundle) {
  return dmuon_bundle_is_lent(&opt->runtime.packing.bundles[bundle]);
}

/* Flat parts of one parameter are of several ranks. */
static void combine_norms(void *into, const void *from, int64_t bytes, void *context) {
  dmuon_norm *a = into;
  const dmuon_norm *b = from;
  (void)context;
  for (int64_t i = 0; i < bytes / (int64_t)sizeof *a; i++)
    a[i] = a[i].sum == 0 ? b[i] : b[i].sum == 0 ? a[i] : dmuon_norm_combine(&a[i], &b[i]);
}

/* Every owner's norms to every rank, then the factors. Waits. */
static DMuonErrorCode decide_clipping(DMuonOptimizer opt, int active_count,
                                      dmuon_clip_result *clip) {
  dmuon_runtime *runtime = &opt->runtime;
  const dmuon_registry *registry = &opt->model->registry;
  const DMuonDeviceOps *ops = runtime->device->ops;
  for (int a = 0; a < active_count; a++)
    if (is_lent(opt, opt->active[a]))
      DMUON_TRY(dmuon_lend_finish_mean(&opt->lend, opt->active[a],
                                       divisor_of(opt, &runtime->packing.bundles[opt->active[a]])));
  DMUON_TRY(dmuon_runtime_sync(runtime));
  memset(opt->norms, 0, (size_t)registry->param_count * sizeof *opt->norms);
  for (int a = 0; a < active_count; a++) {
    const dmuon_bundle *bundle = &runtime->packing.bundles[opt->active[a]];
    for (int i = 0; i < bundle->count; i++) {
      const int p = bundle->params[i].param;
      if (!bundle->params[i].is_mine || !dmuon_step_takes_part(opt, p)) continue;
      const int64_t count = bundle->params[i].mine_count;
      DMUON_TRY(ops->norm(runtime->compute, bundle->sum_dtype, 1, count,
                          dmuon_runtime_mean(runtime, opt->active[a], i), count, &opt->norms[p]));
    }
  }
  DMUON_TRY(ops->queue_sync(runtime->compute));
  DMUON_TRY(dmuon_agree_reduce(dmuon_optimizer_mesh(opt)->bootstrap, "gradient norms of Step",
                               opt->norms, registry->param_count * (int64_t)sizeof *opt->norms,
                               combine_norms, NULL));
  dmuon_clip_decide((DMuonClip)opt->settings.clip, opt->settings.clip_norm, registry->param_count,
                    opt->norms, opt->routes, clip);
  return DMUON_SUCCESS;
}

/* The owner's step of one parameter, in words for src/update. */
static dmuon_update update_of(DMuonOptimizer opt, int bundle, int index, int slot,
                              const dmuon_clip_result *clip, dmuon_hyper *hyper) {
  dmuon_runtime *runtime = &opt->runtime;
  const dmuon_bundle_param *p = &runtime->packing.bundles[bundle].params[index];
  const dmuon_param *param = &opt->model->registry.params[p->param];
  *hyper = opt->hyper[p->id];
  hyper->value[DMUON_HYPER_LR] *= opt->factor;
  return (dmuon_update){
      .param = param,
      .count = p->mine_count,
      .rule = &opt->settings.rule,
      .hyper = hyper,
      .grad = dmuon_runtime_mean(runtime, bundle, index),
      .grad_dtype = runtime->packing.bundles[bundle].sum_dtype,
      .grad_scale = param->route == DMUON_ROUTE_MUON ? clip->muon_factor : clip->adamw_factor,
      .value = is_lent(opt, bundle) ? dmuon_lend_value(&opt->lend, bundle, index)
                                    : dmuon_runtime_value(runtime, bundle, index, slot),
      .workspace = opt->workspace,
      .skip = dmuon_verdict_skip(&opt->verdict),
      .skipped = dmuon_verdict_skipped(&opt->verdict, p->id),
      .stamps = &opt->ns_stamps[2 * p->id]};
}

/* Two parameters that are updated here in this step, and may be together. */
static int are_together(DMuonOptimizer opt, const dmuon_bundle *bundle, int i, int j) {
  const dmuon_param *params = opt->model->registry.params;
  return bundle->params[j].is_mine && dmuon_step_takes_part(opt, bundle->params[j].param) &&
         dmuon_update_is_alike(&params[bundle->params[i].param], &params[bundle->params[j].param]);
}

/* Alike parameters, as many as their plan says, at the place of the first of them. */
static DMuonErrorCode update_together(DMuonOptimizer opt, int bundle, int index, int slot,
                                      const dmuon_clip_result *clip) {
  dmuon_runtime *runtime = &opt->runtime;
  const dmuon_bundle *b = &runtime->packing.bundles[bundle];
  const dmuon_update_plan *plan = &opt->plans[b->params[index].id];
  dmuon_update updates[DMUON_NS_BATCH_MAX];
  dmuon_hyper hypers[DMUON_NS_BATCH_MAX];
  dmuon_param_state *states[DMUON_NS_BATCH_MAX];
  int64_t before = 0, count = 0;
  for (int j = 0; j < index; j++) before += are_together(opt, b, index, j);
  if (before % plan->together != 0) return DMUON_SUCCESS; /* was among those of an earlier one */
  for (int j = index; j < b->count && count < plan->together; j++) {
    if (!are_together(opt, b, index, j)) continue;
    updates[count] = update_of(opt, bundle, j, slot, clip, &hypers[count]);
    states[count++] = &opt->states[b->params[j].id];
  }
  opt->newton_schulz_here += count;
  return dmuon_update_muon_together(runtime->compute, runtime->device, plan, count, updates,
                                    states);
}

/* The owner's step of one parameter; without an update its value is still what others receive. */
static DMuonErrorCode update_param(DMuonOptimizer opt, int bundle, int index, int slot,
                                   const dmuon_clip_result *clip) {
  dmuon_runtime *runtime = &opt->runtime;
  const dmuon_bundle_param *p = &runtime->packing.bundles[bundle].params[index];
  const dmuon_param *param = &opt->model->registry.params[p->param];
  dmuon_param_state *state = &opt->states[p->id];
  dmuon_hyper hyper;

  if (!dmuon_step_takes_part(opt, p->param) && is_lent(opt, bundle))
    return DMUON_SUCCESS; /* it stays where it is */
  if (!dmuon_step_takes_part(opt, p->param))
    return runtime->device->ops->cast(runtime->compute, param->numel,
                                      dmuon_runtime_value(runtime, bundle, index, slot),
                                      param->dtype, state->master, param->master_dtype);
  if (param->route == DMUON_ROUTE_MUON && opt->plans[p->id].together > 1)
    return update_together(opt, bundle, index, slot, clip);
  const dmuon_update update = update_of(opt, bundle, index, slot, clip, &hyper);
  if (param->route != DMUON_ROUTE_MUON)
    return dmuon_update_adamw(runtime->compute, runtime->device, &update, state);
  opt->newton_schulz_here += dmuon_piece_count(param);
  return dmuon_update_muon(runtime->compute, runtime->device, &opt->plans[p->id], &update, state);
}

/* The averaged gradient of a lent bundle; with clipping it was there for the norm already. */
static DMuonErrorCode wait_lent_mean(DMuonOptimizer opt, int bundle) {
  dmuon_runtime *runtime = &opt->runtime;
  const DMuonDeviceOps *ops = runtime->device->ops;
  DMUON_TRY(ops->stamp(runtime->compute, &runtime->stamps[bundle].update[0]));
  if (opt->settings.clip == DMUON_CLIP_NONE)
    DMUON_TRY(dmuon_lend_finish_mean(&opt->lend, bundle,
                                     divisor_of(opt, &runtime->packing.bundles[bundle])));
  DMUON_TRY(dmuon_lend_before_update(&opt->lend, bundle));
  return ops->stamp(runtime->compute, &runtime->stamps[bundle].update[1]);
}

static DMuonErrorCode publish_lent(DMuonOptimizer opt, int bundle) {
  dmuon_runtime *runtime = &opt->runtime;
  DMUON_TRY(runtime->device->ops->stamp(runtime->compute, &runtime->stamps[bundle].update[2]));
  return dmuon_lend_publish(&opt->lend, bundle);
}

static DMuonErrorCode update_bundle(DMuonOptimizer opt, int bundle, int slot,
                                    const dmuon_clip_result *clip) {
  if (is_lent(opt, bundle))
    DMUON_TRY(wait_lent_mean(opt, bundle));
  else
    DMUON_TRY(dmuon_runtime_wait_mean(&opt->runtime, bundle, slot));
  for (int i = 0; i < opt->runtime.packing.bundles[bundle].count; i++)
    if (opt->runtime.packing.bundles[bundle].params[i].is_mine)
      DMUON_TRY(update_param(opt, bundle, i, slot, clip));
  return DMUON_SUCCESS;
}

static DMuonErrorCode run_pipeline(DMuonOptimizer opt, int active_count, dmuon_clip_result *clip) {
  dmuon_runtime *runtime = &opt->runtime;
  const int norm_first = opt->settings.clip != DMUON_CLIP_NONE;
  dmuon_schedule schedule = dmuon_schedule_begin(active_count, norm_first);
  for (;;) {
    const dmuon_action action = dmuon_schedule_next(&schedule);
    const int slot = action.bundle % DMUON_SLOTS;
    const int bundle = action.bundle < 0 ? -1 : opt->active[action.bundle];
    switch (action.kind) {
      case DMUON_ACTION_REDUCE:
        if (is_lent(opt, bundle)) break; /* backward has done it */
        DMUON_TRY(dmuon_runtime_reduce(runtime, bundle, slot, opt->arrays, opt->accumulated,
                                       divisor_of(opt, &runtime->packing.bundles[bundle])));
        break;
      case DMUON_ACTION_NORM:
        DMUON_TRY(decide_clipping(opt, active_count, clip));
        break;
      case DMUON_ACTION_UPDATE:
        DMUON_TRY(update_bundle(opt, bundle, slot, clip));
        break;
      case DMUON_ACTION_PUBLISH:
        DMUON_TRY(is_lent(opt, bundle) ? publish_lent(opt, bundle)
                                       : dmuon_runtime_publish(runtime, bundle, slot));
        break;
      case DMUON_ACTION_UNPACK:
        if (is_lent(opt, bundle)) break; /* the next fetch brings it */
        DMUON_TRY(dmuon_runtime_unpack(runtime, bundle, slot, opt->arrays));
        break;
      case DMUON_ACTION_END:
        return DMUON_SUCCESS;
    }
  }
}

/* ---- waiting for it -------------------------------------------------------------------------- */

DMuonErrorCode dmuon_optimizer_drain(DMuonOptimizer opt) {
  if (!opt->pending) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_mesh_check(dmuon_optimizer_mesh(opt)));
  DMuonErrorCode code = dmuon_runtime_sync(&opt->runtime);
  if (!code && dmuon_lend_is_used(&opt->lend))
    code = opt->runtime.device->ops->queue_sync(opt->lend.caller);
  code = dmuon_optimizer_settle(opt, code);
  opt->pending = 0;
  if (!code && !opt->seconds_known) dmuon_step_fill_seconds(opt, opt->active_count);
  if (!code) code = dmuon_optimizer_settle(opt, dmuon_step_hear_verdict(opt));
  return code;
}

/* Before a step nothing of the one before may be left that its buffers or its times are needed for.
 * Lent values that are still on their way to others are waited for where they are used. On a device
 * that decides late the queues keep the order, and times are those of the last step that is
 * done. */
static DMuonErrorCode finish_last_step(DMuonOptimizer opt) {
  if (dmuon_verdict_is_used(&opt->verdict)) return dmuon_mesh_check(dmuon_optimizer_mesh(opt));
  if (!opt->pending || opt->has_arrays) return dmuon_optimizer_drain(opt);
  DMUON_TRY(dmuon_mesh_check(dmuon_optimizer_mesh(opt)));
  DMUON_TRY(opt->runtime.device->ops->queue_sync(opt->runtime.compute));
  if (!opt->seconds_known) dmuon_step_fill_seconds(opt, opt->active_count);
  return DMUON_SUCCESS;
}

static DMuonErrorCode step(DMuonOptimizer opt) {
  dmuon_clip_result clip = {.muon_factor = 1, .adamw_factor = 1, .factor = 1};
  dmuon_vote_input input = {.samples = -1};
  const int late = dmuon_verdict_is_used(&opt->verdict);

  DMUON_TRY(finish_last_step(opt));
  DMUON_TRY(dmuon_pass_close(opt, "Step", DMUON_ENDS_STEP, DMUON_SUCCESS));
  input.code = check_weights(opt);
  if (!input.code) input.code = look_for_nonfinite(opt);
  input.with_gradients = !input.code;
  if (opt->samples >= 0) /* passes have counted theirs, if there were any */
    input.samples = opt->accumulated_samples +
                    (opt->has_lent && opt->accumulated_samples > 0 ? 0 : opt->samples);
  DMUON_TRY(dmuon_vote(opt, "the agreement of Step", &input));

  opt->active_count = 0;
  opt->seconds_known = 0;
  opt->pending |= dmuon_lend_is_used(&opt->lend);
  if (opt->ballot->nonfinite_param < 0) {
    opt->active_count = choose_active(opt);
    opt->pending = opt->is_stepping = 1;
    if (late)
      DMUON_TRY(dmuon_verdict_decide(&opt->verdict, &opt->runtime,
                                     dmuon_lend_is_used(&opt->lend) ? opt->lend.caller : NULL));
    DMUON_TRY(run_pipeline(opt, opt->active_count, &clip));
    if (late) DMUON_TRY(dmuon_verdict_report(&opt->verdict, &opt->runtime));
    DMUON_TRY(dmuon_optimizer_give_arrays(opt, opt->runtime.compute));
  }
  /* Gradients are free once the last bundle is packed; the rest may go on behind the caller. */
  dmuon_optimizer_forget_accumulated(opt);
  dmuon_step_fill_info(opt, &clip);
  DMUON_TRY(dmuon_lend_begin_step(&opt->lend));
  if (dmuon_lend_is_used(&opt->lend)) DMUON_TRY(dmuon_lend_fetch_ahead(&opt->lend));
  opt->is_stepping = 0;
  if (late) return opt->runtime.device->ops->progress(opt->runtime.device);
  if (opt->is_async && opt->active_count > 0) return dmuon_runtime_wait_packed(&opt->runtime);
  return dmuon_optimizer_drain(opt);
}

DMuonErrorCode DMuonOptimizerStep(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  DMuonErrorCode code = dmuon_optimizer_settle(opt, step(opt));
  if (!code && opt->settings.check_invariants) code = DMuonOptimizerCheckInvariants(opt);
  if (code) DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  return code;
}

DMuonErrorCode DMuonOptimizerWait(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  return dmuon_optimizer_drain(opt);
}
