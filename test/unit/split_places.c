/* Where on a node each rank belongs, and what axes cost, on machines of several kinds. */
#include "mesh/cost.h"
#include "mesh/place.h"
#include "tap.h"
#include "topo/detect.h"

enum { MOST = 32 };

static dmuon_memory memory;

static dmuon_machine read_machine(const char *text) {
  dmuon_machine machine = {0};
  if (dmuon_detect_given(&memory, text, &machine)) tap_diag("%s", DMuonErrorGetMessage());
  return machine;
}

/* GPUs in the order of the ranks. */
static void test_gpus(void) {
  static const struct {
    const char *machine;
    int ranks;
    int gpus[MOST];
  } cases[] = {
      {"package:2 gpu:8 nvlink:all", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"package:2 gpu:8 nvlink:all", 4, {0, 2, 4, 6}}, /* spread */
      {"package:2 gpu:8 nvlink:all", 2, {0, 4}},
      {"package:2 gpu:8 nvlink:all", 3, {0, 2, 5}},
      {"package:2 gpu:8 nvlink:all", 1, {0}},
      {"package:2 gpu:4 nvlink:all", 8, {0, 1, 2, 3, 0, 1, 2, 3}}, /* round and round */
      {"package:2 gpu:4 nvlink:pairs", 4, {0, 1, 2, 3}},
      {"package:2 gpu:4 nvlink:pairs", 2, {0, 1}}, /* one domain, rather than two packages */
      {"package:2 gpu:4 nvlink:pairs", 3, {0, 1, 2}},
      {"package:2 gpu:4 nvlink:0,0,1000,0/0,0,0,1000/1000,0,0,0/0,1000,0,0", 4, {0, 2, 1, 3}},
      {"package:2 gpu:4 nvlink:0,0,1000,0/0,0,0,1000/1000,0,0,0/0,1000,0,0", 2, {0, 2}},
      {"package:2 gpu:8", 2, {0, 4}}, /* nothing to keep together */
      {"package:2 gpu:8", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"core:8", 4, {-1, -1, -1, -1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dmuon_machine machine = read_machine(cases[i].machine);
    int good = 1;
    for (int r = 0; r < cases[i].ranks; r++) {
      dmuon_node_place place = {.gpu = -2};
      if (machine.kinds) dmuon_place_rank(&machine.kinds[0], cases[i].ranks, r, &place);
      if (place.gpu != cases[i].gpus[r])
        tap_diag("rank %d: GPU %d, expected %d", r, place.gpu, cases[i].gpus[r]);
      good &= place.gpu == cases[i].gpus[r];
    }
    tap_ok(good, "%d ranks on %s", cases[i].ranks, cases[i].machine);
    dmuon_machine_free(&machine);
  }
}

static void test_cores(void) {
  static const struct {
    const char *machine;
    int ranks, rank;
    int numa, first, count;
  } cases[] = {
      {"package:2 core:32 gpu:8 nvlink:all", 8, 0, 0, 0, 4},
      {"package:2 core:32 gpu:8 nvlink:all", 8, 5, 1, 20, 4},
      {"package:2 core:32 gpu:8 nvlink:all", 16, 4, 1, 16, 2}, /* GPU 4, first of eight there */
      {"package:2 core:32 gpu:8 nvlink:all", 16, 15, 1, 30, 2},
      {"package:2 core:32 gpu:8 nvlink:all", 2, 1, 1, 16, 16},
      {"package:2 numa:4 core:64 gpu:4 nvlink:all", 4, 3, 3, 48, 16},
      {"package:2 core:8", 2, 1, 1, 4, 4},
      {"package:2 core:8", 4, 1, 0, 2, 2},
      {"package:2 core:8", 8, 7, 1, 7, 1},
      {"package:2 core:8", 16, 15, 1, 7, 1}, /* shared */
      {"package:2 core:8", 3, 1, 0, 2, 2},   /* NUMA node 0 has two of the three */
      {"package:2 core:8", 3, 2, 1, 4, 4},
      {"package:2 core:8", 1, 0, -1, 0, 8}, /* all of it */
      {"package:2 numa:4 core:8", 2, 1, -1, 4, 4},
      {"core:2", 8, 3, 0, 0, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dmuon_machine machine = read_machine(cases[i].machine);
    dmuon_node_place place = {0};
    if (machine.kinds) dmuon_place_rank(&machine.kinds[0], cases[i].ranks, cases[i].rank, &place);
    if (!tap_ok(place.numa == cases[i].numa && place.first_core == cases[i].first &&
                    place.core_count == cases[i].count,
                "rank %d of %d on %s: cores", cases[i].rank, cases[i].ranks, cases[i].machine))
      tap_diag("NUMA node %d, cores from %d, %d of them", place.numa, place.first_core,
               place.core_count);
    dmuon_machine_free(&machine);
  }
}

/* Every rank gets cores, on every node, and all are in use. */
static void test_all_cores(void) {
  static const char *const machines[] = {
      "package:2 core:8",        "package:2 core:7",
      "numa:3 core:10",          "package:2 core:32 gpu:8",
      "numa:4 core:6 gpu:4",     "core:1",
      "package:2 core:12 gpu:3", "numa:4 package:2 core:16 gpu:8 nvlink:all"};
  int good = 1;
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
    dmuon_machine machine = read_machine(machines[i]);
    if (!machine.kinds) {
      good = 0;
      continue;
    }
    const dmuon_machine_kind *kind = &machine.kinds[0];
    for (int ranks = 1; ranks <= 20; ranks++) {
      int used[64] = {0}, all = 1;
      for (int r = 0; r < ranks; r++) {
        dmuon_node_place place;
        dmuon_place_rank(kind, ranks, r, &place);
        if (place.core_count < 1 || place.first_core < 0 ||
            place.first_core + place.core_count > kind->cores) {
          tap_diag("%s, rank %d of %d: cores from %d, %d of them", machines[i], r, ranks,
                   place.first_core, place.core_count);
          good = 0;
          continue;
        }
        for (int c = 0; c < place.core_count; c++) used[place.first_core + c]++;
      }
      for (int c = 0; c < kind->cores; c++) all &= used[c] > 0;
      if (kind->gpu_count == 0 && ranks <= kind->cores) good &= all;
    }
    dmuon_machine_free(&machine);
  }
  tap_ok(good, "every rank has cores that exist; without GPUs none is left over");
}

static void test_capacity(void) {
  dmuon_machine gpus = read_machine("core:32 gpu:4"), cores = read_machine("core:32"),
                none = read_machine("node:2");
  tap_is_int(dmuon_place_capacity(&gpus.kinds[0]), 4, "one rank a GPU");
  tap_is_int(dmuon_place_capacity(&cores.kinds[0]), 32, "one rank a core");
  tap_is_int(dmuon_place_capacity(&none.kinds[0]), 1, "one where nothing is known");
  dmuon_machine_free(&gpus);
  dmuon_machine_free(&cores);
  dmuon_machine_free(&none);
}

/* Ranks in order, so many a node; gpus: as proposed. */
static dmuon_link cost(const char *text, int size, int per_node, const int sizes[3], int axis) {
  static dmuon_rank_place places[512];
  static int rank_at[512];
  dmuon_machine machine = text ? read_machine(text) : (dmuon_machine){0};
  dmuon_link link = {.link_class = DMUON_LINK_NONE};
  for (int i = 0; i < size; i++) {
    dmuon_node_place place = {.gpu = -1};
    if (machine.kinds)
      dmuon_place_rank(dmuon_split_kind(&machine, i / per_node), per_node, i % per_node, &place);
    places[i] = (dmuon_rank_place){i / per_node, place.gpu};
    rank_at[i] = i;
  }
  if (dmuon_cost_axis(&memory, text ? &machine : NULL, size, places, sizes, rank_at, axis, &link))
    tap_diag("%s", DMuonErrorGetMessage());
  dmuon_machine_free(&machine);
  return link;
}

static void test_costs(void) {
  static const struct {
    const char *machine;
    int size, per_node, sizes[3], axis;
    DMuonLinkClass link_class;
    double bandwidth; /* 0: the class's own */
  } cases[] = {
      {"node:2 gpu:8 nvlink:all@450GB ib:8@400Gb", 16, 8, {2, 8, 1}, 1, DMUON_LINK_NVLINK, 450e9},
      {"node:2 gpu:8 nvlink:all@450GB ib:8@400Gb",
       16,
       8,
       {2, 8, 1},
       0,
       DMUON_LINK_INFINIBAND,
       50e9},
      {"node:2 gpu:8 nvlink:all@450GB ib:8@400Gb", 16, 8, {2, 8, 1}, 2, DMUON_LINK_NONE, 0},
      {"node:2 gpu:8 nvlink:all@450GB ib:2@400Gb",
       16,
       8,
       {2, 8, 1},
       0,
       DMUON_LINK_INFINIBAND,
       12.5e9},
      {"node:2 gpu:8 nvlink:all@450GB ib:2@400Gb", 4, 2, {2, 2, 1}, 0, DMUON_LINK_INFINIBAND, 50e9},
      {"node:2 gpu:8 nvlink:all@450GB", 16, 8, {2, 8, 1}, 0, DMUON_LINK_NETWORK, 0},
      {"node:2 gpu:8 nvlink:all@450GB ib:8@400Gb",
       16,
       8,
       {1, 16, 1},
       1,
       DMUON_LINK_INFINIBAND,
       50e9},
      {"gpu:8 nvlink:cube@25GB", 8, 8, {1, 8, 1}, 1, DMUON_LINK_NVLINK, 25e9},
      {"package:2 gpu:4 nvlink:pairs@75GB", 4, 4, {2, 2, 1}, 1, DMUON_LINK_NVLINK, 75e9},
      {"package:2 gpu:4 nvlink:pairs@75GB", 4, 4, {2, 2, 1}, 0, DMUON_LINK_PCIE, 10e9},
      {"package:1 gpu:4", 4, 4, {1, 4, 1}, 1, DMUON_LINK_PCIE, 20e9},
      {"node:18 gpu:4 nvlink:all@900GB fabric:18", 72, 4, {1, 72, 1}, 1, DMUON_LINK_NVLINK, 900e9},
      {"node:36 gpu:4 nvlink:all@900GB ib:4@800Gb fabric:18",
       144,
       4,
       {2, 72, 1},
       0,
       DMUON_LINK_INFINIBAND,
       100e9},
      {"node:4 core:8", 32, 8, {4, 8, 1}, 1, DMUON_LINK_SHARED_MEMORY, 0},
      {"node:4 core:8 ib:1@100Gb", 32, 8, {4, 8, 1}, 0, DMUON_LINK_INFINIBAND, 12.5e9 / 8},
      {NULL, 8, 4, {2, 4, 1}, 1, DMUON_LINK_SHARED_MEMORY, 0},
      {NULL, 8, 4, {2, 4, 1}, 0, DMUON_LINK_NETWORK, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const dmuon_link link =
        cost(cases[i].machine, cases[i].size, cases[i].per_node, cases[i].sizes, cases[i].axis);
    const int none = cases[i].link_class == DMUON_LINK_NONE;
    if (!tap_ok(link.link_class == cases[i].link_class &&
                    (cases[i].bandwidth > 0
                         ? fabs(link.bandwidth - cases[i].bandwidth) < 1e-6 * cases[i].bandwidth
                         : none == !(link.bandwidth > 0)) &&
                    none == !(link.latency > 0) && !link.is_measured,
                "axis %d of %dx%dx%d on %s: %s", cases[i].axis, cases[i].sizes[0],
                cases[i].sizes[1], cases[i].sizes[2],
                cases[i].machine ? cases[i].machine : "nodes alone",
                dmuon_link_name(cases[i].link_class)))
      tap_diag("got %s, %g bytes/s, %g s", dmuon_link_name(link.link_class), link.bandwidth,
               link.latency);
  }
}

static void test_figures(void) {
  const dmuon_link link = {DMUON_LINK_INFINIBAND, 1e-5, 1e9, 0}, none = {DMUON_LINK_NONE, 0, 0, 0};
  tap_ok(fabs(dmuon_cost_seconds(&link, 10, 1000000) - 1.1e-3) < 1e-12,
         "ten operations of together a megabyte");
  tap_ok(dmuon_cost_seconds(&none, 10, 1000000) == 0, "nothing is sent, nothing is waited for");
  tap_is_int((int)dmuon_cost_chunk(&link), 1 << 18, "sixteen latencies, 160 kB: the next power");
  const dmuon_link slow = {DMUON_LINK_NETWORK, 1e-5, 1e6, 0}, fast = {0, 1e-3, 1e12, 0};
  tap_is_int((int)dmuon_cost_chunk(&slow), 1 << 16, "at least 64 KB");
  tap_is_int((int)dmuon_cost_chunk(&fast), 1 << 22, "at most 4 MB");
}

int main(void) {
  tap_plan(0);
  test_gpus();
  test_cores();
  test_all_cores();
  test_capacity();
  test_costs();
  test_figures();
  tap_is_int(memory.bytes, 0, "nothing left allocated");
  return tap_done();
}
