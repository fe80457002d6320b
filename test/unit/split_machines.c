/* Machines of many kinds, placements of every sort: islands, sizes, order of the ranks. */
#include "mesh/place.h"
#include "mesh/split.h"
#include "tap.h"
#include "topo/detect.h"

enum { MAX_RANKS = 2048, D = DMUON_DECIDE };

static dmuon_memory memory;
static dmuon_rank_place places[MAX_RANKS];
static int island[MAX_RANKS], node[MAX_RANKS], rank_at[MAX_RANKS];
static int level_memory[DMUON_SPLIT_LEVELS][MAX_RANKS];
static dmuon_split split;

/* A text, or the name of a file in test/data/topo. */
static DMuonErrorCode read_machine(const char *text, dmuon_machine *machine) {
  char path[1000];
  const char *top = getenv("abs_top_srcdir");
  snprintf(path, sizeof path, "%s/test/data/topo/%s", top ? top : ".", text);
  return dmuon_detect_given(&memory, strstr(text, ".xml") ? path : text, machine);
}

/* Nodes of `per_node` ranks, one after another. */
static void place_blocks(int size, int per_node) {
  for (int i = 0; i < size; i++) places[i] = (dmuon_rank_place){i / per_node, -1};
}

/* letters[i]: the node of rank i, 'a' first. */
static int place_letters(const char *letters) {
  int size = (int)strlen(letters);
  for (int i = 0; i < size; i++) places[i] = (dmuon_rank_place){letters[i] - 'a', -1};
  return size;
}

/* As place.c proposes. */
static void lay_gpus(const dmuon_machine *machine, int size) {
  for (int i = 0; i < size; i++) {
    int ranks = 0, local = 0, gpus[DMUON_NODE_GPUS];
    for (int k = 0; k < size; k++) {
      if (places[k].node != places[i].node) continue;
      ranks++;
      local += k < i;
    }
    int used = dmuon_place_gpus(dmuon_split_kind(machine, places[i].node), ranks, gpus);
    places[i].gpu = used ? gpus[local % used] : -1;
  }
}

/* digits[i]: the GPU of rank i; '-': none. */
static void give_gpus(const char *digits, int size) {
  for (int i = 0; i < size; i++) places[i].gpu = digits[i] == '-' ? -1 : digits[i] - '0';
}

static DMuonErrorCode propose(const dmuon_machine *machine, int size, dmuon_island_policy policy,
                              const int want[3], int sizes[3]) {
  int *levels[DMUON_SPLIT_LEVELS];
  dmuon_size_reason reasons[3];
  const int64_t wanted[3] = {want[0], want[1], want[2]};
  for (int k = 0; k < DMUON_SPLIT_LEVELS; k++) levels[k] = level_memory[k];
  DMUON_TRY(dmuon_split_islands(&memory, machine, size, places, policy, island, node, &split));
  DMUON_TRY(dmuon_layout_sizes(size, &split.islands, wanted, sizes, reasons));
  DMUON_TRY(dmuon_split_levels(&memory, machine, size, places, island, node, levels));
  DMUON_TRY(dmuon_layout_order(&memory, size, DMUON_SPLIT_LEVELS, (const int *const *)levels, sizes,
                               rank_at));
  return DMUON_SUCCESS;
}

static int is_permutation(int size) {
  static int seen[MAX_RANKS];
  memset(seen, 0, sizeof seen);
  for (int i = 0; i < size; i++) {
    if (rank_at[i] < 0 || rank_at[i] >= size || seen[rank_at[i]]) return 0;
    seen[rank_at[i]] = 1;
  }
  return 1;
}

#define HGX "made-hgx-h100.xml"
#define DGX2 "nvidiaDGX2.xml"
#define ONE "one-gpu-one-hca.xml"
#define DGX1 "package:2 gpu:8 nvlink:cube ib:4"
#define POWER9 "package:2 gpu:4 nvlink:pairs ib:2"
#define PCIE "package:2 gpu:8 ib:1"
#define NVL72 "gpu:4 nvlink:all ib:4 fabric:18"

