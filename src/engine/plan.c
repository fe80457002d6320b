/* Traffic of bundles, groups and meshes, and what it takes. Memory is plan_memory.c's. */
#include "engine/plan.h"

#include <string.h>

#include "base/dtype.h"
#include "comm/count.h"

static const struct {
  const char *name;
  DMuonAxis axis;
} kinds[DMUON_FLOWS] = {[DMUON_FLOW_UNSHARD] = {"unshard", DMUON_AXIS_SHARD},
                        [DMUON_FLOW_MOVE] = {"move", DMUON_AXIS_SHARD},
                        [DMUON_FLOW_SHARD_REDUCE] = {"reduce", DMUON_AXIS_SHARD},
                        [DMUON_FLOW_REPLICATE_REDUCE] = {"reduce", DMUON_AXIS_REPLICATE},
                        [DMUON_FLOW_PUBLISH] = {"publish", DMUON_AXIS_REPLICATE}};

const char *dmuon_flow_name(dmuon_flow_kind kind) {
  return kinds[kind].name;
}

DMuonAxis dmuon_flow_axis(dmuon_flow_kind kind) {
  return kinds[kind].axis;
}

static void add(dmuon_flow *to, const dmuon_flow *more) {
  to->operations += more->operations;
  to->payload += more->payload;
  to->bytes += more->bytes;
}

dmuon_flow dmuon_traffic_along(const dmuon_traffic *traffic, DMuonAxis axis) {
  dmuon_flow sum = {0, 0, 0};
  for (int k = 0; k < DMUON_FLOWS; k++)
    if (axis == DMUON_AXIS_ALL || axis == kinds[k].axis) add(&sum, &traffic->flow[k]);
  return sum;
}

void dmuon_traffic_add(dmuon_traffic *traffic, const dmuon_traffic *more) {
  for (int k = 0; k < DMUON_FLOWS; k++) add(&traffic->flow[k], &more->flow[k]);
}

/* ---- one operation of each kind -------------------------------------------------------------- */

static DMuonMesh mesh_of(const dmuon_plan *plan, const dmuon_bundle *bundle) {
  return plan->registry->meshes[bundle->mesh].mesh;
}

static dmuon_flow flow_of(int64_t operations, int64_t payload, DMuonDType dtype) {
  return (dmuon_flow){operations, payload, payload * (int64_t)dmuon_dtype_bytes(dtype)};
}

static dmuon_flow of_others(int64_t operations, const dmuon_segment *segments, int count, int rank,
                            DMuonDType dtype) {
  return flow_of(operations, dmuon_count_segments(rank, count, segments), dtype);
}

static dmuon_flow of_moves(const dmuon_bundle *bundle, int rank) {
  return flow_of(1, dmuon_count_moves(rank, bundle->move_count, bundle->moves), bundle->dtype);
}

dmuon_traffic dmuon_plan_once(const dmuon_plan *plan, int index) {
  const dmuon_bundle *b = &plan->packing->bundles[index];
  const int r = mesh_of(plan, b)->coords[DMUON_AXIS_REPLICATE];
  const int s = mesh_of(plan, b)->coords[DMUON_AXIS_SHARD];
  dmuon_traffic once = {{{0, 0, 0}}};
  if (b->residency != DMUON_RESIDENCY_FROZEN) {
    once.flow[DMUON_FLOW_SHARD_REDUCE] =
        of_others(1, b->shard_segments, b->shard_segment_count, s, b->grad_dtype);
    once.flow[DMUON_FLOW_REPLICATE_REDUCE] =
        of_others(1, b->column_segments, b->column_segment_count, r, b->sum_dtype);
  }
  if (!dmuon_bundle_is_lent(b)) {
    once.flow[DMUON_FLOW_UNSHARD] =
        of_others(1, b->shard_segments, b->shard_segment_count, s, b->dtype);
    once.flow[DMUON_FLOW_PUBLISH] =
        of_others(1, b->value_segments, b->column_segment_count, r, b->dtype);
    return once;
  }
  once.flow[DMUON_FLOW_UNSHARD] =
      of_others(1, b->unshard_segments, b->unshard_segment_count, s, b->dtype);
  if (b->residency == DMUON_RESIDENCY_GATHERED) once.flow[DMUON_FLOW_MOVE] = of_moves(b, s);
  if (b->residency != DMUON_RESIDENCY_FROZEN)
    once.flow[DMUON_FLOW_PUBLISH] =
        of_others(b->bucket_count, b->publish_segments, b->publish_segment_count, r, b->dtype);
  return once;
}

