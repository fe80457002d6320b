/* Gradients on their way: from the caller's hands into a buffer of the group, through both stages
 * of the mean, to those who update.
 *
 * A buffer is zeroed (or discarded) when a group gets it, and given on when the group's reduction
 * has been issued; who gets it next waits until stage 1 has sent its content, so at most as many
 * reductions are outstanding as there are buffers. Columns, the sums of stage 1, are taken in turn
 * and wait for stage 2 in the same way. */
#include "engine/lend.h"

#include <math.h>

#include "base/dtype.h"

/* Where the gradient of a parameter is: in the group's buffer, or in the one that it keeps while
 * its turn to be reduced passes by (it is open, and zeros go in its place). */
enum { HERE = 1, KEPT = 2 };

static int is_here(const dmuon_lend *lend, int id) {
  return lend->is_given[id] & HERE;
}

void *dmuon_lend_grad_at(const dmuon_lend *lend, int group, int index, int place) {
  const dmuon_group_param *p = &dmuon_lend_plan(lend, group)->params[index];
  if (p->part < 0) return NULL;
  const dmuon_group_bundle *part = &dmuon_lend_plan(lend, group)->parts[p->part];
  const dmuon_bundle *bundle = dmuon_lend_bundle(lend, part->bundle);
  if (part->grad_bytes == 0 && bundle->residency == DMUON_RESIDENCY_FROZEN) return NULL;
  return dmuon_dtype_at(lend->grad_buffers[place].data + part->grad_offset,
                        bundle->params[p->index].offset, bundle->grad_dtype);
}

static const dmuon_param *param_of(const dmuon_lend *lend, int id) {
  const dmuon_registry *registry = lend->base->registry;
  return &registry->params[registry->local_to_global[id]];
}

/* dst = addend + src on the caller queue; either NULL: not there. */
static DMuonErrorCode add(dmuon_lend *lend, int id, void *dst, DMuonDType dst_dtype,
                          const void *addend, DMuonDType addend_dtype, const void *src) {
  const dmuon_param *param = param_of(lend, id);
  return lend->base->device->ops->pack(lend->caller, &(dmuon_pack){.n = param->numel,
                                                                   .dst = dst,
                                                                   .dst_dtype = dst_dtype,
                                                                   .addend = addend,
                                                                   .addend_dtype = addend_dtype,
                                                                   .src = src,
                                                                   .src_dtype = param->grad_dtype});
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Free for a group but `spare`, which are kept for contributions of zeros. */
static DMuonErrorCode check_free(const dmuon_lend *lend, int group, int spare) {
  if (dmuon_pool_free_count(&lend->grads) <= spare)
    DMUON_FAIL(
        DMUON_ERR_STATE,
        "group %s: all %d gradient buffers are in use by groups whose backward is open, has not "
        "come back as often as forward, or came late; a further micro-batch begins with "
        "DMuonOptimizerBeginPass, and option open_groups makes more",
        dmuon_lend_plan(lend, group)->key, lend->grads.count - 1);
  return DMUON_SUCCESS;
}

/* At least `spare` places stay free. */
static DMuonErrorCode take_place(dmuon_lend *lend, int group, int spare, int *place) {
  int evicted;
  DMUON_TRY(check_free(lend, group, spare));
  const int got = dmuon_pool_take(&lend->grads, group, DMUON_PLACE_OPEN, 0, &evicted);
  dmuon_lend_buffer *buffer = &lend->grad_buffers[got];
  if (buffer->last_group >= 0) {
    const dmuon_group_plan *before = dmuon_lend_plan(lend, buffer->last_group);
    for (int k = 0; k < before->part_count; k++)
      DMUON_TRY(lend->base->device->ops->event_wait(lend->caller,
                                                    lend->bundles[before->parts[k].bundle].sent));
    buffer->last_group = -1;
  }
  *place = got;
  return DMUON_SUCCESS;
}

static DMuonErrorCode clear(dmuon_lend *lend, int group, int place, int overwrite) {
  const DMuonDeviceOps *ops = lend->base->device->ops;
  const int64_t bytes = dmuon_lend_plan(lend, group)->grad_bytes;
  void *data = lend->grad_buffers[place].data;
  return overwrite ? ops->discard(lend->caller, data, bytes) : ops->zero(lend->caller, data, bytes);
}

DMuonErrorCode dmuon_lend_check_grads(const dmuon_lend *lend, int group) {
  const int adds = lend->settings.grad_mode == DMUON_GRAD_ADD;
  if (dmuon_lend_plan(lend, group)->grad_bytes == 0) return DMUON_SUCCESS;
  if (lend->states[group].grad_place >= 0 && adds) return DMUON_SUCCESS;
  return check_free(lend, group, 1);
}

DMuonErrorCode dmuon_lend_open_grads(dmuon_lend *lend, int group) {
  dmuon_lent_group *state = &lend->states[group];
  const int overwrite = lend->settings.grad_mode == DMUON_GRAD_OVERWRITE;
  if (dmuon_lend_plan(lend, group)->grad_bytes == 0) return DMUON_SUCCESS;
  if (state->grad_place < 0) {
    DMUON_TRY(take_place(lend, group, 1, &state->grad_place));
    return clear(lend, group, state->grad_place, overwrite);
  }
  if (!overwrite) return DMUON_SUCCESS; /* a further backward of this pass adds to the same */
  DMUON_TRY(take_place(lend, group, 1, &state->more_place));
  return clear(lend, group, state->more_place, 1);
}

static void leave_place(dmuon_lend *lend, int *place, int reduced_group) {
  if (*place < 0) return;
  lend->grad_buffers[*place].last_group = reduced_group;
  dmuon_pool_free(&lend->grads, *place);
  *place = -1;
}

void dmuon_lend_drop_grads(dmuon_lend *lend, int group) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  leave_place(lend, &lend->states[group].grad_place, -1);
  leave_place(lend, &lend->states[group].more_place, -1);
  for (int i = 0; i < plan->param_count; i++) {
    lend->is_given[plan->ids[i]] = lend->is_asked[plan->ids[i]] = 0;
    lend->handed[plan->ids[i]] = NULL;
  }
  lend->states[group].is_late = 0;
}