static const struct {
  const char *what, *machine;
  int size, per_node; /* blocks, or */
  const char *nodes;  /* a letter a rank */
  const char *gpus;   /* a digit a rank; NULL: as proposed */
  dmuon_island_policy policy;
  int want[3], sizes[3];
  dmuon_islands_reason reason;
  int islands, largest; /* how many, ranks of the largest */
  int crossing[2];      /* shard groups that cross islands, nodes */
} cases[] = {
    /* DGX-2: sixteen GPUs behind switches */
    {"DGX-2", DGX2, 16, 16, 0, 0, 0, {D, D, D}, {1, 16, 1}, DMUON_ISLANDS_NVLINK, 1, 16, {0, 0}},
    {"DGX-2, half", DGX2, 8, 8, 0, 0, 0, {D, D, D}, {1, 8, 1}, DMUON_ISLANDS_NVLINK, 1, 8, {0, 0}},
    {"4 DGX-2", DGX2, 64, 16, 0, 0, 0, {D, D, D}, {4, 16, 1}, DMUON_ISLANDS_NVLINK, 4, 16, {0, 0}},
    {"DGX-2, two a GPU",
     DGX2,
     32,
     32,
     0,
     0,
     0,
     {D, D, D},
     {1, 32, 1},
     DMUON_ISLANDS_NVLINK,
     1,
     32,
     {0, 0}},
    {"DGX-2, tp 4",
     DGX2,
     16,
     16,
     0,
     0,
     0,
     {D, D, 4},
     {1, 4, 4},
     DMUON_ISLANDS_NVLINK,
     1,
     16,
     {0, 0}},
    /* DGX-1: hybrid cube mesh, all of it connected */
    {"DGX-1", DGX1, 8, 8, 0, 0, 0, {D, D, D}, {1, 8, 1}, DMUON_ISLANDS_NVLINK, 1, 8, {0, 0}},
    {"2 DGX-1", DGX1, 16, 8, 0, 0, 0, {D, D, D}, {2, 8, 1}, DMUON_ISLANDS_NVLINK, 2, 8, {0, 0}},
    {"DGX-1, visible 2367",
     DGX1,
     4,
     4,
     0,
     "2367",
     0,
     {D, D, D},
     {1, 4, 1},
     DMUON_ISLANDS_NVLINK,
     1,
     4,
     {0, 0}},
    /* HGX H100 */
    {"HGX", HGX, 8, 8, 0, 0, 0, {D, D, D}, {1, 8, 1}, DMUON_ISLANDS_NVLINK, 1, 8, {0, 0}},
    {"128 HGX",
     HGX,
     1024,
     8,
     0,
     0,
     0,
     {D, D, D},
     {128, 8, 1},
     DMUON_ISLANDS_NVLINK,
     128,
     8,
     {0, 0}},
    {"128 HGX, tp 8",
     HGX,
     1024,
     8,
     0,
     0,
     0,
     {D, D, 8},
     {128, 1, 8},
     DMUON_ISLANDS_NVLINK,
     128,
     8,
     {0, 0}},
    {"4 HGX, 2 ranks each",
     HGX,
     8,
     2,
     0,
     0,
     0,
     {D, D, D},
     {4, 2, 1},
     DMUON_ISLANDS_NVLINK,
     4,
     2,
     {0, 0}},
    {"HGX, 16 ranks",
     HGX,
     16,
     16,
     0,
     0,
     0,
     {D, D, D},
     {1, 16, 1},
     DMUON_ISLANDS_NVLINK,
     1,
     16,
     {0, 0}},
    {"4 HGX, cyclic",
     HGX,
     8,
     0,
     "abcdabcd",
     0,
     0,
     {D, D, D},
     {4, 2, 1},
     DMUON_ISLANDS_NVLINK,
     4,
     2,
     {0, 0}},
    {"2 HGX, cyclic, shard 4",
     HGX,
     16,
     0,
     "abababababababab",
     0,
     0,
     {D, 4, D},
     {4, 4, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     8,
     {0, 0}},
    {"2 HGX, 3 and 5",
     HGX,
     8,
     0,
     "aaabbbbb",
     0,
     0,
     {D, D, D},
     {8, 1, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     5,
     {0, 0}},
    {"2 HGX, 3 and 5, shard 4",
     HGX,
     8,
     0,
     "aaabbbbb",
     0,
     0,
     {D, 4, D},
     {2, 4, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     5,
     {1, 1}},
    {"2 HGX, 4 and 6",
     HGX,
     10,
     0,
     "ababababbb",
     0,
     0,
     {D, D, D},
     {5, 2, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     6,
     {0, 0}},
    {"HGX on the host",
     HGX,
     8,
     8,
     0,
     "--------",
     0,
     {D, D, D},
     {1, 8, 1},
     DMUON_ISLANDS_NO_GPU,
     1,
     8,
     {0, 0}},
    {"HGX, half of the ranks with GPUs",
     HGX,
     8,
     8,
     0,
     "0123----",
     0,
     {D, D, D},
     {2, 4, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     4,
     {0, 0}},
    /* POWER9: pairs on a package */
    {"POWER9", POWER9, 4, 4, 0, 0, 0, {D, D, D}, {2, 2, 1}, DMUON_ISLANDS_NVLINK, 2, 2, {0, 0}},
    {"2 POWER9", POWER9, 8, 4, 0, 0, 0, {D, D, D}, {4, 2, 1}, DMUON_ISLANDS_NVLINK, 4, 2, {0, 0}},
    {"POWER9, half",
     POWER9,
     2,
     2,
     0,
     0,
     0,
     {D, D, D},
     {1, 2, 1},
     DMUON_ISLANDS_NVLINK,
     1,
     2,
     {0, 0}},
    {"POWER9, by node",
     POWER9,
     8,
     4,
     0,
     0,
     DMUON_ISLAND_NODE,
     {D, D, D},
     {2, 4, 1},
     DMUON_ISLANDS_ASKED,
     2,
     4,
     {0, 0}},
    {"POWER9, shard 4",
     POWER9,
     8,
     0,
     "abababab",
     0,
     0,
     {D, 4, D},
     {2, 4, 1},
     DMUON_ISLANDS_NVLINK,
     4,
     2,
     {2, 0}},
    {"POWER9, visible 012",
     POWER9,
     3,
     3,
     0,
     "012",
     0,
     {D, D, D},
     {1, 3, 1},
     DMUON_ISLANDS_UNEVEN,
     1,
     3,
     {0, 0}},
    {"POWER9, visible 012, by NVLink",
     POWER9,
     3,
     3,
     0,
     "012",
     DMUON_ISLAND_NVLINK,
     {D, D, D},
     {3, 1, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     2,
     {0, 0}},
    {"POWER9, visible 02",
     POWER9,
     2,
     2,
     0,
     "02",
     0,
     {D, D, D},
     {1, 2, 1},
     DMUON_ISLANDS_NO_NVLINK,
     1,
     2,
     {0, 0}},
    {"POWER9, visible 02, by NVLink",
     POWER9,
     2,
     2,
     0,
     "02",
     DMUON_ISLAND_NVLINK,
     {D, D, D},
     {2, 1, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     1,
     {0, 0}},
    {"POWER9, GPUs crosswise",
     POWER9,
     4,
     4,
     0,
     "0213",
     0,
     {D, D, D},
     {2, 2, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     2,
     {0, 0}},
    /* GB200: a rack of 18 nodes is one domain */
    {"GB200 rack",
     "node:18 " NVL72,
     72,
     4,
     0,
     0,
     0,
     {D, D, D},
     {1, 72, 1},
     DMUON_ISLANDS_FABRIC,
     1,
     72,
     {0, 1}},
    {"GB200, 16 of 18 nodes",
     "node:18 " NVL72,
     64,
     4,
     0,
     0,
     0,
     {D, D, D},
     {1, 64, 1},
     DMUON_ISLANDS_FABRIC,
     1,
     64,
     {0, 1}},
    {"GB200 rack, tp 4",
     "node:18 " NVL72,
     72,
     4,
     0,
     0,
     0,
     {D, D, 4},
     {1, 18, 4},
     DMUON_ISLANDS_FABRIC,
     1,
     72,
     {0, 4}},
    {"GB200 rack, by node",
     "node:18 " NVL72,
     72,
     4,
     0,
     0,
     DMUON_ISLAND_NODE,
     {D, D, D},
     {18, 4, 1},
     DMUON_ISLANDS_ASKED,
     18,
     4,
     {0, 0}},
    {"4 GB200 racks",
     "node:72 " NVL72,
     288,
     4,
     0,
     0,
     0,
     {D, D, D},
     {4, 72, 1},
     DMUON_ISLANDS_FABRIC,
     4,
     72,
     {0, 4}},
    {"2 GB200 racks of one described",
     "node:18 " NVL72,
     144,
     4,
     0,
     0,
     0,
     {D, D, D},
     {2, 72, 1},
     DMUON_ISLANDS_FABRIC,
     2,
     72,
     {0, 2}},
    {"parts of 2 GB200 racks",
     "node:10 gpu:4 nvlink:all fabric:10 + node:8 gpu:4 nvlink:all fabric:8",
     72,
     4,
     0,
     0,
     0,
     {D, D, D},
     {9, 8, 1},
     DMUON_ISLANDS_FABRIC,
     2,
     40,
     {0, 9}},
    {"4 GB200 racks, shard 4",
     "node:72 " NVL72,
     288,
     4,
     0,
     0,
     0,
     {D, 4, D},
     {72, 4, 1},
     DMUON_ISLANDS_FABRIC,
     4,
     72,
     {0, 0}},
    {"one GPU a node on one fabric",
     "node:32 gpu:1 fabric:32",
     32,
     1,
     0,
     0,
     0,
     {D, D, D},
     {1, 32, 1},
     DMUON_ISLANDS_FABRIC,
     1,
     32,
     {0, 1}},
    /* nodes that differ */
    {"8 and 4",
     "node:2 gpu:8 nvlink:all + node:2 gpu:4 nvlink:all",
     24,
     0,
     "aaaaaaaabbbbbbbbccccdddd",
     0,
     0,
     {D, D, D},
     {6, 4, 1},
     DMUON_ISLANDS_NVLINK,
     4,
     8,
     {0, 0}},
    {"8 and 4, scattered",
     "node:1 gpu:8 nvlink:all + node:1 gpu:4 nvlink:all",
     12,
     0,
     "abaabaabaaba",
     0,
     0,
     {D, D, D},
     {3, 4, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     8,
     {0, 0}},
    {"GPUs here, none there",
     "node:1 gpu:8 nvlink:all + node:1 core:16",
     16,
     8,
     0,
     0,
     0,
     {D, D, D},
     {2, 8, 1},
     DMUON_ISLANDS_NVLINK,
     2,
     8,
     {0, 0}},
    /* no NVLink, no GPUs, one GPU */
    {"8 PCIe GPUs",
     PCIE,
     8,
     8,
     0,
     0,
     0,
     {D, D, D},
     {1, 8, 1},
     DMUON_ISLANDS_NO_NVLINK,
     1,
     8,
     {0, 0}},
    {"8 PCIe GPUs, 2 nodes, tp 2",
     PCIE,
     16,
     8,
     0,
     0,
     0,
     {D, D, 2},
     {2, 4, 2},
     DMUON_ISLANDS_NO_NVLINK,
     2,
     8,
     {0, 0}},
    {"CPUs",
     "node:4 package:2 core:32",
     128,
     32,
     0,
     0,
     0,
     {D, D, D},
     {4, 32, 1},
     DMUON_ISLANDS_NO_GPU,
     4,
     32,
     {0, 0}},
    {"CPUs, 4 ranks a node, cyclic",
     "node:4 package:2 core:32",
     16,
     0,
     "abcdabcdabcdabcd",
     0,
     0,
     {D, D, D},
     {4, 4, 1},
     DMUON_ISLANDS_NO_GPU,
     4,
     4,
     {0, 0}},
    {"one GPU", ONE, 1, 1, 0, 0, 0, {D, D, D}, {1, 1, 1}, DMUON_ISLANDS_NO_NVLINK, 1, 1, {0, 0}},
    {"one GPU, 4 nodes",
     ONE,
     4,
     1,
     0,
     0,
     0,
     {D, D, D},
     {4, 1, 1},
     DMUON_ISLANDS_NO_NVLINK,
     4,
     1,
     {0, 0}},
    {"one GPU, 4 ranks on it",
     ONE,
     4,
     4,
     0,
     0,
     0,
     {D, D, D},
     {1, 4, 1},
     DMUON_ISLANDS_NO_NVLINK,
     1,
     4,
     {0, 0}},
};

static void test_case(int c) {
  dmuon_machine machine = {0};
  int sizes[3] = {0};
  DMuonErrorCode code = read_machine(cases[c].machine, &machine);
  if (code == DMUON_ERR_UNSUPPORTED) {
    tap_skip(6, "%s: built without hwloc", cases[c].what);
    return;
  }
  if (cases[c].nodes)
    place_letters(cases[c].nodes);
  else
    place_blocks(cases[c].size, cases[c].per_node);
  const int size = cases[c].size;
  if (!code && cases[c].gpus)
    give_gpus(cases[c].gpus, size);
  else if (!code)
    lay_gpus(&machine, size);
  if (!code) code = propose(&machine, size, cases[c].policy, cases[c].want, sizes);
  if (!tap_ok(!code && !memcmp(sizes, cases[c].sizes, sizeof sizes) && is_permutation(size),
              "%s: %dx%dx%d", cases[c].what, cases[c].sizes[0], cases[c].sizes[1],
              cases[c].sizes[2]))
    tap_diag("got %dx%dx%d (%s)", sizes[0], sizes[1], sizes[2],
             code ? DMuonErrorGetMessage() : dmuon_split_explain(&split));
  tap_is_int(split.reason, cases[c].reason, "%s", dmuon_split_explain(&split));
  tap_is_int(split.islands.count, cases[c].islands, "islands");
  tap_is_int(split.islands.largest, cases[c].largest, "ranks of the largest");
  if (!code) {
    tap_is_int(dmuon_layout_crossings(island, sizes, rank_at, 1).crossing, cases[c].crossing[0],
               "shard groups that cross islands");
    tap_is_int(dmuon_layout_crossings(node, sizes, rank_at, 1).crossing, cases[c].crossing[1],
               "shard groups that cross nodes");
  }
  dmuon_machine_free(&machine);
}

/* What is told of the GPUs. */
static void test_counts(void) {
  dmuon_machine machine = {0};
  const int open[3] = {D, D, D};
  int sizes[3];
  read_machine("node:2 gpu:8 nvlink:all", &machine);
  place_blocks(16, 16);
  lay_gpus(&machine, 16);
  tap_ok(!propose(&machine, 16, DMUON_ISLAND_AUTO, open, sizes) && split.most_on_a_gpu == 2 &&
             split.gpus_idle == 0 && split.ranks_with_gpu == 16,
         "16 ranks on 8 GPUs share them");
  place_blocks(6, 3);
  lay_gpus(&machine, 6);
  tap_ok(!propose(&machine, 6, DMUON_ISLAND_AUTO, open, sizes) && split.most_on_a_gpu == 1 &&
             split.gpus_idle == 10 && split.ranks_with_gpu == 6,
         "3 ranks on each of two nodes leave 10 GPUs alone");
  place_blocks(8, 8);
  give_gpus("00000000", 8);
  tap_ok(!propose(&machine, 8, DMUON_ISLAND_AUTO, open, sizes) && split.most_on_a_gpu == 8,
         "all on the first");
  place_blocks(4, 2);
  tap_ok(!propose(NULL, 4, DMUON_ISLAND_AUTO, open, sizes) && sizes[0] == 2 && sizes[1] == 2 &&
             split.reason == DMUON_ISLANDS_NO_GPU,
         "without a machine: nodes");
  dmuon_machine_free(&machine);
}

/* Blocks smaller than an island keep to a package; pairs that talk most are near each other. */
static void test_order(void) {
  static const struct {
    const char *machine, *gpus;
    int sizes[3];
    int rank_at[8];
  } order[] = {
      {DGX1, "01234567", {2, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {DGX1, "04152637", {2, 4, 1}, {0, 2, 4, 6, 1, 3, 5, 7}},
      {PCIE, "04152637", {1, 2, 4}, {0, 2, 4, 6, 1, 3, 5, 7}},
      {PCIE, "76543210", {4, 2, 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
  };
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    dmuon_machine machine = {0};
    int sizes[3] = {0};
    read_machine(order[i].machine, &machine);
    place_blocks(8, 8);
    give_gpus(order[i].gpus, 8);
    DMuonErrorCode code = propose(&machine, 8, DMUON_ISLAND_AUTO, order[i].sizes, sizes);
    tap_ok(!code && !memcmp(rank_at, order[i].rank_at, sizeof order[i].rank_at),
           "%s, GPUs %s as %dx%dx%d: places", order[i].machine, order[i].gpus, sizes[0], sizes[1],
           sizes[2]);
    dmuon_machine_free(&machine);
  }
}

/* Any machine, ranks thrown onto it: the sizes decided keep shard and tp groups inside islands, and
 * no rank gets lost. */
static void test_random(void) {
  static const char *const texts[] = {"node:4 gpu:8 nvlink:all",
                                      "node:6 " POWER9,
                                      "node:3 " DGX1,
                                      "node:8 gpu:4 nvlink:all fabric:4",
                                      "node:5 " PCIE,
                                      "node:2 gpu:8 nvlink:all + node:3 gpu:4 nvlink:pairs"};
  static const int open[3] = {D, D, D};
  unsigned state = 1;
  int good = 1, tried = 0;
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
    dmuon_machine machine = {0};
    good &= !read_machine(texts[t], &machine);
    for (int trial = 0; trial < 200 && good; trial++, tried++) {
      int size = 0, sizes[3], of_node[64];
      const int nodes = 1 + trial % (machine.node_count + 2);
      for (int n = 0; n < nodes; n++) {
        state = state * 1664525u + 1013904223u;
        of_node[n] = 1 + (int)(state >> 20) % 8;
        size += of_node[n];
      }
      for (int i = 0; i < size; i++) { /* the first rank of a node comes in order of the nodes */
        state = state * 1664525u + 1013904223u;
        int n = (int)(state >> 20) % nodes;
        while (!of_node[n]) n = (n + 1) % nodes;
        places[i] = (dmuon_rank_place){n, -1};
        of_node[n]--;
      }
      if (trial % 4) lay_gpus(&machine, size);
      for (int i = 0; i < size && trial % 4 == 3; i++) {
        state = state * 1664525u + 1013904223u;
        places[i].gpu = (int)(state >> 20) % 9 - 1;
      }
      good &= !propose(&machine, size, (dmuon_island_policy)(trial % 3), open, sizes) &&
              is_permutation(size) && sizes[0] * sizes[1] * sizes[2] == size &&
              dmuon_layout_crossings(island, sizes, rank_at, 1).crossing == 0;
    }
    dmuon_machine_free(&machine);
  }
  tap_ok(good, "%d random placements: shard groups stay inside islands", tried);
}

int main(void) {
  tap_plan(0);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) test_case((int)c);
  test_counts();
  test_order();
  test_random();
  tap_is_int(memory.bytes, 0, "nothing left allocated");
  return tap_done();
}