/* Elements of the bundle's parameters that are not in the flat home of their owner's column. */
static int64_t to_be_moved(const dmuon_registry *registry, const dmuon_bundle *bundle) {
  int64_t sum = 0;
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    const int64_t numel = registry->params[p->param].numel;
    sum += numel;
    for (int k = 0; k < bundle->unshard_segment_count; k++) {
      const dmuon_segment *home = &bundle->unshard_segments[k];
      if (home->root != p->owner[DMUON_AXIS_SHARD]) continue;
      const int64_t begin = p->offset > home->offset ? p->offset : home->offset;
      const int64_t p_end = p->offset + numel, home_end = home->offset + home->count;
      const int64_t end = p_end < home_end ? p_end : home_end;
      if (end > begin) sum -= end - begin;
    }
  }
  return sum;
}

/* Operations are left as this rank's. */
static dmuon_traffic once_everywhere(const dmuon_plan *plan, int index) {
  const dmuon_bundle *bundle = &plan->packing->bundles[index];
  const DMuonMesh mesh = mesh_of(plan, bundle);
  const int64_t R = mesh->sizes[DMUON_AXIS_REPLICATE], G = mesh->sizes[DMUON_AXIS_SHARD];
  dmuon_traffic all = dmuon_plan_once(plan, index);
  int64_t payload = 0;
  for (int i = 0; i < bundle->count; i++)
    payload += plan->registry->params[bundle->params[i].param].numel;
  for (int k = 0; k < DMUON_FLOWS; k++) {
    dmuon_flow *flow = &all.flow[k];
    const DMuonDType dtype = k == DMUON_FLOW_SHARD_REDUCE       ? bundle->grad_dtype
                             : k == DMUON_FLOW_REPLICATE_REDUCE ? bundle->sum_dtype
                                                                : bundle->dtype;
    if (flow->operations == 0) { /* nothing of this kind, or nothing in this rank's home */
      const int is_publish = k == DMUON_FLOW_PUBLISH;
      if (!is_publish || bundle->residency == DMUON_RESIDENCY_FROZEN) continue;
    }
    if (k == DMUON_FLOW_MOVE)
      *flow = flow_of(flow->operations, to_be_moved(plan->registry, bundle), dtype);
    else if (kinds[k].axis == DMUON_AXIS_SHARD)
      *flow = flow_of(flow->operations, (G - 1) * R * payload, dtype);
    else
      *flow = flow_of(flow->operations, (R - 1) * payload, dtype);
  }
  return all;
}

/* ---- how often ------------------------------------------------------------------------------- */

/* In program order a group whose values are still there when its next bracket opens costs nothing:
 * the pool says when. */
static int program_fetches(const dmuon_plan *plan, int group, int with_backward) {
  dmuon_place places[DMUON_MAX_PLACES];
  dmuon_pool pool;
  const int n = plan->groups->count;
  int fetches = 0;
  dmuon_pool_begin(&pool, dmuon_lend_value_places(plan->settings), places);
  for (int i = 0; i < (with_backward ? 2 * n : n); i++) {
    const int g = i < n ? i : 2 * n - 1 - i;
    const dmuon_group_plan *other = &plan->groups->groups[g];
    int evicted;
    if (other->is_z2 || other->part_count == 0) continue;
    int place = dmuon_pool_find(&pool, g);
    if (place < 0) {
      fetches += g == group;
      place = dmuon_pool_take(&pool, g, DMUON_PLACE_OPEN, 0, &evicted);
    }
    if (place >= 0) dmuon_pool_set(&pool, place, DMUON_PLACE_KEPT, 1);
  }
  return fetches;
}

