/* Sequences of one pass: whatever each rank's brackets ask for, all have done the same at the end,
 * in the same order; never more is fetched ahead than the depth says. And the places that groups
 * take turns with. */
#include "engine/order.h"

#include <string.h>

#include "engine/pool.h"
#include "tap.h"

enum { GROUPS = 6, MOST = 64 };

/* What was done, as text: "F0", "B5", "R3". */
typedef struct {
  char text[4 * MOST];
} record;

static void note(record *r, char what, int group) {
  const char text[] = {what, (char)('0' + group), ' ', 0};
  strcat(r->text, text);
}

static void fetch(dmuon_order *order, int group, record *r) {
  for (;;) {
    const dmuon_order_item item = dmuon_order_fetch(order, group);
    if (item.group < 0) return;
    note(r, item.is_backward ? 'B' : 'F', item.group);
  }
}

static void reduce(dmuon_order *order, int group, record *r) {
  for (int g; (g = dmuon_order_reduce(order, group)) >= 0;) note(r, 'R', g);
}

/* "f2" asks for forward, "b2" for backward, "r2" to reduce; then the pass is completed. */
static record run(const char *program) {
  record r = {""};
  dmuon_order order = dmuon_order_begin(DMUON_ORDER_REGISTERED, GROUPS);
  for (const char *at = program; *at; at += 2) {
    const int group = at[1] - '0';
    if (at[0] == 'b' && !order.backward_has_begun) {
      fetch(&order, GROUPS - 1, &r);
      dmuon_order_turn(&order);
    }
    if (at[0] == 'r')
      reduce(&order, group, &r);
    else
      fetch(&order, group, &r);
  }
  fetch(&order, order.backward_has_begun ? 0 : GROUPS - 1, &r);
  if (!order.backward_has_begun) {
    dmuon_order_turn(&order);
    fetch(&order, 0, &r);
  }
  reduce(&order, 0, &r);
  return r;
}

/* Only what begins with one of these letters. */
static record only(const record *from, const char *letters) {
  record r = {""};
  for (const char *at = from->text; *at; at += 3)
    if (strchr(letters, *at)) note(&r, *at, at[1] - '0');
  return r;
}

static void test_sequences(void) {
  static const char *const programs[] = {"",
                                         "f0f1f2f3f4f5b5r5b4r4b3r3b2r2b1r1b0r0",
                                         "f3b3r3",
                                         "f5b0r0",
                                         "f2f0f1b1b4r4f3r1",
                                         "b5r5b2r2",
                                         "f0f0f5f5b5b5r5r5",
                                         "r0b3"};
  const char *fetches = "F0 F1 F2 F3 F4 F5 B5 B4 B3 B2 B1 B0 ", *reductions = "R5 R4 R3 R2 R1 R0 ";
  for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
    const record all = run(programs[i]), f = only(&all, "FB"), r = only(&all, "R");
    tap_is_string(f.text, fetches, "fetches of \"%s\"", programs[i]);
    tap_is_string(r.text, reductions, "reductions of \"%s\"", programs[i]);
  }
  const record straight = run("f3b4r4");
  tap_is_string(straight.text, "F0 F1 F2 F3 F4 F5 B5 B4 R5 R4 B3 B2 B1 B0 R3 R2 R1 R0 ",
                "what was passed over comes first, the rest at the end");
}

static void test_ahead(void) {
  dmuon_order order = dmuon_order_begin(DMUON_ORDER_REGISTERED, GROUPS);
  record r = {""};
  fetch(&order, 1, &r);
  tap_is_int(dmuon_order_ahead(&order, 1, 0).group, -1, "depth 0: nothing ahead");
  tap_is_int(dmuon_order_ahead(&order, 1, 1).group, 2, "depth 1: the next");
  tap_is_int(dmuon_order_ahead(&order, 1, 1).group, 2, "which is but looked at");
  fetch(&order, 2, &r);
  tap_is_int(dmuon_order_ahead(&order, 1, 1).group, -1, "no more than one");
  tap_is_int(dmuon_order_ahead(&order, 1, 2).group, 3, "depth 2: one more");
  fetch(&order, 5, &r);
  tap_is_int(dmuon_order_ahead(&order, 5, 9).group, -1, "nothing behind the last");
  dmuon_order_turn(&order);
  tap_is_int(dmuon_order_ahead(&order, 6, 1).group, 5, "backward: the last first");
  tap_is_int(dmuon_order_ahead(&order, 0, 1).group, -1,
             "nothing ahead of one whose turn is not yet");
  fetch(&order, 5, &r);
  tap_is_int(dmuon_order_ahead(&order, 5, 1).group, 4, "backward, ahead means below");
  tap_ok(dmuon_order_ahead(&order, 5, 1).is_backward, "and is of backward");
  fetch(&order, 0, &r);
  tap_is_int(dmuon_order_ahead(&order, 0, 9).group, -1, "nothing behind the first");
}

/* Backward fetches and reductions as one sequence, by whoever asks for either first: each rank here
 * asks for some, in its own way, and all write the same line. */
