/* Which parameters travel together and where each lies in the packed buffer. */
#include "engine/packing.h"

#include <string.h>

#include "base/dtype.h"
#include "base/sort.h"

enum { ALIGN_BYTES = 128 };

/* Parameters that travel together are equal in this order. */
static int by_bundle(const void *a, const void *b, void *context) {
  const dmuon_registry *registry = context;
  const dmuon_param *x = &registry->params[*(const int *)a];
  const dmuon_param *y = &registry->params[*(const int *)b];
  if (x->mesh != y->mesh) return x->mesh < y->mesh ? -1 : 1;
  if (x->losses != y->losses) return x->losses < y->losses ? -1 : 1;
  if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
  if (x->grad_dtype != y->grad_dtype) return x->grad_dtype < y->grad_dtype ? -1 : 1;
  return strcmp(x->group, y->group);
}

static int by_first_param(const void *a, const void *b, void *context) {
  const dmuon_bundle *x = a, *y = b;
  (void)context;
  return x->first < y->first ? -1 : x->first > y->first;
}

static int by_owner(const void *a, const void *b, void *context) {
  const dmuon_bundle_param *x = a, *y = b;
  (void)context;
  for (int axis = DMUON_AXIS_SHARD; axis >= DMUON_AXIS_REPLICATE; axis--)
    if (x->owner[axis] != y->owner[axis]) return x->owner[axis] < y->owner[axis] ? -1 : 1;
  return x->param < y->param ? -1 : x->param > y->param;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Lays the sorted parameters out and cuts the buffer into segments. */
static DMuonErrorCode lay_out(dmuon_memory *memory, const dmuon_registry *registry,
                              dmuon_bundle *bundle) {
  const DMuonMesh mesh = registry->meshes[bundle->mesh].mesh;
  const int64_t smallest =
      (int64_t)(dmuon_dtype_bytes(bundle->dtype) < dmuon_dtype_bytes(bundle->grad_dtype)
                    ? dmuon_dtype_bytes(bundle->dtype)
                    : dmuon_dtype_bytes(bundle->grad_dtype));
  const int64_t align = ALIGN_BYTES / smallest;
  const int r = mesh->coords[DMUON_AXIS_REPLICATE], s = mesh->coords[DMUON_AXIS_SHARD];
  int64_t end = 0;

  DMUON_TRY(
      dmuon_memory_alloc(memory, bundle->count, sizeof(dmuon_segment), &bundle->shard_segments));
  DMUON_TRY(
      dmuon_memory_alloc(memory, bundle->count, sizeof(dmuon_segment), &bundle->column_segments));
  DMUON_TRY(
      dmuon_memory_alloc(memory, bundle->count, sizeof(dmuon_segment), &bundle->value_segments));
  bundle->column_offset = bundle->mine_offset = -1;
  for (int i = 0; i < bundle->count; i++) {
    dmuon_bundle_param *p = &bundle->params[i];
    const int64_t numel = registry->params[p->param].numel;
    const int64_t room = (numel + align - 1) / align * align;
    const int p_shard = p->owner[DMUON_AXIS_SHARD], p_replicate = p->owner[DMUON_AXIS_REPLICATE];
    dmuon_segment *segment = &bundle->shard_segments[bundle->shard_segment_count];

    p->offset = end;
    p->is_mine = p_shard == s && p_replicate == r;
    if (bundle->shard_segment_count == 0 || segment[-1].root != p_shard) {
      *segment = (dmuon_segment){.root = p_shard, .offset = end};
      bundle->shard_segment_count++;
    } else {
      segment--;
    }
    segment->count += room;
    segment->payload += numel;
    if (p_shard == s) {
      if (bundle->column_offset < 0) bundle->column_offset = end;
      dmuon_segment *column = &bundle->column_segments[bundle->column_segment_count];
      dmuon_segment *value = &bundle->value_segments[bundle->column_segment_count];
      if (bundle->column_segment_count == 0 || column[-1].root != p_replicate) {
        *value = (dmuon_segment){.root = p_replicate, .offset = end};
        *column = (dmuon_segment){.root = p_replicate, .offset = end - bundle->column_offset};
        bundle->column_segment_count++;
      } else {
        column--, value--;
      }
      column->count += room, column->payload += numel;
      value->count += room, value->payload += numel;
      bundle->column_count += room;
      if (p->is_mine) {
        if (bundle->mine_offset < 0) bundle->mine_offset = end;
        bundle->mine_count += room;
      }
    }
    end += room;
  }
  if (bundle->column_offset < 0) bundle->column_offset = 0;
  if (bundle->mine_offset < 0) bundle->mine_offset = 0;
  bundle->packed_count = end;
  return DMUON_SUCCESS;
}

static void note_sizes(dmuon_packing *packing, const dmuon_bundle *bundle) {
  packing->largest_packed_grad_bytes =
      larger(packing->largest_packed_grad_bytes,
             bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->grad_dtype));
  packing->largest_packed_value_bytes =
      larger(packing->largest_packed_value_bytes,
             bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->dtype));
  packing->largest_column_bytes =
      larger(packing->largest_column_bytes,
             bundle->column_count * (int64_t)dmuon_dtype_bytes(bundle->sum_dtype));
  for (int i = 0; i < bundle->shard_segment_count; i++)
    packing->largest_segment = larger(packing->largest_segment, bundle->shard_segments[i].count);
}

