/* How the devices of a mesh talk to each other, from what each rank has: the choice and its
 * words. */
#include "mesh/device_choice.h"

#include <string.h>

#include "tap.h"

enum { SIZE = 8 };
static dmuon_device_fact facts[SIZE];
static int rank_at[SIZE];
static dmuon_memory memory;

/* A GPU a rank, each its own; ranks in order. */
static void reset(void) {
  memset(facts, 0, sizeof facts);
  for (int i = 0; i < SIZE; i++) {
    facts[i].uuid[0] = 0xab;
    facts[i].uuid[15] = (unsigned char)(i + 1);
    rank_at[i] = i;
  }
}

static void lack(int rank) {
  memset(&facts[rank], 0, sizeof facts[rank]);
  facts[rank].is_missing = 1;
}

#define REMEDY "; bind gpu, device cuda:ordinal=N or CUDA_VISIBLE_DEVICES give each its own"

static void share(int a, int b) {
  facts[b] = facts[a];
}

static int is(const int sizes[3], int asked, dmuon_transport_reason reason, const char *words) {
  const char *text = "";
  dmuon_text said;
  dmuon_transport_choice choice = dmuon_transport_choose(SIZE, facts, sizes, rank_at, asked);
  dmuon_text_init(&said, &memory);
  dmuon_transport_explain(&choice, SIZE, facts, "no driver", &said);
  int good = !dmuon_text_finish(&said, &text) && choice.reason == reason && !strcmp(text, words);
  if (!good) tap_diag("reason %d: %s", (int)choice.reason, text);
  dmuon_text_free(&said);
  return good;
}

int main(void) {
  const int flat[3] = {1, 8, 1}, grid[3] = {2, 4, 1}, cube[3] = {2, 2, 2};
  reset();
  tap_ok(is(flat, 0, DMUON_TRANSPORT_OWN, ""), "a GPU a rank: they talk to each other");
  tap_ok(is(flat, 1, DMUON_TRANSPORT_ASKED, "staged through host memory: asked for"), "as asked");
  lack(3);
  tap_ok(is(cube, 1, DMUON_TRANSPORT_MISSING,
            "staged through host memory: rank 3 has no GPU (no driver)"),
         "one rank without");
  lack(6);
  tap_ok(is(cube, 0, DMUON_TRANSPORT_MISSING,
            "staged through host memory: ranks 3 and 6 have no GPU (rank 3: no driver)"),
         "two ranks without");
  for (int i = 0; i < SIZE; i++) lack(i);
  facts[0].is_missing = 0;
  tap_ok(is(flat, 0, DMUON_TRANSPORT_MISSING,
            "staged through host memory: ranks 1, 2, 3, 4, 5, 6 and 7 have no GPU (rank 1: no "
            "driver)"),
         "all but one, whose host is no GPU that anybody could share");
  reset();
  share(2, 7);
  tap_ok(is(flat, 0, DMUON_TRANSPORT_SHARED,
            "staged through host memory: ranks 2 and 7 share "
            "GPU-ab000000-0000-0000-0000-000000000003" REMEDY),
         "two of a communicator on one GPU");
  tap_ok(is(grid, 0, DMUON_TRANSPORT_OWN, ""), "two that no axis joins may share one");
  share(1, 5);
  tap_ok(is(grid, 0, DMUON_TRANSPORT_SHARED,
            "staged through host memory: ranks 1 and 5 share "
            "GPU-ab000000-0000-0000-0000-000000000002" REMEDY),
         "on the replicate axis");
  reset();
  share(3, 4);
  tap_ok(is(cube, 0, DMUON_TRANSPORT_OWN, ""), "opposite corners of a cube");
  for (int i = 0; i < SIZE; i++) rank_at[i] = SIZE - 1 - i; /* the same corners, turned round */
  tap_ok(is(cube, 0, DMUON_TRANSPORT_OWN, ""), "whatever the order of ranks");
  rank_at[1] = 3, rank_at[4] = 6; /* beside 4 now */
  tap_ok(is(cube, 0, DMUON_TRANSPORT_SHARED,
            "staged through host memory: ranks 3 and 4 share "
            "GPU-ab000000-0000-0000-0000-000000000004" REMEDY),
         "places decide, not numbers");
  return tap_done();
}