/* ---- taking back ----------------------------------------------------------------------------- */

/* What was written where the caller was lent memory, and what he handed over instead. */
static DMuonErrorCode take_param(dmuon_lend *lend, int group, int index) {
  const dmuon_lent_group *state = &lend->states[group];
  const dmuon_param *param = param_of(lend, dmuon_lend_plan(lend, group)->ids[index]);
  const int id = dmuon_lend_plan(lend, group)->ids[index];
  void *grad =
      state->grad_place < 0 ? NULL : dmuon_lend_grad_at(lend, group, index, state->grad_place);
  if (!grad) return DMUON_SUCCESS;
  if (lend->is_asked[id] && state->more_place >= 0) {
    const void *more = dmuon_lend_grad_at(lend, group, index, state->more_place);
    DMUON_TRY(add(lend, id, grad, param->grad_dtype, is_here(lend, id) ? grad : NULL,
                  param->grad_dtype, more));
  }
  if (lend->is_asked[id]) lend->is_given[id] |= HERE;
  if (lend->handed[id]) {
    DMUON_TRY(add(lend, id, grad, param->grad_dtype, is_here(lend, id) ? grad : NULL,
                  param->grad_dtype, lend->handed[id]));
    lend->is_given[id] |= HERE;
  }
  lend->is_asked[id] = 0;
  return DMUON_SUCCESS;
}

static DMuonErrorCode keep_local_sums(dmuon_lend *lend, int group) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  dmuon_lent_group *state = &lend->states[group];
  for (int i = 0; i < plan->param_count; i++) {
    const int id = plan->ids[i];
    const DMuonDType wide = dmuon_dtype_wide(param_of(lend, id)->grad_dtype);
    void *sum = lend->accumulators[id];
    if (!is_here(lend, id)) continue;
    DMUON_TRY(add(lend, id, sum, wide, lend->is_accumulated[id] ? sum : NULL, wide,
                  dmuon_lend_grad_at(lend, group, i, state->grad_place)));
    lend->is_accumulated[id] = 1;
    lend->is_given[id] &= (unsigned char)~HERE;
  }
  leave_place(lend, &state->grad_place, -1);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_close_grads(dmuon_lend *lend, int group) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  const DMuonDeviceOps *ops = lend->base->device->ops;
  dmuon_lent_group *state = &lend->states[group];
  const int place = state->more_place >= 0 ? state->more_place : state->grad_place;
  int any_handed = 0;
  if (place < 0) return DMUON_SUCCESS;
  DMUON_TRY(ops->reclaim(lend->caller, lend->grad_buffers[place].data, plan->grad_bytes, 1));
  for (int i = 0; i < plan->param_count; i++) {
    any_handed |= lend->handed[plan->ids[i]] != NULL;
    DMUON_TRY(take_param(lend, group, i));
  }
  leave_place(lend, &state->more_place, -1);
  if (any_handed) DMUON_TRY(ops->lend(lend->caller)); /* his memory is his again */
  for (int i = 0; i < plan->param_count; i++) lend->handed[plan->ids[i]] = NULL;
  if (lend->pass == DMUON_PASS_ACCUMULATE) return keep_local_sums(lend, group);
  return DMUON_SUCCESS;
}

