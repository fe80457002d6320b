/* Each event with what it asks of the state, and the state it leads to. */
#include "engine/life.h"

#include <stddef.h>

const char *dmuon_life_state_name(dmuon_life_state state) {
  static const char *const names[] = {"sharded",           "unsharding",         "unsharded",
                                      "computing forward", "computing backward", "reducing"};
  return names[state];
}

const char *dmuon_life_event_name(dmuon_life_event event) {
  static const char *const names[] = {"ForwardBegin", "ForwardEnd", "BackwardBegin", "BackwardEnd",
                                      "Fetch",        "Release",    "Reduce",        "Step"};
  return names[event];
}

int dmuon_life_is_open(const dmuon_life *life) {
  return life->forward_depth + life->backward_depth > 0;
}

void dmuon_life_new_pass(dmuon_life *life) {
  *life = (dmuon_life){.state = life->state};
}

static const char *forward_begin(dmuon_life *life, const dmuon_life_context *context,
                                 dmuon_life_meaning *meaning) {
  if (!dmuon_life_is_open(life)) {
    meaning->opens = 1;
    life->state = DMUON_LIFE_FORWARD;
    if (!context->is_recomputation) life->runs++;
    life->ran = 1;
  }
  life->forward_depth++;
  return NULL;
}

static const char *forward_end(dmuon_life *life, dmuon_life_meaning *meaning) {
  if (life->forward_depth == 0) return "no forward bracket is open";
  life->forward_depth--;
  if (!dmuon_life_is_open(life)) {
    meaning->closes = 1;
    life->state = DMUON_LIFE_UNSHARDED;
  }
  return NULL;
}

static const char *backward_begin(dmuon_life *life, const dmuon_life_context *context,
                                  dmuon_life_meaning *meaning) {
  if (context->pass == DMUON_PASS_EVAL) return "the pass is EVAL: no backward follows";
  if (life->forward_depth > 0) return "its forward bracket is still open";
  if (!life->ran) return "it did not run forward in this pass";
  if (life->backward_depth == 0) {
    meaning->opens = 1;
    life->state = DMUON_LIFE_BACKWARD;
  }
  life->backward_depth++;
  return NULL;
}

static const char *backward_end(dmuon_life *life, dmuon_life_meaning *meaning) {
  if (life->backward_depth == 0) return "no backward bracket is open";
  if (life->forward_depth > 0) return "a forward bracket inside is still open";
  if (--life->backward_depth > 0) return NULL;
  meaning->closes = 1;
  if (life->runs > 0) life->runs--;
  meaning->balances = life->runs == 0;
  life->state = DMUON_LIFE_UNSHARDED;
  return NULL;
}

const char *dmuon_life_next(dmuon_life *life, dmuon_life_event event,
                            const dmuon_life_context *context, dmuon_life_meaning *meaning) {
  *meaning = (dmuon_life_meaning){0};
  switch (event) {
    case DMUON_EVENT_FORWARD_BEGIN:
      return forward_begin(life, context, meaning);
    case DMUON_EVENT_FORWARD_END:
      return forward_end(life, meaning);
    case DMUON_EVENT_BACKWARD_BEGIN:
      return backward_begin(life, context, meaning);
    case DMUON_EVENT_BACKWARD_END:
      return backward_end(life, meaning);
    case DMUON_EVENT_FETCH:
      if (dmuon_life_is_open(life)) return "it is in use";
      life->state = DMUON_LIFE_UNSHARDING;
      return NULL;
    case DMUON_EVENT_RELEASE:
      if (dmuon_life_is_open(life)) return "it is in use";
      if (life->state != DMUON_LIFE_REDUCING) life->state = DMUON_LIFE_SHARDED;
      return NULL;
    case DMUON_EVENT_REDUCE:
      if (life->backward_depth > 0) return "its backward bracket is still open";
      if (!dmuon_life_is_open(life)) life->state = DMUON_LIFE_REDUCING;
      return NULL;
    case DMUON_EVENT_STEP:
      *life = (dmuon_life){.state = DMUON_LIFE_SHARDED};
      return NULL;
  }
  return "there is no such event";
}
