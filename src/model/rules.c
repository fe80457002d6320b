/* Decides what each parameter is: the last matching pattern of each kind, then the caller's
 * function where no pattern matched, then the library's default. Communicates nothing, knows no
 * other rank. */
#include "model/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/glob.h"
#include "model/names.h"

const char *dmuon_rule_kind_name(int kind) {
  static const char *const names[DMUON_RULE_KINDS] = {
      [DMUON_RULE_ROUTE] = "SetRoute",   [DMUON_RULE_GROUP] = "SetGroup",
      [DMUON_RULE_MESH] = "SetMesh",     [DMUON_RULE_MATRIX] = "SetMatrix",
      [DMUON_RULE_OUTPUT] = "SetOutput", [DMUON_RULE_BLOCKS] = "SetBlocks",
      [DMUON_RULE_DTYPES] = "SetDTypes", [DMUON_RULE_RESHARD] = "SetReshard"};
  return kind >= 0 && kind < DMUON_RULE_KINDS ? names[kind] : "unknown";
}

DMuonErrorCode dmuon_rules_create(dmuon_memory *memory, dmuon_model_rules **rules) {
  dmuon_model_rules *made = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, 1, sizeof *made, &made));
  made->memory = memory;
  *rules = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_rules_add(dmuon_model_rules *rules, const dmuon_rule *rule) {
  if (rules->count == rules->capacity) {
    int capacity = rules->capacity ? 2 * rules->capacity : 8;
    DMUON_TRY(dmuon_memory_resize(rules->memory, &rules->rules, rules->capacity, capacity,
                                  sizeof *rules->rules));
    rules->capacity = capacity;
  }
  rules->rules[rules->count++] = *rule;
  return DMUON_SUCCESS;
}

void dmuon_rule_free(dmuon_rule *rule) {
  dmuon_memory_free(rule->pattern);
  dmuon_memory_free(rule->group);
  dmuon_memory_free(rule->blocks);
  dmuon_mesh_release(rule->copies);
  dmuon_mesh_release(rule->losses);
  memset(rule, 0, sizeof *rule);
}

void dmuon_rules_free(dmuon_model_rules **rules) {
  if (!*rules) return;
  for (int i = 0; i < (*rules)->count; i++) dmuon_rule_free(&(*rules)->rules[i]);
  dmuon_memory_free((*rules)->rules);
  dmuon_memory_release(rules);
}

void dmuon_param_info(const dmuon_param *param, DMuonParamInfo *info) {
  *info = (DMuonParamInfo){.struct_size = sizeof *info,
                           .name = param->name,
                           .group = param->group,
                           .route_reason = param->route_reason,
                           .dtype = param->dtype,
                           .grad_dtype = param->grad_dtype,
                           .master_dtype = param->master_dtype,
                           .route = param->route,
                           .output = param->output,
                           .ndim = param->ndim,
                           .dims = param->dims,
                           .batch = param->batch,
                           .rows = param->rows,
                           .cols = param->cols,
                           .numel = param->numel,
                           .nblocks = param->nblocks,
                           .owner_replicate = -1,
                           .owner_shard = -1,
                           .owner_tp = -1};
}

static DMuonErrorCode replace_string(dmuon_memory *memory, char **string, const char *text) {
  char *copy = NULL;
  DMUON_TRY(dmuon_memory_strdup(memory, text, &copy));
  dmuon_memory_free(*string);
  *string = copy;
  return DMUON_SUCCESS;
}

static DMuonErrorCode resolve_dtypes(const dmuon_rule *rule, dmuon_param *param) {
  param->grad_dtype = param->dtype;
  param->master_dtype = param->state_dtype = dmuon_dtype_wide(param->dtype);
  if (!rule) return DMUON_SUCCESS;
  if (rule->grad != DMUON_DECIDE) param->grad_dtype = (DMuonDType)rule->grad;
  if (rule->master != DMUON_DECIDE) param->master_dtype = (DMuonDType)rule->master;
  if (rule->state != DMUON_DECIDE) param->state_dtype = (DMuonDType)rule->state;
  if (dmuon_dtype_bytes(param->master_dtype) < dmuon_dtype_bytes(param->dtype))
    DMUON_FAIL(
        DMUON_ERR_SETUP,
        "%s: master dtype %s (pattern \"%s\" of SetDTypes) is narrower than the parameter's %s",
        param->name, dmuon_dtype_name(param->master_dtype), rule->pattern,
        dmuon_dtype_name(param->dtype));
  return DMUON_SUCCESS;
}

static DMuonErrorCode resolve_matrix(dmuon_memory *memory, const dmuon_rule *matrix,
                                     const dmuon_rule *output, const dmuon_rule *blocks,
                                     dmuon_param *param) {
  DMUON_TRY(dmuon_param_view(param, matrix ? matrix->nbatch : -1, matrix ? matrix->nrow : -1));
  param->output = output ? output->output : DMUON_ROWS;
  param->repeat = 1;
  if (!blocks || !blocks->nblocks) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_memory_alloc(memory, blocks->nblocks, sizeof *param->blocks, &param->blocks));
  memcpy(param->blocks, blocks->blocks, (size_t)blocks->nblocks * sizeof *param->blocks);
  param->nblocks = blocks->nblocks;
  param->repeat = blocks->repeat;
  return dmuon_param_check_blocks(param);
}

