/* The partition object: its life, what the program and the user wish, what it answers. The plan is
 * made in plan.c. */
#include "partition/partition.h"

#include <stdio.h>
#include <string.h>

#include "base/glob.h"

static const char *const strategies[] = {"lpt", "round_robin", "rank0", NULL};
static const char *const cost_models[] = {"optimizer", "numel", NULL};

static const dmuon_option_spec partition_specs[] = {
    {"owner_strategy", DMUON_OPTION_ENUM, offsetof(dmuon_partition_settings, owner_strategy), "lpt",
     0, 0, strategies, "how owners are chosen"},
    {"owner_cost_model", DMUON_OPTION_ENUM, offsetof(dmuon_partition_settings, owner_cost_model),
     "optimizer", 0, 0, cost_models, "what a parameter costs its owner"},
    {"max_owners_per_group", DMUON_OPTION_INT,
     offsetof(dmuon_partition_settings, max_owners_per_group), "0", 0, INT32_MAX, NULL,
     "at most so many owners a group; 0: no limit"},
    {"hsdp_column_balance", DMUON_OPTION_BOOL,
     offsetof(dmuon_partition_settings, hsdp_column_balance), "1", 0, 0, NULL,
     "balance shard columns before slots when there are replicas"},
    {"pack_small_params", DMUON_OPTION_BOOL, offsetof(dmuon_partition_settings, pack_small_params),
     "1", 0, 0, NULL, "one owner for all small parameters of a group"},
    {"pack_threshold", DMUON_OPTION_INT, offsetof(dmuon_partition_settings, pack_threshold),
     "5000000", 0, 1e18, NULL, "elements below which a parameter is small"},
};
enum { STRATEGY, COST_MODEL };

const dmuon_option_table dmuon_partition_option_table = {
    "partition", sizeof partition_specs / sizeof *partition_specs, partition_specs};

DMuonErrorCode dmuon_partition_check(DMuonPartition partition) {
  return dmuon_object_check(partition, DMUON_CLASS_PARTITION);
}

void dmuon_partition_retain(DMuonPartition partition) {
  if (partition) partition->object.references++;
}

void dmuon_partition_release(DMuonPartition partition) {
  if (!partition || --partition->object.references > 0) return;
  DMuonModel model = partition->model; /* its mesh's memory holds the partition: released last */
  partition->object.class_id = 0;
  dmuon_partition_free_plan(partition);
  for (int i = 0; i < partition->fixed_count; i++) dmuon_memory_free(partition->fixed[i].pattern);
  dmuon_memory_free(partition->fixed);
  dmuon_memory_free(partition->object.name);
  dmuon_memory_free(partition);
  dmuon_model_release(model);
}

DMuonErrorCode DMuonPartitionCreate(DMuonModel model, DMuonPartition *part) {
  DMUON_TRY(dmuon_model_check(model));
  if (!part) DMUON_FAIL(DMUON_ERR_ARGUMENT, "part is NULL; a place for the handle is wanted");
  dmuon_context *context = model->object.context;
  DMuonPartition made = NULL;
  DMUON_TRY(dmuon_memory_alloc(&context->memory, 1, sizeof *made, &made));
  dmuon_object_init(&made->object, DMUON_CLASS_PARTITION, context);
  DMuonErrorCode code =
      dmuon_options_defaults(&context->memory, &dmuon_partition_option_table, &made->settings);
  if (code) {
    dmuon_memory_free(made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  dmuon_mesh_add_table(model->mesh, &dmuon_partition_option_table);
  dmuon_model_retain(model);
  made->model = model;
  *part = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionDestroy(DMuonPartition *part) {
  if (!part || !*part) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_partition_check(*part));
  dmuon_partition_release(*part);
  *part = NULL;
  return DMUON_SUCCESS;
}

/* ---- wishes ---- */

static DMuonErrorCode check_setter(DMuonPartition part, const char *call) {
  DMUON_TRY(dmuon_object_check_state(part, DMUON_CLASS_PARTITION, 0, call));
  return DMUON_SUCCESS;
}

/* Index of word among what exists; planned is a name of the interface that is not built. */
static DMuonErrorCode find_word(const char *what, const char *word, const char *const *known,
                                const char *planned, int *index) {
  char list[96] = "";
  int count = 0;
  if (!word) DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of the %s is NULL", what);
  for (; known[count]; count++) {
    if (strcmp(known[count], word) == 0) {
      *index = count;
      return DMUON_SUCCESS;
    }
    size_t length = strlen(list);
    snprintf(list + length, sizeof list - length, "%s%s", length ? ", " : "", known[count]);
  }
  if (strcmp(word, planned) == 0)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "%s %s is not built; there are %s", what, word, list);
  const char *nearest = dmuon_nearest_name(word, count, known);
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "there is no %s \"%s\"%s%s%s; there are %s", what, word,
             nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "", list);
}

