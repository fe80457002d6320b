/* The order of a step: complete, legal for two slots, and overlapping as promised. */
#include "engine/schedule.h"

#include "tap.h"

enum { MOST = 40 };

/* Checks one schedule; returns 0, or says what is wrong. */
static const char *check(int count, int norm_first) {
  int reduced[MOST] = {0}, updated[MOST] = {0}, published[MOST] = {0}, unpacked[MOST] = {0};
  dmuon_schedule schedule = dmuon_schedule_begin(count, norm_first);
  int norms = 0, n = 0;
  for (;; n++) {
    const dmuon_action a = dmuon_schedule_next(&schedule);
    const int b = a.bundle;
    if (a.kind == DMUON_ACTION_END) break;
    if (n > 5 * MOST) return "does not end";
    if (a.kind == DMUON_ACTION_NORM) {
      norms++;
      for (int i = 0; i < count; i++)
        if (!reduced[i]) return "norm before a reduction";
      continue;
    }
    if (b < 0 || b >= count) return "bundle out of range";
    switch (a.kind) {
      case DMUON_ACTION_REDUCE:
        if (reduced[b]++) return "reduced twice";
        if (!norm_first && b >= DMUON_SLOTS && !updated[b - DMUON_SLOTS])
          return "slot taken before its bundle was updated";
        break;
      case DMUON_ACTION_UPDATE:
        if (!reduced[b]) return "updated before reduced";
        if (norm_first && norms != 1) return "updated before the norm";
        if (b >= DMUON_SLOTS && !unpacked[b - DMUON_SLOTS]) return "values overwritten";
        if (!norm_first && b + 1 < count && !reduced[b + 1]) return "nothing travels meanwhile";
        if (updated[b]++) return "updated twice";
        break;
      case DMUON_ACTION_PUBLISH:
        if (!updated[b] || published[b]++) return "published wrongly";
        break;
      case DMUON_ACTION_UNPACK:
        if (!published[b] || unpacked[b]++) return "unpacked wrongly";
        if (b + 1 < count && !updated[b + 1]) return "publish is not hidden";
        break;
      default:
        return "unknown action";
    }
  }
  for (int i = 0; i < count; i++)
    if (!unpacked[i]) return "left out";
  if (dmuon_schedule_next(&schedule).kind != DMUON_ACTION_END) return "goes on after its end";
  if (norms != (norm_first ? 1 : 0)) return "norms";
  return NULL;
}

int main(void) {
  for (int norm_first = 0; norm_first < 2; norm_first++)
    for (int count = 0; count < MOST; count++) {
      const char *wrong = check(count, norm_first);
      if (wrong || count < 4)
        tap_ok(!wrong, "%d bundles%s: %s", count, norm_first ? ", norm first" : "",
               wrong ? wrong : "complete and in order");
    }
  return tap_done();
}
