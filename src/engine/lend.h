/* The sharded runtime: the library keeps the values, lends them between brackets, and carries
 * gradients to those who update. Built over the replicated runtime, whose queues, packing and means
 * it shares.
 *
 * What a bracket means is decided in life.c, the sequence of fetches and reductions in order.c, who
 * gets which buffer in pool.c; lend.c carries brackets out, lend_turn.c fetches, lend_values.c
 * moves values, lend_grads.c gradients, lend_setup.c makes and frees all of it.
 *
 * What the caller touches is ordered by one queue, `caller`: values are waited for there before
 * they are lent, gradient buffers are zeroed there, and what was lent is taken back there. */
#ifndef DMUON_ENGINE_LEND_H
#define DMUON_ENGINE_LEND_H

#include "engine/groups.h"
#include "engine/life.h"
#include "engine/order.h"
#include "engine/pool.h"
#include "engine/runtime.h"

typedef struct {
  DMuonOrder order;
  DMuonGradMode grad_mode;
  int all_z2;
  int prefetch_depth, backward_prefetch_depth, open_groups, post_step_prefetch;
  int delay_stage2;
  float
      *flags; /* NULL, or device memory, by registry index: looks at gradients leave their findings
                   here too, and nobody waits for them */
} dmuon_lend_settings;

/* By bundle of the packing; empty for replicated ones. */
typedef struct {
  void *home;   /* values kept here; dtype */
  void *staged; /* gathered: new values of what is mine */
  dmuon_event *fetched, *published, *packed, *sent, *mean_done, *updated;
  int reductions; /* in the mean since the last step */
} dmuon_lent_bundle;

/* By group. */
typedef struct {
  dmuon_life life;
  char *z2_values;      /* a buffer of its own */
  dmuon_event *z2_left; /* its brackets are closed */
  int is_resident;      /* Z2: fetched since the last step */
  int grad_place;       /* where this pass's gradients are being put together, or -1 */
  int more_place;       /* overwrite mode: where a further backward writes, or -1 */
  int is_reduced;       /* in this pass */
  int is_late;          /* has gradients that came after that */
} dmuon_lent_group;

/* A buffer that groups take turns with. */
typedef struct {
  char *data;
  dmuon_event *left; /* values: the last group's brackets are closed */
  int last_group;    /* whose fetch may still write it, or whose reduction may still read it; -1 */
} dmuon_lend_buffer;

enum { DMUON_COLUMNS = 2, DMUON_MAX_PLACES = 64 };

typedef struct {
  dmuon_runtime *base; /* not owned */
  dmuon_lend_settings settings;
  dmuon_groups groups;
  dmuon_queue *caller;
  dmuon_lent_bundle *bundles;
  dmuon_lent_group *states;

  dmuon_pool values, grads;
  dmuon_place value_places[DMUON_MAX_PLACES], grad_places[DMUON_MAX_PLACES];
  dmuon_lend_buffer value_buffers[DMUON_MAX_PLACES], grad_buffers[DMUON_MAX_PLACES];
  void *columns[DMUON_COLUMNS];     /* sums of stage 1, taken in turn */
  int column_bundle[DMUON_COLUMNS]; /* whose stage 2 may still read it, or -1 */
  int next_column, last_reduced;    /* last_reduced: group, or -1 */
  void **scratch; /* by registry mesh: a further reduction before it is added to the mean */

  /* By id. */
  unsigned char *is_given;     /* has a gradient in the group's gradient buffer; see lend_grads.c */
  unsigned char *is_asked;     /* its address was given out in the bracket that is open */
  unsigned char *has_gradient; /* reduced or under way since the last step */
  const void **handed;         /* SetGrad of the bracket that is open */
  int64_t *found;              /* written by the queue; of alloc_host */
  int64_t *nonfinite; /* the first ever since the last step, or -1; nothing where there are flags */
  void **accumulators; /* NULL until the first ACCUMULATE pass */
  unsigned char *is_accumulated;

  /* The pass. */
  DMuonPass pass;
  int is_implicit; /* nobody said BeginPass */
  int is_touched;  /* a bracket was opened in it here */
  int backward_is_touched;
  dmuon_order sequence;
} dmuon_lend;

