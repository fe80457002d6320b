/* Carries out the set-up of a model: resolves the rules here, puts the ranks' lists together where
 * they differ, and keeps the result as the registry. What the rules mean is decided in rules.c,
 * whether ranks agree in merge.c.
 *
 * Between two collective calls every rank's own failure is agreed on, so that all ranks go on, or
 * all stop with one code. Nothing of the model changes before all is well. */
#include <string.h>

#include "base/hash.h"
#include "model/arrays.h"
#include "model/list.h"
#include "model/model.h"
#include "model/rules.h"

/* A mesh that rules name, other than the model's own. */
typedef struct {
  DMuonMesh mesh; /* borrowed from the rules */
  int *ranks;     /* rank in the model's mesh of each rank of this one */
  int occurrence; /* among this rank's meshes of just the same ranks */
  int list_index; /* in this rank's own list; -1: no parameter lives on it */
  int registry_index;
} handle;

typedef struct {
  DMuonModel model;
  dmuon_memory *memory;
  int count;
  dmuon_param *params; /* resolved copies of the model's */
  int *mesh_rule;      /* by parameter */
  unsigned char *matched;
  int handle_count;
  handle *handles; /* in the order in which the rules name them */
  int *own_losses; /* by parameter: handle, or -1 for the model's mesh */
  const int *rank_at;
  dmuon_list list;
  dmuon_registry registry;
} work;

static const char *mesh_name(DMuonMesh mesh) {
  return mesh->object.name ? mesh->object.name : "mesh";
}

/* ---- what this rank says ---- */

static DMuonErrorCode check_duplicates(work *w) {
  dmuon_name_index *names = NULL;
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->count, sizeof *names, &names));
  for (int i = 0; i < w->count; i++) names[i] = (dmuon_name_index){w->params[i].name, i};
  DMuonErrorCode code = dmuon_names_sort(w->memory, names, w->count);
  int first = -1; /* the duplicate whose first use comes first */
  for (int i = 1; i < w->count && !code; i++)
    if (strcmp(names[i - 1].name, names[i].name) == 0 &&
        (first < 0 || names[i - 1].index < names[first - 1].index))
      first = i;
  if (first > 0)
    code = DMUON_ERROR(DMUON_ERR_SETUP, "name \"%s\" is registered twice: ids %d and %d",
                       names[first].name, names[first - 1].index, names[first].index);
  dmuon_memory_free(names);
  return code;
}

static int find_handle(const work *w, DMuonMesh mesh) {
  for (int i = 0; i < w->handle_count; i++)
    if (w->handles[i].mesh == mesh) return i;
  return -1;
}

static DMuonErrorCode add_handle(work *w, DMuonMesh mesh) {
  if (mesh == w->model->mesh || find_handle(w, mesh) >= 0) return DMUON_SUCCESS;
  handle *h = &w->handles[w->handle_count];
  *h = (handle){.mesh = mesh, .list_index = -1};
  DMUON_TRY(dmuon_memory_alloc(w->memory, mesh->size, sizeof *h->ranks, &h->ranks));
  w->handle_count++;
  DMUON_TRY(dmuon_bootstrap_translate(mesh->bootstrap, w->model->mesh->bootstrap, h->ranks));
  for (int i = 0; i + 1 < w->handle_count; i++)
    if (w->handles[i].mesh->size == mesh->size &&
        memcmp(w->handles[i].ranks, h->ranks, (size_t)mesh->size * sizeof *h->ranks) == 0)
      h->occurrence++;
  return DMUON_SUCCESS;
}

