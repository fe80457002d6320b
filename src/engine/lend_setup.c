/* Making and freeing the sharded runtime: everything that brackets and steps will need is taken
 * here, so that they allocate nothing. */
#include "engine/lend.h"

#include <string.h>

static int larger(int a, int b) {
  return a > b ? a : b;
}

int dmuon_lend_value_places(const dmuon_lend_settings *settings) {
  const int ahead = larger(settings->prefetch_depth, settings->backward_prefetch_depth);
  return larger(larger(settings->open_groups, 1 + ahead), settings->post_step_prefetch);
}

/* One more than can be open: zeros for a group that is passed over always have room. */
static int grad_place_count(const dmuon_lend_settings *settings) {
  return larger(2, settings->open_groups + 1);
}

int dmuon_lend_is_used(const dmuon_lend *lend) {
  return lend->groups.lent_count > 0;
}

/* ---- how much -------------------------------------------------------------------------------- */

static int64_t column_bytes(const dmuon_packing *packing) {
  int64_t largest = 0;
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    const int64_t bytes = dmuon_dtype_span(bundle->column_count, bundle->sum_dtype);
    if (dmuon_bundle_is_lent(bundle) && bundle->residency != DMUON_RESIDENCY_FROZEN &&
        bytes > largest)
      largest = bytes;
  }
  return largest;
}

/* Of one mesh: the largest mean. */
static int64_t scratch_bytes(const dmuon_packing *packing, int mesh) {
  int64_t largest = 0;
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    const int64_t bytes = dmuon_dtype_span(bundle->mine_count, bundle->sum_dtype);
    if (dmuon_bundle_is_lent(bundle) && bundle->mesh == mesh && bytes > largest) largest = bytes;
  }
  return largest;
}

dmuon_lend_bytes dmuon_lend_plan_bytes(const dmuon_packing *packing, const dmuon_groups *groups,
                                       const dmuon_lend_settings *settings) {
  dmuon_lend_bytes plan = {0};
  int meshes = 0;
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    meshes = larger(meshes, bundle->mesh + 1);
    if (!dmuon_bundle_is_lent(bundle)) continue;
    plan.homes += dmuon_dtype_span(bundle->home_count, bundle->dtype);
    if (bundle->residency == DMUON_RESIDENCY_GATHERED)
      plan.homes += dmuon_dtype_span(bundle->mine_count, bundle->dtype);
    plan.sums += dmuon_dtype_span(bundle->mine_count, bundle->sum_dtype); /* the mean */
  }
  plan.value_buffers =
      dmuon_lend_value_places(settings) * groups->largest_value_bytes + groups->z2_value_bytes;
  plan.grad_buffers = grad_place_count(settings) * groups->largest_grad_bytes;
  plan.sums += DMUON_COLUMNS * column_bytes(packing);
  for (int m = 0; m < meshes; m++) plan.sums += scratch_bytes(packing, m);
  return plan;
}

/* ---- making ---------------------------------------------------------------------------------- */

static DMuonErrorCode new_buffer(dmuon_lend *lend, int64_t bytes, void **data) {
  const DMuonDeviceOps *ops = lend->base->device->ops;
  DMUON_TRY(ops->alloc(lend->base->device, bytes, data));
  return ops->zero(lend->caller, *data, bytes);
}

