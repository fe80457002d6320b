/* The partition for people (View) and for programs (Summary): load by slot, who owns what. It
 * decides only what is told and how. */
#include <string.h>

#include "base/json.h"
#include "base/sort.h"
#include "partition/partition.h"

/* Slots listed at most; of more, the most loaded ones. */
enum { MAX_SLOTS = 64 };

static double ratio(const dmuon_assign_statistics *s) {
  return s->lower_bound > 0 ? s->max_cost / s->lower_bound : 1;
}

static void add_head(DMuonPartition part, dmuon_text *text) {
  const dmuon_registry *registry = &part->model->registry;
  const dmuon_registry_mesh *whole = &registry->meshes[0];
  const dmuon_assign_statistics *s = &part->statistics;
  DMuonPartitionInfo info = {.struct_size = sizeof info};
  char most[32], least[32];
  DMuonPartitionGetInfo(part, &info);
  dmuon_text_add(text,
                 "partition: %d parameters in %d units (%d packed) on %d slots of mesh %dx%dx%d\n",
                 registry->param_count, s->units, s->packed_units, s->slots, whole->replicate,
                 whole->shard, whole->tp);
  dmuon_text_add(text, "  cost a slot:   at most %.6g, mean %.6g; lower bound %.6g, ratio %.3f\n",
                 s->max_cost, s->mean_cost, s->lower_bound, ratio(s));
  dmuon_text_add(text, "  largest unit:  %.6g, largest parameter %.6g\n", s->largest_unit,
                 s->largest_item);
  dmuon_text_add(text, "  bytes a slot:  %s to %s (masters and state)\n",
                 dmuon_text_bytes(least, (double)info.min_bytes),
                 dmuon_text_bytes(most, (double)info.max_bytes));
  dmuon_text_add(text, "  idle slots:    %d\n", s->idle_slots);
}

/* Which owner communicates longest. */
static DMuonErrorCode add_busiest(DMuonPartition part, dmuon_text *text) {
  static const char *const names[] = {"replicate", "shard"};
  const DMuonMesh mesh = part->model->mesh;
  const char *between = "  busiest owner: ";
  for (int axis = DMUON_AXIS_SHARD; axis >= DMUON_AXIS_REPLICATE; axis--) {
    dmuon_partition_busiest busiest;
    char bytes[32];
    DMUON_TRY(dmuon_partition_find_busiest(part, (DMuonAxis)axis, &busiest));
    if (busiest.position < 0) continue;
    dmuon_text_add(text, "%sat least %.3g s a step along %s (rank %d: %s over %s)", between,
                   busiest.seconds, names[axis], mesh->rank_at[busiest.position],
                   dmuon_text_bytes(bytes, (double)busiest.bytes),
                   dmuon_link_name(mesh->links[axis].link_class));
    between = ", ";
  }
  if (between[0] == ',') dmuon_text_add(text, "\n");
  return DMUON_SUCCESS;
}

static int compare_load(const void *a, const void *b, void *context) {
  const double *cost = context;
  double x = cost[*(const int *)a], y = cost[*(const int *)b];
  return x > y ? -1 : x < y;
}

static DMuonErrorCode add_slots(DMuonPartition part, dmuon_text *text) {
  const dmuon_registry_mesh *whole = &part->model->registry.meshes[0];
  DMuonMesh mesh = part->model->mesh;
  int *order = NULL, shown = whole->size < MAX_SLOTS ? whole->size : MAX_SLOTS;
  DMUON_TRY(dmuon_memory_alloc(text->memory, whole->size, sizeof *order, &order));
  for (int i = 0; i < whole->size; i++) order[i] = i;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (shown < whole->size)
    code =
        dmuon_sort(text->memory, order, whole->size, sizeof *order, compare_load, part->slot_cost);
  dmuon_text_add(text, "  %-18s %8s %10s %12s %14s %10s\n", "owner (r, s, t)", "rank", "parameters",
                 "cost", "elements", "bytes");
  for (int i = 0; i < shown && !code; i++) {
    int p = order[i], t = p % whole->tp, s = p / whole->tp % whole->shard,
        r = p / whole->tp / whole->shard;
    char bytes[32];
    dmuon_text_add(text, "  (%4d, %4d, %3d)  %8d %10d %12.6g %14lld %10s\n", r, s, t,
                   mesh->rank_at[p], part->slot_params[p], part->slot_cost[p],
                   (long long)part->slot_size[p],
                   dmuon_text_bytes(bytes, (double)part->slot_bytes[p]));
  }
  if (shown < whole->size) dmuon_text_add(text, "  ... and %d with less\n", whole->size - shown);
  dmuon_memory_free(order);
  return code;
}

