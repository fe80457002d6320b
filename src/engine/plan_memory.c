/* What SetUp will have taken, from the same tables that it takes it by. What devices and
 * communicators take for themselves, they say (dmuon_device_overhead, reserve_bytes); where there
 * is none, as on a plan mesh, it is a host's. */
#include "engine/plan.h"

#include "base/dtype.h"
#include "comm/tree.h"

enum {
  BYTES_A_PARAMETER = 900, /* of all tables that are indexed by parameters */
  BYTES_A_BUNDLE = 1300,   /* events, stamps, segment tables of a few owners */
  BYTES_ALWAYS = 24 * 1024,
  OWN_QUEUES = 2,  /* of a runtime */
  MESH_QUEUES = 4, /* of each mesh that its bundles live on */
  RECEIVES = 3,    /* chunks at a root beyond its partial sums */
  TREE_CHUNKS = 6,
  MOST_CHUNK_BYTES = 1 << 30
};

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static const dmuon_device_overhead *overhead_of(const dmuon_registry *registry, int m) {
  const DMuonMesh mesh = registry->meshes[m].mesh;
  return dmuon_device_overhead_of(mesh ? mesh->device : NULL);
}

/* ---- what this rank updates ------------------------------------------------------------------ */

static void add_updated(const dmuon_plan *plan, const dmuon_update_plan *update_plans,
                        dmuon_memory_plan *memory) {
  const dmuon_device_overhead *device = overhead_of(plan->registry, 0);
  int64_t scratch = 0;
  int updates_muon = 0;
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &plan->packing->bundles[b];
    for (int i = 0; i < bundle->count; i++) {
      const dmuon_bundle_param *p = &bundle->params[i];
      const dmuon_param *param = &plan->registry->params[p->param];
      const dmuon_update_plan *update = &update_plans[p->id];
      if (!p->is_mine) continue;
      const int is_muon = param->route == DMUON_ROUTE_MUON;
      updates_muon |= is_muon;
      memory->state += (is_muon ? 1 : 2) * dmuon_dtype_span(p->mine_count, param->state_dtype);
      memory->tables += (is_muon ? 1 : 2) * device->buffer;
      memory->tables += update->piece_count * (int64_t)sizeof *update->plans;
      if (param->master_dtype != param->dtype) {
        memory->masters += dmuon_dtype_span(p->mine_count, param->master_dtype);
        memory->tables += device->buffer;
      }
      memory->workspace = larger(memory->workspace, update->workspace_bytes);
      for (int64_t j = 0; j < update->piece_count; j++) {
        const dmuon_ns_plan *ns = &update->plans[j];
        if (device->widens && dmuon_dtype_bytes(ns->iterate) < sizeof(float))
          scratch = larger(scratch, 3 * ns->small * ns->big * (int64_t)sizeof(float));
      }
    }
  }
  memory->workspace += scratch;
  if (updates_muon) memory->queues += device->products;
}

int64_t dmuon_plan_operations(const dmuon_plan *plan, const dmuon_update_plan *update_plans) {
  int64_t operations = 64;
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &plan->packing->bundles[b];
    const int lent = dmuon_bundle_is_lent(bundle);
    operations +=
        32 + (lent ? 48 + bundle->bucket_count : 0) + (lent ? 12 : 4) * (int64_t)bundle->count;
    for (int i = 0; i < bundle->count; i++)
      if (bundle->params[i].is_mine) operations += update_plans[bundle->params[i].id].operations;
  }
  return operations + 8 * (int64_t)plan->registry->local_count;
}

/* ---- communicators --------------------------------------------------------------------------- */

static int chunk_count(int size, int64_t fanin) {
  if (size == 1) return 1;
  return size <= fanin ? dmuon_counter_depth(size) + RECEIVES : TREE_CHUNKS;
}

