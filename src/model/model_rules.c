/* The setters that speak of parameters by pattern: checks what can be checked before SetUp and
 * records a rule. What a rule does is decided in rules.c. */
#include <string.h>

#include "base/dtype.h"
#include "base/glob.h"
#include "model/model.h"
#include "model/rules.h"

/* The handle takes rules, and the pattern is one. */
static DMuonErrorCode check_rule(DMuonModel model, const char *call, const char *pattern) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 0, call));
  return dmuon_glob_check(pattern);
}

/* Records rule, which owns what it points to so far; the pattern is copied. Takes it over or frees.
 */
static DMuonErrorCode record(DMuonModel model, const char *pattern, dmuon_rule *rule) {
  DMuonErrorCode code =
      dmuon_memory_strdup(&model->object.context->memory, pattern, &rule->pattern);
  if (!code) code = dmuon_rules_add(model->rules, rule);
  if (code) dmuon_rule_free(rule);
  return code;
}

DMuonErrorCode DMuonModelSetRoute(DMuonModel model, const char *pattern, DMuonRoute route) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  if ((int)route < DMUON_ROUTE_MUON || route > DMUON_ROUTE_FROZEN)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "route %d (pattern \"%s\") is no DMuonRoute", (int)route,
               pattern);
  DMUON_TRY(record(model, pattern, &(dmuon_rule){.kind = DMUON_RULE_ROUTE, .route = route}));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetRouteFunction(DMuonModel model, DMuonRouteFunction route, void *ctx) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 0, __func__));
  model->rules->route_function = route;
  model->rules->route_context = ctx;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetGroup(DMuonModel model, const char *pattern, const char *key) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  if (!key || !*key)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "the group key for pattern \"%s\" is %s", pattern,
               key ? "empty" : "NULL");
  dmuon_rule rule = {.kind = DMUON_RULE_GROUP};
  DMUON_TRY(dmuon_memory_strdup(&model->object.context->memory, key, &rule.group));
  DMUON_TRY(record(model, pattern, &rule));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetReshard(DMuonModel model, const char *group_pattern,
                                    DMuonReshard mode) {
  DMUON_TRY(check_rule(model, __func__, group_pattern));
  if (mode != DMUON_Z3 && mode != DMUON_Z2)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "reshard mode %d (groups \"%s\") is no DMuonReshard", (int)mode,
               group_pattern);
  DMUON_TRY(
      record(model, group_pattern, &(dmuon_rule){.kind = DMUON_RULE_RESHARD, .reshard = mode}));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetGroupFunction(DMuonModel model, DMuonGroupFunction group, void *ctx) {
  DMUON_TRY(dmuon_object_check_state(model, DMUON_CLASS_MODEL, 0, __func__));
  model->rules->group_function = group;
  model->rules->group_context = ctx;
  return DMUON_SUCCESS;
}

/* All ranks of inner are ranks of the model's mesh. */
static DMuonErrorCode check_inside(DMuonModel model, const char *what, DMuonMesh inner) {
  DMuonMesh outer = model->mesh;
  DMUON_TRY(dmuon_mesh_check(inner));
  if (inner == outer) return DMUON_SUCCESS;
  const char *name = inner->object.name ? inner->object.name : "mesh";
  if (dmuon_mesh_is_plan(outer) || dmuon_mesh_is_plan(inner))
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "%s: mesh \"%s\" and the model's are not the same, and one has no ranks (made by "
               "DMuonMeshCreatePlan)",
               what, name);
  int *ranks = NULL;
  DMUON_TRY(dmuon_memory_alloc(&model->object.context->memory, inner->size, sizeof *ranks, &ranks));
  DMuonErrorCode code = dmuon_bootstrap_translate(inner->bootstrap, outer->bootstrap, ranks);
  for (int i = 0; i < inner->size && !code; i++)
    if (ranks[i] < 0)
      code = DMUON_ERROR(DMUON_ERR_ARGUMENT,
                         "%s: rank %d of mesh \"%s\" is not in the model's mesh \"%s\"", what, i,
                         name, outer->object.name ? outer->object.name : "mesh");
  dmuon_memory_free(ranks);
  return code;
}

