/* The plan for people and for programs: who roots what, how many bytes a step moves along which
 * axis, and what memory this rank takes. The figures are engine/plan.c's; this file only tells
 * them.
 *
 * Everything is said from this rank's place in the mesh; no communication. Ranks are those of the
 * model's mesh. */
#include <string.h>

#include "base/dtype.h"
#include "mesh/mesh.h"
#include "optim/view.h"

dmuon_plan dmuon_optimizer_plan(DMuonOptimizer opt) {
  return (dmuon_plan){&opt->model->registry, &opt->runtime.packing, &opt->lend.groups,
                      &opt->lend.settings};
}

static const dmuon_plan_step one_step = {.micro_batches = 1};

/* The rank in the model's mesh that sits at (r, s) of a registry mesh, at this rank's tp. */
static int rank_at(const dmuon_registry *registry, int m, int r, int s) {
  const dmuon_registry_mesh *mesh = &registry->meshes[m];
  const int t = mesh->mesh->coords[DMUON_AXIS_TP];
  return registry->meshes[0].mesh->rank_at[mesh->ranks[(r * mesh->shard + s) * mesh->tp + t]];
}

static int belongs(const dmuon_plan *plan, int bundle, int group) {
  return strcmp(plan->packing->bundles[bundle].group, plan->groups->groups[group].key) == 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *reshard_of(const dmuon_group_plan *group) {
  if (group->part_count == 0) return "arrays";
  return group->is_z2 ? "z2" : "z3";
}

static void write_flows(dmuon_text *text, const dmuon_traffic *traffic) {
  const char *between = "";
  for (int k = 0; k < DMUON_FLOWS; k++) {
    const dmuon_flow *flow = &traffic->flow[k];
    char buffer[32];
    if (flow->operations == 0) continue;
    dmuon_text_add(text, "%s%s %s %s (%lld)", between,
                   dmuon_flow_axis((dmuon_flow_kind)k) == DMUON_AXIS_SHARD ? "shard" : "replicate",
                   dmuon_flow_name((dmuon_flow_kind)k),
                   dmuon_text_bytes(buffer, (double)flow->bytes), (long long)flow->operations);
    between = ", ";
  }
  dmuon_text_add(text, "\n");
}

static void write_seconds(const dmuon_plan *plan, dmuon_text *text) {
  static const char *const names[] = {"replicate", "shard"};
  const DMuonMesh mesh = plan->registry->meshes[0].mesh;
  const char *between = "  predicted seconds of it, were nothing hidden: ";
  for (int axis = DMUON_AXIS_SHARD; axis >= DMUON_AXIS_REPLICATE; axis--) {
    const double seconds = dmuon_plan_seconds(plan, (DMuonAxis)axis, &one_step);
    if (!(seconds > 0)) continue;
    dmuon_text_add(text, "%s%s %.3g over %s (%s)", between, names[axis], seconds,
                   dmuon_link_name(mesh->links[axis].link_class),
                   mesh->links[axis].is_measured ? "measured" : "estimated");
    between = ", ";
  }
  if (between[0] == ',') dmuon_text_add(text, "\n");
}

static void write_memory(dmuon_text *text, const dmuon_memory_plan *memory) {
  const struct {
    const char *what;
    int64_t bytes;
  } parts[] = {{"values kept", memory->homes},
               {"values lent", memory->value_buffers},
               {"gradients", memory->grad_buffers},
               {"sums", memory->sums},
               {"buffers of arrays", memory->arrays},
               {"masters", memory->masters},
               {"state", memory->state},
               {"workspace", memory->workspace},
               {"queues", memory->queues},
               {"communicators", memory->communicators},
               {"operations", memory->tasks},
               {"tables", memory->tables}};
  const char *between = ": ";
  char buffer[32];
  dmuon_text_add(text, "  memory planned: %s",
                 dmuon_text_bytes(buffer, (double)dmuon_memory_plan_total(memory)));
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (parts[i].bytes == 0) continue;
    dmuon_text_add(text, "%s%s %s", between, parts[i].what,
                   dmuon_text_bytes(buffer, (double)parts[i].bytes));
    between = ", ";
  }
  dmuon_text_add(text, "; with local accumulation %s more\n",
                 dmuon_text_bytes(buffer, (double)memory->accumulators));
}

