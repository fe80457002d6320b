/* One step of one owned parameter, or of several alike: momentum, Newton-Schulz a piece, scale,
 * decay, update. */
#include "update/update.h"

#include <string.h>

static int64_t rounded_up(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

DMuonErrorCode dmuon_update_plan_make(dmuon_memory *memory, const dmuon_param *param,
                                      const dmuon_ns_recipe *recipe, dmuon_update_plan *plan) {
  dmuon_update_plan made = {.piece_count = dmuon_piece_count(param), .together = 1};
  int64_t largest = 0;
  DMuonErrorCode code =
      dmuon_memory_alloc(memory, made.piece_count, sizeof *made.plans, &made.plans);
  for (int64_t i = 0; !code && i < made.piece_count; i++) {
    dmuon_piece piece;
    dmuon_piece_get(param, i, &piece);
    code = dmuon_ns_plan_make(recipe, piece.view.rows, piece.view.cols, param->state_dtype,
                              &made.plans[i]);
    if (code) break;
    made.operations += made.plans[i].operations + 2 * (piece.view.strips - 1);
    dmuon_ns_plan_batch(&made.plans[i], dmuon_piece_alike_of(param, i).count);
    if (made.plans[i].workspace_bytes > largest) largest = made.plans[i].workspace_bytes;
  }
  if (code) {
    dmuon_update_plan_free(&made);
    return code;
  }
  made.update_bytes = rounded_up(param->numel * (int64_t)dmuon_dtype_bytes(param->state_dtype));
  made.workspace_bytes = made.update_bytes + rounded_up(largest);
  made.operations += 4;
  *plan = made;
  return DMUON_SUCCESS;
}

int dmuon_update_is_alike(const dmuon_param *a, const dmuon_param *b) {
  return a->route == DMUON_ROUTE_MUON && b->route == DMUON_ROUTE_MUON &&
         dmuon_piece_count(a) == 1 && dmuon_piece_count(b) == 1 && a->nblocks == 0 &&
         b->nblocks == 0 && a->rows == b->rows && a->cols == b->cols &&
         a->state_dtype == b->state_dtype;
}

void dmuon_update_plan_together(dmuon_update_plan *plan, int64_t count) {
  if (plan->piece_count != 1 || count < 2 || plan->plans[0].small == 0) return;
  dmuon_ns_plan_batch(&plan->plans[0], count);
  plan->together = plan->plans[0].batch;
  plan->workspace_bytes =
      plan->together * plan->update_bytes + rounded_up(plan->plans[0].workspace_bytes);
}

void dmuon_update_plan_free(dmuon_update_plan *plan) {
  dmuon_memory_free(plan->plans);
  memset(plan, 0, sizeof *plan);
}

/* Pieces of one shape run together, as many as their plan says, at the place of the first of
 * them. */
static DMuonErrorCode orthogonalise_from(dmuon_queue *queue, dmuon_device *device,
                                         const dmuon_update_plan *plan, const dmuon_update *update,
                                         int64_t index) {
  const dmuon_param *param = update->param;
  const dmuon_ns_plan *ns = &plan->plans[index];
  const dmuon_piece_alike alike = dmuon_piece_alike_of(param, index);
  dmuon_ns_matrix matrices[DMUON_NS_BATCH_MAX];
  int64_t count = alike.count - alike.rank < ns->batch ? alike.count - alike.rank : ns->batch;
  if (alike.rank % ns->batch != 0) return DMUON_SUCCESS; /* was among those of an earlier one */
  for (int64_t k = 0; k < count; k++) {
    dmuon_piece piece;
    dmuon_piece_get(param, dmuon_piece_alike_at(param, index, alike.rank + k), &piece);
    void *matrix = dmuon_dtype_at(update->workspace, piece.offset, param->state_dtype);
    matrices[k] = (dmuon_ns_matrix){matrix, piece.view, matrix, piece.view,
                                    dmuon_rule_scale(update->rule, piece.out, piece.in)};
  }
  return dmuon_ns_issue_batch(queue, device, ns, count, matrices, param->state_dtype,
                              param->state_dtype, (char *)update->workspace + plan->update_bytes);
}

/* The momentum, and the direction it gives. */
static DMuonErrorCode begin(dmuon_queue *queue, dmuon_device *device, const dmuon_update *update,
                            dmuon_param_state *state, void *direction) {
  const dmuon_param *param = update->param;
  const dmuon_rule *rule = update->rule;
  const double *hyper = update->hyper->value;
  return device->ops->muon_momentum(
      queue, &(dmuon_muon_momentum){
                 .n = param->numel,
                 .form = (dmuon_momentum_form)rule->momentum_form,
                 .nesterov = rule->nesterov,
                 .first = state->step == 0,
                 .mu = hyper[DMUON_HYPER_MOMENTUM],
                 .grad_scale = update->grad_scale,
                 .l2 = rule->decay == DMUON_DECAY_L2 ? hyper[DMUON_HYPER_WEIGHT_DECAY] : 0,
                 .grad = update->grad,
                 .grad_dtype = update->grad_dtype,
                 .momentum = state->momentum,
                 .momentum_dtype = param->state_dtype,
                 .weight = state->master,
                 .weight_dtype = param->master_dtype,
                 .update = direction,
                 .skip = update->skip});
}

/* The weight, from the orthogonal factor. */
static DMuonErrorCode finish(dmuon_queue *queue, dmuon_device *device, const dmuon_update *update,
                             dmuon_param_state *state, const void *direction) {
  const dmuon_param *param = update->param;
  const dmuon_rule *rule = update->rule;
  const double *hyper = update->hyper->value;
  DMUON_TRY(device->ops->muon_apply(
      queue, &(dmuon_muon_apply){.n = param->numel,
                                 .decay = (dmuon_decay)rule->decay,
                                 .lr = hyper[DMUON_HYPER_LR],
                                 .weight_decay = hyper[DMUON_HYPER_WEIGHT_DECAY],
                                 .update = direction,
                                 .update_dtype = param->state_dtype,
                                 .weight = state->master,
                                 .weight_dtype = param->master_dtype,
                                 .value = update->value,
                                 .value_dtype = param->dtype,
                                 .skip = update->skip,
                                 .skipped = update->skipped}));
  state->step++;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_update_muon(dmuon_queue *queue, dmuon_device *device,
                                 const dmuon_update_plan *plan, const dmuon_update *update,
                                 dmuon_param_state *state) {
  void *direction = update->workspace; /* the momentum's direction, then its orthogonal factor */
  DMUON_TRY(begin(queue, device, update, state, direction));
  if (update->stamps) DMUON_TRY(device->ops->stamp(queue, &update->stamps[0]));
  for (int64_t i = 0; i < plan->piece_count; i++)
    DMUON_TRY(orthogonalise_from(queue, device, plan, update, i));
  if (update->stamps) DMUON_TRY(device->ops->stamp(queue, &update->stamps[1]));
  return finish(queue, device, update, state, direction);
}

/* The time of all is the first one's; the others have none. */
static DMuonErrorCode stamp(dmuon_queue *queue, dmuon_device *device, int64_t count,
                            const dmuon_update *updates, int end) {
  for (int64_t k = 0; k < (end ? 1 : count); k++) {
    double *stamps = updates[k].stamps;
    if (stamps) DMUON_TRY(device->ops->stamp(queue, &stamps[end]));
    if (stamps && k > 0) DMUON_TRY(device->ops->stamp(queue, &stamps[1]));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_update_muon_together(dmuon_queue *queue, dmuon_device *device,
                                          const dmuon_update_plan *plan, int64_t count,
                                          const dmuon_update *updates, dmuon_param_state **states) {
  dmuon_ns_matrix matrices[DMUON_NS_BATCH_MAX];
  char *workspace = updates[0].workspace;
  const DMuonDType dtype = updates[0].param->state_dtype;
  for (int64_t k = 0; k < count; k++) {
    dmuon_piece piece;
    void *direction = workspace + k * plan->update_bytes;
    DMUON_TRY(begin(queue, device, &updates[k], states[k], direction));
    dmuon_piece_get(updates[k].param, 0, &piece);
    matrices[k] = (dmuon_ns_matrix){direction, piece.view, direction, piece.view,
                                    dmuon_rule_scale(updates[k].rule, piece.out, piece.in)};
  }
  DMUON_TRY(stamp(queue, device, count, updates, 0));
  DMUON_TRY(dmuon_ns_issue_batch(queue, device, &plan->plans[0], count, matrices, dtype, dtype,
                                 workspace + plan->together * plan->update_bytes));
  DMUON_TRY(stamp(queue, device, count, updates, 1));
  for (int64_t k = 0; k < count; k++)
    DMUON_TRY(finish(queue, device, &updates[k], states[k], matrices[k].out));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_update_adamw(dmuon_queue *queue, dmuon_device *device,
                                  const dmuon_update *update, dmuon_param_state *state) {
  const dmuon_param *param = update->param;
  const double *hyper = update->hyper->value;
  DMUON_TRY(
      device->ops->adamw(queue, &(dmuon_adamw){.n = update->count,
                                               .step = state->step + 1,
                                               .lr = hyper[DMUON_HYPER_LR],
                                               .beta1 = hyper[DMUON_HYPER_BETA1],
                                               .beta2 = hyper[DMUON_HYPER_BETA2],
                                               .eps = hyper[DMUON_HYPER_EPS],
                                               .weight_decay = hyper[DMUON_HYPER_WEIGHT_DECAY],
                                               .grad_scale = update->grad_scale,
                                               .grad = update->grad,
                                               .grad_dtype = update->grad_dtype,
                                               .exp_avg = state->exp_avg,
                                               .exp_avg_sq = state->exp_avg_sq,
                                               .state_dtype = param->state_dtype,
                                               .weight = state->master,
                                               .weight_dtype = param->master_dtype,
                                               .value = update->value,
                                               .value_dtype = param->dtype,
                                               .skip = update->skip,
                                               .skipped = update->skipped}));
  state->step++;
  return DMUON_SUCCESS;
}
