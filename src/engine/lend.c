/* Carrying out what brackets mean. Which event is legal is life.c's to say, what comes before it in
 * the sequence order.c's, and who gets a buffer pool.c's.
 *
 * A bracket that cannot be carried out (no buffer is free, the values are gone) is refused before
 * anything of its own is changed; what was passed over may have been caught up with, which every
 * rank does sooner or later. */
#include "engine/lend.h"

#include <string.h>

/* ---- gradients ------------------------------------------------------------------------------- */

/* Reductions of all that come before group in the sequence, and its own, with what stands: an open
 * group's gradients are not complete, so it counts as zero now and comes late. */
DMuonErrorCode dmuon_lend_reduce_up_to(dmuon_lend *lend, int group) {
  for (int g; (g = dmuon_order_reduce(&lend->sequence, group)) >= 0;) {
    dmuon_lent_group *state = &lend->states[g];
    DMUON_TRY(dmuon_lend_fetch_before_reduction(lend, g));
    if (state->is_reduced || dmuon_lend_plan(lend, g)->grad_bytes == 0) continue;
    if (state->life.backward_depth > 0)
      DMUON_TRY(dmuon_lend_reduce_without(lend, g));
    else
      DMUON_TRY(dmuon_lend_reduce(lend, g, NULL));
    state->is_reduced = 1;
  }
  return DMUON_SUCCESS;
}

/* The last forward of the group has come back. */
static DMuonErrorCode reduce_in_turn(dmuon_lend *lend, int group) {
  dmuon_lent_group *state = &lend->states[group];
  if (lend->pass != DMUON_PASS_TRAIN || dmuon_lend_plan(lend, group)->grad_bytes == 0)
    return DMUON_SUCCESS;
  if (state->is_reduced) {
    state->is_late = 1;
    return DMUON_SUCCESS;
  }
  if (lend->sequence.order == DMUON_ORDER_PROGRAM) {
    DMUON_TRY(dmuon_lend_reduce(lend, group, NULL));
    state->is_reduced = 1;
    return DMUON_SUCCESS;
  }
  /* Fetches first (a Z2 group has not asked for those before it): see reduce_passed_over. Without
   * room for them both are left to Step. */
  const DMuonErrorCode code = dmuon_lend_catch_up(lend, group, 1);
  if (code) return code == DMUON_ERR_STATE ? DMUON_SUCCESS : code;
  return dmuon_lend_reduce_up_to(lend, group);
}

/* Reductions of the groups before one whose fetch is about to be waited for. Ranks that are behind
 * may wait for them, in brackets that come before the one in which they issue that fetch. Hence no
 * circle: a rank that waits for a fetch has issued all reductions that come before it, and one that
 * has issued a reduction, all fetches up to it. */
static DMuonErrorCode reduce_passed_over(dmuon_lend *lend, int group) {
  if (lend->sequence.order == DMUON_ORDER_PROGRAM || lend->pass != DMUON_PASS_TRAIN ||
      dmuon_lend_plan(lend, group)->is_z2)
    return DMUON_SUCCESS;
  return dmuon_lend_reduce_up_to(lend, group + 1);
}

/* ---- brackets -------------------------------------------------------------------------------- */

static DMuonErrorCode open_group(dmuon_lend *lend, int group, int is_backward) {
  if (!dmuon_lend_is_used(lend)) return DMUON_SUCCESS;
  if (is_backward) DMUON_TRY(dmuon_lend_check_grads(lend, group));
  if (is_backward) DMUON_TRY(dmuon_lend_turn(lend));
  DMUON_TRY(dmuon_lend_open_values(lend, group, is_backward));
  if (is_backward) {
    DMuonErrorCode code = reduce_passed_over(lend, group);
    if (!code) code = dmuon_lend_open_grads(lend, group);
    const int place = code ? dmuon_pool_find(&lend->values, group) : -1;
    if (place >= 0) dmuon_pool_set(&lend->values, place, DMUON_PLACE_KEPT, 0);
    if (code) return code;
  }
  DMUON_TRY(dmuon_lend_prefetch(lend, group));
  DMUON_TRY(dmuon_lend_await(lend, group));
  return lend->base->device->ops->lend(lend->caller);
}

