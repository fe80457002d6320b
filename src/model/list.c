/* Stores what ranks say of a model and packs it into bytes and back. Decides nothing. */
#include "model/list.h"

#include <string.h>

void dmuon_list_init(dmuon_list *list, dmuon_memory *memory) {
  *list = (dmuon_list){.memory = memory};
}

static void free_mesh(dmuon_list_mesh *mesh) {
  dmuon_memory_free(mesh->name);
  dmuon_memory_free(mesh->ranks);
  dmuon_memory_free(mesh->holders.ranges);
}

static void free_param(dmuon_list_param *param) {
  dmuon_param_free(&param->param);
  dmuon_memory_free(param->holders.ranges);
}

void dmuon_list_free(dmuon_list *list) {
  for (int i = 0; i < list->mesh_count; i++) free_mesh(&list->meshes[i]);
  for (int i = 0; i < list->param_count; i++) free_param(&list->params[i]);
  for (int i = 0; i < list->pattern_count; i++) dmuon_memory_free(list->patterns[i].pattern);
  dmuon_memory_free(list->meshes);
  dmuon_memory_free(list->params);
  dmuon_memory_free(list->patterns);
  dmuon_list_init(list, list->memory);
}

/* ---- ranks ---- */

int dmuon_rank_set_has(const dmuon_rank_set *set, int rank) {
  for (int i = 0; i < set->count; i++)
    if (set->ranges[i].first <= rank && rank <= set->ranges[i].last) return 1;
  return 0;
}

DMuonErrorCode dmuon_rank_set_append(dmuon_memory *memory, dmuon_rank_set *into,
                                     const dmuon_rank_set *from) {
  if (!from->count) return DMUON_SUCCESS;
  int joined = into->count > 0 && into->ranges[into->count - 1].last + 1 == from->ranges[0].first;
  int count = into->count + from->count - joined;
  DMUON_TRY(dmuon_memory_resize(memory, &into->ranges, into->count, count, sizeof *into->ranges));
  if (joined) into->ranges[into->count - 1].last = from->ranges[0].last;
  memcpy(into->ranges + into->count, from->ranges + joined,
         (size_t)(from->count - joined) * sizeof *into->ranges);
  into->count = count;
  return DMUON_SUCCESS;
}

static DMuonErrorCode copy_set(dmuon_memory *memory, dmuon_rank_set *to,
                               const dmuon_rank_set *from) {
  *to = (dmuon_rank_set){0};
  return dmuon_rank_set_append(memory, to, from);
}

/* ---- appending ---- */