static DMuonErrorCode make_bundles(dmuon_lend *lend, dmuon_memory *memory) {
  const dmuon_packing *packing = &lend->base->packing;
  dmuon_device *device = lend->base->device;
  DMUON_TRY(
      dmuon_memory_alloc(memory, packing->bundle_count, sizeof *lend->bundles, &lend->bundles));
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    dmuon_lent_bundle *lent = &lend->bundles[b];
    dmuon_event **events[] = {&lent->fetched, &lent->published, &lent->packed,
                              &lent->sent,    &lent->mean_done, &lent->updated};
    if (!dmuon_bundle_is_lent(bundle)) continue;
    DMUON_TRY(new_buffer(lend, dmuon_dtype_span(bundle->home_count, bundle->dtype), &lent->home));
    if (bundle->residency == DMUON_RESIDENCY_GATHERED)
      DMUON_TRY(
          new_buffer(lend, dmuon_dtype_span(bundle->mine_count, bundle->dtype), &lent->staged));
    dmuon_device_name_buffer(device, lent->home, "%s home of %s",
                             dmuon_residency_name(bundle->residency), bundle->group);
    dmuon_device_name_buffer(device, lent->staged, "staged values of %s", bundle->group);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
      DMUON_TRY(device->ops->event_create(device, events[i]));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_z2_buffers(dmuon_lend *lend) {
  const dmuon_groups *groups = &lend->groups;
  for (int g = 0; g < groups->count; g++) {
    dmuon_lent_group *state = &lend->states[g];
    if (!groups->groups[g].is_z2 || groups->groups[g].part_count == 0) continue;
    void *values;
    DMUON_TRY(new_buffer(lend, groups->groups[g].value_bytes, &values));
    state->z2_values = values;
    dmuon_device_name_buffer(lend->base->device, values, "values of %s", groups->groups[g].key);
    DMUON_TRY(lend->base->device->ops->event_create(lend->base->device, &state->z2_left));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_places(dmuon_lend *lend) {
  dmuon_device *device = lend->base->device;
  void *data;
  dmuon_pool_begin(&lend->values, dmuon_lend_value_places(&lend->settings), lend->value_places);
  dmuon_pool_begin(&lend->grads, grad_place_count(&lend->settings), lend->grad_places);
  for (int i = 0; i < DMUON_MAX_PLACES; i++)
    lend->value_buffers[i].last_group = lend->grad_buffers[i].last_group = -1;
  for (int i = 0; i < lend->values.count; i++) {
    DMUON_TRY(new_buffer(lend, lend->groups.largest_value_bytes, &data));
    lend->value_buffers[i].data = data;
    dmuon_device_name_buffer(device, data, "values, place %d", i);
    DMUON_TRY(device->ops->event_create(device, &lend->value_buffers[i].left));
  }
  for (int i = 0; i < lend->grads.count; i++) {
    DMUON_TRY(new_buffer(lend, lend->groups.largest_grad_bytes, &data));
    lend->grad_buffers[i].data = data;
    dmuon_device_name_buffer(device, data, "gradients, place %d", i);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_sums(dmuon_lend *lend, dmuon_memory *memory) {
  const int meshes = lend->base->registry->mesh_count;
  for (int i = 0; i < DMUON_COLUMNS; i++) {
    lend->column_bundle[i] = -1;
    DMUON_TRY(new_buffer(lend, column_bytes(&lend->base->packing), &lend->columns[i]));
    dmuon_device_name_buffer(lend->base->device, lend->columns[i], "column %d", i);
  }
  DMUON_TRY(dmuon_memory_alloc(memory, meshes, sizeof *lend->scratch, &lend->scratch));
  for (int m = 0; m < meshes; m++)
    DMUON_TRY(new_buffer(lend, scratch_bytes(&lend->base->packing, m), &lend->scratch[m]));
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_flags(dmuon_lend *lend, dmuon_memory *memory) {
  const int64_t count = lend->base->registry->local_count;
  unsigned char **flags[] = {&lend->is_given, &lend->is_asked, &lend->has_gradient,
                             &lend->is_accumulated};
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
    DMUON_TRY(dmuon_memory_alloc(memory, count, 1, flags[i]));
  DMUON_TRY(dmuon_memory_alloc(memory, count, sizeof *lend->handed, &lend->handed));
  DMUON_TRY(lend->base->device->ops->alloc_host(
      lend->base->device, count * (int64_t)sizeof *lend->found, (void **)&lend->found));
  return dmuon_memory_alloc(memory, count, sizeof *lend->nonfinite, &lend->nonfinite);
}

static DMuonErrorCode create(dmuon_lend *lend) {
  const dmuon_runtime *base = lend->base;
  dmuon_memory *memory = &base->device->context->memory;
  DMUON_TRY(dmuon_groups_make(memory, base->registry, &base->packing, lend->settings.all_z2,
                              &lend->groups));
  DMUON_TRY(make_flags(lend, memory));
  DMUON_TRY(dmuon_memory_alloc(memory, lend->groups.count, sizeof *lend->states, &lend->states));
  for (int g = 0; g < lend->groups.count; g++)
    lend->states[g].grad_place = lend->states[g].more_place = -1;
  if (!dmuon_lend_is_used(lend)) return dmuon_lend_begin_step(lend);
  DMUON_TRY(base->device->ops->queue_create(base->device, 0, &lend->caller));
  dmuon_device_name_queue(base->device, lend->caller, "caller");
  DMUON_TRY(make_bundles(lend, memory));
  DMUON_TRY(make_z2_buffers(lend));
  DMUON_TRY(make_places(lend));
  DMUON_TRY(make_sums(lend, memory));
  DMUON_TRY(dmuon_lend_begin_step(lend));
  return base->device->ops->queue_sync(lend->caller);
}

DMuonErrorCode dmuon_lend_create(dmuon_runtime *base, const dmuon_lend_settings *settings,
                                 dmuon_lend *lend) {
  *lend = (dmuon_lend){.base = base, .settings = *settings};
  DMuonErrorCode code = create(lend);
  if (!code) return DMUON_SUCCESS;
  dmuon_queue_settle(base->device, lend->caller, code); /* buffers are still being zeroed */
  dmuon_lend_destroy(lend);
  return code;
}

DMuonErrorCode dmuon_lend_make_accumulators(dmuon_lend *lend) {
  const dmuon_registry *registry = lend->base->registry;
  dmuon_device *device = lend->base->device;
  void **made = NULL;
  if (lend->accumulators) return DMUON_SUCCESS;
  DMuonErrorCode code =
      dmuon_memory_alloc(&device->context->memory, registry->local_count, sizeof *made, &made);
  for (int id = 0; !code && id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    if (!param->is_lent || param->route == DMUON_ROUTE_FROZEN) continue;
    code = device->ops->alloc(
        device, dmuon_dtype_span(param->numel, dmuon_dtype_wide(param->grad_dtype)), &made[id]);
    if (!code) dmuon_device_name_buffer(device, made[id], "local sums of %s", param->name);
  }
  if (code) {
    for (int id = 0; made && id < registry->local_count; id++) device->ops->free(device, made[id]);
    dmuon_memory_free(made);
    return code;
  }
  lend->accumulators = made;
  return DMUON_SUCCESS;
}

/* ---- freeing --------------------------------------------------------------------------------- */

static void free_bundles(dmuon_lend *lend, dmuon_device *device) {
  for (int b = 0; lend->bundles && b < lend->base->packing.bundle_count; b++) {
    dmuon_lent_bundle *lent = &lend->bundles[b];
    dmuon_event *events[] = {lent->fetched, lent->published, lent->packed,
                             lent->sent,    lent->mean_done, lent->updated};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
      device->ops->event_destroy(events[i]);
    device->ops->free(device, lent->home);
    device->ops->free(device, lent->staged);
  }
  dmuon_memory_free(lend->bundles);
}

void dmuon_lend_destroy(dmuon_lend *lend) {
  if (!lend->base) return;
  dmuon_device *device = lend->base->device;
  const dmuon_registry *registry = lend->base->registry;
  free_bundles(lend, device);
  for (int g = 0; lend->states && g < lend->groups.count; g++) {
    device->ops->free(device, lend->states[g].z2_values);
    device->ops->event_destroy(lend->states[g].z2_left);
  }
  for (int i = 0; i < DMUON_MAX_PLACES; i++) {
    device->ops->free(device, lend->value_buffers[i].data);
    device->ops->event_destroy(lend->value_buffers[i].left);
    device->ops->free(device, lend->grad_buffers[i].data);
  }
  for (int i = 0; i < DMUON_COLUMNS; i++) device->ops->free(device, lend->columns[i]);
  for (int m = 0; lend->scratch && m < registry->mesh_count; m++)
    device->ops->free(device, lend->scratch[m]);
  for (int id = 0; lend->accumulators && id < registry->local_count; id++)
    device->ops->free(device, lend->accumulators[id]);
  device->ops->queue_destroy(lend->caller);
  dmuon_memory_free(lend->states);
  dmuon_memory_free(lend->scratch);
  dmuon_memory_free(lend->accumulators);
  dmuon_memory_free(lend->is_given);
  dmuon_memory_free(lend->is_asked);
  dmuon_memory_free(lend->has_gradient);
  dmuon_memory_free(lend->is_accumulated);
  dmuon_memory_free(lend->handed);
  device->ops->free_host(device, lend->found);
  dmuon_memory_free(lend->nonfinite);
  dmuon_groups_free(&lend->groups);
  memset(lend, 0, sizeof *lend);
}