void dmuon_optimizer_write_plan(DMuonOptimizer opt, dmuon_text *text) {
  const dmuon_plan plan = dmuon_optimizer_plan(opt);
  const dmuon_memory_plan memory = dmuon_plan_memory(&plan, opt->plans);
  dmuon_traffic total = {{{0, 0, 0}}};
  dmuon_text_add(text, "  communication of a step on this rank, bytes (operations):\n");
  for (int g = 0; g < plan.groups->count; g++) {
    const dmuon_group_plan *group = &plan.groups->groups[g];
    const dmuon_traffic traffic = dmuon_plan_group(&plan, g, &one_step);
    dmuon_text_add(text, "    %-24s %3d parameters, %-6s ", group->key, group->param_count,
                   reshard_of(group));
    write_flows(text, &traffic);
    dmuon_traffic_add(&total, &traffic);
  }
  dmuon_text_add(text, "    %-47s ", "together");
  write_flows(text, &total);
  write_seconds(&plan, text);
  write_memory(text, &memory);
}

/* ---- JSON: flows ----------------------------------------------------------------------------- */

static json_t *flow_json(const dmuon_flow *flow, int with_operations) {
  json_t *json = json_pack("{s:I, s:I}", "elements", (json_int_t)flow->payload, "bytes",
                           (json_int_t)flow->bytes);
  if (json && with_operations)
    json_object_set_new(json, "operations", json_integer((json_int_t)flow->operations));
  return json;
}

static json_t *traffic_json(const dmuon_traffic *traffic, int with_operations) {
  json_t *json = json_object();
  for (int axis = DMUON_AXIS_REPLICATE; axis <= DMUON_AXIS_SHARD; axis++) {
    const dmuon_flow sum = dmuon_traffic_along(traffic, (DMuonAxis)axis);
    json_t *part = flow_json(&sum, with_operations);
    for (int k = 0; k < DMUON_FLOWS; k++)
      if (part && (int)dmuon_flow_axis((dmuon_flow_kind)k) == axis)
        json_object_set_new(part, dmuon_flow_name((dmuon_flow_kind)k),
                            flow_json(&traffic->flow[k], with_operations));
    json_object_set_new(json, axis == DMUON_AXIS_SHARD ? "shard" : "replicate", part);
  }
  return json;
}

/* Of all bundles, on this rank or over the ranks of their meshes. */
static dmuon_traffic sum_of(const dmuon_plan *plan, const dmuon_plan_step *step, int everywhere) {
  dmuon_traffic sum = {{{0, 0, 0}}};
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    const dmuon_traffic one =
        everywhere ? dmuon_plan_bundle_everywhere(plan, b, step) : dmuon_plan_bundle(plan, b, step);
    dmuon_traffic_add(&sum, &one);
  }
  return sum;
}

/* What `with` does more than `without`. */
static json_t *more_json(const dmuon_plan *plan, const dmuon_plan_step *with,
                         const dmuon_plan_step *without) {
  dmuon_traffic a = sum_of(plan, with, 0), b = sum_of(plan, without, 0);
  for (int k = 0; k < DMUON_FLOWS; k++) {
    a.flow[k].operations -= b.flow[k].operations;
    a.flow[k].payload -= b.flow[k].payload;
    a.flow[k].bytes -= b.flow[k].bytes;
  }
  return traffic_json(&a, 1);
}