/* Makes the bundle of members[0..count). */
static DMuonErrorCode make_bundle(dmuon_memory *memory, const dmuon_registry *registry,
                                  int (*owners)[3], const int *members, int count,
                                  dmuon_bundle *bundle) {
  const dmuon_param *head = &registry->params[members[0]];
  *bundle = (dmuon_bundle){.mesh = head->mesh,
                           .losses = head->losses,
                           .group = head->group,
                           .dtype = head->dtype,
                           .grad_dtype = head->grad_dtype,
                           .sum_dtype = dmuon_dtype_wide(head->grad_dtype),
                           .first = members[0],
                           .count = count};
  DMUON_TRY(dmuon_memory_alloc(memory, count, sizeof *bundle->params, &bundle->params));
  for (int i = 0; i < count; i++) {
    bundle->params[i].param = members[i];
    bundle->params[i].id = registry->global_to_local[members[i]];
    memcpy(bundle->params[i].owner, owners[members[i]], sizeof bundle->params[i].owner);
  }
  DMUON_TRY(dmuon_sort(memory, bundle->params, count, sizeof *bundle->params, by_owner, NULL));
  return lay_out(memory, registry, bundle);
}

/* Sorting brings the members of a bundle together; since it is stable, the first of them is the one
 * registered first, and bundles come in the order of their first members. */
static DMuonErrorCode make_bundles(dmuon_memory *memory, const dmuon_registry *registry,
                                   int (*owners)[3], int *members, dmuon_packing *packing) {
  int count = 0;
  for (int i = 0; i < registry->param_count; i++)
    if (registry->global_to_local[i] >= 0 && registry->params[i].route != DMUON_ROUTE_FROZEN)
      members[count++] = i;
  DMUON_TRY(dmuon_sort(memory, members, count, sizeof *members, by_bundle, (void *)registry));
  for (int begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; end < count; end++)
      if (by_bundle(&members[begin], &members[end], (void *)registry) != 0) break;
    dmuon_bundle *bundle = &packing->bundles[packing->bundle_count++];
    DMUON_TRY(make_bundle(memory, registry, owners, members + begin, end - begin, bundle));
    note_sizes(packing, bundle);
  }
  return dmuon_sort(memory, packing->bundles, packing->bundle_count, sizeof *packing->bundles,
                    by_first_param, NULL);
}

DMuonErrorCode dmuon_packing_make(dmuon_memory *memory, const dmuon_registry *registry,
                                  int (*owners)[3], dmuon_packing *packing) {
  dmuon_packing made = {.memory = memory};
  int *members = NULL;
  DMuonErrorCode code =
      dmuon_memory_alloc(memory, registry->local_count, sizeof *members, &members);
  if (!code)
    code = dmuon_memory_alloc(memory, registry->local_count, sizeof *made.bundles, &made.bundles);
  if (!code) code = make_bundles(memory, registry, owners, members, &made);
  dmuon_memory_free(members);
  if (code)
    dmuon_packing_free(&made);
  else
    *packing = made;
  return code;
}

void dmuon_packing_free(dmuon_packing *packing) {
  for (int i = 0; i < packing->bundle_count; i++) {
    dmuon_bundle *bundle = &packing->bundles[i];
    dmuon_memory_free(bundle->params);
    dmuon_memory_free(bundle->shard_segments);
    dmuon_memory_free(bundle->column_segments);
    dmuon_memory_free(bundle->value_segments);
  }
  dmuon_memory_free(packing->bundles);
  memset(packing, 0, sizeof *packing);
}
