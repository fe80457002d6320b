/* The model object: what was registered and by what handle it is held. What the parameters are is
 * decided at SetUp (setup.c); rules about names are recorded in model_rules.c. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/glob.h"
#include "model/arrays.h"
#include "model/rules.h"

DMuonErrorCode dmuon_model_check(DMuonModel model) {
  return dmuon_object_check(model, DMUON_CLASS_MODEL);
}

void dmuon_model_retain(DMuonModel model) {
  model->object.references++;
}

void dmuon_registry_free(dmuon_registry *registry) {
  for (int i = 1; registry->meshes && i < registry->tied; i++)
    dmuon_mesh_untie(registry->meshes[0].mesh, registry->meshes[i].mesh);
  for (int i = 0; registry->meshes && i < registry->mesh_count; i++) {
    dmuon_memory_free(registry->meshes[i].name);
    dmuon_memory_free(registry->meshes[i].ranks);
    dmuon_mesh_release(registry->meshes[i].mesh);
  }
  dmuon_memory_free(registry->meshes);
  dmuon_params_free(registry->params, registry->param_count);
  dmuon_memory_free(registry->local_to_global);
  dmuon_memory_free(registry->global_to_local);
  memset(registry, 0, sizeof *registry);
}

void dmuon_model_release(DMuonModel model) {
  if (!model || --model->object.references > 0) return;
  DMuonMesh mesh = model->mesh; /* its memory is the model's: released last */
  model->object.class_id = 0;
  dmuon_memory_free(model->owners);
  dmuon_registry_free(&model->registry);
  dmuon_rules_free(&model->rules);
  dmuon_params_free(model->params, model->count);
  dmuon_memory_free(model->arrays);
  dmuon_memory_free(model->object.name);
  dmuon_memory_free(model);
  dmuon_mesh_release(mesh);
}

DMuonErrorCode DMuonModelCreate(DMuonMesh mesh, DMuonModel *model) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  if (!model) DMUON_FAIL(DMUON_ERR_ARGUMENT, "model is NULL; a place for the handle is wanted");
  dmuon_memory *memory = &mesh->object.context->memory;
  DMuonModel made = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, 1, sizeof *made, &made));
  dmuon_object_init(&made->object, DMUON_CLASS_MODEL, mesh->object.context);
  DMuonErrorCode code = dmuon_rules_create(memory, &made->rules);
  if (code) {
    dmuon_memory_free(made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  dmuon_mesh_retain(mesh);
  made->mesh = mesh;
  *model = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelDestroy(DMuonModel *model) {
  if (!model || !*model) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_model_check(*model));
  dmuon_model_release(*model);
  *model = NULL;
  return DMUON_SUCCESS;
}

/* ---- registration ---- */

static DMuonErrorCode reserve(DMuonModel model, int more) {
  dmuon_memory *memory = &model->object.context->memory;
  if (more <= model->capacity - model->count) return DMUON_SUCCESS;
  if (more > INT32_MAX / 2 - model->count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%d parameters more than %d are too many", more, model->count);
  int capacity = model->capacity ? 2 * model->capacity : 16;
  if (capacity < model->count + more) capacity = model->count + more;
  /* The second failing must leave the first as it was: so make one new, then grow the other. */
  dmuon_param_arrays *arrays = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, capacity, sizeof *arrays, &arrays));
  DMuonErrorCode code =
      dmuon_memory_resize(memory, &model->params, model->capacity, capacity, sizeof *model->params);
  if (code) {
    dmuon_memory_free(arrays);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  if (model->count) memcpy(arrays, model->arrays, (size_t)model->count * sizeof *arrays);
  dmuon_memory_free(model->arrays);
  model->arrays = arrays;
  model->capacity = capacity;
  return DMUON_SUCCESS;
}

/* One parameter behind the count ones: not registered until the count says so. */
static DMuonErrorCode place(DMuonModel model, int at, const char *name, DMuonDType dtype, int ndim,
                            const int64_t *dims, int64_t numel, dmuon_param_arrays arrays) {
  dmuon_param *param = &model->params[at];
  memset(param, 0, sizeof *param);
  DMUON_TRY(dmuon_memory_strdup(&model->object.context->memory, name, &param->name));
  param->dtype = dtype;
  param->ndim = ndim;
  for (int i = 0; i < ndim; i++) param->dims[i] = dims[i];
  param->numel = numel;
  model->arrays[at] = arrays;
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_new(DMuonModel model, const char *call, const char *name,
                                DMuonDType dtype, int ndim, const int64_t *dims, int64_t *numel) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 0, call));
  if (!name || !*name)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of a parameter is %s", name ? "empty" : "NULL");
  return dmuon_shape_check(name, dtype, ndim, dims, numel);
}

