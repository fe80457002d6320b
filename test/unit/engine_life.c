/* The life of a group: every event in every state that brackets can reach, against a table of rules
 * written out here; what is refused says why and changes nothing; recomputation, nesting, runs. */
#include "engine/life.h"

#include <string.h>

#include "tap.h"

static const dmuon_life_context train = {DMUON_PASS_TRAIN, 0}, again = {DMUON_PASS_TRAIN, 1},
                                eval = {DMUON_PASS_EVAL, 0};

/* Carries out "fFbB" (lower case opens), with 'r' a forward that is recomputation; returns how many
 * events were legal before one was not. */
static int run(const char *events, const dmuon_life_context *context, dmuon_life *life,
               dmuon_life_meaning *last) {
  int count = 0;
  *life = (dmuon_life){0};
  for (; *events; events++, count++) {
    const dmuon_life_event event = *events == 'F'                     ? DMUON_EVENT_FORWARD_END
                                   : *events == 'f' || *events == 'r' ? DMUON_EVENT_FORWARD_BEGIN
                                   : *events == 'b'                   ? DMUON_EVENT_BACKWARD_BEGIN
                                                                      : DMUON_EVENT_BACKWARD_END;
    if (dmuon_life_next(life, event, *events == 'r' ? &again : context, last)) break;
  }
  return count;
}

static int is_legal(const char *events) {
  dmuon_life life;
  dmuon_life_meaning last;
  return run(events, &train, &life, &last) == (int)strlen(events);
}

/* The meaning of the last event, as "ocb" of opens, closes, balances. */
static const char *meaning(const char *events) {
  static char text[8];
  dmuon_life life;
  dmuon_life_meaning m = {0};
  if (run(events, &train, &life, &m) != (int)strlen(events)) return "refused";
  snprintf(text, sizeof text, "%s%s%s", m.opens ? "o" : "", m.closes ? "c" : "",
           m.balances ? "b" : "");
  return text;
}

static void test_orders(void) {
  static const char *const legal[] = {
      "",         "fF",     "fFbB",   "ffFF",   "fFbrFB", "fFfFbBbB", "fFbbBB", "fFbrrFFbBB",
      "fFbBfFbB", "fFrFbB", "fFbBrF", "fFbBbB", "f",      "fFbrFrFB", "rFbB",   "ffFfFF"};
  static const char *const illegal[] = {"F",   "b",      "B",     "fFF",     "fb",    "fB",
                                        "fFB", "fFbF",   "fFbrB", "fFbBB",   "ffFb",  "fFbrb",
                                        "bB",  "fFbrFF", "fFfb",  "fFbbBFB", "fFbBF", "ffFFF"};
  for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++)
    tap_ok(is_legal(legal[i]), "legal: %s", legal[i]);
  for (size_t i = 0; i < sizeof illegal / sizeof illegal[0]; i++)
    tap_ok(!is_legal(illegal[i]), "refused: %s", illegal[i]);
}