/* ---- reducing -------------------------------------------------------------------------------- */

/* The contribution of one parameter is complete: local sums are added, what nobody wrote is zero,
 * and it is looked at before it leaves. */
static DMuonErrorCode complete_param(dmuon_lend *lend, int group, int index) {
  const int id = dmuon_lend_plan(lend, group)->ids[index];
  const dmuon_param *param = param_of(lend, id);
  const DMuonDeviceOps *ops = lend->base->device->ops;
  void *grad = dmuon_lend_grad_at(lend, group, index, lend->states[group].grad_place);
  if (!grad) return DMUON_SUCCESS;
  if (lend->is_accumulated[id]) {
    DMUON_TRY(add(lend, id, grad, param->grad_dtype, lend->accumulators[id],
                  dmuon_dtype_wide(param->grad_dtype), is_here(lend, id) ? grad : NULL));
  } else if (!is_here(lend, id)) {
    if (lend->settings.grad_mode == DMUON_GRAD_OVERWRITE)
      DMUON_TRY(ops->zero(lend->caller, grad,
                          param->numel * (int64_t)dmuon_dtype_bytes(param->grad_dtype)));
    return DMUON_SUCCESS;
  }
  float *flags = lend->settings.flags;
  if (lend->has_gradient[id] && !flags) { /* an earlier look of this step: keep what it found */
    DMUON_TRY(ops->queue_sync(lend->caller));
    if (lend->nonfinite[id] < 0) lend->nonfinite[id] = lend->found[id];
  }
  DMUON_TRY(ops->find_nonfinite(lend->caller,
                                &(dmuon_pack){.n = param->numel,
                                              .dst_dtype = param->grad_dtype,
                                              .src = grad,
                                              .src_dtype = param->grad_dtype},
                                &lend->found[id],
                                flags ? flags + lend->base->registry->local_to_global[id] : NULL));
  lend->has_gradient[id] = 1;
  lend->is_given[id] &= (unsigned char)~HERE;
  lend->is_accumulated[id] = 0;
  return DMUON_SUCCESS;
}

/* Stage 1 into a column, stage 2 into the mean; contributions are scaled down so far that no sum of
 * them can overflow. */
static DMuonErrorCode issue_stages(dmuon_lend *lend, const dmuon_group_bundle *part,
                                   const char *buffer) {
  const dmuon_bundle *bundle = dmuon_lend_bundle(lend, part->bundle);
  dmuon_lent_bundle *lent = &lend->bundles[part->bundle];
  const DMuonDeviceOps *ops = lend->base->device->ops;
  const DMuonMesh mesh = lend->base->registry->meshes[bundle->mesh].mesh;
  const dmuon_mesh_queues *queues = &lend->base->queues[bundle->mesh];
  dmuon_comm *shard = dmuon_mesh_comm(mesh, DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE);
  dmuon_comm *replicate = dmuon_mesh_comm(mesh, DMUON_AXIS_REPLICATE, DMUON_ROLE_REDUCE);
  const int c = lend->next_column, before = lend->column_bundle[c];
  void *column = lend->columns[c];
  void *mean = lend->base->means[part->bundle];
  void *out = lent->reductions == 0 ? mean : lend->scratch[bundle->mesh];

  DMUON_TRY(ops->event_record(lend->caller, lent->packed));
  DMUON_TRY(ops->event_wait(queues->shard_reduce, lent->packed));
  if (before >= 0)
    DMUON_TRY(ops->event_wait(queues->shard_reduce, lend->bundles[before].mean_done));
  DMUON_TRY(
      shard->ops->reduce_segments(queues->shard_reduce, shard,
                                  &(dmuon_reduce){.segment_count = bundle->shard_segment_count,
                                                  .segments = bundle->shard_segments,
                                                  .in = buffer + part->grad_offset,
                                                  .in_dtype = bundle->grad_dtype,
                                                  .out = column,
                                                  .sum_dtype = bundle->sum_dtype,
                                                  .prescale = -dmuon_runtime_halvings(mesh),
                                                  .divisor = 1}));
  DMUON_TRY(ops->event_record(queues->shard_reduce, lent->sent));

  DMUON_TRY(ops->event_wait(queues->replicate_reduce, lent->sent));
  DMUON_TRY(ops->event_wait(queues->replicate_reduce, lent->updated)); /* has read the last mean */
  DMUON_TRY(
      replicate->ops->reduce_segments(queues->replicate_reduce, replicate,
                                      &(dmuon_reduce){.segment_count = bundle->column_segment_count,
                                                      .segments = bundle->column_segments,
                                                      .in = column,
                                                      .in_dtype = bundle->sum_dtype,
                                                      .out = out,
                                                      .sum_dtype = bundle->sum_dtype,
                                                      .divisor = 1}));
  if (out != mean && bundle->mine_count > 0)
    DMUON_TRY(ops->axpby(queues->replicate_reduce, bundle->mine_count, bundle->sum_dtype, 1, out, 1,
                         mean));
  DMUON_TRY(ops->event_record(queues->replicate_reduce, lent->mean_done));
  lent->reductions++;
  lend->column_bundle[c] = part->bundle;
  lend->next_column = (c + 1) % DMUON_COLUMNS;
  return DMUON_SUCCESS;
}