static DMuonErrorCode add_one(DMuonModel model, const char *call, const char *name,
                              DMuonDType dtype, int ndim, const int64_t *dims,
                              dmuon_param_arrays arrays, int *id) {
  int64_t numel = 0;
  DMUON_TRY(check_new(model, call, name, dtype, ndim, dims, &numel));
  DMUON_TRY(reserve(model, 1));
  DMUON_TRY(place(model, model->count, name, dtype, ndim, dims, numel, arrays));
  if (id) *id = model->count;
  model->count++;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelAddParam(DMuonModel model, const char *name, DMuonDType dtype, int ndim,
                                  const int64_t *dims, int *id) {
  DMUON_TRY(add_one(model, __func__, name, dtype, ndim, dims, (dmuon_param_arrays){0}, id));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelAddParamArray(DMuonModel model, const char *name, DMuonDType dtype,
                                       int ndim, const int64_t *dims, void *weights,
                                       const void *gradients, int *id) {
  DMUON_TRY(add_one(
      model, __func__, name, dtype, ndim, dims,
      (dmuon_param_arrays){.has_arrays = 1, .weights = weights, .gradients = gradients}, id));
  return DMUON_SUCCESS;
}

/* The k-th name of a stack; the one "%d" is at `mark`. */
static DMuonErrorCode stack_name(dmuon_memory *memory, const char *name, const char *mark, int k,
                                 char **out) {
  size_t size = strlen(name) + 16;
  char *made = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)size, 1, &made));
  snprintf(made, size, "%.*s%d%s", (int)(mark - name), name, k, mark + 2);
  *out = made;
  return DMUON_SUCCESS;
}

static const void *offset(const void *data, int64_t bytes) {
  return data ? (const char *)data + bytes : NULL;
}