/* All that can be decided without another rank. */
static DMuonErrorCode prepare(work *w) {
  const dmuon_model_rules *rules = w->model->rules;
  int count = w->model->count;
  DMUON_TRY(dmuon_memory_alloc(w->memory, count, sizeof *w->params, &w->params));
  for (; w->count < count; w->count++)
    DMUON_TRY(dmuon_param_copy(w->memory, &w->params[w->count], &w->model->params[w->count]));
  DMUON_TRY(dmuon_memory_alloc(w->memory, count, sizeof *w->mesh_rule, &w->mesh_rule));
  DMUON_TRY(dmuon_memory_alloc(w->memory, count, sizeof *w->own_losses, &w->own_losses));
  DMUON_TRY(dmuon_memory_alloc(w->memory, rules->count, 1, &w->matched));
  DMUON_TRY(
      dmuon_memory_alloc(w->memory, 2 * (int64_t)rules->count, sizeof *w->handles, &w->handles));
  DMUON_TRY(check_duplicates(w));
  for (int i = 0; i < count; i++) w->params[i].is_lent = !w->model->arrays[i].has_arrays;
  DMUON_TRY(dmuon_rules_resolve(rules, count, w->params, w->mesh_rule, w->matched));
  DMUON_TRY(dmuon_arrays_check(w->memory, count, w->params, w->model->arrays));
  for (int k = 0; k < rules->count; k++) {
    if (rules->rules[k].kind != DMUON_RULE_MESH) continue;
    DMUON_TRY(add_handle(w, rules->rules[k].copies));
    DMUON_TRY(add_handle(w, rules->rules[k].losses));
  }
  return DMUON_SUCCESS;
}

/* Of everything that the list would say. */
static uint64_t own_hash(const work *w) {
  const dmuon_model_rules *rules = w->model->rules;
  uint64_t hash = dmuon_hash_int(DMUON_HASH_SEED, w->handle_count > 0);
  hash = dmuon_hash_int(hash, w->count);
  for (int i = 0; i < w->count; i++) {
    hash = dmuon_hash_int(hash, (int64_t)dmuon_param_hash(&w->params[i], i));
  }
  for (int k = 0; k < rules->count; k++) {
    hash = dmuon_hash_int(hash, rules->rules[k].kind);
    hash = dmuon_hash_int(hash, w->matched[k]);
    hash = dmuon_hash_string(hash, rules->rules[k].pattern);
  }
  return hash;
}

/* ---- the list ---- */

static DMuonErrorCode list_own_mesh(work *w, const dmuon_rank_set *holders) {
  DMuonMesh mesh = w->model->mesh;
  int *ranks = NULL;
  DMUON_TRY(dmuon_memory_alloc(w->memory, mesh->size, sizeof *ranks, &ranks));
  for (int i = 0; i < mesh->size; i++) ranks[i] = i;
  dmuon_list_mesh entry = {.name = (char *)(uintptr_t)mesh_name(mesh),
                           .sizes = {mesh->sizes[0], mesh->sizes[1], mesh->sizes[2]},
                           .size = mesh->size,
                           .ranks = ranks,
                           .holders = *holders};
  DMuonErrorCode code = dmuon_list_add_mesh(&w->list, &entry);
  dmuon_memory_free(ranks);
  return code;
}

/* Sets the handle's list_index; its mesh is set up. */
static DMuonErrorCode list_handle(work *w, handle *h, const dmuon_rank_set *holders) {
  DMuonMesh outer = w->model->mesh;
  if (h->list_index >= 0) return DMUON_SUCCESS;
  int *position = NULL, *ranks = NULL;
  DMUON_TRY(dmuon_memory_alloc(w->memory, outer->size, sizeof *position, &position));
  DMuonErrorCode code = dmuon_memory_alloc(w->memory, h->mesh->size, sizeof *ranks, &ranks);
  if (!code) {
    for (int i = 0; i < outer->size; i++) position[outer->rank_at[i]] = i;
    for (int i = 0; i < h->mesh->size; i++) ranks[i] = position[h->ranks[h->mesh->rank_at[i]]];
    const int *sizes = h->mesh->sizes;
    dmuon_list_mesh entry = {.name = (char *)(uintptr_t)mesh_name(h->mesh),
                             .sizes = {sizes[0], sizes[1], sizes[2]},
                             .size = h->mesh->size,
                             .ranks = ranks,
                             .holders = *holders};
    int found = dmuon_list_find_mesh(&w->list, &entry);
    if (found < 0) {
      code = dmuon_list_add_mesh(&w->list, &entry);
      found = w->list.mesh_count - 1;
    }
    if (!code) h->list_index = found;
  }
  dmuon_memory_free(position);
  dmuon_memory_free(ranks);
  return code;
}

/* The list index of one mesh of a rule. */
static DMuonErrorCode list_mesh(work *w, DMuonMesh mesh, const dmuon_rank_set *holders,
                                int *index) {
  *index = 0;
  if (mesh == w->model->mesh) return DMUON_SUCCESS;
  handle *h = &w->handles[find_handle(w, mesh)];
  DMUON_TRY(list_handle(w, h, holders));
  *index = h->list_index;
  return DMUON_SUCCESS;
}