/* Without delay of stage 2, a reduction waits until the one before has reached its owners. */
static DMuonErrorCode wait_for_last(dmuon_lend *lend) {
  if (lend->settings.delay_stage2 || lend->last_reduced < 0) return DMUON_SUCCESS;
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, lend->last_reduced);
  const DMuonDeviceOps *ops = lend->base->device->ops;
  for (int k = 0; k < plan->part_count; k++)
    DMUON_TRY(ops->event_wait(lend->caller, lend->bundles[plan->parts[k].bundle].mean_done));
  return ops->lend(lend->caller);
}

DMuonErrorCode dmuon_lend_reduce(dmuon_lend *lend, int group, const unsigned char *parts) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  dmuon_lent_group *state = &lend->states[group];
  dmuon_life_meaning meaning;
  if (plan->grad_bytes == 0) return DMUON_SUCCESS;
  DMUON_TRY(wait_for_last(lend));
  if (state->grad_place < 0) { /* nothing here: zeros, but for local sums */
    DMUON_TRY(take_place(lend, group, 0, &state->grad_place));
    DMUON_TRY(clear(lend, group, state->grad_place, 0));
  }
  for (int i = 0; i < plan->param_count; i++) DMUON_TRY(complete_param(lend, group, i));
  for (int k = 0; k < plan->part_count; k++)
    if (plan->parts[k].grad_bytes > 0 && (!parts || parts[k]))
      DMUON_TRY(issue_stages(lend, &plan->parts[k], lend->grad_buffers[state->grad_place].data));
  leave_place(lend, &state->grad_place, group);
  lend->last_reduced = group;
  state->is_late = 0;
  (void)dmuon_life_next(&state->life, DMUON_EVENT_REDUCE, &(dmuon_life_context){0}, &meaning);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_reduce_without(dmuon_lend *lend, int group) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  dmuon_lent_group *state = &lend->states[group];
  const int place = state->grad_place, more = state->more_place;
  for (int i = 0; i < plan->param_count; i++)
    if (is_here(lend, plan->ids[i])) lend->is_given[plan->ids[i]] = KEPT;
  state->grad_place = state->more_place = -1;
  DMUON_TRY(dmuon_lend_reduce(lend, group, NULL));
  state->grad_place = place;
  state->more_place = more;
  for (int i = 0; i < plan->param_count; i++)
    if (lend->is_given[plan->ids[i]] & KEPT) lend->is_given[plan->ids[i]] = HERE;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_finish_mean(dmuon_lend *lend, int b, double divisor) {
  const dmuon_bundle *bundle = dmuon_lend_bundle(lend, b);
  const dmuon_lent_bundle *lent = &lend->bundles[b];
  const DMuonDeviceOps *ops = lend->base->device->ops;
  const DMuonMesh mesh = lend->base->registry->meshes[bundle->mesh].mesh;
  void *mean = lend->base->means[b];
  DMUON_TRY(ops->event_wait(lend->base->compute, lent->mean_done));
  if (bundle->mine_count == 0) return DMUON_SUCCESS;
  if (lent->reductions == 0)
    return ops->zero(lend->base->compute, mean,
                     bundle->mine_count * (int64_t)dmuon_dtype_bytes(bundle->sum_dtype));
  return ops->divide(lend->base->compute, bundle->mine_count, bundle->sum_dtype,
                     ldexp(divisor, -dmuon_runtime_halvings(mesh)), mean);
}
