/* The partition object: wishes in, a plan out. It gathers what the pure assignment needs (costs,
 * fixed owners, meshes), runs it on every rank, and makes sure that all have the same. Who owns
 * what is decided in assign.c. */
#include "partition/partition.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/glob.h"
#include "base/hash.h"
#include "model/names.h"

static const char *const strategies[] = {"lpt", "round_robin", "rank0", NULL};
static const char *const cost_models[] = {"optimizer", "numel", NULL};
enum { COST_OPTIMIZER, COST_NUMEL };

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

static void free_plan(DMuonPartition part) {
  dmuon_memory_release(&part->owners);
  dmuon_memory_release(&part->item_cost);
  dmuon_memory_release(&part->slot_cost);
  dmuon_memory_release(&part->slot_size);
  dmuon_memory_release(&part->slot_bytes);
  dmuon_memory_release(&part->slot_params);
}

void dmuon_partition_release(DMuonPartition partition) {
  if (!partition || --partition->object.references > 0) return;
  DMuonModel model = partition->model; /* its mesh's memory holds the partition: released last */
  partition->object.class_id = 0;
  free_plan(partition);
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
  if (!word) DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of a %s is NULL", what);
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

/* ---- costs ---- */

/* The route was said by the program, not found from name and shape. */
static int route_was_said(const dmuon_param *param) {
  char reason[200];
  return dmuon_route_default(param, reason, sizeof reason) != param->route ||
         strcmp(reason, param->route_reason) != 0;
}

/* An element-wise update: by name, or because the program sends it to AdamW. A matrix that goes
 * there only because it stands outside the numbered blocks keeps the cost of its shape. */
static int is_base(const dmuon_param *param) {
  size_t length;
  if (dmuon_cost_is_base(param->name, param->ndim)) return 1;
  if (dmuon_name_base_word(param->name, &length)) return 1;
  return param->route != DMUON_ROUTE_MUON && route_was_said(param);
}

static double cost_of_matrices(const dmuon_param *param) {
  if (!param->nblocks) return dmuon_cost_matrices(param->batch, param->rows, param->cols);
  double cost = 0;
  for (int j = 0; j < param->nblocks; j++) {
    int64_t side = param->blocks[j] * param->repeat;
    cost += param->output == DMUON_ROWS ? dmuon_cost_matrices(param->batch, side, param->cols)
                                        : dmuon_cost_matrices(param->batch, param->rows, side);
  }
  return cost;
}

static double cost_of(DMuonPartition part, int index) {
  const dmuon_param *param = &part->model->registry.params[index];
  if (param->route == DMUON_ROUTE_FROZEN) return 0;
  if (part->cost_function) {
    DMuonParamInfo info = {.struct_size = sizeof info};
    dmuon_model_info(part->model, index, &info);
    return part->cost_function(part->cost_context, &info);
  }
  if (part->settings.owner_cost_model == COST_NUMEL) return dmuon_cost_numel(param->numel);
  return is_base(param) ? dmuon_cost_base(param->numel) : cost_of_matrices(param);
}

int64_t dmuon_partition_bytes(const dmuon_param *param) {
  size_t state = dmuon_dtype_bytes(param->state_dtype);
  switch (param->route) {
    case DMUON_ROUTE_MUON:
      return param->numel * (int64_t)(dmuon_dtype_bytes(param->master_dtype) + state);
    case DMUON_ROUTE_FROZEN:
      return param->numel * (int64_t)dmuon_dtype_bytes(param->dtype);
    default:
      return param->numel * (int64_t)(dmuon_dtype_bytes(param->master_dtype) + 2 * state);
  }
}

/* ---- the plan ---- */

/* What is put together before anything is stored in the partition. */
typedef struct {
  DMuonPartition part;
  dmuon_memory *memory;
  int count;
  int (*fixed)[3]; /* by registry index */
  dmuon_assign_item *items;
  dmuon_assign_mesh *meshes;
} work;

/* Owners that the rules fix, for parameters that this rank holds. */
static DMuonErrorCode apply_rules(work *w) {
  DMuonPartition part = w->part;
  const dmuon_registry *registry = &part->model->registry;
  for (int i = 0; i < w->count; i++)
    for (int a = 0; a < 3; a++) w->fixed[i][a] = DMUON_DECIDE;
  for (int k = 0; k < part->fixed_count; k++) {
    int matched = 0;
    for (int i = 0; i < w->count; i++) {
      if (!dmuon_glob_match(part->fixed[k].pattern, registry->params[i].name)) continue;
      matched = 1;
      if (registry->global_to_local[i] < 0) continue;
      memcpy(w->fixed[i], part->fixed[k].owner, sizeof w->fixed[i]);
    }
    if (!matched)
      DMUON_FAIL(DMUON_ERR_SETUP, "SetOwner: pattern \"%s\" matches none of %d parameters",
                 part->fixed[k].pattern, w->count);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode prepare(work *w) {
  DMuonPartition part = w->part;
  const dmuon_registry *registry = &part->model->registry;
  int meshes = registry->mesh_count;
  DMUON_TRY(dmuon_options_apply(&part->object.context->options, &dmuon_partition_option_table,
                                part->object.name, part->program, &part->settings));
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->count, sizeof *w->fixed, &w->fixed));
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->count, sizeof *w->items, &w->items));
  DMUON_TRY(dmuon_memory_alloc(w->memory, meshes, sizeof *w->meshes, &w->meshes));
  int positions = registry->meshes[0].size;
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->count, sizeof *part->owners, &part->owners));
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->count, sizeof(double), &part->item_cost));
  DMUON_TRY(dmuon_memory_alloc(w->memory, positions, sizeof(double), &part->slot_cost));
  DMUON_TRY(dmuon_memory_alloc(w->memory, positions, sizeof(int64_t), &part->slot_size));
  DMUON_TRY(dmuon_memory_alloc(w->memory, positions, sizeof(int64_t), &part->slot_bytes));
  DMUON_TRY(dmuon_memory_alloc(w->memory, positions, sizeof(int), &part->slot_params));
  return apply_rules(w);
}