/* Of the host's, that reduces along axis. */
static int64_t host_chunks(const dmuon_plan *plan, DMuonMesh mesh, DMuonAxis axis, DMuonDType sum) {
  const int64_t most = mesh->chunk_bytes < MOST_CHUNK_BYTES ? mesh->chunk_bytes : MOST_CHUNK_BYTES;
  const int64_t wide = (int64_t)dmuon_dtype_bytes(sum);
  int64_t chunk = larger(1, most / wide) * wide;
  if (plan->packing->largest_segment * wide < chunk) chunk = plan->packing->largest_segment * wide;
  chunk = (chunk + 63) / 64 * 64;
  return chunk * chunk_count(mesh->sizes[axis], mesh->settings.reduce_fanin);
}

static int64_t communicator_bytes(const dmuon_plan *plan, int m) {
  const DMuonMesh mesh = plan->registry->meshes[m].mesh;
  int64_t bytes = 0;
  for (int axis = DMUON_AXIS_REPLICATE; axis <= DMUON_AXIS_SHARD; axis++) {
    const dmuon_comm *comm = mesh->comms[axis][DMUON_ROLE_REDUCE];
    int64_t most = 0;
    for (int b = 0; b < plan->packing->bundle_count; b++) {
      const dmuon_bundle *bundle = &plan->packing->bundles[b];
      if (bundle->mesh != m) continue;
      most = larger(most, comm && comm->ops->reserve_bytes
                              ? comm->ops->reserve_bytes(comm, plan->packing->largest_segment,
                                                         bundle->sum_dtype)
                              : host_chunks(plan, mesh, (DMuonAxis)axis, bundle->sum_dtype));
    }
    bytes += most;
  }
  return bytes;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static int64_t queue_bytes(const dmuon_plan *plan) {
  const int own = OWN_QUEUES + (plan->groups->lent_count > 0); /* and the caller's */
  int64_t bytes = own * overhead_of(plan->registry, 0)->queue;
  for (int m = 0; m < plan->registry->mesh_count; m++)
    if (plan->registry->meshes[m].mesh)
      bytes += MESH_QUEUES * overhead_of(plan->registry, m)->queue;
  return bytes;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int64_t accumulator_bytes(const dmuon_registry *registry) {
  int64_t bytes = 0;
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    if (param->route != DMUON_ROUTE_FROZEN)
      bytes += dmuon_dtype_span(param->numel, dmuon_dtype_wide(param->grad_dtype));
  }
  return bytes;
}

dmuon_memory_plan dmuon_plan_memory(const dmuon_plan *plan, const dmuon_update_plan *update_plans) {
  const dmuon_registry *registry = plan->registry;
  const dmuon_packing *packing = plan->packing;
  const dmuon_runtime runtime = {.registry = registry, .packing = *packing};
  dmuon_memory_plan memory = {0};
  if (plan->groups->lent_count > 0) {
    const dmuon_lend_bytes lend = dmuon_lend_plan_bytes(packing, plan->groups, plan->settings);
    memory.homes = lend.homes;
    memory.value_buffers = lend.value_buffers;
    memory.grad_buffers = lend.grad_buffers;
    memory.sums = lend.sums;
  }
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    if (!dmuon_bundle_is_lent(bundle))
      memory.sums += dmuon_dtype_span(bundle->mine_count, bundle->sum_dtype);
    memory.tables += BYTES_A_BUNDLE + bundle->count * (int64_t)sizeof *bundle->params;
  }
  memory.arrays = dmuon_runtime_buffer_bytes(&runtime);
  add_updated(plan, update_plans, &memory);
  for (int m = 0; m < registry->mesh_count; m++)
    if (registry->meshes[m].mesh) memory.communicators += communicator_bytes(plan, m);
  memory.queues += queue_bytes(plan);
  memory.tasks = overhead_of(registry, 0)->operation * dmuon_plan_operations(plan, update_plans);
  memory.tables += BYTES_ALWAYS + registry->param_count * (int64_t)BYTES_A_PARAMETER;
  memory.accumulators = accumulator_bytes(registry);
  return memory;
}

int64_t dmuon_memory_plan_total(const dmuon_memory_plan *m) {
  return m->homes + m->value_buffers + m->grad_buffers + m->sums + m->arrays + m->masters +
         m->state + m->workspace + m->queues + m->communicators + m->tasks + m->tables;
}