DMuonErrorCode DMuonPartitionSetStrategy(DMuonPartition part, const char *name) {
  DMUON_TRY(check_setter(part, __func__));
  DMUON_TRY(
      find_word("owner strategy", name, strategies, "balanced", &part->settings.owner_strategy));
  part->program[STRATEGY] = 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionSetCostModel(DMuonPartition part, const char *name) {
  DMUON_TRY(check_setter(part, __func__));
  DMUON_TRY(find_word("owner cost model", name, cost_models, "measured",
                      &part->settings.owner_cost_model));
  part->program[COST_MODEL] = 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionSetCostFunction(DMuonPartition part, DMuonCostFunction cost,
                                             void *ctx) {
  DMUON_TRY(check_setter(part, __func__));
  part->cost_function = cost;
  part->cost_context = ctx;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionSetOwner(DMuonPartition part, const char *pattern, int replicate,
                                      int shard, int tp) {
  DMUON_TRY(check_setter(part, __func__));
  DMUON_TRY(dmuon_glob_check(pattern));
  if (replicate < DMUON_DECIDE || shard < DMUON_DECIDE || tp < DMUON_DECIDE)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "owner (%d, %d, %d) of \"%s\": each must be at least 0, or DMUON_DECIDE", replicate,
               shard, tp, pattern);
  dmuon_memory *memory = &part->object.context->memory;
  char *copy = NULL;
  DMUON_TRY(dmuon_memory_strdup(memory, pattern, &copy));
  DMuonErrorCode code = dmuon_memory_resize(memory, &part->fixed, part->fixed_count,
                                            part->fixed_count + 1, sizeof *part->fixed);
  if (code) {
    dmuon_memory_free(copy);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  part->fixed[part->fixed_count++] = (dmuon_partition_fixed){copy, {replicate, shard, tp}};
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionSetUp(DMuonPartition part) {
  DMUON_TRY(dmuon_partition_check(part));
  DMUON_TRY(dmuon_mesh_check(part->model->mesh));
  if (part->object.is_set_up) return DMUON_SUCCESS;
  DMUON_TRY(DMuonModelSetUp(part->model));
  DMUON_TRY(dmuon_partition_make_plan(part));
  part->object.is_set_up = 1;
  dmuon_log(&part->object.context->logger, 2,
            "partition: %d parameters in %d units on %d slots, %d idle, largest load %.4g of %.4g",
            part->model->registry.param_count, part->statistics.units, part->statistics.slots,
            part->statistics.idle_slots, part->statistics.max_cost, part->statistics.lower_bound);
  return DMUON_SUCCESS;
}

/* ---- answers ---- */

int dmuon_partition_position(DMuonPartition part, int index) {
  const dmuon_registry *registry = &part->model->registry;
  const dmuon_registry_mesh *mesh = &registry->meshes[registry->params[index].mesh];
  const int *owner = part->owners[index];
  return mesh->ranks[(owner[0] * mesh->shard + owner[1]) * mesh->tp + owner[2]];
}

DMuonErrorCode DMuonPartitionGetOwner(DMuonPartition part, int id, int *replicate, int *shard,
                                      int *tp) {
  DMUON_TRY(dmuon_object_check_state(part, DMUON_CLASS_PARTITION, 1, __func__));
  const dmuon_registry *registry = &part->model->registry;
  if (id < 0 || id >= registry->local_count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter id %d out of range [0,%d)", id,
               registry->local_count);
  const int *owner = part->owners[registry->local_to_global[id]];
  if (replicate) *replicate = owner[0];
  if (shard) *shard = owner[1];
  if (tp) *tp = owner[2];
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionGetInfo(DMuonPartition part, DMuonPartitionInfo *info) {
  DMUON_TRY(dmuon_object_check_state(part, DMUON_CLASS_PARTITION, 1, __func__));
  if (!info || info->struct_size < sizeof info->struct_size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "info %s; set info.struct_size = sizeof info (%zu)",
               info ? "says no size" : "is NULL", sizeof *info);
  const dmuon_registry_mesh *whole = &part->model->registry.meshes[0];
  const dmuon_assign_statistics *s = &part->statistics;
  DMuonPartitionInfo out = {.slots = s->slots,
                            .idle_slots = s->idle_slots,
                            .max_cost = s->max_cost,
                            .mean_cost = s->mean_cost,
                            .lower_bound = s->lower_bound};
  for (int slot = 0; slot < s->slots; slot++) {
    int64_t bytes = 0;
    for (int t = 0; t < whole->tp; t++) bytes += part->slot_bytes[slot * whole->tp + t];
    if (slot == 0 || bytes > out.max_bytes) out.max_bytes = bytes;
    if (slot == 0 || bytes < out.min_bytes) out.min_bytes = bytes;
  }
  size_t size = info->struct_size < sizeof out ? info->struct_size : sizeof out;
  out.struct_size = info->struct_size;
  memcpy(info, &out, size);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonPartitionGetHash(DMuonPartition part, uint64_t *hash) {
  DMUON_TRY(dmuon_object_check_state(part, DMUON_CLASS_PARTITION, 1, __func__));
  if (!hash) DMUON_FAIL(DMUON_ERR_ARGUMENT, "hash is NULL");
  *hash = part->hash;
  return DMUON_SUCCESS;
}
