/* Whose values are in which buffer, and when they are fetched: the sequence of the pass (order.c)
 * and the buffers that groups take turns with (pool.c), carried out. It does not know what a
 * bracket means (life.c, lend.c) nor how values travel (lend_values.c). */
#include "engine/lend.h"

void dmuon_lend_note(dmuon_lend *lend, int group, dmuon_life_event event) {
  dmuon_life_meaning meaning;
  (void)dmuon_life_next(&lend->states[group].life, event, &(dmuon_life_context){0}, &meaning);
}

static DMuonErrorCode fetch_z2(dmuon_lend *lend, int group) {
  dmuon_lent_group *state = &lend->states[group];
  if (state->is_resident) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_lend_fetch(lend, group, state->z2_values, state->z2_left, group));
  state->is_resident = 1;
  dmuon_lend_note(lend, group, DMUON_EVENT_FETCH);
  return DMUON_SUCCESS;
}

static DMuonErrorCode fetch_into_place(dmuon_lend *lend, int group, dmuon_place_use use, int ahead,
                                       int *place) {
  int evicted = -1;
  const int got = dmuon_pool_take(&lend->values, group, use, ahead, &evicted);
  *place = got;
  if (got < 0) return DMUON_SUCCESS;
  if (evicted >= 0) dmuon_lend_note(lend, evicted, DMUON_EVENT_RELEASE);
  dmuon_lend_buffer *buffer = &lend->value_buffers[got];
  DMUON_TRY(dmuon_lend_fetch(lend, group, buffer->data, buffer->left, buffer->last_group));
  buffer->last_group = group;
  dmuon_lend_note(lend, group, DMUON_EVENT_FETCH);
  return DMUON_SUCCESS;
}

static DMuonErrorCode no_place(const dmuon_lend *lend, int group) {
  DMUON_FAIL(DMUON_ERR_STATE,
             "group %s: all %d value buffers are in use by open groups; option open_groups makes "
             "more",
             dmuon_lend_plan(lend, group)->key, lend->values.count);
}

/* One item of the sequence. An open Z3 group whose backward fetch is due gets it in place: the same
 * values once more. */
static DMuonErrorCode carry_out(dmuon_lend *lend, dmuon_order_item item, dmuon_place_use use) {
  const int group = item.group;
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  if (plan->part_count == 0) return DMUON_SUCCESS;
  if (plan->is_z2) return item.is_backward ? DMUON_SUCCESS : fetch_z2(lend, group);
  int place = dmuon_pool_find(&lend->values, group);
  if (place >= 0)
    return dmuon_lend_fetch(lend, group, lend->value_buffers[place].data,
                            lend->value_buffers[place].left, group);
  DMUON_TRY(fetch_into_place(lend, group, use, 0, &place));
  return place < 0 ? no_place(lend, group) : DMUON_SUCCESS;
}

/* Buffers that were fetched ahead for groups before this one were passed over. */
static void pass_over(dmuon_lend *lend, int group) {
  for (int i = 0; i < lend->values.count; i++) {
    const dmuon_place *place = &lend->values.places[i];
    const int is_before =
        lend->sequence.backward_has_begun ? place->group > group : place->group < group;
    if (place->use == DMUON_PLACE_AHEAD && is_before)
      dmuon_pool_set(&lend->values, i, DMUON_PLACE_KEPT, 0);
  }
}

static int depth_of(const dmuon_lend *lend) {
  return lend->settings.backward_prefetch_depth;
}

/* The reductions that stand before the next backward fetch on the way to that of group. */
static DMuonErrorCode reduce_before_fetch(dmuon_lend *lend, int group) {
  const int next = dmuon_order_fetch_due(&lend->sequence, group);
  if (next < 0 || lend->pass != DMUON_PASS_TRAIN) return DMUON_SUCCESS;
  return dmuon_lend_reduce_up_to(lend, dmuon_order_reduce_before(next, depth_of(lend)));
}

DMuonErrorCode dmuon_lend_catch_up(dmuon_lend *lend, int group, int reduces) {
  pass_over(lend, group);
  for (;;) {
    if (reduces) DMUON_TRY(reduce_before_fetch(lend, group));
    const dmuon_order before = lend->sequence;
    const dmuon_order_item item = dmuon_order_fetch(&lend->sequence, group);
    if (item.group < 0) return DMUON_SUCCESS;
    DMuonErrorCode code =
        carry_out(lend, item, item.group == group ? DMUON_PLACE_AHEAD : DMUON_PLACE_KEPT);
    if (code) {
      if (code < DMUON_ERR_PEER) lend->sequence = before;
      return code;
    }
  }
}

void dmuon_lend_empty_places(dmuon_lend *lend) {
  for (int i = 0; i < lend->values.count; i++) {
    const dmuon_place *place = &lend->values.places[i];
    if (place->use == DMUON_PLACE_FREE || place->use == DMUON_PLACE_OPEN) continue;
    dmuon_lend_note(lend, place->group, DMUON_EVENT_RELEASE);
    dmuon_pool_free(&lend->values, i);
  }
}

/* From forward to backward: the forward sequence is completed, and every group that is not open is
 * fetched anew. */
