/* What a model says of itself: a table for people, JSON for programs. Decides nothing. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/text.h"
#include "model/model.h"

enum { WORDS = 160 };

static const DMuonRoute routes[] = {DMUON_ROUTE_MUON, DMUON_ROUTE_ADAMW, DMUON_ROUTE_ADAMW_SHARDED,
                                    DMUON_ROUTE_FROZEN};
enum { ROUTES = sizeof routes / sizeof *routes };

static int divisor_of(const dmuon_registry *registry, const dmuon_param *param) {
  const dmuon_registry_mesh *losses = &registry->meshes[param->losses];
  return losses->replicate * losses->shard;
}

static void write_head(const dmuon_registry *registry, dmuon_text *text) {
  int counts[ROUTES] = {0};
  int64_t numel[ROUTES] = {0}, total = 0;
  for (int i = 0; i < registry->param_count; i++) {
    int route = registry->params[i].route;
    counts[route]++;
    numel[route] += registry->params[i].numel;
    total += registry->params[i].numel;
  }
  dmuon_text_add(text, "model: %d parameters, %lld elements\n", registry->param_count,
                 (long long)total);
  for (int k = 0; k < ROUTES; k++)
    if (counts[k])
      dmuon_text_add(text, "  %-13s %6d parameters, %lld elements\n", dmuon_route_name(routes[k]),
                     counts[k], (long long)numel[k]);
  for (int i = 0; i < registry->mesh_count; i++) {
    const dmuon_registry_mesh *mesh = &registry->meshes[i];
    dmuon_text_add(text, "  mesh %d \"%s\": %d x %d x %d", i, mesh->name, mesh->replicate,
                   mesh->shard, mesh->tp);
    for (int k = 0; i > 0 && k < mesh->size && k < 16; k++)
      dmuon_text_add(text, "%s%d", k ? ", " : ", at positions ", mesh->ranks[k]);
    dmuon_text_add(text, i > 0 && mesh->size > 16 ? ", ...\n" : "\n");
  }
}

/* Flat parts belong to all ranks. */
static int has_owner(DMuonModel model, const dmuon_param *param) {
  return model->owners && param->route != DMUON_ROUTE_ADAMW_SHARDED;
}

static void write_param(DMuonModel model, int index, int width, dmuon_text *text) {
  const dmuon_registry *registry = &model->registry;
  const dmuon_param *param = &registry->params[index];
  char view[WORDS];
  dmuon_text_add(text, "%-*s %s %s %s (%s), group %s, output %s, mesh %d, divisor %d", width,
                 param->name, dmuon_dtype_name(param->dtype),
                 dmuon_view_text(view, sizeof view, param), dmuon_route_name(param->route),
                 param->route_reason, param->group, dmuon_side_name(param->output), param->mesh,
                 divisor_of(registry, param));
  if (param->is_lent) dmuon_text_add(text, ", lent, %s", param->reshard == DMUON_Z2 ? "z2" : "z3");
  if (has_owner(model, param))
    dmuon_text_add(text, ", owner (%d,%d,%d)", model->owners[index][0], model->owners[index][1],
                   model->owners[index][2]);
  dmuon_text_add(text, "\n");
}

static DMuonErrorCode write_view(DMuonModel model, const char *path) {
  dmuon_text text;
  dmuon_text_init(&text, &model->object.context->memory);
  int width = 4;
  for (int i = 0; i < model->registry.param_count; i++) {
    size_t length = strlen(model->registry.params[i].name);
    if (length > (size_t)width && length < 60) width = (int)length;
  }
  write_head(&model->registry, &text);
  for (int i = 0; i < model->registry.param_count; i++) write_param(model, i, width, &text);
  const char *data = NULL;
  DMuonErrorCode code = dmuon_text_finish(&text, &data);
  if (!code) code = dmuon_text_write(&text, path);
  dmuon_text_free(&text);
  return code;
}

DMuonErrorCode DMuonModelView(DMuonModel model, const char *path) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 1, __func__));
  DMuonErrorCode code = DMUON_SUCCESS;
  if (model->mesh->rank == 0) code = write_view(model, path);
  if (!dmuon_mesh_is_plan(model->mesh))
    code = dmuon_agree_error(model->mesh->bootstrap, "view of the model", code, DMUON_ERR_FILE);
  return code ? DMuonErrorTrace(code, __func__, __FILE__, __LINE__) : DMUON_SUCCESS;
}

/* ---- JSON: a failed allocation inside jansson shows as NULL at the root ---- */

static json_t *ints(int count, const int64_t *values) {
  json_t *array = json_array();
  for (int i = 0; array && i < count; i++)
    if (json_array_append_new(array, json_integer(values[i]))) {
      json_decref(array);
      return NULL;
    }
  return array;
}

static json_t *param_json(DMuonModel model, int index) {
  const dmuon_registry *registry = &model->registry;
  const dmuon_param *param = &registry->params[index];
  json_t *json = json_pack(
      "{s:s, s:s, s:o, s:I, s:o, s:s, s:s, s:s, s:s, s:o, s:i, s:i, s:i, s:b}", "name", param->name,
      "dtype", dmuon_dtype_name(param->dtype), "dims", ints(param->ndim, param->dims), "numel",
      (json_int_t)param->numel, "view",
      ints(3, (const int64_t[]){param->batch, param->rows, param->cols}), "route",
      dmuon_route_name(param->route), "route_reason", param->route_reason, "group", param->group,
      "output", dmuon_side_name(param->output), "blocks", ints(param->nblocks, param->blocks),
      "repeat", param->repeat, "mesh", param->mesh, "divisor", divisor_of(registry, param), "held",
      registry->global_to_local[index] >= 0);
  if (json && has_owner(model, param)) {
    const int *owner = model->owners[index];
    if (json_object_set_new(json, "owner",
                            ints(3, (const int64_t[]){owner[0], owner[1], owner[2]}))) {
      json_decref(json);
      return NULL;
    }
  }
  return json;
}

static json_t *mesh_json(const dmuon_registry_mesh *mesh) {
  return json_pack("{s:s, s:o, s:b}", "name", mesh->name, "sizes",
                   ints(3, (const int64_t[]){mesh->replicate, mesh->shard, mesh->tp}), "member",
                   mesh->mesh != NULL);
}

static json_t *model_json(DMuonModel model) {
  const dmuon_registry *registry = &model->registry;
  char hash[20];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)registry->hash);
  json_t *meshes = json_array(), *params = json_array();
  int bad = !meshes || !params;
  for (int i = 0; i < registry->mesh_count && !bad; i++)
    bad = json_array_append_new(meshes, mesh_json(&registry->meshes[i]));
  for (int i = 0; i < registry->param_count && !bad; i++)
    bad = json_array_append_new(params, param_json(model, i));
  if (bad) {
    json_decref(meshes);
    json_decref(params);
    return NULL;
  }
  return json_pack("{s:s, s:i, s:o, s:o}", "hash", hash, "local_count", registry->local_count,
                   "meshes", meshes, "parameters", params);
}

DMuonErrorCode DMuonModelSummary(DMuonModel model, char **json) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 1, __func__));
  if (!json) DMUON_FAIL(DMUON_ERR_ARGUMENT, "json is NULL; a place for the text is wanted");
  DMUON_TRY(dmuon_json_finish(model_json(model), json));
  return DMUON_SUCCESS;
}
