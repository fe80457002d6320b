/* Which parameters travel together, and in which order bundles come. */
#include "engine/packing.h"

#include <string.h>

#include "base/dtype.h"
#include "base/sort.h"

const char *dmuon_residency_name(dmuon_residency residency) {
  static const char *const names[] = {"replicated", "dedicated", "gathered", "flat", "frozen"};
  return names[residency];
}

/* What the comparison looks at. */
typedef struct {
  const dmuon_registry *registry;
  const dmuon_packing_options *options;
} context;

static dmuon_residency residency_of(const dmuon_param *param,
                                    const dmuon_packing_options *options) {
  if (!param->is_lent) return DMUON_RESIDENCY_REPLICATED;
  switch (param->route) {
    case DMUON_ROUTE_FROZEN:
      return DMUON_RESIDENCY_FROZEN;
    case DMUON_ROUTE_ADAMW_SHARDED:
      return DMUON_RESIDENCY_FLAT;
    case DMUON_ROUTE_MUON:
      if (options->gathers) return DMUON_RESIDENCY_GATHERED;
      return DMUON_RESIDENCY_DEDICATED;
    default:
      return DMUON_RESIDENCY_DEDICATED;
  }
}

/* Parameters that travel together are equal in this order. */
static int by_bundle(const void *a, const void *b, void *about) {
  const context *c = about;
  const dmuon_param *x = &c->registry->params[*(const int *)a];
  const dmuon_param *y = &c->registry->params[*(const int *)b];
  const dmuon_residency p = residency_of(x, c->options), q = residency_of(y, c->options);
  if (x->mesh != y->mesh) return x->mesh < y->mesh ? -1 : 1;
  if (x->losses != y->losses) return x->losses < y->losses ? -1 : 1;
  if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
  if (x->grad_dtype != y->grad_dtype) return x->grad_dtype < y->grad_dtype ? -1 : 1;
  if (p != q) return p < q ? -1 : 1;
  return strcmp(x->group, y->group);
}

static int by_first_param(const void *a, const void *b, void *about) {
  const dmuon_bundle *x = a, *y = b;
  (void)about;
  return x->first < y->first ? -1 : x->first > y->first;
}

static int by_owner(const void *a, const void *b, void *about) {
  const dmuon_bundle_param *x = a, *y = b;
  (void)about;
  for (int axis = DMUON_AXIS_SHARD; axis >= DMUON_AXIS_REPLICATE; axis--)
    if (x->owner[axis] != y->owner[axis]) return x->owner[axis] < y->owner[axis] ? -1 : 1;
  return x->param < y->param ? -1 : x->param > y->param;
}

static int by_registration(const void *a, const void *b, void *about) {
  const dmuon_bundle_param *x = a, *y = b;
  (void)about;
  return x->param < y->param ? -1 : x->param > y->param;
}

static void enlarge(int64_t *largest, int64_t value) {
  if (value > *largest) *largest = value;
}

static void note_sizes(dmuon_packing *packing, const dmuon_bundle *bundle) {
  for (int i = 0; i < bundle->shard_segment_count; i++)
    enlarge(&packing->largest_segment, bundle->shard_segments[i].count);
  if (dmuon_bundle_is_lent(bundle)) return;
  enlarge(&packing->largest_packed_grad_bytes,
          bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->grad_dtype));
  enlarge(&packing->largest_packed_value_bytes,
          bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->dtype));
  enlarge(&packing->largest_column_bytes,
          bundle->column_count * (int64_t)dmuon_dtype_bytes(bundle->sum_dtype));
}

/* Makes the bundle of members[0..count). */
static DMuonErrorCode make_bundle(dmuon_memory *memory, const context *c, int (*owners)[3],
                                  const int *members, int count, dmuon_bundle *bundle) {
  const dmuon_registry *registry = c->registry;
  const dmuon_param *head = &registry->params[members[0]];
  const DMuonMesh mesh = registry->meshes[head->mesh].mesh;
  *bundle = (dmuon_bundle){.mesh = head->mesh,
                           .losses = head->losses,
                           .group = head->group,
                           .dtype = head->dtype,
                           .grad_dtype = head->grad_dtype,
                           .sum_dtype = dmuon_dtype_wide(head->grad_dtype),
                           .residency = residency_of(head, c->options),
                           .first = members[0],
                           .count = count};
  DMUON_TRY(dmuon_memory_alloc(memory, count, sizeof *bundle->params, &bundle->params));
  for (int i = 0; i < count; i++) {
    bundle->params[i].param = members[i];
    bundle->params[i].id = registry->global_to_local[members[i]];
    memcpy(bundle->params[i].owner, owners[members[i]], sizeof bundle->params[i].owner);
  }
  DMUON_TRY(dmuon_sort(memory, bundle->params, count, sizeof *bundle->params,
                       bundle->residency == DMUON_RESIDENCY_FLAT ? by_registration : by_owner,
                       NULL));
  return dmuon_bundle_lay_out(memory, registry, mesh->sizes[DMUON_AXIS_REPLICATE],
                              mesh->sizes[DMUON_AXIS_SHARD], mesh->coords[DMUON_AXIS_REPLICATE],
                              mesh->coords[DMUON_AXIS_SHARD], c->options->bucket_bytes, bundle);
}

/* Sorting brings the members of a bundle together; since it is stable, the first of them is the one
 * registered first, and bundles come in the order of their first members. */
static DMuonErrorCode make_bundles(dmuon_memory *memory, const context *c, int (*owners)[3],
                                   int *members, dmuon_packing *packing) {
  const dmuon_registry *registry = c->registry;
  int count = 0;
  for (int i = 0; i < registry->param_count; i++) {
    const dmuon_param *param = &registry->params[i];
    if (registry->global_to_local[i] < 0) continue;
    if (param->is_lent || param->route != DMUON_ROUTE_FROZEN) members[count++] = i;
  }
  DMUON_TRY(dmuon_sort(memory, members, count, sizeof *members, by_bundle, (void *)c));
  for (int begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; end < count; end++)
      if (by_bundle(&members[begin], &members[end], (void *)c) != 0) break;
    dmuon_bundle *bundle = &packing->bundles[packing->bundle_count++];
    DMUON_TRY(make_bundle(memory, c, owners, members + begin, end - begin, bundle));
    note_sizes(packing, bundle);
  }
  return dmuon_sort(memory, packing->bundles, packing->bundle_count, sizeof *packing->bundles,
                    by_first_param, NULL);
}

DMuonErrorCode dmuon_packing_make(dmuon_memory *memory, const dmuon_registry *registry,
                                  int (*owners)[3], const dmuon_packing_options *options,
                                  dmuon_packing *packing) {
  const context c = {registry, options};
  dmuon_packing made = {.memory = memory};
  int *members = NULL;
  DMuonErrorCode code =
      dmuon_memory_alloc(memory, registry->local_count, sizeof *members, &members);
  if (!code)
    code = dmuon_memory_alloc(memory, registry->local_count, sizeof *made.bundles, &made.bundles);
  if (!code) code = make_bundles(memory, &c, owners, members, &made);
  dmuon_memory_free(members);
  if (code)
    dmuon_packing_free(&made);
  else
    *packing = made;
  return code;
}

void dmuon_packing_free(dmuon_packing *packing) {
  for (int i = 0; i < packing->bundle_count; i++) dmuon_bundle_free(&packing->bundles[i]);
  dmuon_memory_free(packing->bundles);
  memset(packing, 0, sizeof *packing);
}
