/* How long the busiest owner communicates: what it roots, by what the links of an axis cost. Only
 * told; owners are placed by their computation (assign.c). */
#include "base/dtype.h"
#include "partition/partition.h"

/* Arriving at the root of a parameter from the others on the axis, and leaving it. */
static int64_t rooted_bytes(const dmuon_param *param, DMuonAxis axis, int size) {
  const DMuonDType sent =
      axis == DMUON_AXIS_SHARD ? param->grad_dtype : dmuon_dtype_wide(param->grad_dtype);
  if (size == 1) return 0;
  return (size - 1) * dmuon_dtype_span(param->numel, sent) +
         dmuon_dtype_span(param->numel, param->dtype);
}

static int has_root(const dmuon_param *param) {
  return param->route != DMUON_ROUTE_FROZEN && param->route != DMUON_ROUTE_ADAMW_SHARDED;
}

/* Adds parameter index to the places that root it. */
static void add_rooted(DMuonPartition part, int index, DMuonAxis axis, int64_t *bytes) {
  const dmuon_registry *registry = &part->model->registry;
  const dmuon_param *param = &registry->params[index];
  const dmuon_registry_mesh *mesh = &registry->meshes[param->mesh];
  const int *owner = part->owners[index], is_shard = axis == DMUON_AXIS_SHARD;
  const int64_t more = rooted_bytes(param, axis, is_shard ? mesh->shard : mesh->replicate);
  if (!has_root(param)) return;
  for (int r = 0; r < mesh->replicate; r++)
    if (is_shard || r == owner[0])
      bytes[mesh->ranks[(r * mesh->shard + owner[1]) * mesh->tp + owner[2]]] += more;
}

DMuonErrorCode dmuon_partition_find_busiest(DMuonPartition part, DMuonAxis axis,
                                            dmuon_partition_busiest *busiest) {
  const dmuon_registry *registry = &part->model->registry;
  const int places = registry->meshes[0].size;
  dmuon_partition_busiest most = {.position = -1};
  int64_t *bytes = NULL;
  DMUON_TRY(dmuon_memory_alloc(&part->object.context->memory, places, sizeof *bytes, &bytes));
  for (int i = 0; i < registry->param_count; i++) add_rooted(part, i, axis, bytes);
  for (int p = 0; p < places; p++)
    if (bytes[p] > most.bytes) most = (dmuon_partition_busiest){.bytes = bytes[p], .position = p};
  dmuon_memory_free(bytes);
  most.seconds = dmuon_cost_seconds(&part->model->mesh->links[axis], 0, most.bytes);
  *busiest = most;
  return DMUON_SUCCESS;
}