/* ---- lend_setup.c ---- */

/* Only when the packing has lent bundles. */
DMuonErrorCode dmuon_lend_create(dmuon_runtime *base, const dmuon_lend_settings *settings,
                                 dmuon_lend *lend);
void dmuon_lend_destroy(dmuon_lend *lend);
int dmuon_lend_is_used(const dmuon_lend *lend);
/* Bytes of all buffers that dmuon_lend_create takes: homes and staging; buffers of groups. Pure. */
typedef struct {
  int64_t homes, value_buffers, grad_buffers, sums;
} dmuon_lend_bytes;
dmuon_lend_bytes dmuon_lend_plan_bytes(const dmuon_packing *packing, const dmuon_groups *groups,
                                       const dmuon_lend_settings *settings);
/* Buffers that Z3 groups take turns with. Pure. */
int dmuon_lend_value_places(const dmuon_lend_settings *settings);
DMuonErrorCode dmuon_lend_make_accumulators(dmuon_lend *lend);

/* ---- lend.c: what the caller's brackets do ---- */

DMuonErrorCode dmuon_lend_bracket(dmuon_lend *lend, int group, dmuon_life_event event);
/* A bracket of the group is open, and (backward) one in which gradients are taken. */
DMuonErrorCode dmuon_lend_check_open(const dmuon_lend *lend, int group, int backward);
/* Inside a bracket. grad NULL: not asked for. */
DMuonErrorCode dmuon_lend_get(dmuon_lend *lend, int group, int index, const void **data,
                              void **grad);
DMuonErrorCode dmuon_lend_set_grad(dmuon_lend *lend, int group, int index, const void *grad);
/* Closes all brackets that are open. drops: what was handed over in them may be gone already. */
DMuonErrorCode dmuon_lend_close_brackets(dmuon_lend *lend, int drops);
/* Completes the sequence of the pass: what this rank left out, or all of it. */
DMuonErrorCode dmuon_lend_finish_pass(dmuon_lend *lend);
/* Reductions of all down to group that have had none in this pass; then of all groups. */
DMuonErrorCode dmuon_lend_reduce_up_to(dmuon_lend *lend, int group);
DMuonErrorCode dmuon_lend_reduce_rest(dmuon_lend *lend);
void dmuon_lend_begin_pass(dmuon_lend *lend, DMuonPass pass, int is_implicit);
/* After a step, or when values changed: nothing is resident, no gradient is left, an implicit TRAIN
 * pass begins. Nothing is waited for. */
DMuonErrorCode dmuon_lend_begin_step(dmuon_lend *lend);
/* Forgets what was reduced or added up so far in this step, and gradients of groups that are
 * closed. */
void dmuon_lend_forget_sums(dmuon_lend *lend);
/* What was found by the checks of all gradients so far is in nonfinite. Waits for this rank's
 * queue. */
DMuonErrorCode dmuon_lend_look_for_nonfinite(dmuon_lend *lend);

/* ---- lend_turn.c ---- */

void dmuon_lend_note(dmuon_lend *lend, int group, dmuon_life_event event);
/* All fetches up to that of group in the phase the pass is in. reduces: with the reductions that
 * stand between them, as their gradients are; not for recomputation, behind which the backward of
 * groups above may be yet to come. */
DMuonErrorCode dmuon_lend_catch_up(dmuon_lend *lend, int group, int reduces);
/* The backward fetches that stand before the reduction of group, as far as there is room: what is
 * not fetched now is when its turn is asked for. */
DMuonErrorCode dmuon_lend_fetch_before_reduction(dmuon_lend *lend, int group);
/* From forward to backward: the forward sequence is completed, and every group that is not open is
 * fetched anew. */