/* This rank's list: holders is this rank, or all of them when it is known that all say the same. */
static DMuonErrorCode make_list(work *w, dmuon_rank_range holder) {
  const dmuon_model_rules *rules = w->model->rules;
  const dmuon_rank_set holders = {1, &holder};
  dmuon_list_free(&w->list);
  DMUON_TRY(list_own_mesh(w, &holders));
  int64_t *ordinals = NULL;
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->handle_count + 1, sizeof *ordinals, &ordinals));
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < w->count && !code; i++) {
    dmuon_list_param entry = {.param = w->params[i], .other_rank = -1, .holders = holders};
    DMuonMesh copies = w->model->mesh, losses = w->model->mesh;
    if (w->mesh_rule[i] >= 0) {
      copies = rules->rules[w->mesh_rule[i]].copies;
      losses = rules->rules[w->mesh_rule[i]].losses;
    }
    w->own_losses[i] = find_handle(w, losses);
    code = list_mesh(w, copies, &holders, &entry.param.mesh);
    if (!code) code = list_mesh(w, losses, &holders, &entry.param.losses);
    if (code) break;
    entry.ordinal = ordinals[entry.param.mesh]++;
    code = dmuon_list_add_param(&w->list, &entry);
  }
  dmuon_memory_free(ordinals);
  for (int k = 0; k < rules->count && !code; k++)
    code =
        dmuon_list_add_pattern(&w->list, &(dmuon_list_pattern){.kind = (int)rules->rules[k].kind,
                                                               .matched = w->matched[k],
                                                               .pattern = rules->rules[k].pattern});
  return code;
}

/* ---- the registry ---- */

static int losses_index(const work *w, int param) {
  int h = w->own_losses[param];
  return h < 0 ? 0 : w->handles[h].registry_index;
}

static uint64_t registry_hash(const dmuon_registry *registry, const dmuon_list *list) {
  uint64_t hash = dmuon_hash_int(DMUON_HASH_SEED, registry->mesh_count);
  for (int i = 0; i < registry->mesh_count; i++) {
    const dmuon_registry_mesh *mesh = &registry->meshes[i];
    hash = dmuon_hash_int(hash, mesh->replicate);
    hash = dmuon_hash_int(hash, mesh->shard);
    hash = dmuon_hash_int(hash, mesh->tp);
    hash = dmuon_hash_bytes(hash, mesh->ranks, (size_t)mesh->size * sizeof *mesh->ranks);
  }
  hash = dmuon_hash_int(hash, registry->param_count);
  for (int i = 0; i < registry->param_count; i++)
    hash = dmuon_hash_int(hash,
                          (int64_t)dmuon_param_hash(&registry->params[i], list->params[i].ordinal));
  return hash;
}

/* Copies the merged list's meshes; this rank's handles are found by what they are. */
static DMuonErrorCode keep_meshes(work *w, const dmuon_list *own) {
  dmuon_registry *registry = &w->registry;
  int count = w->list.mesh_count;
  DMUON_TRY(dmuon_memory_alloc(w->memory, count, sizeof *registry->meshes, &registry->meshes));
  registry->mesh_count = count;
  for (int i = 0; i < count; i++) {
    const dmuon_list_mesh *from = &w->list.meshes[i];
    dmuon_registry_mesh *to = &registry->meshes[i];
    DMUON_TRY(dmuon_memory_strdup(w->memory, from->name, &to->name));
    DMUON_TRY(dmuon_memory_alloc(w->memory, from->size, sizeof *to->ranks, &to->ranks));
    memcpy(to->ranks, from->ranks, (size_t)from->size * sizeof *to->ranks);
    to->replicate = from->sizes[0];
    to->shard = from->sizes[1];
    to->tp = from->sizes[2];
    to->size = from->size;
  }
  dmuon_mesh_retain(w->model->mesh);
  registry->meshes[0].mesh = w->model->mesh;
  for (int i = 0; i < w->handle_count; i++) {
    handle *h = &w->handles[i];
    if (h->list_index < 0) continue;
    h->registry_index = dmuon_list_find_mesh(&w->list, &own->meshes[h->list_index]);
    if (h->registry_index < 0)
      DMUON_FAIL(DMUON_ERR_INTERNAL, "mesh \"%s\" got lost on the way", mesh_name(h->mesh));
    dmuon_registry_mesh *to = &registry->meshes[h->registry_index];
    if (to->mesh) continue; /* the first of equals, on every rank the same one */
    dmuon_mesh_retain(h->mesh);
    to->mesh = h->mesh;
  }
  for (registry->tied = 1; registry->tied < count; registry->tied++)
    DMUON_TRY(dmuon_mesh_tie(registry->meshes[0].mesh, registry->meshes[registry->tied].mesh));
  return DMUON_SUCCESS;
}

