/* Properties of the assignment that hold whatever the shapes are, and the same assignment computed
 * again by plain scans over all slots, on random problems. */
#include "base/random.h"
#include "partition/assign.h"
#include "tap.h"

#include <time.h>

typedef struct {
  int count, capacity;
  dmuon_assign_item *items;
  int (*owners)[3];
} list;

static list l;

static void clear(void) {
  for (int i = 0; i < l.count; i++) free((char *)l.items[i].name), free((char *)l.items[i].group);
  l.count = 0;
}

static char *copy(const char *text) {
  char *out = malloc(strlen(text) + 1);
  return out ? strcpy(out, text) : NULL;
}

static dmuon_assign_item *add(const char *group, const char *name, int64_t rows, int64_t cols) {
  if (l.count == l.capacity) {
    l.capacity = 2 * l.capacity + 64;
    l.items = realloc(l.items, (size_t)l.capacity * sizeof *l.items);
    l.owners = realloc(l.owners, (size_t)l.capacity * sizeof *l.owners);
  }
  int64_t dims[2] = {rows, cols};
  dmuon_assign_item *item = &l.items[l.count++];
  *item = (dmuon_assign_item){.name = copy(name),
                              .group = copy(group),
                              .size = rows * cols,
                              .cost = dmuon_cost_optimizer(name, 2, dims),
                              .fixed = {DMUON_DECIDE, DMUON_DECIDE, DMUON_DECIDE}};
  return item;
}

static void layers(int count, int64_t h, int64_t inner) {
  static const char *const tail[7] = {"q", "k", "v", "o", "gate", "up", "down"};
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 7; k++) {
      char group[32], name[64];
      snprintf(group, sizeof group, "layers.%d", i);
      snprintf(name, sizeof name, "%s.%s", group, tail[k]);
      add(group, name, k == 1 || k == 2 ? h / 4 : k == 4 || k == 5 ? inner : h, k == 6 ? inner : h);
    }
}

static int *identity(int count) {
  int *ranks = malloc((size_t)count * sizeof *ranks);
  for (int i = 0; i < count; i++) ranks[i] = i;
  return ranks;
}

static const dmuon_assign_problem usual = {
    .pack_small = 1, .pack_threshold = 5000000, .column_balance = 1};

static DMuonErrorCode assign(int replicate, int shard, dmuon_assign_problem problem,
                             dmuon_memory *memory, dmuon_assign_statistics *statistics) {
  dmuon_memory own = {0};
  int *ranks = identity(replicate * shard);
  dmuon_assign_mesh mesh = {replicate, shard, 1, ranks};
  problem.item_count = l.count;
  problem.items = l.items;
  problem.mesh_count = 1;
  problem.meshes = &mesh;
  problem.rank_count = replicate * shard;
  DMuonErrorCode code =
      dmuon_assign(memory ? memory : &own, &problem, l.owners, NULL, NULL, statistics);
  free(ranks);
  return code;
}

static int distinct(int first, int count) {
  int result = 0;
  for (int i = 0; i < count; i++) {
    int seen = 0;
    for (int j = 0; j < i; j++)
      seen |= memcmp(l.owners[first + i], l.owners[first + j], sizeof *l.owners) == 0;
    result += !seen;
  }
  return result;
}

/* (max - min)/max of cost (or elements) over the slots that own something. */
static double imbalance(int replicate, int shard, int by_size) {
  double load[256] = {0}, low = INFINITY, high = 0;
  for (int i = 0; i < l.count; i++)
    load[l.owners[i][0] * shard + l.owners[i][1]] +=
        by_size ? (double)l.items[i].size : l.items[i].cost;
  for (int i = 0; i < replicate * shard; i++)
    if (load[i] > 0) low = fmin(low, load[i]), high = fmax(high, load[i]);
  return (high - low) / high;
}

