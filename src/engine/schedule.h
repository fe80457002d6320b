/* In which order the bundles of one step are reduced, updated, published and unpacked. Pure.
 *
 * Two slots of buffers are in use at once: while bundle i is updated, the gradients of bundle i + 1
 * and the new values of bundle i - 1 travel. When a norm is wanted first, all reductions come
 * before all updates. Every rank issues the same order, each the bundles it takes part in. */
#ifndef DMUON_ENGINE_SCHEDULE_H
#define DMUON_ENGINE_SCHEDULE_H

enum { DMUON_SLOTS = 2 };

typedef enum {
  DMUON_ACTION_REDUCE = 0, /* pack gradients and issue both stages */
  DMUON_ACTION_NORM,       /* every mean is there: take norms, agree, clip */
  DMUON_ACTION_UPDATE,     /* wait for the mean, owner's step */
  DMUON_ACTION_PUBLISH,    /* new values to all */
  DMUON_ACTION_UNPACK,     /* wait for them, store */
  DMUON_ACTION_END
} dmuon_action_kind;

typedef struct {
  dmuon_action_kind kind;
  int bundle; /* 0 .. count-1 */
} dmuon_action;

/* Where one step is. */
typedef struct {
  int count, norm_first;
  int reduced;      /* bundles reduced ahead of the first update */
  int has_norm;     /* the norm is behind */
  int bundle, part; /* the bundle being updated, and what is next of it */
  int is_done;
} dmuon_schedule;

dmuon_schedule dmuon_schedule_begin(int count, int norm_first);
/* The next action; END from the last on. */
dmuon_action dmuon_schedule_next(dmuon_schedule *schedule);

#endif