static DMuonErrorCode grow(dmuon_memory *memory, void *array, int count, int *capacity,
                           size_t element_bytes) {
  if (count < *capacity) return DMUON_SUCCESS;
  int wanted = *capacity ? 2 * *capacity : 8;
  DMUON_TRY(dmuon_memory_resize(memory, array, *capacity, wanted, element_bytes));
  *capacity = wanted;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_list_add_mesh(dmuon_list *list, const dmuon_list_mesh *mesh) {
  DMUON_TRY(grow(list->memory, &list->meshes, list->mesh_count, &list->mesh_capacity,
                 sizeof *list->meshes));
  dmuon_list_mesh copy = *mesh;
  copy.name = NULL;
  copy.ranks = NULL;
  DMuonErrorCode code = copy_set(list->memory, &copy.holders, &mesh->holders);
  if (!code) code = dmuon_memory_strdup(list->memory, mesh->name, &copy.name);
  if (!code) code = dmuon_memory_alloc(list->memory, mesh->size, sizeof *copy.ranks, &copy.ranks);
  if (code) {
    free_mesh(&copy);
    return code;
  }
  memcpy(copy.ranks, mesh->ranks, (size_t)mesh->size * sizeof *copy.ranks);
  list->meshes[list->mesh_count++] = copy;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_list_add_param(dmuon_list *list, const dmuon_list_param *param) {
  DMUON_TRY(grow(list->memory, &list->params, list->param_count, &list->param_capacity,
                 sizeof *list->params));
  dmuon_list_param copy = *param;
  memset(&copy.param, 0, sizeof copy.param);
  DMuonErrorCode code = copy_set(list->memory, &copy.holders, &param->holders);
  if (!code) code = dmuon_param_copy(list->memory, &copy.param, &param->param);
  if (code) {
    free_param(&copy);
    return code;
  }
  list->params[list->param_count++] = copy;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_list_add_pattern(dmuon_list *list, const dmuon_list_pattern *pattern) {
  DMUON_TRY(grow(list->memory, &list->patterns, list->pattern_count, &list->pattern_capacity,
                 sizeof *list->patterns));
  dmuon_list_pattern copy = *pattern;
  DMUON_TRY(dmuon_memory_strdup(list->memory, pattern->pattern, &copy.pattern));
  list->patterns[list->pattern_count++] = copy;
  return DMUON_SUCCESS;
}

int dmuon_list_find_mesh(const dmuon_list *list, const dmuon_list_mesh *mesh) {
  for (int i = 0; i < list->mesh_count; i++) {
    const dmuon_list_mesh *other = &list->meshes[i];
    if (other->size == mesh->size && other->occurrence == mesh->occurrence &&
        memcmp(other->sizes, mesh->sizes, sizeof mesh->sizes) == 0 &&
        memcmp(other->ranks, mesh->ranks, (size_t)mesh->size * sizeof *mesh->ranks) == 0)
      return i;
  }
  return -1;
}

/* ---- bytes ----
 * One walk for both directions: each field is put or taken by the same line, so that the two cannot
 * differ. A failure is kept and ends the walk. */

typedef struct {
  dmuon_memory *memory;
  char *data;
  int64_t bytes, at;
  int is_packing;
  DMuonErrorCode failed;
} walk;

static void walk_bytes(walk *w, void *field, int64_t bytes) {
  if (w->failed || bytes == 0) return;
  if (w->is_packing) {
    if (w->at + bytes > w->bytes) {
      int64_t wanted = 2 * w->bytes > w->at + bytes ? 2 * w->bytes : w->at + bytes + 1024;
      w->failed = dmuon_memory_resize(w->memory, &w->data, w->bytes, wanted, 1);
      if (w->failed) return;
      w->bytes = wanted;
    }
    memcpy(w->data + w->at, field, (size_t)bytes);
  } else {
    if (bytes < 0 || bytes > w->bytes - w->at) {
      w->failed = DMUON_ERROR(DMUON_ERR_INTERNAL, "packed model list ends at byte %lld of %lld",
                              (long long)w->bytes, (long long)(w->at + bytes));
      return;
    }
    memcpy(field, w->data + w->at, (size_t)bytes);
  }
  w->at += bytes;
}

/* count elements of an array that unpacking allocates. */
static void walk_array(walk *w, void *array, int64_t count, size_t element_bytes) {
  void *data = NULL;
  if (w->failed || count == 0) return;
  memcpy(&data, array, sizeof data);
  if (!w->is_packing) {
    w->failed = dmuon_memory_alloc(w->memory, count, element_bytes, &data);
    if (w->failed) return;
    memcpy(array, &data, sizeof data);
  }
  walk_bytes(w, data, count * (int64_t)element_bytes);
}

/* NULL stays NULL. */
static void walk_string(walk *w, char **string) {
  int64_t bytes = w->is_packing && *string ? (int64_t)strlen(*string) + 1 : 0;
  walk_bytes(w, &bytes, sizeof bytes);
  walk_array(w, string, bytes, 1);
}

static void walk_set(walk *w, dmuon_rank_set *set) {
  walk_bytes(w, &set->count, sizeof set->count);
  walk_array(w, &set->ranges, set->count, sizeof *set->ranges);
}

static void walk_mesh(walk *w, dmuon_list_mesh *mesh) {
  walk_bytes(w, mesh->sizes, sizeof mesh->sizes);
  walk_bytes(w, &mesh->occurrence, sizeof mesh->occurrence);
  walk_bytes(w, &mesh->size, sizeof mesh->size);
  walk_string(w, &mesh->name);
  walk_array(w, &mesh->ranks, mesh->size, sizeof *mesh->ranks);
  walk_set(w, &mesh->holders);
}

static void walk_param(walk *w, dmuon_list_param *entry) {
  dmuon_param *param = &entry->param;
  int64_t fields[] = {
      param->dtype,         param->grad_dtype, param->master_dtype, param->state_dtype,
      param->ndim,          param->nbatch,     param->nrow,         param->numel,
      param->batch,         param->rows,       param->cols,         param->output,
      param->nblocks,       param->repeat,     param->route,        param->mesh,
      param->losses,        param->is_lent,    param->reshard,      entry->ordinal,
      entry->other_ordinal, entry->other_rank};
  walk_bytes(w, fields, sizeof fields);
  if (!w->is_packing && !w->failed) {
    int k = 0;
    param->dtype = (DMuonDType)fields[k++];
    param->grad_dtype = (DMuonDType)fields[k++];
    param->master_dtype = (DMuonDType)fields[k++];
    param->state_dtype = (DMuonDType)fields[k++];
    param->ndim = (int)fields[k++];
    param->nbatch = (int)fields[k++];
    param->nrow = (int)fields[k++];
    param->numel = fields[k++];
    param->batch = fields[k++];
    param->rows = fields[k++];
    param->cols = fields[k++];
    param->output = (DMuonSide)fields[k++];
    param->nblocks = (int)fields[k++];
    param->repeat = (int)fields[k++];
    param->route = (DMuonRoute)fields[k++];
    param->mesh = (int)fields[k++];
    param->losses = (int)fields[k++];
    param->is_lent = (int)fields[k++];
    param->reshard = (DMuonReshard)fields[k++];
    entry->ordinal = fields[k++];
    entry->other_ordinal = fields[k++];
    entry->other_rank = (int)fields[k++];
  }
  walk_bytes(w, param->dims, param->ndim * (int64_t)sizeof *param->dims);
  walk_string(w, &param->name);
  walk_string(w, &param->group);
  walk_string(w, &param->route_reason);
  walk_array(w, &param->blocks, param->nblocks, sizeof *param->blocks);
  walk_set(w, &entry->holders);
}

static void walk_pattern(walk *w, dmuon_list_pattern *pattern) {
  walk_bytes(w, &pattern->kind, sizeof pattern->kind);
  walk_bytes(w, &pattern->matched, sizeof pattern->matched);
  walk_string(w, &pattern->pattern);
}

static void walk_list(walk *w, dmuon_list *list) {
  int counts[3] = {list->mesh_count, list->param_count, list->pattern_count};
  walk_bytes(w, counts, sizeof counts);
  if (!w->is_packing && !w->failed) {
    w->failed = dmuon_memory_alloc(w->memory, counts[0], sizeof *list->meshes, &list->meshes);
    if (!w->failed)
      w->failed = dmuon_memory_alloc(w->memory, counts[1], sizeof *list->params, &list->params);
    if (!w->failed)
      w->failed = dmuon_memory_alloc(w->memory, counts[2], sizeof *list->patterns, &list->patterns);
    if (w->failed) return;
    /* Zeroed elements are fit for free, so a walk that ends early leaves a whole list. */
    list->mesh_count = list->mesh_capacity = counts[0];
    list->param_count = list->param_capacity = counts[1];
    list->pattern_count = list->pattern_capacity = counts[2];
  }
  for (int i = 0; i < counts[0]; i++) walk_mesh(w, &list->meshes[i]);
  for (int i = 0; i < counts[1]; i++) walk_param(w, &list->params[i]);
  for (int i = 0; i < counts[2]; i++) walk_pattern(w, &list->patterns[i]);
}

DMuonErrorCode dmuon_list_pack(const dmuon_list *list, void **data, int64_t *bytes) {
  walk w = {.memory = list->memory, .is_packing = 1};
  dmuon_list view = *list; /* packing reads only */
  walk_list(&w, &view);
  if (w.failed) {
    dmuon_memory_free(w.data);
    return w.failed;
  }
  *data = w.data;
  *bytes = w.at;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_list_unpack(dmuon_list *list, dmuon_memory *memory, const void *data,
                                 int64_t bytes) {
  walk w = {.memory = memory, .data = (char *)(uintptr_t)data, .bytes = bytes};
  dmuon_list made;
  dmuon_list_init(&made, memory);
  walk_list(&w, &made);
  if (w.failed) {
    dmuon_list_free(&made);
    return w.failed;
  }
  *list = made;
  return DMUON_SUCCESS;
}