static void one_sequence(int depth, int how, char *line) {
  dmuon_order order = dmuon_order_begin(DMUON_ORDER_REGISTERED, GROUPS);
  dmuon_order_turn(&order);
  for (int left = 2 * GROUPS; left > 0;) {
    const int next = dmuon_order_fetch_due(&order, 0);
    const int by_fetch = how == 0 || (how == 2 && left % 3 == 0);
    int group = -1;
    if (next >= 0 && by_fetch) { /* asks for a fetch: what stands before it first */
      group = dmuon_order_reduce(&order, dmuon_order_reduce_before(next, depth));
      if (group >= 0) {
        *line++ = (char)('a' + group), left--;
        continue;
      }
      tap_ok(dmuon_order_may_fetch(&order, next, depth), "now %d may be fetched", next);
      *line++ = (char)('A' + dmuon_order_fetch(&order, next).group), left--;
      continue;
    }
    for (int g; (g = dmuon_order_fetch_due(
                     &order, dmuon_order_fetch_before(order.reduce_next, depth))) >= 0;) {
      (void)dmuon_order_fetch(&order, g);
      *line++ = (char)('A' + g), left--;
    }
    group = dmuon_order_reduce(&order, 0);
    if (group >= 0) *line++ = (char)('a' + group), left--;
  }
  *line = 0;
}

static void test_one_sequence(void) {
  static const char *const lines[] = {"FfEeDdCcBbAa", "FEfDeCdBcAba", "FEDfCeBdAcba",
                                      "FEDCBAfedcba"};
  static const int depths[] = {0, 1, 2, 9};
  _Static_assert(GROUPS == 6, "the lines are of six groups");
  for (int d = 0; d < 4; d++)
    for (int how = 0; how < 3; how++) {
      char line[2 * GROUPS + 1];
      dmuon_order ready = dmuon_order_begin(DMUON_ORDER_REGISTERED, GROUPS);
      tap_is_int(dmuon_order_fetch_due(&ready, 0), -1, "forward has no backward fetch due");
      one_sequence(depths[d], how, line);
      tap_is_string(line, lines[d], "depth %d, asked for in way %d", depths[d], how);
    }
}

static void test_program_order(void) {
  dmuon_order order = dmuon_order_begin(DMUON_ORDER_PROGRAM, GROUPS);
  tap_is_int(dmuon_order_fetch(&order, 3).group, -1, "program order: nothing comes before");
  tap_is_int(dmuon_order_ahead(&order, 3, 2).group, -1, "nor ahead");
}

/* ---- places ---------------------------------------------------------------------------------- */

static void test_pool(void) {
  dmuon_place places[2];
  dmuon_pool pool;
  int evicted = 9;
  dmuon_pool_begin(&pool, 2, places);
  tap_is_int(dmuon_pool_find(&pool, 0), -1, "nobody is there");
  tap_is_int(dmuon_pool_free_count(&pool), 2, "two are free");
  const int a = dmuon_pool_take(&pool, 7, DMUON_PLACE_OPEN, 0, &evicted);
  tap_ok(a >= 0 && evicted == -1 && dmuon_pool_find(&pool, 7) == a, "a free place evicts nobody");
  const int b = dmuon_pool_take(&pool, 8, DMUON_PLACE_AHEAD, 1, &evicted);
  tap_ok(b >= 0 && b != a && dmuon_pool_find(&pool, 8) == b, "the other one");
  tap_is_int(dmuon_pool_free_count(&pool), 0, "none is free");
  tap_is_int(dmuon_pool_take(&pool, 9, DMUON_PLACE_OPEN, 0, &evicted), -1,
             "open ones, and those fetched ahead, are nobody else's");
  dmuon_pool_set(&pool, a, DMUON_PLACE_KEPT, 0);
  tap_is_int(dmuon_pool_take(&pool, 9, DMUON_PLACE_AHEAD, 1, &evicted), -1,
             "what may come again is not given up for what is ahead");
  tap_is_int(dmuon_pool_take(&pool, 9, DMUON_PLACE_OPEN, 0, &evicted), a,
             "but for what is needed now");
  tap_is_int(evicted, 7, "and its group is named");
  tap_is_int(dmuon_pool_find(&pool, 7), -1, "which is gone");
  dmuon_pool_set(&pool, a, DMUON_PLACE_KEPT, 0); /* 9, kept later */
  dmuon_pool_set(&pool, b, DMUON_PLACE_KEPT, 0); /* 8, the latest */
  tap_is_int(dmuon_pool_take(&pool, 1, DMUON_PLACE_OPEN, 0, &evicted), a,
             "the one that was kept longest");
  dmuon_pool_set(&pool, a, DMUON_PLACE_KEPT, 0);
  dmuon_pool_set(&pool, b, DMUON_PLACE_KEPT, 1);
  tap_is_int(dmuon_pool_take(&pool, 2, DMUON_PLACE_AHEAD, 1, &evicted), b,
             "those used up before those that may come again");
  tap_is_int(evicted, 8, "the one used up");
  dmuon_pool_free(&pool, a);
  tap_is_int(dmuon_pool_free_count(&pool), 1, "one is free again");
  tap_is_int(dmuon_pool_find(&pool, 1), -1, "a free place holds nobody");
  tap_is_int(dmuon_pool_take(&pool, 3, DMUON_PLACE_OPEN, 0, &evicted), a, "and is taken first");
  tap_is_int(evicted, -1, "without loss");
}

int main(void) {
  test_sequences();
  test_ahead();
  test_one_sequence();
  test_program_order();
  test_pool();
  return tap_done();
}