static DMuonErrorCode close_group(dmuon_lend *lend, int group, int is_backward,
                                  const dmuon_life_meaning *meaning) {
  const int is_used_up = is_backward || !lend->sequence.backward_has_begun;
  DMUON_TRY(dmuon_lend_close_values(lend, group, is_used_up));
  if (!is_backward) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_lend_close_grads(lend, group));
  if (lend->pass == DMUON_PASS_TRAIN && lend->states[group].is_reduced &&
      lend->states[group].grad_place >= 0) {
    lend->states[group].is_late = 1; /* its turn is over, whatever else comes back */
    return DMUON_SUCCESS;
  }
  return meaning->balances ? reduce_in_turn(lend, group) : DMUON_SUCCESS;
}

/* A forward once backward has begun; in program order, of a group that is yet to come back. */
static int is_recomputation(const dmuon_lend *lend, int group) {
  if (lend->sequence.order == DMUON_ORDER_REGISTERED) return lend->sequence.backward_has_begun;
  return lend->backward_is_touched && lend->states[group].life.runs > 0;
}

DMuonErrorCode dmuon_lend_bracket(dmuon_lend *lend, int group, dmuon_life_event event) {
  dmuon_lent_group *state = &lend->states[group];
  const dmuon_life before = state->life;
  const int is_backward = event == DMUON_EVENT_BACKWARD_BEGIN || event == DMUON_EVENT_BACKWARD_END;
  const dmuon_life_context context = {lend->pass, is_recomputation(lend, group)};
  dmuon_life_meaning meaning;
  dmuon_life after = before;
  const char *wrong = dmuon_life_next(&after, event, &context, &meaning);
  if (wrong)
    DMUON_FAIL(DMUON_ERR_STATE, "group %s is %s: %s makes no sense there; %s",
               dmuon_lend_plan(lend, group)->key, dmuon_life_state_name(before.state),
               dmuon_life_event_name(event), wrong);
  if (meaning.opens) DMUON_TRY(open_group(lend, group, is_backward));
  state->life = after;
  lend->is_touched = 1;
  lend->backward_is_touched |= is_backward;
  return meaning.closes ? close_group(lend, group, is_backward, &meaning) : DMUON_SUCCESS;
}

/* ---- what is inside -------------------------------------------------------------------------- */