static DMuonErrorCode keep_params(work *w) {
  dmuon_registry *registry = &w->registry;
  int count = w->list.param_count;
  DMUON_TRY(dmuon_memory_alloc(w->memory, count, sizeof *registry->params, &registry->params));
  for (; registry->param_count < count; registry->param_count++)
    DMUON_TRY(dmuon_param_copy(w->memory, &registry->params[registry->param_count],
                               &w->list.params[registry->param_count].param));
  DMUON_TRY(dmuon_memory_alloc(w->memory, w->count, sizeof *registry->local_to_global,
                               &registry->local_to_global));
  DMUON_TRY(dmuon_memory_alloc(w->memory, count, sizeof *registry->global_to_local,
                               &registry->global_to_local));
  registry->local_count = w->count;
  for (int i = 0; i < count; i++) registry->global_to_local[i] = -1;
  dmuon_name_index *names = NULL;
  DMUON_TRY(dmuon_list_names(&w->list, &names));
  for (int i = 0; i < w->count; i++) {
    int global = dmuon_names_find(names, count, w->params[i].name);
    registry->local_to_global[i] = global;
    registry->global_to_local[global] = i;
    w->params[i].mesh = registry->params[global].mesh;
    w->params[i].losses = losses_index(w, i);
  }
  dmuon_memory_free(names);
  registry->hash = registry_hash(registry, &w->list);
  return DMUON_SUCCESS;
}

/* From the whole list; own is this rank's, whose mesh indices the handles have. */
static DMuonErrorCode make_registry(work *w, const dmuon_list *own) {
  w->registry.memory = w->memory;
  DMUON_TRY(dmuon_list_check(&w->list, w->rank_at));
  DMUON_TRY(keep_meshes(w, own));
  return keep_params(w);
}

/* ---- putting the ranks' lists together ---- */

static DMuonErrorCode agree(work *w, DMuonErrorCode code) {
  return dmuon_agree_error(w->model->mesh->bootstrap, "set-up of the model", code, DMUON_ERR_SETUP);
}

/* w->list becomes the list of all ranks, or is left as it is. code: what happened here before. */
static DMuonErrorCode merge_lists(work *w, DMuonErrorCode code, const int *rank_at) {
  void *data = NULL;
  int64_t bytes = 0;
  if (!code) code = dmuon_list_pack(&w->list, &data, &bytes);
  code = agree(w, code);
  if (!code)
    code = dmuon_agree_merge(w->model->mesh->bootstrap, "set-up of the model", &data, &bytes,
                             dmuon_list_merge_packed, (void *)(uintptr_t)rank_at);
  dmuon_list merged;
  dmuon_list_init(&merged, w->memory);
  if (!code) code = agree(w, dmuon_list_unpack(&merged, w->memory, data, bytes));
  dmuon_memory_free(data);
  if (code) {
    dmuon_list_free(&merged);
    return code;
  }
  dmuon_list_free(&w->list);
  w->list = merged;
  return DMUON_SUCCESS;
}

static DMuonErrorCode list_handles(work *w) {
  dmuon_rank_range me = {w->model->mesh->rank, w->model->mesh->rank};
  dmuon_list_free(&w->list);
  for (int i = 0; i < w->handle_count; i++) {
    const handle *h = &w->handles[i];
    dmuon_list_mesh entry = {.name = (char *)(uintptr_t)mesh_name(h->mesh),
                             .occurrence = h->occurrence,
                             .size = h->mesh->size,
                             .ranks = h->ranks,
                             .holders = {1, &me}};
    DMUON_TRY(dmuon_list_add_mesh(&w->list, &entry));
  }
  return DMUON_SUCCESS;
}