static void test_one_dimension(void) {
  clear(), layers(4, 512, 2048);
  tap_ok(!assign(1, 8, usual, NULL, NULL) && imbalance(1, 8, 0) < 0.05,
         "four small layers on 8: used slots balanced to 5%%");
  clear(), layers(6, 1024, 8192);
  dmuon_assign_problem turns = usual;
  turns.strategy = DMUON_STRATEGY_ROUND_ROBIN;
  tap_ok(!assign(1, 8, turns, NULL, NULL) && distinct(0, l.count) == 8,
         "round robin uses all 8 slots");
  clear(), layers(1, 4096, 14336);
  tap_ok(!assign(1, 8, usual, NULL, NULL), "one large layer");
  tap_ok(memcmp(l.owners[1], l.owners[2], sizeof *l.owners) == 0, "k and v share an owner");
  int large[5] = {0, 3, 4, 5, 6}, apart = 1;
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < i; j++)
      apart &= memcmp(l.owners[large[i]], l.owners[large[j]], sizeof *l.owners) != 0;
  tap_ok(apart, "large parameters of one layer have different owners");
  tap_ok(distinct(0, 7) > 2, "without a limit, more than two owners");
  dmuon_assign_problem capped = usual;
  for (capped.strategy = 0; capped.strategy < DMUON_STRATEGY_RANK0; capped.strategy++) {
    capped.max_owners_per_group = 2;
    tap_ok(!assign(1, 8, capped, NULL, NULL) && distinct(0, 7) == 2, "limit of two is kept, %s",
           capped.strategy ? "round robin" : "lpt");
  }
}

static void test_two_dimensions(void) {
  static const int meshes[4][3] = {{4, 2, 6}, {2, 4, 6}, {8, 2, 8}, {4, 4, 8}};
  for (int i = 0; i < 4; i++) {
    int g = meshes[i][0], r = meshes[i][1];
    clear(), layers(meshes[i][2], 1024, 4096);
    dmuon_assign_problem problem = usual;
    for (int k = 0; k < l.count; k++) l.items[k].cost = dmuon_cost_numel(l.items[k].size);
    problem.pack_small = 0;
    dmuon_assign_statistics s;
    tap_ok(
        !assign(r, g, problem, NULL, &s) && s.idle_slots == 0 && s.max_cost <= 1.15 * s.lower_bound,
        "unpacked: largest load within 15%% of the lower bound");
    tap_diag("%d shards x %d replicas: ratio %.4f", g, r, s.max_cost / s.lower_bound);
    problem.pack_small = 1;
    tap_ok(!assign(r, g, problem, NULL, NULL) && imbalance(r, g, 1) < 0.1,
           "elements balanced to 10%% on %d shards x %d replicas", g, r);
    int inside = 1;
    for (int k = 0; k < l.count; k++)
      inside &= l.owners[k][0] >= 0 && l.owners[k][0] < r && l.owners[k][1] >= 0 &&
                l.owners[k][1] < g && l.owners[k][2] == 0;
    tap_ok(inside, "owners are inside the mesh");
  }
  clear(), layers(6, 1024, 8192);
  tap_ok(!assign(2, 4, usual, NULL, NULL) && distinct(0, l.count) == 8, "all 8 slots are used");
  tap_ok(memcmp(l.owners[0], l.owners[1], sizeof *l.owners) == 0, "small ones merge as well");
  dmuon_assign_problem unbalanced = usual;
  unbalanced.column_balance = 0;
  int(*before)[3] = malloc((size_t)l.count * sizeof *before);
  assign(1, 8, usual, NULL, NULL);
  memcpy(before, l.owners, (size_t)l.count * sizeof *before);
  assign(1, 8, unbalanced, NULL, NULL);
  tap_ok(memcmp(before, l.owners, (size_t)l.count * sizeof *before) == 0,
         "one replica: column balance changes nothing");
  free(before);
}

static void test_counts(void) {
  static const int cases[5][2] = {{19, 8}, {16, 8}, {1, 8}, {0, 8}, {2, 3}};
  for (int i = 0; i < 5; i++) {
    clear();
    for (int k = 0; k < cases[i][0]; k++) {
      char name[32];
      snprintf(name, sizeof name, "w%d", k);
      add("", name, 72, 64);
    }
    dmuon_assign_problem problem = usual;
    problem.pack_small = 0;
    dmuon_assign_statistics s;
    int n = cases[i][0], slots = cases[i][1], used = n < slots ? n : slots;
    tap_ok(!assign(1, slots, problem, NULL, &s) && distinct(0, n) == used,
           "%d matrices on %d slots: %d owners", n, slots, used);
    tap_is_int(s.idle_slots, slots - used, "%d idle", slots - used);
    tap_is_near(s.max_cost, 2.0 * ((n + slots - 1) / slots), 0, "as even as can be");
    tap_is_int(s.units, n, "%d units", n);
  }
  clear();
  add("", "a", 0, 8), add("", "b", 5, 3), add("", "c", 3, 100), add("", "d", 10, 4);
  dmuon_assign_statistics s;
  tap_ok(!assign(1, 8, usual, NULL, &s) && s.units == 1, "tiny and empty parameters are one unit");
}

