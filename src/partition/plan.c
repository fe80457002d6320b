/* The plan of a partition: gathers what the pure assignment needs (costs, fixed owners, meshes),
 * runs it on every rank, and makes sure that all have the same. Who owns what is decided in
 * assign.c. */
#include <string.h>

#include "base/dtype.h"
#include "base/glob.h"
#include "base/hash.h"
#include "model/names.h"
#include "partition/partition.h"

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
  if (param->route == DMUON_ROUTE_FROZEN || param->route == DMUON_ROUTE_ADAMW_SHARDED) return 0;
  if (part->cost_function) {
    DMuonParamInfo info = {.struct_size = sizeof info};
    dmuon_model_info(part->model, index, &info);
    return part->cost_function(part->cost_context, &info);
  }
  if (part->settings.owner_cost_model == DMUON_COST_NUMEL) return dmuon_cost_numel(param->numel);
  return is_base(param) ? dmuon_cost_base(param->numel) : cost_of_matrices(param);
}

int64_t dmuon_partition_bytes(const dmuon_param *param) {
  size_t state = dmuon_dtype_bytes(param->state_dtype);
  switch (param->route) {
    case DMUON_ROUTE_MUON:
      return param->numel * (int64_t)(dmuon_dtype_bytes(param->master_dtype) + state);
    case DMUON_ROUTE_FROZEN:
      return param->numel * (int64_t)dmuon_dtype_bytes(param->dtype);
    case DMUON_ROUTE_ADAMW_SHARDED: /* spread over all ranks: no load on an owner */
      return 0;
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

/* Every rank speaks for the parameters that it holds; holders must say the same. */
static DMuonErrorCode merge_rules(work *w) {
  DMuonMesh mesh = w->part->model->mesh;
  int any = w->part->fixed_count > 0;
  if (dmuon_mesh_is_plan(mesh)) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_agree_reduce(mesh->bootstrap, "fixed owners", &any, sizeof any,
                               dmuon_agree_larger, NULL));
  if (!any || !w->count) return DMUON_SUCCESS;
  int(*mine)[3] = NULL;
  size_t bytes = (size_t)w->count * sizeof *mine;
  DMuonErrorCode code = dmuon_memory_alloc(w->memory, w->count, sizeof *mine, &mine);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, "fixed owners", code));
  memcpy(mine, w->fixed, bytes);
  code = dmuon_agree_reduce(mesh->bootstrap, "fixed owners", w->fixed, (int64_t)bytes,
                            dmuon_agree_larger, NULL);
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
  dmuon_options_print(&dmuon_partition_option_table, &part->settings, text);
  dmuon_text_add(text, "costs=%s\n", part->cost_function ? "by function" : "by model");
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

DMuonErrorCode dmuon_partition_make_plan(DMuonPartition part) {
  work w = {.part = part,
            .memory = &part->object.context->memory,
            .count = part->model->registry.param_count};
  DMuonErrorCode code = make_plan(&w);
  dmuon_memory_free(w.fixed);
  dmuon_memory_free(w.items);
  dmuon_memory_free(w.meshes);
  if (code) {
    dmuon_partition_free_plan(part);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  part->hash = hash_plan(part);
  return DMUON_SUCCESS;
}

void dmuon_partition_free_plan(DMuonPartition part) {
  dmuon_memory_release(&part->owners);
  dmuon_memory_release(&part->item_cost);
  dmuon_memory_release(&part->slot_cost);
  dmuon_memory_release(&part->slot_size);
  dmuon_memory_release(&part->slot_bytes);
  dmuon_memory_release(&part->slot_params);
}
