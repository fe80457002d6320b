/* Which parameters travel together and where each lies in the packed buffer. */
#include "engine/packing.h"

#include <string.h>

#include "base/dtype.h"
#include "base/sort.h"

enum { ALIGN_BYTES = 128 };

static int same_bundle(const dmuon_param *a, const dmuon_param *b) {
  return a->mesh == b->mesh && a->losses == b->losses && a->dtype == b->dtype &&
         a->grad_dtype == b->grad_dtype && strcmp(a->group, b->group) == 0;
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

/* Appends the bundle that begins with registry parameter `first`. */
static DMuonErrorCode gather_bundle(dmuon_memory *memory, const dmuon_registry *registry,
                                    int (*owners)[3], int first, unsigned char *taken,
                                    dmuon_packing *packing) {
  const dmuon_param *head = &registry->params[first];
  dmuon_bundle *bundle = &packing->bundles[packing->bundle_count];
  int count = 0;

  for (int i = first; i < registry->param_count; i++)
    if (!taken[i] && registry->global_to_local[i] >= 0 && same_bundle(head, &registry->params[i]))
      count++;
  *bundle = (dmuon_bundle){.mesh = head->mesh,
                           .losses = head->losses,
                           .group = head->group,
                           .dtype = head->dtype,
                           .grad_dtype = head->grad_dtype};
  bundle->sum_dtype = dmuon_dtype_wide(head->grad_dtype);
  packing->bundle_count++; /* so that free finds a bundle half made */
  DMUON_TRY(dmuon_memory_alloc(memory, count, sizeof *bundle->params, &bundle->params));
  for (int i = first; i < registry->param_count; i++) {
    if (taken[i] || registry->global_to_local[i] < 0) continue;
    if (!same_bundle(head, &registry->params[i])) continue;
    dmuon_bundle_param *p = &bundle->params[bundle->count++];
    p->param = i;
    p->id = registry->global_to_local[i];
    memcpy(p->owner, owners[i], sizeof p->owner);
    taken[i] = 1;
  }
  DMUON_TRY(
      dmuon_sort(memory, bundle->params, bundle->count, sizeof *bundle->params, by_owner, NULL));
  DMUON_TRY(lay_out(memory, registry, bundle));
  note_sizes(packing, bundle);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_packing_make(dmuon_memory *memory, const dmuon_registry *registry,
                                  int (*owners)[3], dmuon_packing *packing) {
  dmuon_packing made = {.memory = memory};
  unsigned char *taken = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, registry->param_count, 1, &taken);
  if (!code)
    code = dmuon_memory_alloc(memory, registry->local_count, sizeof *made.bundles, &made.bundles);
  for (int i = 0; !code && i < registry->param_count; i++)
    if (registry->params[i].route == DMUON_ROUTE_FROZEN) taken[i] = 1;
  for (int i = 0; !code && i < registry->param_count; i++)
    if (!taken[i] && registry->global_to_local[i] >= 0)
      code = gather_bundle(memory, registry, owners, i, taken, &made);
  dmuon_memory_free(taken);
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