static json_t *totals_json(const dmuon_plan *plan) {
  static const dmuon_plan_step two = {.micro_batches = 2};
  static const dmuon_plan_step two_local = {.micro_batches = 2, .accumulates = 1};
  static const dmuon_plan_step evaluation = {.evaluations = 1};
  const dmuon_traffic here = sum_of(plan, &one_step, 0), all = sum_of(plan, &one_step, 1);
  const dmuon_traffic look = sum_of(plan, &evaluation, 0);
  int64_t largest = 0;
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &plan->packing->bundles[b];
    for (int i = 0; i < bundle->shard_segment_count; i++) {
      const int64_t bytes = dmuon_dtype_span(bundle->shard_segments[i].payload, bundle->dtype);
      if (bytes > largest) largest = bytes;
    }
  }
  return json_pack(
      "{s:o, s:{s:f, s:f}, s:o, s:o, s:o, s:o, s:I}", "step", traffic_json(&here, 1),
      "predicted_seconds", "replicate", dmuon_plan_seconds(plan, DMUON_AXIS_REPLICATE, &one_step),
      "shard", dmuon_plan_seconds(plan, DMUON_AXIS_SHARD, &one_step), "step_over_all_ranks",
      traffic_json(&all, 0), "further_micro_batch", more_json(plan, &two, &one_step),
      "further_micro_batch_accumulated", more_json(plan, &two_local, &one_step), "evaluation",
      traffic_json(&look, 1), "largest_owner_segment_bytes", (json_int_t)largest);
}

/* ---- JSON: groups ---------------------------------------------------------------------------- */

static json_t *segments_json(const dmuon_plan *plan, const dmuon_bundle *bundle) {
  json_t *list = json_array();
  const int r = plan->registry->meshes[bundle->mesh].mesh->coords[DMUON_AXIS_REPLICATE];
  for (int i = 0; i < bundle->shard_segment_count; i++) {
    const dmuon_segment *segment = &bundle->shard_segments[i];
    json_array_append_new(
        list, json_pack("{s:i, s:i, s:I, s:I}", "shard", segment->root, "root_rank",
                        rank_at(plan->registry, bundle->mesh, r, segment->root), "elements",
                        (json_int_t)segment->payload, "bytes",
                        (json_int_t)dmuon_dtype_span(segment->payload, bundle->dtype)));
  }
  return list;
}

static json_t *bundle_json(const dmuon_plan *plan, int index) {
  const dmuon_bundle *bundle = &plan->packing->bundles[index];
  const dmuon_traffic traffic = dmuon_plan_bundle(plan, index, &one_step);
  int64_t elements = 0;
  for (int i = 0; i < bundle->count; i++)
    elements += plan->registry->params[bundle->params[i].param].numel;
  return json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:i, s:o, s:o}", "residency",
      dmuon_residency_name(bundle->residency), "mesh", plan->registry->meshes[bundle->mesh].name,
      "dtype", dmuon_dtype_name(bundle->dtype), "grad_dtype", dmuon_dtype_name(bundle->grad_dtype),
      "sum_dtype", dmuon_dtype_name(bundle->sum_dtype), "param_count", bundle->count, "elements",
      (json_int_t)elements, "bytes", (json_int_t)dmuon_dtype_span(elements, bundle->dtype),
      "home_bytes", (json_int_t)dmuon_dtype_span(bundle->home_count, bundle->dtype),
      "updated_elements", (json_int_t)bundle->mine_count, "publish_operations",
      !dmuon_bundle_is_lent(bundle) ? 1 : bundle->bucket_count, "owner_segments",
      segments_json(plan, bundle), "step", traffic_json(&traffic, 1));
}

/* Which ranks its gradient and its new values go through, from this rank. A flat parameter has a
 * root a part, a frozen one no gradient: null. */