DMuonErrorCode dmuon_lend_check_open(const dmuon_lend *lend, int group, int backward) {
  const dmuon_life *life = &lend->states[group].life;
  if (backward && life->backward_depth == 0)
    DMUON_FAIL(DMUON_ERR_STATE, "group %s is %s: gradients are taken inside a backward bracket",
               dmuon_lend_plan(lend, group)->key, dmuon_life_state_name(life->state));
  if (!dmuon_life_is_open(life))
    DMUON_FAIL(DMUON_ERR_STATE, "group %s is %s: its data can be read inside a bracket only",
               dmuon_lend_plan(lend, group)->key, dmuon_life_state_name(life->state));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_get(dmuon_lend *lend, int group, int index, const void **data,
                              void **grad) {
  const dmuon_group_param *p = &dmuon_lend_plan(lend, group)->params[index];
  DMUON_TRY(dmuon_lend_check_open(lend, group, grad != NULL));
  if (data) {
    const dmuon_group_bundle *part = &dmuon_lend_plan(lend, group)->parts[p->part];
    const dmuon_bundle *bundle = dmuon_lend_bundle(lend, part->bundle);
    *data = dmuon_dtype_at(dmuon_lend_values_of(lend, group) + part->value_offset,
                           bundle->params[p->index].offset, bundle->dtype);
  }
  if (grad) {
    const dmuon_lent_group *state = &lend->states[group];
    const int place = state->more_place >= 0 ? state->more_place : state->grad_place;
    *grad = place < 0 ? NULL : dmuon_lend_grad_at(lend, group, index, place);
    if (*grad) lend->is_asked[p->id] = 1;
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_set_grad(dmuon_lend *lend, int group, int index, const void *grad) {
  const dmuon_group_param *p = &dmuon_lend_plan(lend, group)->params[index];
  DMUON_TRY(dmuon_lend_check_open(lend, group, 1));
  lend->handed[p->id] = grad;
  return DMUON_SUCCESS;
}

/* ---- passes ---------------------------------------------------------------------------------- */

DMuonErrorCode dmuon_lend_close_brackets(dmuon_lend *lend, int drops) {
  for (int id = 0; drops && id < lend->base->registry->local_count; id++) lend->handed[id] = NULL;
  for (int g = 0; g < lend->groups.count; g++) {
    dmuon_lent_group *state = &lend->states[g];
    if (!dmuon_life_is_open(&state->life)) continue;
    const int is_backward = state->life.backward_depth > 0;
    state->life.forward_depth = state->life.backward_depth = 0;
    state->life.state = DMUON_LIFE_UNSHARDED;
    DMUON_TRY(dmuon_lend_close_values(lend, g, 1));
    if (is_backward) DMUON_TRY(dmuon_lend_close_grads(lend, g));
    if (is_backward && state->is_reduced) state->is_late = 1;
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_finish_pass(dmuon_lend *lend) {
  const int is_registered = lend->sequence.order == DMUON_ORDER_REGISTERED;
  if (is_registered) DMUON_TRY(dmuon_lend_catch_up(lend, lend->groups.count - 1, 0));
  if (lend->pass == DMUON_PASS_EVAL) return DMUON_SUCCESS;
  if (is_registered) {
    DMUON_TRY(dmuon_lend_turn(lend));
    DMUON_TRY(dmuon_lend_catch_up(lend, 0, 1));
  } else if (!lend->backward_is_touched) {
    return DMUON_SUCCESS; /* on no rank: all run the same */
  }
  return lend->pass == DMUON_PASS_TRAIN ? dmuon_lend_reduce_rest(lend) : DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_reduce_rest(dmuon_lend *lend) {
  return dmuon_lend_reduce_up_to(lend, 0);
}

void dmuon_lend_begin_pass(dmuon_lend *lend, DMuonPass pass, int is_implicit) {
  const int was_eval = lend->pass == DMUON_PASS_EVAL;
  dmuon_lend_empty_places(lend);
  for (int g = 0; g < lend->groups.count; g++) {
    dmuon_lent_group *state = &lend->states[g];
    dmuon_life_new_pass(&state->life);
    state->is_reduced = 0;
    if (was_eval) state->is_resident = 0;
  }
  lend->pass = pass;
  lend->is_implicit = is_implicit;
  lend->is_touched = lend->backward_is_touched = 0;
  lend->sequence = dmuon_order_begin(lend->settings.order, lend->groups.count);
}

void dmuon_lend_forget_sums(dmuon_lend *lend) {
  for (int g = 0; g < lend->groups.count; g++)
    if (!dmuon_life_is_open(&lend->states[g].life)) dmuon_lend_drop_grads(lend, g);
  for (int b = 0; lend->bundles && b < lend->base->packing.bundle_count; b++)
    lend->bundles[b].reductions = 0;
  for (int id = 0; id < lend->base->registry->local_count; id++) {
    lend->has_gradient[id] = lend->is_accumulated[id] = 0;
    lend->nonfinite[id] = -1;
    if (!lend->settings.flags) lend->found[id] = -1;
  }
}

DMuonErrorCode dmuon_lend_begin_step(dmuon_lend *lend) {
  for (int g = 0; g < lend->groups.count; g++) {
    dmuon_lend_note(lend, g, DMUON_EVENT_STEP);
    lend->states[g].is_resident = 0;
  }
  dmuon_lend_forget_sums(lend);
  lend->last_reduced = -1;
  for (int i = 0; i < lend->values.count; i++) dmuon_pool_free(&lend->values, i);
  dmuon_lend_begin_pass(lend, DMUON_PASS_TRAIN, 1);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_look_for_nonfinite(dmuon_lend *lend) {
  DMUON_TRY(lend->base->device->ops->queue_sync(lend->caller));
  for (int id = 0; id < lend->base->registry->local_count; id++)
    if (lend->nonfinite[id] < 0) lend->nonfinite[id] = lend->found[id];
  return DMUON_SUCCESS;
}