static void larger(void *into, const void *from, int64_t bytes, void *context) {
  (void)context;
  int *a = into;
  const int *b = from;
  for (int64_t i = 0; i < bytes / (int64_t)sizeof *a; i++)
    if (b[i] > a[i]) a[i] = b[i];
}

/* Every rank speaks for the parameters that it holds; holders must say the same. */
static DMuonErrorCode merge_rules(work *w) {
  DMuonMesh mesh = w->part->model->mesh;
  int any = w->part->fixed_count > 0;
  if (dmuon_mesh_is_plan(mesh)) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_agree_reduce(mesh->bootstrap, "fixed owners", &any, sizeof any, larger, NULL));
  if (!any || !w->count) return DMUON_SUCCESS;
  int(*mine)[3] = NULL;
  size_t bytes = (size_t)w->count * sizeof *mine;
  DMuonErrorCode code = dmuon_memory_alloc(w->memory, w->count, sizeof *mine, &mine);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, "fixed owners", code));
  memcpy(mine, w->fixed, bytes);
  code =
      dmuon_agree_reduce(mesh->bootstrap, "fixed owners", w->fixed, (int64_t)bytes, larger, NULL);
  const dmuon_registry *registry = &w->part->model->registry;
  DMuonErrorCode here = DMUON_SUCCESS;
  for (int i = 0; i < w->count && !code && !here; i++)
    if (registry->global_to_local[i] >= 0 && memcmp(mine[i], w->fixed[i], sizeof *mine))
      here = DMUON_ERROR(DMUON_ERR_DISAGREE,
                         "fixed owner of %s is (%d, %d, %d) on this rank, (%d, %d, %d) on another",
                         registry->params[i].name, mine[i][0], mine[i][1], mine[i][2],
                         w->fixed[i][0], w->fixed[i][1], w->fixed[i][2]);
  dmuon_memory_free(mine);
  DMUON_TRY(code);
  return dmuon_mesh_agree_error(mesh, "fixed owners", here);
}