static void test_fixed(void) {
  clear(), layers(1, 4096, 14336);
  l.items[6].fixed[1] = 5;                          /* down: the column alone */
  l.items[4].fixed[0] = 1, l.items[4].fixed[1] = 5; /* gate: wholly */
  tap_ok(!assign(2, 8, usual, NULL, NULL), "owners fixed");
  tap_ok(l.owners[4][0] == 1 && l.owners[4][1] == 5, "gate where it was wanted");
  tap_ok(l.owners[6][0] == 0 && l.owners[6][1] == 5, "down in its column, on the fresh row");
  for (int i = 0; i < 7; i++)
    if (i != 4 && i != 6 && l.owners[i][1] == 5)
      tap_diag("%s on the loaded column", l.items[i].name);
  tap_ok(l.owners[5][1] != 5 && l.owners[0][1] != 5, "the others see the load");
  l.items[4].fixed[1] = 8;
  tap_is_int(assign(2, 8, usual, NULL, NULL), DMUON_ERR_ARGUMENT, "out of range is refused");
  tap_contains(DMuonErrorGetMessage(),
               "shard owner 8 out of range [0,8) for layers.0.gate; mesh is 2x8x1",
               "and explained");
  l.items[4].fixed[1] = 5;
  l.items[2].cost = NAN;
  tap_is_int(assign(2, 8, usual, NULL, NULL), DMUON_ERR_ARGUMENT, "a cost of NaN is refused");
  tap_contains(DMuonErrorGetMessage(), "cost of layers.0.v", "and named");
  l.items[2].cost = -1;
  tap_is_int(assign(2, 8, usual, NULL, NULL), DMUON_ERR_ARGUMENT, "a negative cost is refused");
  l.items[2].cost = 1;
  dmuon_assign_problem problem = usual;
  problem.max_owners_per_group = -1;
  tap_is_int(assign(2, 8, problem, NULL, NULL), DMUON_ERR_ARGUMENT, "a negative limit is refused");
}

/* Experts of ranks 2, 3 and a dense part over all of 0..3: the small mesh goes first. */
static void test_meshes(void) {
  clear();
  add("e", "experts.0", 1024, 1024)->mesh = 1, add("e", "experts.1", 1024, 1024)->mesh = 1;
  for (int i = 0; i < 6; i++) {
    char name[32];
    snprintf(name, sizeof name, "dense.%d", i);
    add(name, name, 1024, 1024);
  }
  int all[4] = {0, 1, 2, 3}, some[2] = {2, 3};
  dmuon_assign_mesh meshes[2] = {{1, 4, 1, all}, {2, 1, 1, some}};
  dmuon_assign_problem problem = usual;
  problem.pack_small = 0;
  problem.item_count = l.count, problem.items = l.items;
  problem.mesh_count = 2, problem.meshes = meshes, problem.rank_count = 4;
  double cost[4];
  int64_t size[4];
  dmuon_memory memory = {0};
  dmuon_assign_statistics s;
  tap_ok(!dmuon_assign(&memory, &problem, l.owners, cost, size, &s), "two meshes");
  tap_ok(l.owners[0][0] == 0 && l.owners[1][0] == 1, "experts first, one each");
  int even = 1;
  for (int i = 0; i < 4; i++) even &= cost[i] == cost[0] && size[i] == 2 * 1024 * 1024;
  tap_ok(even, "the dense part fills up what they left");
  tap_is_near(s.max_cost, s.lower_bound, 0, "to the lower bound");
}

/* The assignment again, by scans: units in the order that the items come out in are not computed
 * here; packing is off and items are handed over in order of cost, so that units are items. */
static int agrees_with_scan(int replicate, int shard, const dmuon_assign_problem *problem) {
  int slots = replicate * shard, balance = problem->column_balance && replicate > 1;
  double cost[256] = {0}, column_cost[256] = {0}, size[256] = {0}, column_size[256] = {0};
  static int used[64][256];
  memset(used, 0, sizeof used);
  for (int i = 0; i < l.count; i++) {
    int group = atoi(l.items[i].group), best = -1, used_count = 0;
    for (int k = 0; k < slots; k++) used_count += used[group][k];
    int64_t cap = problem->max_owners_per_group;
    double best_key[5] = {0};
    for (int k = 0; k < slots; k++) {
      if (cap > 0 && used_count >= cap && !used[group][k]) continue;
      int s = k / replicate;
      double key[5] = {used[group][k], balance ? column_cost[s] : 0, cost[k],
                       balance ? column_size[s] : 0, size[k]};
      int less = best < 0, equal = 1;
      for (int j = 0; j < 5 && best >= 0 && equal; j++)
        if (key[j] != best_key[j]) less = key[j] < best_key[j], equal = 0;
      if (less) best = k, memcpy(best_key, key, sizeof key);
    }
    if (l.owners[i][1] * replicate + l.owners[i][0] != best) {
      tap_diag("%dx%d item %d: slot %d, by scan %d", replicate, shard, i,
               l.owners[i][1] * replicate + l.owners[i][0], best);
      return 0;
    }
    used[group][best] = 1;
    cost[best] += l.items[i].cost, size[best] += (double)l.items[i].size;
    column_cost[best / replicate] += l.items[i].cost;
    column_size[best / replicate] += (double)l.items[i].size;
  }
  return 1;
}

