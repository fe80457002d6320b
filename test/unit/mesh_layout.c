/* Sizes and places of a mesh on machines of every placement. */
#include "mesh/layout.h"
#include "tap.h"

enum { MAX_RANKS = 256 };

static dmuon_memory memory;
static int node[MAX_RANKS], rank_at[MAX_RANKS];
static const int *const levels[1] = {node};

/* letters[i]: the node of rank i; nodes are renamed to their lowest rank. */
static int place(const char *letters) {
  int size = (int)strlen(letters);
  for (int i = 0; i < size; i++) node[i] = (int)(strchr(letters, letters[i]) - letters);
  return size;
}

static int propose(int size, int64_t r, int64_t g, int64_t t, int sizes[3]) {
  dmuon_layout_domains machine;
  dmuon_size_reason reasons[3];
  const int64_t want[3] = {r, g, t};
  DMuonErrorCode code = dmuon_layout_survey(&memory, size, node, &machine);
  if (!code) code = dmuon_layout_sizes(size, &machine, want, sizes, reasons);
  return code;
}

static void test_sizes(void) {
  enum { D = DMUON_DECIDE };
  static const struct {
    const char *nodes;
    int want[3], sizes[3];
  } cases[] = {
      {"a", {D, D, D}, {1, 1, 1}},
      {"aaaa", {D, D, D}, {1, 4, 1}},
      {"aaaabbbb", {D, D, D}, {2, 4, 1}},
      {"abababab", {D, D, D}, {2, 4, 1}},
      {"aaabbb", {D, D, 1}, {2, 3, 1}},
      {"aaaabbbbbb", {D, D, D}, {5, 2, 1}}, /* nodes of 4 and 6 */
      {"aaabb", {D, D, D}, {5, 1, 1}},      /* of 3 and 2 */
      {"aaaabbbb", {D, D, 2}, {2, 2, 2}},
      {"aaaabbbb", {D, D, 4}, {2, 1, 4}},
      {"aaaabbbb", {D, D, 8}, {1, 1, 8}}, /* tp larger than a node */
      {"aaaabbbb", {D, 2, D}, {4, 2, 1}},
      {"aaaabbbb", {D, 8, 1}, {1, 8, 1}},
      {"aaaabbbb", {1, D, D}, {1, 8, 1}},
      {"aaaabbbb", {4, D, 1}, {4, 2, 1}},
      {"aaaabbbb", {4, D, 2}, {4, 1, 2}},
      {"aaaabbbb", {2, 2, D}, {2, 2, 2}},
      {"aaaabbbb", {2, 2, 2}, {2, 2, 2}},
      {"aaaaaaa", {D, D, D}, {1, 7, 1}},
      {"abcdefg", {D, D, D}, {7, 1, 1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int size = place(cases[i].nodes), sizes[3] = {0};
    const int *w = cases[i].want, *s = cases[i].sizes;
    int code = propose(size, w[0], w[1], w[2], sizes);
    if (!tap_ok(!code && !memcmp(sizes, s, sizeof sizes), "%s, wanted %d %d %d: %dx%dx%d",
                cases[i].nodes, w[0], w[1], w[2], s[0], s[1], s[2]))
      tap_diag("got %dx%dx%d (%s)", sizes[0], sizes[1], sizes[2],
               code ? DMuonErrorGetMessage() : "");
  }
}

static void test_refusals(void) {
  static const struct {
    int64_t want[3];
    DMuonErrorCode code;
    const char *text;
  } cases[] = {
      {{3, 2, 1},
       DMUON_ERR_SETUP,
       "replicate 3 x shard 2 x tp 1 = 6 ranks, the communicator has 8"},
      {{DMUON_DECIDE, 3, 1},
       DMUON_ERR_SETUP,
       "shard 3 x tp 1 = 3 ranks does not divide the communicator's 8"},
      {{DMUON_DECIDE, DMUON_DECIDE, 3},
       DMUON_ERR_SETUP,
       "tp 3 = 3 ranks does not divide the communicator's 8"},
      {{16, DMUON_DECIDE, 1},
       DMUON_ERR_SETUP,
       "replicate 16 x tp 1 = 16 ranks does not divide the communicator's 8"},
      {{0, 8, 1}, DMUON_ERR_ARGUMENT, "replicate is 0"},
      {{1, -2, 1}, DMUON_ERR_ARGUMENT, "shard is -2"},
      {{INT32_MAX, INT32_MAX, INT32_MAX}, DMUON_ERR_SETUP, "the communicator has 8"},
  };
  int size = place("aaaabbbb");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int64_t *w = cases[i].want;
    int sizes[3] = {7, 7, 7};
    tap_is_int(propose(size, w[0], w[1], w[2], sizes), cases[i].code, "%lld x %lld x %lld refused",
               (long long)w[0], (long long)w[1], (long long)w[2]);
    tap_contains(DMuonErrorGetMessage(), cases[i].text, "with the values");
    tap_is_int(sizes[0], 7, "outputs untouched");
  }
}

static int is_permutation(int size) {
  int seen[MAX_RANKS] = {0};
  for (int i = 0; i < size; i++) {
    if (rank_at[i] < 0 || rank_at[i] >= size || seen[rank_at[i]]) return 0;
    seen[rank_at[i]] = 1;
  }
  return 1;
}

static int crossing(const int sizes[3], int axis) {
  return dmuon_layout_crossings(node, sizes, rank_at, axis).crossing;
}

static void test_order(void) {
  static const struct {
    const char *nodes;
    int sizes[3];
    int rank_at[10];
    int crossing[3]; /* groups that cross, by axis */
  } cases[] = {
      {"aaaabbbb", {2, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {4, 0, 0}},
      {"abababab", {2, 4, 1}, {0, 2, 4, 6, 1, 3, 5, 7}, {4, 0, 0}},
      {"abcabcab", {8, 1, 1}, {0, 3, 6, 1, 4, 7, 2, 5}, {1, 0, 0}},
      {"abbababa", {2, 4, 1}, {0, 3, 5, 7, 1, 2, 4, 6}, {4, 0, 0}},
      {"aaaabbbb", {4, 2, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {2, 0, 0}},
      {"aaaabbbb", {1, 8, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 0}},
      {"aabaaabbbb", {5, 2, 1}, {0, 1, 3, 4, 2, 6, 7, 8, 5, 9}, {2, 1, 0}},
      {"aaabbbbb", {2, 4, 1}, {3, 4, 5, 6, 0, 1, 2, 7}, {3, 1, 0}},
      {"abababab", {2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7}, {4, 0, 0}},
      {"aaabbbbb", {1, 4, 2}, {0, 1, 3, 4, 5, 6, 2, 7}, {0, 2, 1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int size = place(cases[i].nodes);
    const int *s = cases[i].sizes;
    DMuonErrorCode code = dmuon_layout_order(&memory, size, 1, levels, s, rank_at);
    tap_ok(!code && !memcmp(rank_at, cases[i].rank_at, (size_t)size * sizeof *rank_at),
           "%s as %dx%dx%d: places", cases[i].nodes, s[0], s[1], s[2]);
    for (int a = 0; a < 3; a++)
      tap_is_int(crossing(s, a), cases[i].crossing[a], "groups of axis %d that cross nodes", a);
  }
}

/* Islands in nodes: blocks stay inside islands, then inside nodes. */
static void test_levels(void) {
  static const struct {
    const char *islands, *nodes;
    int sizes[3];
    int rank_at[12];
    int crossing[2]; /* shard groups that cross islands, nodes */
  } cases[] = {
      {"aabbccdd", "aaaabbbb", {4, 2, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0}},
      {"acacbdbd", "abababab", {4, 2, 1}, {0, 2, 4, 6, 1, 3, 5, 7}, {0, 0}},
      {"acacbdbd", "abababab", {2, 4, 1}, {0, 2, 4, 6, 1, 3, 5, 7}, {2, 0}},
      {"aaabbbbb", "aaaaaaaa", {2, 4, 1}, {3, 4, 5, 6, 0, 1, 2, 7}, {1, 0}},
      {"aaabbbbb", "aaaaaaaa", {2, 2, 2}, {3, 4, 5, 6, 0, 1, 2, 7}, {1, 0}},
      {"aaabbbccc", "aaaaaabbb", {3, 3, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 0}},
  };
  static int island[MAX_RANKS];
  const int *const both[2] = {island, node};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int size = place(cases[i].islands);
    memcpy(island, node, sizeof island);
    place(cases[i].nodes);
    const int *s = cases[i].sizes;
    DMuonErrorCode code = dmuon_layout_order(&memory, size, 2, both, s, rank_at);
    if (!tap_ok(!code && !memcmp(rank_at, cases[i].rank_at, (size_t)size * sizeof *rank_at),
                "islands %s in nodes %s as %dx%dx%d: places", cases[i].islands, cases[i].nodes,
                s[0], s[1], s[2]))
      for (int k = 0; k < size; k++) tap_diag("%d: %d", k, rank_at[k]);
    tap_is_int(dmuon_layout_crossings(island, s, rank_at, 1).crossing, cases[i].crossing[0],
               "shard groups that cross islands");
    tap_is_int(crossing(s, 1), cases[i].crossing[1], "shard groups that cross nodes");
  }
}

/* Any placement of nodes of k*G ranks: no shard group crosses. */
static void test_random_placements(void) {
  int good = 1, tried = 0;
  unsigned state = 1;
  for (int trial = 0; trial < 500; trial++) {
    int shard = 1 + trial % 4, tp = 1 + trial / 4 % 2, nodes = 1 + trial % 6, size = 0;
    int letter[MAX_RANKS];
    for (int n = 0; n < nodes; n++) {
      state = state * 1664525u + 1013904223u;
      int blocks = 1 + (int)(state >> 20) % 3;
      for (int k = 0; k < blocks * shard * tp; k++) letter[size++] = n;
    }
    for (int i = size - 1; i > 0; i--) {
      state = state * 1664525u + 1013904223u;
      int j = (int)((state >> 8) % (unsigned)(i + 1)), swap = letter[i];
      letter[i] = letter[j];
      letter[j] = swap;
    }
    for (int i = 0; i < size; i++)
      for (node[i] = 0; letter[node[i]] != letter[i];) node[i]++;
    int sizes[3] = {size / (shard * tp), shard, tp};
    good &= !dmuon_layout_order(&memory, size, 1, levels, sizes, rank_at) && is_permutation(size) &&
            crossing(sizes, 1) == 0 && crossing(sizes, 2) == 0;
    tried++;
  }
  tap_ok(good, "%d random placements: shard and tp groups stay inside nodes", tried);
}

static void test_pretended(void) {
  dmuon_layout_domains machine;
  dmuon_layout_pretend_nodes(10, 4, node);
  dmuon_layout_survey(&memory, 10, node, &machine);
  tap_ok(
      machine.count == 3 && machine.largest == 4 && machine.smallest == 2 && machine.divisor == 2,
      "10 ranks in pretended nodes of 4: 4, 4 and 2");
  dmuon_layout_pretend_nodes(8, 2, node);
  int sizes[3];
  tap_ok(!propose(8, -1, -1, -1, sizes) && sizes[0] == 4 && sizes[1] == 2, "nodes of 2: 4x2x1");
  dmuon_layout_pretend_nodes(3, 1000, node);
  tap_ok(!propose(3, -1, -1, -1, sizes) && sizes[1] == 3, "one large node");
}

static void test_coords(void) {
  int sizes[3] = {0};
  dmuon_size_reason reasons[3];
  const int64_t open[3] = {-1, -1, -1}, wrong[3] = {2, 2, 1}, right[3] = {2, 3, 1};
  int coords[6][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 2, 0}, {1, 2, 0}};
  static const int expected[6] = {0, 2, 4, 1, 3, 5};
  tap_ok(!dmuon_layout_from_coords(6, coords, open, sizes, reasons, rank_at) && sizes[0] == 2 &&
             sizes[1] == 3 && sizes[2] == 1 && !memcmp(rank_at, expected, sizeof expected),
         "replicate innermost: 2x3x1");
  tap_is_int(reasons[1], DMUON_SIZE_COORDS, "sizes come from the coordinates");
  tap_ok(!dmuon_layout_from_coords(6, coords, right, sizes, reasons, rank_at), "sizes that agree");
  tap_is_int(dmuon_layout_from_coords(6, coords, wrong, sizes, reasons, rank_at), DMUON_ERR_SETUP,
             "sizes that do not");
  tap_contains(DMuonErrorGetMessage(), "rank 4 says shard coordinate 2, the axis has 2", "named");
  coords[5][0] = 0;
  tap_is_int(dmuon_layout_from_coords(6, coords, open, sizes, reasons, rank_at), DMUON_ERR_SETUP,
             "a place taken twice");
  tap_contains(DMuonErrorGetMessage(), "ranks 4 and 5 both say coordinates (0, 2, 0)", "named");
  coords[5][0] = 3;
  tap_is_int(dmuon_layout_from_coords(6, coords, open, sizes, reasons, rank_at), DMUON_ERR_SETUP,
             "holes");
  tap_contains(DMuonErrorGetMessage(), "do not form a full grid", "explained");
  coords[5][0] = coords[5][1] = coords[5][2] = -1;
  tap_is_int(dmuon_layout_from_coords(6, coords, open, sizes, reasons, rank_at), DMUON_ERR_SETUP,
             "one without");
  tap_contains(DMuonErrorGetMessage(), "rank 0 gave coordinates, rank 5 did not", "named");
  coords[5][0] = INT32_MAX, coords[5][1] = INT32_MAX, coords[5][2] = INT32_MAX;
  tap_is_int(dmuon_layout_from_coords(6, coords, open, sizes, reasons, rank_at), DMUON_ERR_SETUP,
             "huge coordinates");
}

int main(void) {
  tap_plan(0);
  test_sizes();
  test_refusals();
  test_order();
  test_levels();
  test_random_placements();
  test_pretended();
  test_coords();
  tap_is_int(memory.bytes, 0, "nothing left allocated");
  return tap_done();
}