/* Route and group: the library's choice first, so that the caller's functions can see it. */
static DMuonErrorCode resolve_route(const dmuon_model_rules *rules, const dmuon_rule *rule,
                                    dmuon_param *param) {
  char reason[200];
  param->route = dmuon_route_default(param, reason, sizeof reason);
  DMUON_TRY(replace_string(rules->memory, &param->route_reason, reason));
  DMuonRoute said = param->route;
  const char *by = NULL;
  if (rule) {
    said = rule->route;
    by = "pattern";
    if (strlen(rule->pattern) < sizeof reason - 12) {
      snprintf(reason, sizeof reason, "pattern \"%s\"", rule->pattern);
    } else {
      snprintf(reason, sizeof reason, "pattern \"%.160s...\"", rule->pattern);
    }
  } else if (rules->route_function) {
    DMuonParamInfo info;
    dmuon_param_info(param, &info);
    said = rules->route_function(rules->route_context, &info);
    by = "route function";
    if (said == param->route) return DMUON_SUCCESS; /* agrees: the library's reason says more */
    snprintf(reason, sizeof reason, "route function");
  } else {
    return DMUON_SUCCESS;
  }
  switch (said) {
    case DMUON_ROUTE_MUON:
      if (dmuon_param_is_vector(param)) {
        char shape[200];
        DMUON_FAIL(
            DMUON_ERR_SETUP,
            "%s: the %s routes it to muon, but its shape %s has no rows and columns; adamw or "
            "frozen would be right, or a matrix view (DMuonModelSetMatrix)",
            param->name, rule ? reason : by,
            dmuon_shape_text(shape, sizeof shape, param->ndim, param->dims));
      }
      break;
    case DMUON_ROUTE_ADAMW:
    case DMUON_ROUTE_ADAMW_SHARDED:
    case DMUON_ROUTE_FROZEN:
      break;
    default:
      DMUON_FAIL(DMUON_ERR_SETUP, "%s: the %s gave route %d", param->name, by, (int)said);
  }
  param->route = said;
  return replace_string(rules->memory, &param->route_reason, reason);
}

static DMuonErrorCode resolve_group(const dmuon_model_rules *rules, const dmuon_rule *rule,
                                    dmuon_param *param) {
  DMUON_TRY(dmuon_name_group(rules->memory, param->name, &param->group));
  if (rule) return replace_string(rules->memory, &param->group, rule->group);
  if (!rules->group_function) return DMUON_SUCCESS;
  DMuonParamInfo info;
  dmuon_param_info(param, &info);
  const char *key = rules->group_function(rules->group_context, &info);
  if (!key) return DMUON_SUCCESS;
  if (!*key) DMUON_FAIL(DMUON_ERR_SETUP, "%s: the group function gave an empty key", param->name);
  return replace_string(rules->memory, &param->group, key);
}

/* By group: when its buffer is given back. */
static void resolve_reshard(const dmuon_model_rules *rules, dmuon_param *param,
                            unsigned char *matched) {
  param->reshard = DMUON_Z3;
  for (int k = 0; k < rules->count; k++) {
    const dmuon_rule *rule = &rules->rules[k];
    if (rule->kind != DMUON_RULE_RESHARD || !dmuon_glob_match(rule->pattern, param->group))
      continue;
    matched[k] = 1;
    param->reshard = rule->reshard;
  }
}

DMuonErrorCode dmuon_rules_resolve(const dmuon_model_rules *rules, int count, dmuon_param *params,
                                   int *mesh_rule, unsigned char *matched) {
  for (int k = 0; k < rules->count; k++) matched[k] = 0;
  for (int i = 0; i < count; i++) {
    dmuon_param *param = &params[i];
    const dmuon_rule *last[DMUON_RULE_KINDS] = {0};
    for (int k = 0; k < rules->count; k++) {
      if (rules->rules[k].kind == DMUON_RULE_RESHARD ||
          !dmuon_glob_match(rules->rules[k].pattern, param->name))
        continue;
      matched[k] = 1;
      last[rules->rules[k].kind] = &rules->rules[k];
    }
    const dmuon_rule *mesh = last[DMUON_RULE_MESH];
    mesh_rule[i] = mesh ? (int)(mesh - rules->rules) : -1;
    DMUON_TRY(resolve_dtypes(last[DMUON_RULE_DTYPES], param));
    DMUON_TRY(resolve_matrix(rules->memory, last[DMUON_RULE_MATRIX], last[DMUON_RULE_OUTPUT],
                             last[DMUON_RULE_BLOCKS], param));
    DMUON_TRY(resolve_route(rules, last[DMUON_RULE_ROUTE], param));
    DMUON_TRY(resolve_group(rules, last[DMUON_RULE_GROUP], param));
    resolve_reshard(rules, param, matched);
  }
  return DMUON_SUCCESS;
}
