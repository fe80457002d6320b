/* The brackets of a group as the program calls them: handles, checks, and what becomes of errors.
 * What a bracket means is the engine's. */
#include <stdio.h>

#include "engine/lend.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"

static dmuon_group_plan *plan_of(DMuonGroup group) {
  return &group->opt->lend.groups.groups[group->index];
}

static DMuonErrorCode check(DMuonGroup group) {
  if (!group || group->magic != DMUON_GROUP_MAGIC)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "group is NULL, or no group of an optimizer");
  return DMUON_SUCCESS;
}

/* A refused bracket has done nothing; one that failed halfway leaves the others without a partner.
 */
static DMuonErrorCode settle(DMuonGroup group, DMuonErrorCode code) {
  char text[400];
  if (code < DMUON_ERR_DISAGREE) return code;
  snprintf(text, sizeof text, "%s", dmuon_error_text());
  code = DMUON_ERROR(DMuonErrorIsFatal(code) ? code : DMUON_ERR_INTERNAL, "group %s: %s",
                     plan_of(group)->key, text);
  return dmuon_optimizer_settle(group->opt, code);
}

static DMuonErrorCode bracket(DMuonGroup group, const char *call, dmuon_life_event event) {
  DMUON_TRY(check(group));
  DMuonOptimizer opt = group->opt;
  DMUON_TRY(dmuon_optimizer_check_live(opt, call));
  const int begins = event == DMUON_EVENT_FORWARD_BEGIN || event == DMUON_EVENT_BACKWARD_BEGIN;
  if (begins && plan_of(group)->has_arrays && !dmuon_verdict_is_used(&opt->verdict))
    DMUON_TRY(dmuon_optimizer_drain(opt)); /* else Step has given his arrays back in stream order */
  DMuonErrorCode code = dmuon_lend_bracket(&opt->lend, group->index, event);
  if (!code && !begins) code = opt->runtime.device->ops->progress(opt->runtime.device);
  code = settle(group, code);
  opt->pass_samples = opt->samples;
  return code ? DMuonErrorTrace(code, call, __FILE__, __LINE__) : DMUON_SUCCESS;
}

DMuonErrorCode DMuonGroupForwardBegin(DMuonGroup group) {
  return bracket(group, __func__, DMUON_EVENT_FORWARD_BEGIN);
}
DMuonErrorCode DMuonGroupForwardEnd(DMuonGroup group) {
  return bracket(group, __func__, DMUON_EVENT_FORWARD_END);
}
DMuonErrorCode DMuonGroupBackwardBegin(DMuonGroup group) {
  return bracket(group, __func__, DMUON_EVENT_BACKWARD_BEGIN);
}
DMuonErrorCode DMuonGroupBackwardEnd(DMuonGroup group) {
  return bracket(group, __func__, DMUON_EVENT_BACKWARD_END);
}

/* ---- inside ---------------------------------------------------------------------------------- */

static DMuonErrorCode find(DMuonGroup group, int id, int *index) {
  DMUON_TRY(check(group));
  const dmuon_group_plan *plan = plan_of(group);
  for (int i = 0; i < plan->param_count; i++)
    if (plan->ids[i] == id) {
      *index = i;
      return DMUON_SUCCESS;
    }
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter id %d is not in group %s, which has %d", id, plan->key,
             plan->param_count);
}

static int is_array(DMuonGroup group, int index) {
  return plan_of(group)->params[index].part < 0;
}

static DMuonErrorCode no_gradient(DMuonGroup group, int index) {
  const dmuon_registry *registry = &group->opt->model->registry;
  const int id = plan_of(group)->ids[index];
  DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "%s %s", registry->params[registry->local_to_global[id]].name,
             is_array(group, index) ? "has gradients in an array of yours; Step reads them there"
                                    : "is frozen and has no gradient");
}

DMuonErrorCode DMuonGroupGetData(DMuonGroup group, int id, const void **data) {
  int index;
  const void *found;
  DMUON_TRY(find(group, id, &index));
  if (is_array(group, index)) {
    found = group->opt->arrays[id].weights;
  } else {
    DMUON_TRY(dmuon_lend_get(&group->opt->lend, group->index, index, &found, NULL));
  }
  if (data) *data = found;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonGroupGetGrad(DMuonGroup group, int id, void **grad) {
  int index;
  void *found = NULL;
  DMUON_TRY(find(group, id, &index));
  if (!grad) DMUON_FAIL(DMUON_ERR_ARGUMENT, "grad is NULL");
  if (!is_array(group, index))
    DMUON_TRY(dmuon_lend_get(&group->opt->lend, group->index, index, NULL, &found));
  if (!found) return no_gradient(group, index);
  *grad = found;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonGroupSetGrad(DMuonGroup group, int id, const void *grad) {
  int index;
  DMUON_TRY(find(group, id, &index));
  if (is_array(group, index) || plan_of(group)->params[index].is_frozen)
    return no_gradient(group, index);
  return dmuon_lend_set_grad(&group->opt->lend, group->index, index, grad);
}

DMuonErrorCode DMuonGroupGetArrays(DMuonGroup group, const void **data, void **grad) {
  DMUON_TRY(check(group));
  const dmuon_group_plan *plan = plan_of(group);
  DMUON_TRY(dmuon_lend_check_open(&group->opt->lend, group->index, grad != NULL));
  for (int i = 0; i < plan->param_count; i++) {
    const void *values = group->opt->arrays[plan->ids[i]].weights;
    void *gradient = NULL;
    if (!is_array(group, i))
      DMUON_TRY(
          dmuon_lend_get(&group->opt->lend, group->index, i, &values, grad ? &gradient : NULL));
    if (data) data[i] = values;
    if (grad) grad[i] = gradient;
  }
  return DMUON_SUCCESS;
}

int DMuonGroupIsOpen(DMuonGroup group) {
  if (!group || group->magic != DMUON_GROUP_MAGIC) return 0;
  return dmuon_life_is_open(&group->opt->lend.states[group->index].life);
}

DMuonErrorCode DMuonGroupGetKey(DMuonGroup group, const char **key) {
  DMUON_TRY(check(group));
  if (key) *key = plan_of(group)->key;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonGroupGetParams(DMuonGroup group, int *count, const int **ids) {
  DMUON_TRY(check(group));
  if (count) *count = plan_of(group)->param_count;
  if (ids) *ids = plan_of(group)->ids;
  return DMUON_SUCCESS;
}

/* ---- handles --------------------------------------------------------------------------------- */

DMuonErrorCode DMuonOptimizerGetGroupCount(DMuonOptimizer opt, int *count) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  if (count) *count = opt->lend.groups.count;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerGetGroup(DMuonOptimizer opt, int index, DMuonGroup *group) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  if (index < 0 || index >= opt->lend.groups.count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "group %d out of range [0,%d)", index, opt->lend.groups.count);
  if (group) *group = &opt->groups[index];
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerFindGroup(DMuonOptimizer opt, const char *key, DMuonGroup *group) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  if (!key) DMUON_FAIL(DMUON_ERR_ARGUMENT, "key is NULL");
  const int found = dmuon_groups_find(&opt->lend.groups, key);
  if (found < 0)
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "no group \"%s\" on this rank, which has %d", key,
               opt->lend.groups.count);
  if (group) *group = &opt->groups[found];
  return DMUON_SUCCESS;
}