static DMuonErrorCode add_stack(DMuonModel model, const char *call, const char *name, int first,
                                int count, DMuonDType dtype, int ndim, const int64_t *dims,
                                dmuon_param_arrays arrays, int *id) {
  int64_t numel = 0, bytes, total;
  DMUON_TRY(check_new(model, call, name, dtype, ndim, dims, &numel));
  const char *mark = strstr(name, "%d");
  if (!mark || strstr(mark + 2, "%d"))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "name \"%s\" of a stack has %s; one \"%%d\" would be right",
               name, mark ? "two \"%d\"" : "no \"%d\"");
  if (first < 0 || count < 0 || count > INT32_MAX - first)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: first %d and count %d; numbers in [0, 2^31) would be right",
               name, first, count);
  bytes = numel * (int64_t)dmuon_dtype_bytes(dtype);
  if (__builtin_mul_overflow(bytes, (int64_t)count, &total))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: %d times %lld bytes do not fit into 2^63", name, count,
               (long long)bytes);
  DMUON_TRY(reserve(model, count));
  DMuonErrorCode code = DMUON_SUCCESS;
  int made = 0;
  for (; made < count && !code; made++) {
    char *one = NULL;
    code = stack_name(&model->object.context->memory, name, mark, first + made, &one);
    dmuon_param_arrays mine = {.has_arrays = arrays.has_arrays,
                               .weights = (void *)(uintptr_t)offset(arrays.weights, made * bytes),
                               .gradients = offset(arrays.gradients, made * bytes),
                               .stack = arrays.gradients,
                               .stack_index = made};
    if (!code) code = place(model, model->count + made, one, dtype, ndim, dims, numel, mine);
    dmuon_memory_free(one);
  }
  if (code) {
    for (int i = 0; i + 1 < made; i++) dmuon_param_free(&model->params[model->count + i]);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  if (id) *id = model->count;
  model->count += count;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelAddStack(DMuonModel model, const char *name, int first, int count,
                                  DMuonDType dtype, int ndim, const int64_t *dims, int *id) {
  DMUON_TRY(add_stack(model, __func__, name, first, count, dtype, ndim, dims,
                      (dmuon_param_arrays){0}, id));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelAddStackArray(DMuonModel model, const char *name, int first, int count,
                                       DMuonDType dtype, int ndim, const int64_t *dims,
                                       void *weights, const void *gradients, int *id) {
  DMUON_TRY(add_stack(
      model, __func__, name, first, count, dtype, ndim, dims,
      (dmuon_param_arrays){.has_arrays = 1, .weights = weights, .gradients = gradients}, id));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_model_check_arrays(DMuonModel model) {
  return dmuon_arrays_check(&model->object.context->memory, model->count, model->params,
                            model->arrays);
}

/* ---- questions ---- */

DMuonErrorCode DMuonModelGetCount(DMuonModel model, int *count) {
  DMUON_TRY(dmuon_model_check(model));
  if (!count) DMUON_FAIL(DMUON_ERR_ARGUMENT, "count is NULL");
  *count = model->count;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelFindParam(DMuonModel model, const char *name, int *id) {
  DMUON_TRY(dmuon_model_check(model));
  if (!name || !id) DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is NULL", name ? "id" : "name");
  for (int i = 0; i < model->count; i++) {
    if (strcmp(model->params[i].name, name) != 0) continue;
    *id = i;
    return DMUON_SUCCESS;
  }
  const char **names = NULL, *near = NULL;
  DMUON_TRY(
      dmuon_memory_alloc(&model->object.context->memory, model->count, sizeof *names, &names));
  for (int i = 0; i < model->count; i++) names[i] = model->params[i].name;
  near = dmuon_nearest_name(name, model->count, names);
  dmuon_memory_free(names);
  DMUON_FAIL(DMUON_ERR_NOT_FOUND, "no parameter \"%s\" among the %d of this rank%s%s%s", name,
             model->count, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* What only the registry knows about a parameter. */
static void fill_places(DMuonModel model, int index, int losses, DMuonParamInfo *info) {
  const dmuon_registry_mesh *divisor = &model->registry.meshes[losses];
  info->copies = model->registry.meshes[model->registry.params[index].mesh].size;
  info->divisor_ranks = divisor->replicate * divisor->shard;
  /* Flat parts belong to all ranks: no one owner. */
  if (!model->owners || info->route == DMUON_ROUTE_ADAMW_SHARDED) return;
  info->owner_replicate = model->owners[index][0];
  info->owner_shard = model->owners[index][1];
  info->owner_tp = model->owners[index][2];
}

void dmuon_model_info(DMuonModel model, int index, DMuonParamInfo *info) {
  dmuon_param_info(&model->registry.params[index], info);
  fill_places(model, index, model->registry.params[index].losses, info);
}

DMuonErrorCode DMuonModelGetParam(DMuonModel model, int id, DMuonParamInfo *info) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 1, __func__));
  if (id < 0 || id >= model->count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "id %d out of range [0, %d)", id, model->count);
  if (!info) DMUON_FAIL(DMUON_ERR_ARGUMENT, "info is NULL");
  if (info->struct_size < sizeof info->struct_size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "info->struct_size is %zu; sizeof(DMuonParamInfo) would be right",
               info->struct_size);
  DMuonParamInfo full;
  size_t size = info->struct_size < sizeof full ? info->struct_size : sizeof full;
  dmuon_param_info(&model->params[id], &full);
  fill_places(model, model->registry.local_to_global[id], model->params[id].losses, &full);
  full.struct_size = info->struct_size;
  memcpy(info, &full, size);
  return DMUON_SUCCESS;
}
