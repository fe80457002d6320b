/* What SetUp makes for one rank: groups and their handles, masters, state and workspace of what it
 * updates. Local; how ranks agree on it is setup.c's. */
#include "mesh/mesh.h"
#include "optim/optimizer.h"
#include "optim/pass.h"
#include "optim/view.h"

static DMuonErrorCode zeroed(DMuonOptimizer opt, const char *what, const char *param, int64_t bytes,
                             void **ptr) {
  dmuon_device *device = opt->runtime.device;
  DMUON_TRY(device->ops->alloc(device, bytes, ptr));
  dmuon_device_name_buffer(device, *ptr, "%s of %s", what, param);
  return device->ops->zero(opt->runtime.compute, *ptr, bytes);
}

/* The master of a parameter that this rank updates: the values themselves where they have its
 * dtype, else memory of its own. */
static DMuonErrorCode make_master(DMuonOptimizer opt, int bundle, int index) {
  const dmuon_bundle_param *p = &opt->runtime.packing.bundles[bundle].params[index];
  const dmuon_param *param = &opt->model->registry.params[p->param];
  dmuon_param_state *state = &opt->states[p->id];
  if (param->master_dtype == param->dtype) {
    state->master =
        param->is_lent ? dmuon_lend_value(&opt->lend, bundle, index) : opt->arrays[p->id].weights;
    return DMUON_SUCCESS;
  }
  DMUON_TRY(zeroed(opt, "master", param->name,
                   p->mine_count * (int64_t)dmuon_dtype_bytes(param->master_dtype),
                   &state->master));
  opt->own_master[p->id] = 1;
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_state(DMuonOptimizer opt, const dmuon_bundle_param *p) {
  const dmuon_param *param = &opt->model->registry.params[p->param];
  dmuon_device *device = opt->runtime.device;
  dmuon_param_state *state = &opt->states[p->id];
  dmuon_update_plan *plan = &opt->plans[p->id];
  const int64_t bytes = p->mine_count * (int64_t)dmuon_dtype_bytes(param->state_dtype);
  if (param->route != DMUON_ROUTE_MUON) {
    DMUON_TRY(zeroed(opt, "exp_avg", param->name, bytes, &state->exp_avg));
    return zeroed(opt, "exp_avg_sq", param->name, bytes, &state->exp_avg_sq);
  }
  DMUON_TRY(dmuon_update_plan_make(&opt->object.context->memory, param, &opt->ns->recipe, plan));
  DMUON_TRY(zeroed(opt, "momentum", param->name, bytes, &state->momentum));
  for (int64_t j = 0; j < plan->piece_count; j++)
    DMUON_TRY(device->ops->reserve_matrix(opt->runtime.compute, plan->plans[j].iterate,
                                          plan->plans[j].small, plan->plans[j].big));
  return DMUON_SUCCESS;
}

/* How many parameters of a bundle run together: those that this rank updates and that are alike. */
static void join_alike(DMuonOptimizer opt, const dmuon_bundle *bundle, int64_t *workspace) {
  const dmuon_param *params = opt->model->registry.params;
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    dmuon_update_plan *plan = &opt->plans[p->id];
    int64_t alike = 0;
    if (!p->is_mine || params[p->param].route != DMUON_ROUTE_MUON) continue;
    for (int j = 0; j < bundle->count; j++)
      alike += bundle->params[j].is_mine &&
               dmuon_update_is_alike(&params[p->param], &params[bundle->params[j].param]);
    dmuon_update_plan_together(plan, alike);
    if (plan->workspace_bytes > *workspace) *workspace = plan->workspace_bytes;
  }
}

/* State, plans and workspace of what this rank updates, and room for the operations of a step. */
DMuonErrorCode dmuon_optimizer_make_owned(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  const dmuon_packing *packing = &opt->runtime.packing;
  dmuon_device *device = opt->runtime.device;
  int64_t workspace = 0;

  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    for (int i = 0; i < bundle->count; i++) {
      if (!bundle->params[i].is_mine) continue;
      DMUON_TRY(make_state(opt, &bundle->params[i]));
      DMUON_TRY(make_master(opt, b, i));
    }
    join_alike(opt, bundle, &workspace);
  }
  DMUON_TRY(device->ops->alloc(device, workspace, &opt->workspace));
  dmuon_device_name_buffer(device, opt->workspace, "workspace");
  const dmuon_plan plan = dmuon_optimizer_plan(opt);
  const int64_t operations = dmuon_plan_operations(&plan, opt->plans);
  DMUON_TRY(device->ops->reserve(device, operations));
  for (int m = 0; m < registry->mesh_count; m++) {
    DMuonMesh mesh = registry->meshes[m].mesh;
    if (mesh && mesh->device != device)
      DMUON_TRY(mesh->device->ops->reserve(mesh->device, operations));
  }
  return device->ops->queue_sync(opt->runtime.compute);
}

DMuonErrorCode dmuon_optimizer_take_arrays(DMuonOptimizer opt, dmuon_queue *queue) {
  const DMuonDeviceOps *ops = opt->runtime.device->ops;
  if (!dmuon_verdict_is_used(&opt->verdict) || !opt->has_arrays) return DMUON_SUCCESS;
  return ops->reclaim(queue, NULL, 0, 0);
}

DMuonErrorCode dmuon_optimizer_give_arrays(DMuonOptimizer opt, dmuon_queue *queue) {
  const DMuonDeviceOps *ops = opt->runtime.device->ops;
  if (!dmuon_verdict_is_used(&opt->verdict) || !opt->has_arrays) return DMUON_SUCCESS;
  return ops->lend(queue);
}

DMuonErrorCode dmuon_optimizer_make_groups(DMuonOptimizer opt) {
  const dmuon_optimizer_settings *s = &opt->settings;
  dmuon_memory *memory = &opt->object.context->memory;
  const dmuon_lend_settings settings = {
      .order = (DMuonOrder)s->order,
      .grad_mode = (DMuonGradMode)s->grad_mode,
      .all_z2 = s->reshard == DMUON_Z2,
      .prefetch_depth = (int)s->prefetch_depth,
      .backward_prefetch_depth = (int)s->backward_prefetch_depth,
      .open_groups = (int)s->open_groups,
      .post_step_prefetch = opt->model->registry.mesh_count > 1 ? 0 : (int)s->post_step_prefetch,
      .delay_stage2 = s->delay_stage2_to_optimizer,
      .flags = opt->verdict.flags};
  DMUON_TRY(dmuon_lend_create(&opt->runtime, &settings, &opt->lend));
  opt->group_count = opt->lend.groups.count;
  DMUON_TRY(dmuon_memory_alloc(memory, opt->group_count, sizeof *opt->groups, &opt->groups));
  for (int g = 0; g < opt->group_count; g++)
    opt->groups[g] = (struct DMuonGroup_){DMUON_GROUP_MAGIC, opt, g};
  return dmuon_memory_alloc(memory, dmuon_pass_vote_bytes(opt->model->registry.param_count), 1,
                            &opt->pass_vote);
}
