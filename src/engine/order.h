/* The order of one pass: in which sequence groups are fetched and their gradients reduced, so that
 * every rank does it in the same one whatever its program runs. Pure.
 *
 * Registered order: forward fetches of all groups 0 .. n-1, then backward fetches n-1 .. 0, and
 * reductions n-1 .. 0. A bracket asks for its group; what comes before it in the sequence comes
 * first. Program order: each asks for itself only.
 *
 * Backward fetches and reductions are one sequence, not two: with fetches d groups ahead, the fetch
 * of group j stands behind the reductions of all groups above j + d, and the reduction of group g
 * behind the fetches of all groups down to g - d. So a rank that leaves groups out, or all of them,
 * issues what it passes over in the order of those who run them: devices carry communication out in
 * the order issued, whatever communicator it is on. */
#ifndef DMUON_ENGINE_ORDER_H
#define DMUON_ENGINE_ORDER_H

#include <dmuon/types.h>

typedef struct {
  DMuonOrder order;
  int group_count;
  int forward_next;  /* groups below it have had their forward fetch */
  int backward_next; /* groups above it have had their backward fetch */
  int reduce_next;   /* groups above it have been reduced */
  int backward_has_begun;
} dmuon_order;

typedef struct {
  int group;       /* -1: nothing is left to do before what was asked for */
  int is_backward; /* the fetch belongs to the backward phase */
} dmuon_order_item;

dmuon_order dmuon_order_begin(DMuonOrder order, int group_count);
/* The next fetch on the way to that of `group` in the phase the pass is in, that one included. In
 * program order nothing: whether a group is fetched depends on where its values are. */
dmuon_order_item dmuon_order_fetch(dmuon_order *order, int group);
/* The next fetch of the phase, if it is at most `depth` ahead of group and all up to group's are
 * done (a Z2 group may be open before its turn in backward). */
dmuon_order_item dmuon_order_ahead(dmuon_order *order, int group, int depth);
/* From now on fetches are backward ones; first the forward sequence must be complete: asked for
 * with dmuon_order_fetch(group_count - 1). */
void dmuon_order_turn(dmuon_order *order);
/* The last reduction before the backward fetch of group, and the last such fetch before the
 * reduction of group. */
int dmuon_order_reduce_before(int group, int depth);
int dmuon_order_fetch_before(int group, int depth);
/* The next reduction on the way to that of `group`, that one included; -1: none is left. */
int dmuon_order_reduce(dmuon_order *order, int group);
/* The group whose backward fetch is next, where `group` is still to come; -1: it has had its
 * own. */
int dmuon_order_fetch_due(const dmuon_order *order, int group);
/* All reductions that stand before the backward fetch of group have been asked for. */
int dmuon_order_may_fetch(const dmuon_order *order, int group, int depth);

#endif