DMuonErrorCode DMuonModelSetMesh(DMuonModel model, const char *pattern, DMuonMesh copies,
                                 DMuonMesh losses) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  if (!losses) losses = copies;
  DMUON_TRY(check_inside(model, "copies", copies));
  DMUON_TRY(check_inside(model, "losses", losses));
  dmuon_rule rule = {.kind = DMUON_RULE_MESH, .copies = copies, .losses = losses};
  dmuon_mesh_retain(copies);
  dmuon_mesh_retain(losses);
  DMUON_TRY(record(model, pattern, &rule));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetMatrix(DMuonModel model, const char *pattern, int nbatch, int nrow) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  if (nbatch < 0 || nrow < 1 || nbatch > DMUON_MAX_DIMS || nrow > DMUON_MAX_DIMS)
    DMUON_FAIL(
        DMUON_ERR_ARGUMENT,
        "pattern \"%s\": %d batch and %d row dims; at least 0 and 1, at most %d, would be right",
        pattern, nbatch, nrow, DMUON_MAX_DIMS);
  DMUON_TRY(record(model, pattern,
                   &(dmuon_rule){.kind = DMUON_RULE_MATRIX, .nbatch = nbatch, .nrow = nrow}));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetOutput(DMuonModel model, const char *pattern, DMuonSide side) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  if (side != DMUON_ROWS && side != DMUON_COLS)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "pattern \"%s\": side %d; DMUON_ROWS (0) or DMUON_COLS (1) would be right", pattern,
               (int)side);
  DMUON_TRY(record(model, pattern, &(dmuon_rule){.kind = DMUON_RULE_OUTPUT, .output = side}));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetBlocks(DMuonModel model, const char *pattern, int n,
                                   const int64_t *sizes, int repeat) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  if (n < 0 || repeat < 1)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "pattern \"%s\": %d blocks, repeat %d; at least 0 and 1 would be right", pattern, n,
               repeat);
  if (n > 0 && !sizes) DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern \"%s\": sizes is NULL", pattern);
  for (int i = 0; i < n; i++)
    if (sizes[i] < 1)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern \"%s\": sizes[%d] is %lld; at least 1 would be right",
                 pattern, i, (long long)sizes[i]);
  dmuon_rule rule = {.kind = DMUON_RULE_BLOCKS, .nblocks = n, .repeat = repeat};
  if (n > 0) {
    DMUON_TRY(
        dmuon_memory_alloc(&model->object.context->memory, n, sizeof *rule.blocks, &rule.blocks));
    memcpy(rule.blocks, sizes, (size_t)n * sizeof *rule.blocks);
  }
  DMUON_TRY(record(model, pattern, &rule));
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_dtype(const char *pattern, const char *what, DMuonDType dtype,
                                  int at_least_fp32) {
  if ((int)dtype == DMUON_DECIDE) return DMUON_SUCCESS;
  if (!dmuon_dtype_is_valid(dtype))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern \"%s\": %s dtype %d is no DMuonDType", pattern, what,
               (int)dtype);
  if (at_least_fp32 && dmuon_dtype_wide(dtype) != dtype)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern \"%s\": %s dtype %s; fp32 or fp64 would be right",
               pattern, what, dmuon_dtype_name(dtype));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonModelSetDTypes(DMuonModel model, const char *pattern, DMuonDType grad,
                                   DMuonDType master, DMuonDType state) {
  DMUON_TRY(check_rule(model, __func__, pattern));
  DMUON_TRY(check_dtype(pattern, "grad", grad, 0));
  DMUON_TRY(check_dtype(pattern, "master", master, 1));
  DMUON_TRY(check_dtype(pattern, "state", state, 1));
  DMUON_TRY(record(model, pattern,
                   &(dmuon_rule){.kind = DMUON_RULE_DTYPES,
                                 .grad = (int)grad,
                                 .master = (int)master,
                                 .state = (int)state}));
  return DMUON_SUCCESS;
}