static void test_meaning(void) {
  static const struct {
    const char *events, *means;
  } cases[] = {{"f", "o"},         {"ff", ""},       {"ffF", ""},        {"ffFF", "c"},
               {"fFb", "o"},       {"fFbr", ""},     {"fFbrF", ""},      {"fFbb", ""},
               {"fFbbB", ""},      {"fFbB", "cb"},   {"fFbbBB", "cb"},   {"fFfFbB", "c"},
               {"fFfFbBbB", "cb"}, {"ffFFbB", "cb"}, {"fFrFbB", "cb"},   {"rFbB", "cb"},
               {"fFbBfFbB", "cb"}, {"fFbBbB", "cb"}, {"fFfFbBfFbB", "c"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    tap_is_string(meaning(cases[i].events), cases[i].means, "%s means", cases[i].events);
}

/* Every event in every state that up to six brackets reach, against the rules. */
static void try_all(const char *events, int depth, int *tried, int *wrong) {
  static const char kinds[] = "fFbBr";
  for (int k = 0; k < 5 && depth < 6; k++) {
    char more[16];
    dmuon_life life, before;
    dmuon_life_meaning m = {0};
    run(events, &train, &before, &m);
    const int forward = before.forward_depth, backward = before.backward_depth;
    const int expected = kinds[k] == 'f' || kinds[k] == 'r' ? 1
                         : kinds[k] == 'F'                  ? forward > 0
                         : kinds[k] == 'b'                  ? before.ran && forward == 0
                                                            : backward > 0 && forward == 0;
    snprintf(more, sizeof more, "%s%c", events, kinds[k]);
    const int legal = run(more, &train, &life, &m) == (int)strlen(more);
    (*tried)++;
    *wrong += legal != expected;
    if (!legal) *wrong += memcmp(&life, &before, sizeof life) != 0;
    if (legal) {
      const int open = dmuon_life_is_open(&life);
      *wrong += m.opens != (!dmuon_life_is_open(&before));
      *wrong += m.closes != !open;
      *wrong += (life.state == DMUON_LIFE_FORWARD || life.state == DMUON_LIFE_BACKWARD) != open;
      *wrong += life.runs < 0;
      try_all(more, depth + 1, tried, wrong);
    }
  }
}

static void test_refusals(void) {
  dmuon_life life = {0}, before;
  dmuon_life_meaning m;
  int tried = 0, wrong = 0;
  try_all("", 0, &tried, &wrong);
  tap_ok(tried > 500, "so many events were tried: %d", tried);
  tap_is_int(wrong, 0, "all as the rules say, refusals without a trace");
  tap_contains(dmuon_life_next(&life, DMUON_EVENT_FORWARD_END, &train, &m), "no forward bracket",
               "an end without begin says so");
  tap_contains(dmuon_life_next(&life, DMUON_EVENT_BACKWARD_BEGIN, &train, &m),
               "did not run forward", "a backward without forward");
  tap_contains(dmuon_life_next(&life, DMUON_EVENT_BACKWARD_BEGIN, &eval, &m), "EVAL",
               "a backward in an evaluation");
  tap_contains(dmuon_life_next(&life, (dmuon_life_event)99, &train, &m), "no such event",
               "something else");
  run("f", &train, &life, &m);
  before = life;
  tap_contains(dmuon_life_next(&life, DMUON_EVENT_FETCH, &train, &m), "in use",
               "a fetch when open");
  tap_contains(dmuon_life_next(&life, DMUON_EVENT_RELEASE, &train, &m), "in use",
               "a release when open");
  tap_ok(memcmp(&life, &before, sizeof life) == 0, "which change nothing");
  run("fFb", &train, &life, &m);
  tap_contains(dmuon_life_next(&life, DMUON_EVENT_REDUCE, &train, &m), "still open",
               "a reduction inside backward");
}

static void test_states(void) {
  dmuon_life life = {0};
  dmuon_life_meaning m;
  static const struct {
    dmuon_life_event event;
    const char *state;
  } way[] = {
      {DMUON_EVENT_FETCH, "unsharding"},       {DMUON_EVENT_FORWARD_BEGIN, "computing forward"},
      {DMUON_EVENT_FORWARD_END, "unsharded"},  {DMUON_EVENT_RELEASE, "sharded"},
      {DMUON_EVENT_FETCH, "unsharding"},       {DMUON_EVENT_BACKWARD_BEGIN, "computing backward"},
      {DMUON_EVENT_BACKWARD_END, "unsharded"}, {DMUON_EVENT_REDUCE, "reducing"},
      {DMUON_EVENT_RELEASE, "reducing"},       {DMUON_EVENT_STEP, "sharded"}};
  for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
    const char *wrong = dmuon_life_next(&life, way[i].event, &train, &m);
    tap_ok(!wrong && strcmp(dmuon_life_state_name(life.state), way[i].state) == 0, "%s leads to %s",
           dmuon_life_event_name(way[i].event), way[i].state);
  }
  run("fFfF", &train, &life, &m);
  dmuon_life_new_pass(&life);
  tap_ok(life.runs == 0 && !life.ran && !dmuon_life_is_open(&life), "a new pass forgets runs");
  tap_ok(dmuon_life_next(&life, DMUON_EVENT_BACKWARD_BEGIN, &train, &m) != NULL,
         "and that it ran forward");
}

int main(void) {
  test_orders();
  test_meaning();
  test_refusals();
  test_states();
  return tap_done();
}