static void add_params(DMuonPartition part, dmuon_text *text) {
  const dmuon_registry *registry = &part->model->registry;
  int width = 9;
  for (int i = 0; i < registry->param_count; i++) {
    int length = (int)strlen(registry->params[i].name);
    if (length > width) width = length < 60 ? length : 60;
  }
  dmuon_text_add(text, "  %-*s %12s %5s %16s %6s\n", width, "parameter", "cost", "mesh",
                 "owner (r, s, t)", "rank");
  for (int i = 0; i < registry->param_count; i++) {
    const int *owner = part->owners[i];
    dmuon_text_add(text, "  %-*s %12.6g %5d   (%d, %d, %d) %6d\n", width, registry->params[i].name,
                   part->item_cost[i], registry->params[i].mesh, owner[0], owner[1], owner[2],
                   part->model->mesh->rank_at[dmuon_partition_position(part, i)]);
  }
}

DMuonErrorCode DMuonPartitionView(DMuonPartition part, const char *path) {
  DMUON_TRY(dmuon_object_check_state(part, DMUON_CLASS_PARTITION, 1, __func__));
  DMuonMesh mesh = part->model->mesh;
  dmuon_text text;
  dmuon_text_init(&text, &part->object.context->memory);
  if (mesh->rank == 0) {
    add_head(part, &text);
    DMuonErrorCode code = add_busiest(part, &text);
    if (!code) code = add_slots(part, &text);
    if (code && !text.failed) text.failed = code;
    add_params(part, &text);
  }
  DMuonErrorCode code = dmuon_mesh_write(mesh, "viewing the partition", &text, path);
  dmuon_text_free(&text);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

static json_t *owners_summary(DMuonPartition part) {
  const dmuon_registry *registry = &part->model->registry;
  json_t *owners = json_array();
  for (int i = 0; i < registry->param_count; i++) {
    const int *owner = part->owners[i];
    json_array_append_new(
        owners,
        json_pack("{s:s, s:f, s:i, s:[i,i,i], s:i}", "name", registry->params[i].name, "cost",
                  part->item_cost[i], "mesh", registry->params[i].mesh, "owner", owner[0], owner[1],
                  owner[2], "rank", part->model->mesh->rank_at[dmuon_partition_position(part, i)]));
  }
  return owners;
}

static json_t *slots_summary(DMuonPartition part) {
  const dmuon_registry_mesh *whole = &part->model->registry.meshes[0];
  json_t *slots = json_array();
  for (int p = 0; p < whole->size; p++)
    json_array_append_new(
        slots, json_pack("{s:i, s:i, s:f, s:I, s:I}", "rank", part->model->mesh->rank_at[p],
                         "parameters", part->slot_params[p], "cost", part->slot_cost[p], "elements",
                         (json_int_t)part->slot_size[p], "bytes", (json_int_t)part->slot_bytes[p]));
  return slots;
}

static json_t *busiest_summary(DMuonPartition part, const dmuon_partition_busiest *busiest) {
  if (busiest->position < 0) return json_null();
  return json_pack("{s:f, s:I, s:i}", "seconds", busiest->seconds, "bytes",
                   (json_int_t)busiest->bytes, "rank",
                   part->model->mesh->rank_at[busiest->position]);
}

DMuonErrorCode DMuonPartitionSummary(DMuonPartition part, char **json) {
  DMUON_TRY(dmuon_object_check_state(part, DMUON_CLASS_PARTITION, 1, __func__));
  if (!json) DMUON_FAIL(DMUON_ERR_ARGUMENT, "json is NULL; a place for the text is wanted");
  const dmuon_assign_statistics *s = &part->statistics;
  DMuonPartitionInfo info = {.struct_size = sizeof info};
  DMUON_TRY(DMuonPartitionGetInfo(part, &info));
  dmuon_partition_busiest replicate, shard;
  DMUON_TRY(dmuon_partition_find_busiest(part, DMUON_AXIS_REPLICATE, &replicate));
  DMUON_TRY(dmuon_partition_find_busiest(part, DMUON_AXIS_SHARD, &shard));
  char hash[17];
  for (int i = 0; i < 16; i++) hash[i] = "0123456789abcdef"[part->hash >> (60 - 4 * i) & 15];
  hash[16] = 0;
  json_t *root = json_pack(
      "{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o, s:o, "
      "s:{s:o, s:o}}",
      "class", "partition", "hash", hash, "units", s->units, "packed_units", s->packed_units,
      "slots", s->slots, "idle_slots", s->idle_slots, "max_cost", s->max_cost, "mean_cost",
      s->mean_cost, "lower_bound", s->lower_bound, "ratio", ratio(s), "largest_unit",
      s->largest_unit, "largest_parameter", s->largest_item, "max_bytes",
      (json_int_t)info.max_bytes, "min_bytes", (json_int_t)info.min_bytes, "slot_loads",
      slots_summary(part), "owners", owners_summary(part), "busiest_owner", "replicate",
      busiest_summary(part, &replicate), "shard", busiest_summary(part, &shard));
  DMUON_TRY(dmuon_json_finish(root, json));
  return DMUON_SUCCESS;
}