static DMuonErrorCode assign(work *w) {
  DMuonPartition part = w->part;
  const dmuon_registry *registry = &part->model->registry;
  for (int m = 0; m < registry->mesh_count; m++) {
    const dmuon_registry_mesh *mesh = &registry->meshes[m];
    w->meshes[m] = (dmuon_assign_mesh){mesh->replicate, mesh->shard, mesh->tp, mesh->ranks};
  }
  for (int i = 0; i < w->count; i++) {
    const dmuon_param *param = &registry->params[i];
    part->item_cost[i] = cost_of(part, i);
    w->items[i] = (dmuon_assign_item){.name = param->name,
                                      .group = param->group,
                                      .mesh = param->mesh,
                                      .size = param->numel,
                                      .cost = part->item_cost[i]};
    memcpy(w->items[i].fixed, w->fixed[i], sizeof w->fixed[i]);
  }
  const dmuon_assign_problem problem = {.item_count = w->count,
                                        .items = w->items,
                                        .mesh_count = registry->mesh_count,
                                        .meshes = w->meshes,
                                        .rank_count = registry->meshes[0].size,
                                        .strategy = (dmuon_strategy)part->settings.owner_strategy,
                                        .pack_small = part->settings.pack_small_params,
                                        .pack_threshold = part->settings.pack_threshold,
                                        .max_owners_per_group = part->settings.max_owners_per_group,
                                        .column_balance = part->settings.hsdp_column_balance};
  DMUON_TRY(dmuon_assign(w->memory, &problem, part->owners, part->slot_cost, part->slot_size,
                         &part->statistics));
  for (int i = 0; i < w->count; i++) {
    int position = dmuon_partition_position(part, i);
    part->slot_bytes[position] += dmuon_partition_bytes(&registry->params[i]);
    part->slot_params[position]++;
  }
  return DMUON_SUCCESS;
}

/* The plan as text, for naming what differs: settings, then costs and owners in registry order. */
static void describe_plan(DMuonPartition part, dmuon_text *text) {
  const dmuon_registry *registry = &part->model->registry;
  const dmuon_partition_settings *s = &part->settings;
  dmuon_text_add(text, "owner_strategy=%s\nowner_cost_model=%s\n", strategies[s->owner_strategy],
                 part->cost_function ? "function" : cost_models[s->owner_cost_model]);
  dmuon_text_add(text, "max_owners_per_group=%lld\nhsdp_column_balance=%d\n",
                 (long long)s->max_owners_per_group, s->hsdp_column_balance);
  dmuon_text_add(text, "pack_small_params=%d\npack_threshold=%lld\n", s->pack_small_params,
                 (long long)s->pack_threshold);
  for (int i = 0; i < registry->param_count; i++)
    dmuon_text_add(text, "cost of %s=%.17g\n", registry->params[i].name, part->item_cost[i]);
  for (int i = 0; i < registry->param_count; i++)
    dmuon_text_add(text, "owner of %s=(%d, %d, %d)\n", registry->params[i].name, part->owners[i][0],
                   part->owners[i][1], part->owners[i][2]);
}

static DMuonErrorCode make_plan(work *w) {
  DMuonMesh mesh = w->part->model->mesh;
  DMUON_TRY(dmuon_mesh_agree_error(mesh, "set-up of the partition", prepare(w)));
  DMUON_TRY(merge_rules(w));
  DMuonErrorCode code = assign(w);
  dmuon_text text;
  dmuon_text_init(&text, w->memory);
  if (!code && !dmuon_mesh_is_plan(mesh)) describe_plan(w->part, &text);
  code = dmuon_mesh_agree_text(mesh, "partition", code, &text);
  dmuon_text_free(&text);
  return code;
}

static uint64_t hash_plan(DMuonPartition part) {
  const dmuon_registry *registry = &part->model->registry;
  uint64_t hash = dmuon_hash_int(DMUON_HASH_SEED, (int64_t)registry->hash);
  return dmuon_hash_bytes(hash, part->owners, (size_t)registry->param_count * sizeof *part->owners);
}

DMuonErrorCode DMuonPartitionSetUp(DMuonPartition part) {
  DMUON_TRY(dmuon_partition_check(part));
  DMUON_TRY(dmuon_mesh_check(part->model->mesh));
  if (part->object.is_set_up) return DMUON_SUCCESS;
  DMUON_TRY(DMuonModelSetUp(part->model));
  work w = {.part = part,
            .memory = &part->object.context->memory,
            .count = part->model->registry.param_count};
  DMuonErrorCode code = make_plan(&w);
  dmuon_memory_free(w.fixed);
  dmuon_memory_free(w.items);
  dmuon_memory_free(w.meshes);
  if (code) {
    free_plan(part);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  part->hash = hash_plan(part);
  part->object.is_set_up = 1;
  dmuon_log(&part->object.context->logger, 2,
            "partition: %d parameters in %d units on %d slots, %d idle, largest load %.4g of %.4g",
            w.count, part->statistics.units, part->statistics.slots, part->statistics.idle_slots,
            part->statistics.max_cost, part->statistics.lower_bound);
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