static json_t *param_json(const dmuon_plan *plan, const dmuon_bundle *bundle, int index) {
  const dmuon_bundle_param *p = &bundle->params[index];
  const dmuon_param *param = &plan->registry->params[p->param];
  const DMuonMesh mesh = plan->registry->meshes[bundle->mesh].mesh;
  const int r = p->owner[DMUON_AXIS_REPLICATE], s = p->owner[DMUON_AXIS_SHARD];
  const int is_flat = bundle->residency == DMUON_RESIDENCY_FLAT;
  const int is_frozen = bundle->residency == DMUON_RESIDENCY_FROZEN;
  const int is_here = s == mesh->coords[DMUON_AXIS_SHARD];
  json_t *json = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "name", param->name, "route",
      dmuon_route_name(param->route), "residency", dmuon_residency_name(bundle->residency), "dtype",
      dmuon_dtype_name(param->dtype), "grad_dtype", dmuon_dtype_name(param->grad_dtype),
      "master_dtype", dmuon_dtype_name(param->master_dtype), "state_dtype",
      dmuon_dtype_name(param->state_dtype), "elements", (json_int_t)param->numel, "bytes",
      (json_int_t)dmuon_dtype_span(param->numel, param->dtype), "updated_elements",
      (json_int_t)(p->is_mine ? p->mine_count : 0));
  if (!json) return NULL;
  const int root = rank_at(plan->registry, bundle->mesh, r, s);
  const int has_root = !is_flat && !is_frozen;
  json_object_set_new(json, "owner", is_flat ? json_null() : json_pack("[i,i]", r, s));
  json_object_set_new(json, "stage1_root_rank",
                      has_root ? json_integer(rank_at(plan->registry, bundle->mesh,
                                                      mesh->coords[DMUON_AXIS_REPLICATE], s))
                               : json_null());
  json_object_set_new(
      json, "stage2_active",
      json_boolean(!is_frozen && (is_flat || is_here) && mesh->sizes[DMUON_AXIS_REPLICATE] > 1));
  json_object_set_new(json, "stage2_root_rank", has_root ? json_integer(root) : json_null());
  json_object_set_new(json, "publish_root_rank", has_root ? json_integer(root) : json_null());
  return json;
}

static json_t *group_json(const dmuon_plan *plan, int g) {
  const dmuon_group_plan *group = &plan->groups->groups[g];
  const dmuon_traffic traffic = dmuon_plan_group(plan, g, &one_step);
  json_t *bundles = json_array(), *params = json_array();
  for (int b = 0; b < plan->packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &plan->packing->bundles[b];
    if (!belongs(plan, b, g)) continue;
    json_array_append_new(bundles, bundle_json(plan, b));
    for (int i = 0; i < bundle->count; i++)
      json_array_append_new(params, param_json(plan, bundle, i));
  }
  return json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:o}", "key", group->key, "reshard",
                   reshard_of(group), "param_count", group->param_count, "fetches_per_pass",
                   dmuon_plan_fetches(plan, g, DMUON_PASS_TRAIN), "bundles", bundles, "params",
                   params, "step", traffic_json(&traffic, 1));
}

json_t *dmuon_optimizer_comm_plan(DMuonOptimizer opt) {
  const dmuon_plan plan = dmuon_optimizer_plan(opt);
  json_t *groups = json_array();
  for (int g = 0; g < plan.groups->count; g++) json_array_append_new(groups, group_json(&plan, g));
  return json_pack("{s:s, s:i, s:o, s:o}", "order",
                   opt->settings.order == DMUON_ORDER_PROGRAM ? "program" : "registered",
                   "group_count", plan.groups->count, "groups", groups, "totals",
                   totals_json(&plan));
}

json_t *dmuon_optimizer_memory_plan(DMuonOptimizer opt) {
  const dmuon_plan plan = dmuon_optimizer_plan(opt);
  const dmuon_memory_plan m = dmuon_plan_memory(&plan, opt->plans);
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                   "homes", (json_int_t)m.homes, "value_buffers", (json_int_t)m.value_buffers,
                   "grad_buffers", (json_int_t)m.grad_buffers, "sums", (json_int_t)m.sums, "arrays",
                   (json_int_t)m.arrays, "masters", (json_int_t)m.masters, "state",
                   (json_int_t)m.state, "workspace", (json_int_t)m.workspace, "queues",
                   (json_int_t)m.queues, "communicators", (json_int_t)m.communicators, "operations",
                   (json_int_t)m.tasks, "tables", (json_int_t)m.tables, "total",
                   (json_int_t)dmuon_memory_plan_total(&m), "accumulators",
                   (json_int_t)m.accumulators);
}
