/* The order of one step, action by action.
 *
 * Plain: R0 R1 | U0 P0 R2 | U1 P1 N0 R3 | U2 P2 N1 ... | N(last), with N for unpack: the reduction
 * of i + 2 is issued behind the update of i, whose slot it takes over, and the values of i - 1 are
 * unpacked behind the update of i, which hid their way. Norm first: all R, then the norm, then the
 * same without R. */
#include "engine/schedule.h"

dmuon_schedule dmuon_schedule_begin(int count, int norm_first) {
  return (dmuon_schedule){.count = count, .norm_first = norm_first};
}

dmuon_action dmuon_schedule_next(dmuon_schedule *s) {
  const int ahead = s->norm_first || s->count < DMUON_SLOTS ? s->count : DMUON_SLOTS;
  if (s->reduced < ahead) return (dmuon_action){DMUON_ACTION_REDUCE, s->reduced++};
  if (s->norm_first && !s->has_norm) {
    s->has_norm = 1;
    return (dmuon_action){DMUON_ACTION_NORM, -1};
  }
  while (s->bundle < s->count) {
    const int i = s->bundle;
    switch (s->part++) {
      case 0:
        return (dmuon_action){DMUON_ACTION_UPDATE, i};
      case 1:
        return (dmuon_action){DMUON_ACTION_PUBLISH, i};
      case 2:
        if (i > 0) return (dmuon_action){DMUON_ACTION_UNPACK, i - 1};
        break;
      case 3:
        if (!s->norm_first && i + DMUON_SLOTS < s->count)
          return (dmuon_action){DMUON_ACTION_REDUCE, i + DMUON_SLOTS};
        break;
      default:
        s->bundle++, s->part = 0;
    }
  }
  if (!s->is_done && s->count > 0) {
    s->is_done = 1;
    return (dmuon_action){DMUON_ACTION_UNPACK, s->count - 1};
  }
  return (dmuon_action){DMUON_ACTION_END, -1};
}