static int find_listed(const work *w, const dmuon_list_mesh *mesh) {
  for (int i = 0; i < w->handle_count; i++) {
    const handle *h = &w->handles[i];
    if (h->occurrence == mesh->occurrence && h->mesh->size == mesh->size &&
        memcmp(h->ranks, mesh->ranks, (size_t)mesh->size * sizeof *h->ranks) == 0)
      return i;
  }
  return -1;
}

/* Sets up every mesh that rules name on any rank. Each is collective over its own ranks, so all
 * ranks go through theirs in one order, that of the merged list; a mesh that some rank of it does
 * not name is found first. One that fails must not keep its ranks from the next. */
static DMuonErrorCode set_up_handles(work *w) {
  DMUON_TRY(merge_lists(w, list_handles(w), NULL));
  DMUON_TRY(agree(w, dmuon_list_check(&w->list, NULL)));
  DMuonErrorCode first = DMUON_SUCCESS;
  for (int i = 0; i < w->list.mesh_count; i++) {
    int h = find_listed(w, &w->list.meshes[i]);
    if (h < 0) continue;
    DMuonErrorCode code = DMuonMeshSetUp(w->handles[h].mesh);
    if (code) first = code; /* the one whose words are in the record */
  }
  DMuonErrorCode code = agree(w, first);
  /* Some rank's part of a mesh is broken for good, and with it what the model stands on. */
  dmuon_mesh_break(w->model->mesh, code);
  return code;
}

static DMuonErrorCode set_up_over_ranks(work *w, DMuonErrorCode code) {
  DMuonMesh mesh = w->model->mesh;
  int equal = 0;
  DMUON_TRY(agree(w, code));
  DMUON_TRY(dmuon_agree_equal(mesh->bootstrap, "set-up of the model", own_hash(w), &equal, NULL));
  if (equal && w->handle_count == 0) {
    code = make_list(w, (dmuon_rank_range){0, mesh->size - 1});
    if (!code) code = make_registry(w, &w->list);
    return agree(w, code);
  }
  DMUON_TRY(set_up_handles(w));
  /* Mesh indices of this rank's own list are needed after it has been merged. */
  dmuon_list own;
  dmuon_list_init(&own, w->memory);
  code = make_list(w, (dmuon_rank_range){mesh->rank, mesh->rank});
  for (int i = 0; i < w->list.mesh_count && !code; i++)
    code = dmuon_list_add_mesh(&own, &w->list.meshes[i]);
  code = merge_lists(w, code, w->rank_at);
  if (!code) code = agree(w, make_registry(w, &own));
  dmuon_list_free(&own);
  return code;
}

static DMuonErrorCode set_up_alone(work *w, DMuonErrorCode code) {
  DMUON_TRY(code);
  DMUON_TRY(make_list(w, (dmuon_rank_range){0, w->model->mesh->size - 1}));
  return make_registry(w, &w->list);
}

DMuonErrorCode DMuonModelSetUp(DMuonModel model) {
  DMUON_TRY(dmuon_model_check(model));
  if (model->object.is_set_up) return DMUON_SUCCESS;
  DMUON_TRY(DMuonMeshSetUp(model->mesh));
  work w = {
      .model = model, .memory = &model->object.context->memory, .rank_at = model->mesh->rank_at};
  dmuon_list_init(&w.list, w.memory);
  DMuonErrorCode code = prepare(&w);
  code = dmuon_mesh_is_plan(model->mesh) ? set_up_alone(&w, code) : set_up_over_ranks(&w, code);
  if (!code) {
    dmuon_params_free(model->params, model->count);
    model->params = w.params;
    model->registry = w.registry;
    for (int i = 0; i < model->count; i++) {
      model->arrays[i].gradients = dmuon_arrays_gradients(&model->params[i], &model->arrays[i]);
      model->arrays[i].stack = NULL;
    }
    model->object.is_set_up = 1;
  } else {
    dmuon_registry_free(&w.registry);
    dmuon_params_free(w.params, w.count);
  }
  dmuon_list_free(&w.list);
  dmuon_memory_free(w.mesh_rule);
  dmuon_memory_free(w.own_losses);
  dmuon_memory_free(w.matched);
  for (int i = 0; i < w.handle_count; i++) dmuon_memory_free(w.handles[i].ranks);
  dmuon_memory_free(w.handles);
  return code ? DMuonErrorTrace(code, __func__, __FILE__, __LINE__) : DMUON_SUCCESS;
}