static void test_against_scan(void) {
  int good = 1, tried = 0;
  for (uint64_t seed = 0; seed < 300; seed++) {
    int replicate = 1 + (int)(dmuon_random_bits(1, seed, 0) % 7);
    int shard = 1 + (int)(dmuon_random_bits(1, seed, 1) % 17);
    int groups = 1 + (int)(dmuon_random_bits(1, seed, 2) % 6);
    int count = (int)(dmuon_random_bits(1, seed, 3) % 150);
    clear();
    int64_t cost = 400;
    for (int i = 0; i < count; i++) {
      char group[32], name[32];
      snprintf(group, sizeof group, "%d",
               (int)(dmuon_random_bits(2, seed, (uint64_t)i) % (uint64_t)groups));
      snprintf(name, sizeof name, "w%03d", i);
      cost -= (int64_t)(dmuon_random_bits(3, seed, (uint64_t)i) % 4);
      if (cost < 1) cost = 1;
      /* The same cost, falling sizes: the order handed over is the order of placement. */
      dmuon_assign_item *item = add(group, name, 1000 - i / 2, 1);
      item->cost = (double)cost;
      free((char *)item->group);
      item->group = copy(group);
    }
    dmuon_assign_problem problem = usual;
    problem.pack_small = 0;
    problem.column_balance = (int)(seed % 3 != 0);
    problem.max_owners_per_group = seed % 4 == 0 ? 1 + (int64_t)(seed % 5) : 0;
    /* Equal cost and size are broken by group before name: make these groups equal too. */
    for (int i = 1; i < count; i++)
      if (l.items[i].cost == l.items[i - 1].cost && l.items[i].size == l.items[i - 1].size) {
        free((char *)l.items[i].group);
        l.items[i].group = copy(l.items[i - 1].group);
      }
    good &= !assign(replicate, shard, problem, NULL, NULL) &&
            agrees_with_scan(replicate, shard, &problem);
    tried++;
  }
  tap_ok(good, "%d random problems: the same owners as by scanning every slot", tried);
}

static void test_size(void) {
  static const int meshes[4][2] = {{1, 16384}, {128, 128}, {2048, 8}, {16384, 1}};
  clear();
  layers(162, 16384, 53248);
  add("embed", "embed", 128256, 16384), add("head", "head.weight", 128256, 16384);
  add("norm", "norm", 16384, 1);
  tap_is_int(l.count, 1137, "a model of 1,137 tensors");
  for (int i = 0; i < 4; i++) {
    dmuon_memory memory = {0};
    dmuon_assign_statistics s;
    clock_t begin = clock();
    DMuonErrorCode code = assign(meshes[i][0], meshes[i][1], usual, &memory, &s);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    tap_ok(!code && memory.peak_bytes < 4000000, "on %d x %d slots in under 4 MB", meshes[i][0],
           meshes[i][1]);
    tap_diag("%.3f s, %.2f MB at most", seconds, (double)memory.peak_bytes / 1e6);
    tap_is_int(memory.bytes, 0, "and all of it given back");
    tap_is_int(s.idle_slots, 16384 - s.units, "each unit on a slot of its own");
  }
  dmuon_memory memory = {0};
  assign(4, 4, usual, &memory, NULL);
  int64_t allocations = memory.allocations;
  int failures = 0;
  for (int64_t k = 1; k <= allocations; k++) {
    dmuon_memory failing = {.fail_at = k};
    failures += assign(4, 4, usual, &failing, NULL) == DMUON_ERR_MEMORY && failing.bytes == 0;
  }
  tap_is_int(failures, allocations, "each of its allocations may fail");
}

int main(void) {
  tap_plan(0);
  test_one_dimension();
  test_two_dimensions();
  test_counts();
  test_fixed();
  test_meshes();
  test_against_scan();
  test_size();
  clear();
  free(l.items);
  free(l.owners);
  return tap_done();
}
