/* Puts bundles and parameters together by group key. Parameters are gone through in the order in
 * which this rank registered them, and groups come in the order of their first ones: what ranks of
 * one mesh share they have registered in the same order, and a rank may have more between. */
#include "engine/groups.h"

#include <string.h>

#include "base/dtype.h"

enum { ALIGN_BYTES = 256 };

static int64_t rounded_up(int64_t bytes) {
  return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int dmuon_groups_find(const dmuon_groups *groups, const char *key) {
  for (int g = 0; g < groups->count; g++)
    if (strcmp(groups->groups[g].key, key) == 0) return g;
  return -1;
}

/* Counts what each group has, so that its tables can be made. */
static void count_parts(const dmuon_registry *registry, const dmuon_packing *packing, int all_z2,
                        dmuon_groups *groups) {
  for (int id = 0; id < registry->local_count; id++) {
    const int i = registry->local_to_global[id];
    const dmuon_param *param = &registry->params[i];
    int g = dmuon_groups_find(groups, param->group);
    if (g < 0) {
      g = groups->count++;
      groups->groups[g] = (dmuon_group_plan){.key = param->group, .first = i};
    }
    groups->groups[g].param_count++;
    groups->groups[g].is_lent |= param->is_lent;
    groups->groups[g].has_arrays |= !param->is_lent;
    groups->groups[g].is_z2 |= all_z2 || param->reshard == DMUON_Z2;
  }
  for (int b = 0; b < packing->bundle_count; b++)
    if (dmuon_bundle_is_lent(&packing->bundles[b]))
      groups->groups[dmuon_groups_find(groups, packing->bundles[b].group)].part_count++;
}

static void place_parts(const dmuon_packing *packing, dmuon_group_plan *group) {
  int count = 0;
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    if (!dmuon_bundle_is_lent(bundle) || strcmp(bundle->group, group->key) != 0) continue;
    dmuon_group_bundle *part = &group->parts[count++];
    *part = (dmuon_group_bundle){
        .bundle = b,
        .value_offset = group->value_bytes,
        .grad_offset = group->grad_bytes,
        .value_bytes = bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->dtype)};
    if (bundle->residency != DMUON_RESIDENCY_FROZEN)
      part->grad_bytes = bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->grad_dtype);
    group->value_bytes += rounded_up(part->value_bytes);
    /* Parameters without elements have gradients, too: some place where they are not. */
    if (bundle->residency != DMUON_RESIDENCY_FROZEN)
      group->grad_bytes += rounded_up(part->grad_bytes > 0 ? part->grad_bytes : 1);
  }
}

static dmuon_group_param locate(const dmuon_packing *packing, const dmuon_group_plan *group,
                                int id) {
  for (int k = 0; k < group->part_count; k++) {
    const dmuon_bundle *bundle = &packing->bundles[group->parts[k].bundle];
    for (int i = 0; i < bundle->count; i++)
      if (bundle->params[i].id == id)
        return (dmuon_group_param){id, k, i, bundle->residency == DMUON_RESIDENCY_FROZEN};
  }
  return (dmuon_group_param){id, -1, -1, 0};
}

static void enlarge(int64_t *largest, int64_t value) {
  if (value > *largest) *largest = value;
}

static DMuonErrorCode make(dmuon_memory *memory, const dmuon_registry *registry,
                           const dmuon_packing *packing, int all_z2, dmuon_groups *groups) {
  DMUON_TRY(
      dmuon_memory_alloc(memory, registry->local_count, sizeof *groups->groups, &groups->groups));
  count_parts(registry, packing, all_z2, groups);
  for (int g = 0; g < groups->count; g++) {
    dmuon_group_plan *group = &groups->groups[g];
    if (group->part_count > DMUON_MAX_PARTS)
      DMUON_FAIL(
          DMUON_ERR_SETUP,
          "group %s has parameters of %d kinds (mesh, divisor, dtypes, residency); at most %d "
          "can share a group",
          group->key, group->part_count, DMUON_MAX_PARTS);
    DMUON_TRY(dmuon_memory_alloc(memory, group->part_count, sizeof *group->parts, &group->parts));
    DMUON_TRY(
        dmuon_memory_alloc(memory, group->param_count, sizeof *group->params, &group->params));
    DMUON_TRY(dmuon_memory_alloc(memory, group->param_count, sizeof *group->ids, &group->ids));
    place_parts(packing, group);
    group->param_count = 0; /* counts up again as they are entered */
    groups->lent_count += group->is_lent;
    if (group->is_z2)
      groups->z2_value_bytes += group->value_bytes;
    else
      enlarge(&groups->largest_value_bytes, group->value_bytes);
    enlarge(&groups->largest_grad_bytes, group->grad_bytes);
  }
  for (int id = 0; id < registry->local_count; id++) {
    const int i = registry->local_to_global[id];
    dmuon_group_plan *group = &groups->groups[dmuon_groups_find(groups, registry->params[i].group)];
    group->ids[group->param_count] = id;
    group->params[group->param_count++] = locate(packing, group, id);
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_groups_make(dmuon_memory *memory, const dmuon_registry *registry,
                                 const dmuon_packing *packing, int all_z2, dmuon_groups *groups) {
  dmuon_groups made = {0};
  DMuonErrorCode code = make(memory, registry, packing, all_z2, &made);
  if (code)
    dmuon_groups_free(&made);
  else
    *groups = made;
  return code;
}

void dmuon_groups_free(dmuon_groups *groups) {
  for (int g = 0; g < groups->count; g++) {
    dmuon_memory_free(groups->groups[g].parts);
    dmuon_memory_free(groups->groups[g].params);
    dmuon_memory_free(groups->groups[g].ids);
  }
  dmuon_memory_free(groups->groups);
  memset(groups, 0, sizeof *groups);
}