DMuonErrorCode dmuon_lend_turn(dmuon_lend *lend) {
  if (lend->sequence.order == DMUON_ORDER_PROGRAM || lend->sequence.backward_has_begun)
    return DMUON_SUCCESS;
  DMUON_TRY(dmuon_lend_catch_up(lend, lend->groups.count - 1, 0));
  dmuon_lend_empty_places(lend);
  dmuon_order_turn(&lend->sequence);
  return DMUON_SUCCESS;
}

/* One item before it is asked for. *is_done 0: it is open, so that its turn comes, or there is no
 * room yet. */
static DMuonErrorCode fetch_early(dmuon_lend *lend, dmuon_order_item item, int *is_done) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, item.group);
  *is_done = 1;
  if (plan->is_z2 || plan->part_count == 0) return carry_out(lend, item, DMUON_PLACE_AHEAD);
  int place = dmuon_pool_find(&lend->values, item.group);
  if (place < 0)
    DMUON_TRY(fetch_into_place(lend, item.group, DMUON_PLACE_AHEAD, 1, &place));
  else
    place = -1;
  *is_done = place >= 0;
  return DMUON_SUCCESS;
}

/* What comes after group in the sequence, as far as depth and buffers allow. */
static DMuonErrorCode fetch_after(dmuon_lend *lend, int group, int depth) {
  for (;;) {
    const dmuon_order_item item = dmuon_order_ahead(&lend->sequence, group, depth);
    if (item.group < 0) return DMUON_SUCCESS;
    if (item.is_backward && lend->pass == DMUON_PASS_TRAIN &&
        !dmuon_order_may_fetch(&lend->sequence, item.group, depth_of(lend)))
      return DMUON_SUCCESS; /* a reduction stands before it */
    int is_done;
    DMUON_TRY(fetch_early(lend, item, &is_done));
    if (!is_done) return DMUON_SUCCESS;
    (void)dmuon_order_fetch(&lend->sequence, item.group);
  }
}

DMuonErrorCode dmuon_lend_fetch_before_reduction(dmuon_lend *lend, int group) {
  const int last = dmuon_order_fetch_before(group, depth_of(lend));
  for (int next; (next = dmuon_order_fetch_due(&lend->sequence, last)) >= 0;) {
    int is_done;
    DMUON_TRY(fetch_early(lend, (dmuon_order_item){next, 1}, &is_done));
    if (!is_done) return DMUON_SUCCESS;
    (void)dmuon_order_fetch(&lend->sequence, next);
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_prefetch(dmuon_lend *lend, int group) {
  return fetch_after(lend, group,
                     lend->sequence.backward_has_begun ? lend->settings.backward_prefetch_depth
                                                       : lend->settings.prefetch_depth);
}

/* The values of group are there, or on their way; its place is open. */
DMuonErrorCode dmuon_lend_open_values(dmuon_lend *lend, int group, int is_backward) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  if (plan->part_count == 0) return DMUON_SUCCESS;
  /* What was kept since forward has no turn in backward that others would have to come before. */
  if (plan->is_z2 && lend->sequence.backward_has_begun) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_lend_catch_up(lend, group, is_backward));
  if (plan->is_z2) return fetch_z2(lend, group);
  int place = dmuon_pool_find(&lend->values, group);
  if (place < 0 && lend->sequence.order == DMUON_ORDER_REGISTERED)
    DMUON_FAIL(
        DMUON_ERR_STATE,
        "group %s has had its turn in this pass and its buffer was given to another; a further "
        "micro-batch begins with DMuonOptimizerBeginPass, and in "
        "registered order a group that runs again must be Z2 (DMuonModelSetReshard), or run "
        "in program order (DMuonOptimizerSetOrder), or keep more buffers (open_groups)",
        plan->key);
  if (place < 0) DMUON_TRY(fetch_into_place(lend, group, DMUON_PLACE_OPEN, 0, &place));
  if (place < 0) return no_place(lend, group);
  dmuon_pool_set(&lend->values, place, DMUON_PLACE_OPEN, 0);
  return DMUON_SUCCESS;
}

char *dmuon_lend_values_of(const dmuon_lend *lend, int group) {
  if (dmuon_lend_plan(lend, group)->is_z2) return lend->states[group].z2_values;
  const int place = dmuon_pool_find(&lend->values, group);
  return place < 0 ? NULL : lend->value_buffers[place].data;
}

/* The caller is done with them. */
DMuonErrorCode dmuon_lend_close_values(dmuon_lend *lend, int group, int is_used_up) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  const DMuonDeviceOps *ops = lend->base->device->ops;
  char *values = dmuon_lend_values_of(lend, group);
  if (plan->part_count == 0 || !values) return DMUON_SUCCESS;
  DMUON_TRY(ops->reclaim(lend->caller, values, plan->value_bytes, 0));
  if (plan->is_z2) return ops->event_record(lend->caller, lend->states[group].z2_left);
  const int place = dmuon_pool_find(&lend->values, group);
  DMUON_TRY(ops->event_record(lend->caller, lend->value_buffers[place].left));
  dmuon_pool_set(&lend->values, place, DMUON_PLACE_KEPT, is_used_up);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_fetch_ahead(dmuon_lend *lend) {
  return fetch_after(lend, -1, lend->settings.post_step_prefetch);
}
