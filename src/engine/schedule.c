/* The order of one step, as a table that is computed instead of stored.
 *
 * Plain: R0 R1 | U0 P0 R2 | U1 P1 N0 R3 | U2 P2 N1 ... | N(last), with N for unpack: the reduction
 * of i + 2 is issued behind the update of i, whose slot it takes over, and the values of i - 1 are
 * unpacked behind the update of i, which hid their way. Norm first: all R, then the norm, then the
 * same without R. */
#include "engine/schedule.h"

static const dmuon_action end = {DMUON_ACTION_END, -1};

/* Updates with everything that follows them; reduce_too: bundle i + SLOTS is reduced behind i. */
static dmuon_action update_phase(int count, int reduce_too, int index) {
  for (int i = 0; i < count; i++) {
    dmuon_action actions[4];
    int n = 0;
    actions[n++] = (dmuon_action){DMUON_ACTION_UPDATE, i};
    actions[n++] = (dmuon_action){DMUON_ACTION_PUBLISH, i};
    if (i > 0) actions[n++] = (dmuon_action){DMUON_ACTION_UNPACK, i - 1};
    if (reduce_too && i + DMUON_SLOTS < count)
      actions[n++] = (dmuon_action){DMUON_ACTION_REDUCE, i + DMUON_SLOTS};
    if (index < n) return actions[index];
    index -= n;
  }
  if (index == 0 && count > 0) return (dmuon_action){DMUON_ACTION_UNPACK, count - 1};
  return end;
}

dmuon_action dmuon_schedule_action(int count, int norm_first, int index) {
  int before = norm_first || count < DMUON_SLOTS ? count : DMUON_SLOTS;
  if (index < before) return (dmuon_action){DMUON_ACTION_REDUCE, index};
  index -= before;
  if (norm_first && index-- == 0) return (dmuon_action){DMUON_ACTION_NORM, -1};
  return update_phase(count, !norm_first, index);
}
