/* The life of a group between two steps: which bracket may come when, and what it means. Pure.
 *
 *   sharded -> unsharding -> unsharded -> computing forward -> (Z2) unsharded, (Z3) sharded
 *           -> computing backward -> reducing -> sharded
 *
 * Brackets of one group nest; only the outermost means anything. A forward inside the group's own
 * backward is recomputation. runs counts forwards that have not come back. */
#ifndef DMUON_ENGINE_LIFE_H
#define DMUON_ENGINE_LIFE_H

#include <dmuon/types.h>

typedef enum {
  DMUON_LIFE_SHARDED = 0,
  DMUON_LIFE_UNSHARDING, /* fetched ahead of its bracket */
  DMUON_LIFE_UNSHARDED,  /* no bracket open, values still there */
  DMUON_LIFE_FORWARD,
  DMUON_LIFE_BACKWARD,
  DMUON_LIFE_REDUCING
} dmuon_life_state;
const char *dmuon_life_state_name(dmuon_life_state state); /* "computing forward" */

typedef enum {
  DMUON_EVENT_FORWARD_BEGIN = 0,
  DMUON_EVENT_FORWARD_END,
  DMUON_EVENT_BACKWARD_BEGIN,
  DMUON_EVENT_BACKWARD_END,
  DMUON_EVENT_FETCH,   /* values are on their way */
  DMUON_EVENT_RELEASE, /* the buffer is somebody else's */
  DMUON_EVENT_REDUCE,  /* gradients are on their way */
  DMUON_EVENT_STEP     /* a new step begins: nothing is open */
} dmuon_life_event;
const char *dmuon_life_event_name(dmuon_life_event event); /* "BackwardBegin" */

typedef struct {
  dmuon_life_state state;
  int forward_depth, backward_depth; /* brackets open */
  int runs;                          /* forwards of this pass that have not come back */
  int ran;                           /* forward in this pass */
} dmuon_life;

typedef struct {
  DMuonPass pass;
  int is_recomputation; /* a forward of this pass that counts as none of its own */
} dmuon_life_context;

/* What the bracket means beyond the counting. */
typedef struct {
  int opens;    /* the outermost begin: values (and gradients) are needed */
  int closes;   /* the outermost end */
  int balances; /* ... of a backward, and no forward is left that has not come back */
} dmuon_life_meaning;

/* NULL and *life, *meaning filled in; or what is wrong with it ("no forward bracket is open"), and
 * *life untouched. */
const char *dmuon_life_next(dmuon_life *life, dmuon_life_event event,
                            const dmuon_life_context *context, dmuon_life_meaning *meaning);
int dmuon_life_is_open(const dmuon_life *life);
/* Forgets brackets and runs: a new pass. */
void dmuon_life_new_pass(dmuon_life *life);

#endif