DMuonErrorCode dmuon_lend_turn(dmuon_lend *lend);
/* Fetches what comes after group, as far ahead as the settings say and buffers are free. */
DMuonErrorCode dmuon_lend_prefetch(dmuon_lend *lend, int group);
/* The values of group are there, or on their way, and stay until they are closed. */
DMuonErrorCode dmuon_lend_open_values(dmuon_lend *lend, int group, int is_backward);
/* The caller is done with them. is_used_up: nobody will miss them before they are fetched again. */
DMuonErrorCode dmuon_lend_close_values(dmuon_lend *lend, int group, int is_used_up);
char *dmuon_lend_values_of(const dmuon_lend *lend, int group); /* NULL: nowhere */
/* Buffers that no bracket uses are free. */
void dmuon_lend_empty_places(dmuon_lend *lend);
/* Fetches the first groups of the coming pass. */
DMuonErrorCode dmuon_lend_fetch_ahead(dmuon_lend *lend);

/* ---- lend_values.c ---- */

/* Issues the fetch of all parts of a group into a buffer that holds values of group `before` (-1:
 * of none), once the caller has left it. */
DMuonErrorCode dmuon_lend_fetch(dmuon_lend *lend, int group, char *buffer, dmuon_event *left,
                                int before);
/* New values of a bundle: where its group has been fetched already it is fetched again. */
DMuonErrorCode dmuon_lend_refetch(dmuon_lend *lend, int bundle);
/* The caller queue goes on when the values are there. */
DMuonErrorCode dmuon_lend_await(dmuon_lend *lend, int group);
/* Where the update writes elements of parameter index: from its mine_first on. */
void *dmuon_lend_value(const dmuon_lend *lend, int bundle, int index);
/* The compute queue may write new values of the bundle. */
DMuonErrorCode dmuon_lend_before_update(dmuon_lend *lend, int bundle);
/* New values, written behind what the compute queue holds, go to all who keep them. */
DMuonErrorCode dmuon_lend_publish(dmuon_lend *lend, int bundle);

/* ---- lend_grads.c ---- */

/* Address of a parameter's gradient in a gradient buffer; NULL for the caller's arrays and frozen
 * parameters. */
void *dmuon_lend_grad_at(const dmuon_lend *lend, int group, int index, int place);
/* There is a gradient buffer for a backward of the group, or DMUON_ERR_STATE. */
DMuonErrorCode dmuon_lend_check_grads(const dmuon_lend *lend, int group);
/* Gets the group a gradient buffer (or a further one), zeroed or discarded behind the caller queue.
 */
DMuonErrorCode dmuon_lend_open_grads(dmuon_lend *lend, int group);
/* The caller has written: takes what he handed over, adds a further backward, and local sums. */
DMuonErrorCode dmuon_lend_close_grads(dmuon_lend *lend, int group);
/* Both stages for all parts of the group, with what stands; parts NULL, or a flag a part: for those
 * flagged. */
DMuonErrorCode dmuon_lend_reduce(dmuon_lend *lend, int group, const unsigned char *parts);
/* The same without what its open bracket has so far, which is kept for later. */
DMuonErrorCode dmuon_lend_reduce_without(dmuon_lend *lend, int group);
/* Drops the group's gradients of this pass. */
void dmuon_lend_drop_grads(dmuon_lend *lend, int group);
/* The compute queue goes on when the bundle's mean is there, divided. */
DMuonErrorCode dmuon_lend_finish_mean(dmuon_lend *lend, int bundle, double divisor);

/* Of a group, and of a group's part. */
static inline dmuon_group_plan *dmuon_lend_plan(const dmuon_lend *lend, int group) {
  return &lend->groups.groups[group];
}
static inline const dmuon_bundle *dmuon_lend_bundle(const dmuon_lend *lend, int bundle) {
  return &lend->base->packing.bundles[bundle];
}

#endif