int dmuon_plan_fetches(const dmuon_plan *plan, int group, DMuonPass pass) {
  const dmuon_group_plan *g = &plan->groups->groups[group];
  if (g->part_count == 0) return 0;
  if (g->is_z2) return 1;
  if (plan->settings->order == DMUON_ORDER_PROGRAM)
    return program_fetches(plan, group, pass != DMUON_PASS_EVAL);
  return pass == DMUON_PASS_EVAL ? 1 : 2;
}

static void multiply(dmuon_flow *flow, int64_t times) {
  flow->operations *= times;
  flow->payload *= times;
  flow->bytes *= times;
}

/* From once to a step. */
static void repeat(const dmuon_plan *plan, const dmuon_bundle *bundle, const dmuon_plan_step *step,
                   dmuon_traffic *traffic) {
  if (!dmuon_bundle_is_lent(bundle)) { /* Step alone communicates, once */
    for (int k = 0; k < DMUON_FLOWS; k++) multiply(&traffic->flow[k], step->micro_batches > 0);
    return;
  }
  const int g = dmuon_groups_find(plan->groups, bundle->group);
  const int trains = dmuon_plan_fetches(plan, g, DMUON_PASS_TRAIN);
  const int evals = dmuon_plan_fetches(plan, g, DMUON_PASS_EVAL);
  const int passes =
      plan->groups->groups[g].is_z2 && step->micro_batches > 1 ? 1 : step->micro_batches;
  const int reductions = step->accumulates && step->micro_batches > 1 ? 1 : step->micro_batches;
  multiply(&traffic->flow[DMUON_FLOW_UNSHARD],
           (int64_t)trains * passes + (int64_t)evals * step->evaluations);
  multiply(&traffic->flow[DMUON_FLOW_SHARD_REDUCE], reductions);
  multiply(&traffic->flow[DMUON_FLOW_REPLICATE_REDUCE], reductions);
  if (step->micro_batches > 0) return;
  multiply(&traffic->flow[DMUON_FLOW_MOVE], 0);
  multiply(&traffic->flow[DMUON_FLOW_PUBLISH], 0);
}

dmuon_traffic dmuon_plan_bundle(const dmuon_plan *plan, int bundle, const dmuon_plan_step *step) {
  dmuon_traffic traffic = dmuon_plan_once(plan, bundle);
  repeat(plan, &plan->packing->bundles[bundle], step, &traffic);
  return traffic;
}

dmuon_traffic dmuon_plan_bundle_everywhere(const dmuon_plan *plan, int bundle,
                                           const dmuon_plan_step *step) {
  dmuon_traffic traffic = once_everywhere(plan, bundle);
  repeat(plan, &plan->packing->bundles[bundle], step, &traffic);
  return traffic;
}

dmuon_traffic dmuon_plan_group(const dmuon_plan *plan, int group, const dmuon_plan_step *step) {
  dmuon_traffic sum = {{{0, 0, 0}}};
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    if (strcmp(plan->packing->bundles[b].group, plan->groups->groups[group].key) != 0) continue;
    const dmuon_traffic one = dmuon_plan_bundle(plan, b, step);
    dmuon_traffic_add(&sum, &one);
  }
  return sum;
}

dmuon_traffic dmuon_plan_mesh(const dmuon_plan *plan, int mesh, const dmuon_plan_step *step) {
  dmuon_traffic sum = {{{0, 0, 0}}};
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    if (plan->packing->bundles[b].mesh != mesh) continue;
    const dmuon_traffic one = dmuon_plan_bundle(plan, b, step);
    dmuon_traffic_add(&sum, &one);
  }
  return sum;
}

/* ---- time ------------------------------------------------------------------------------------ */

double dmuon_plan_seconds(const dmuon_plan *plan, DMuonAxis axis, const dmuon_plan_step *step) {
  double seconds = 0;
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    const dmuon_traffic traffic = dmuon_plan_bundle(plan, b, step);
    const dmuon_flow flow = dmuon_traffic_along(&traffic, axis);
    const dmuon_link *link = &mesh_of(plan, &plan->packing->bundles[b])->links[axis];
    seconds += dmuon_cost_seconds(link, flow.operations, flow.bytes);
  }
  return seconds;
}
