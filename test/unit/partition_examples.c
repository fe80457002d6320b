/* Who owns what, against worked examples: transformer layers of several sizes on one- and
 * two-dimensional meshes, small layers, round robin, a limit on owners. Every owner and load is
 * given by hand. */
#include "partition/assign.h"
#include "tap.h"

enum { MAX_ITEMS = 256, MAX_SLOTS = 64 };

typedef struct {
  char names[MAX_ITEMS][80], groups[MAX_ITEMS][40];
  dmuon_assign_item items[MAX_ITEMS];
  int count;
  int owners[MAX_ITEMS][3];
  int ranks[MAX_SLOTS];
  double cost[MAX_SLOTS];
  dmuon_assign_statistics statistics;
  int numel; /* cost model */
} example;

static example x;

static void add(const char *group, const char *name, int64_t rows, int64_t cols) {
  int i = x.count++;
  int64_t dims[2] = {rows, cols};
  snprintf(x.names[i], sizeof x.names[i], "%s", name);
  snprintf(x.groups[i], sizeof x.groups[i], "%s", group);
  x.items[i] = (dmuon_assign_item){
      .name = x.names[i],
      .group = x.groups[i],
      .size = rows * cols,
      .cost = x.numel ? dmuon_cost_numel(rows * cols) : dmuon_cost_optimizer(name, 2, dims),
      .fixed = {DMUON_DECIDE, DMUON_DECIDE, DMUON_DECIDE}};
}

/* Layers of q(h,h), k,v(kv,h), o(h,h), gate,up(i,h), down(h,i): items 7*L + 0..6 in this order. */
enum { Q, K, V, O, GATE, UP, DOWN };
static void layers(int count, int64_t h, int64_t inner, int64_t kv) {
  static const char *const tail[7] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                      "mlp.down_proj"};
  const int64_t shape[7][2] = {{h, h},     {kv, h},    {kv, h},   {h, h},
                               {inner, h}, {inner, h}, {h, inner}};
  for (int l = 0; l < count; l++)
    for (int k = 0; k < 7; k++) {
      char group[40], name[80];
      snprintf(group, sizeof group, "model.layers.%d", l);
      snprintf(name, sizeof name, "%s.%s.weight", group, tail[k]);
      add(group, name, shape[k][0], shape[k][1]);
    }
}

static void start(int numel) {
  x.count = 0;
  x.numel = numel;
}

static int assign(int replicate, int shard, dmuon_assign_problem problem) {
  static dmuon_memory memory;
  for (int i = 0; i < replicate * shard; i++) x.ranks[i] = i;
  dmuon_assign_mesh mesh = {replicate, shard, 1, x.ranks};
  problem.item_count = x.count;
  problem.items = x.items;
  problem.mesh_count = 1;
  problem.meshes = &mesh;
  problem.rank_count = replicate * shard;
  DMuonErrorCode code = dmuon_assign(&memory, &problem, x.owners, x.cost, NULL, &x.statistics);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  if (memory.bytes) tap_diag("%lld bytes left", (long long)memory.bytes);
  return code == DMUON_SUCCESS && memory.bytes == 0;
}

static const dmuon_assign_problem usual = {
    .pack_small = 1, .pack_threshold = 5000000, .column_balance = 1};

/* shard owners as given, replicate owners all zero when replicate is NULL */
static int owners_are(int first, int count, const int *shard, const int *replicate) {
  int good = 1;
  for (int i = 0; i < count; i++) {
    int r = replicate ? replicate[i] : 0;
    if (x.owners[first + i][1] != shard[i] || x.owners[first + i][0] != r ||
        x.owners[first + i][2] != 0) {
      tap_diag("%s: owner (s %d, r %d), expected (%d, %d)", x.names[first + i],
               x.owners[first + i][1], x.owners[first + i][0], shard[i], r);
      good = 0;
    }
  }
  return good;
}
#define OWNERS(first, ...) owners_are(first, 7, (const int[7]){__VA_ARGS__}, NULL)
#define OWNERS2(first, s, r) owners_are(first, 7, (const int[7])s, (const int[7])r)
#define LIST(...) \
  { __VA_ARGS__ }

static int loads_are(int count, const double *expected) {
  int good = 1;
  for (int i = 0; i < count; i++)
    if (x.cost[i] != expected[i]) {
      tap_diag("load of slot %d: %g, expected %g", i, x.cost[i], expected[i]);
      good = 0;
    }
  return good;
}
#define LOADS(...) \
  loads_are((int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), (double[]){__VA_ARGS__})

static void test_costs(void) {
  static const struct {
    const char *name;
    int64_t dims[2];
    double cost;
  } cases[] = {
      {"model.layers.0.self_attn.q_proj.weight", {2048, 2048}, 129},
      {"model.layers.0.self_attn.k_proj.weight", {512, 2048}, 9},
      {"model.layers.0.mlp.up_proj.weight", {8192, 2048}, 519},
      {"model.layers.0.mlp.down_proj.weight", {2048, 8192}, 519},
      {"model.layers.0.self_attn.q_proj.weight", {4096, 4096}, 1034},
      {"model.layers.0.self_attn.k_proj.weight", {1024, 4096}, 65},
      {"model.layers.0.mlp.up_proj.weight", {14336, 4096}, 3621},
      {"a.q", {512, 512}, 3},
      {"a.k", {128, 512}, 2},
      {"a.up", {2048, 512}, 9},
      {"embed", {65536, 1024}, 67},
      {"Model.Embed_Tokens.weight", {65536, 1024}, 67},
      {"lm_head.weight", {1024, 8192}, 8},
      {"x.input_layernorm.weight", {64, 64}, 1},
      {"h.0.ln_1.weight", {64, 64}, 1},
      {"rotary", {4000, 1000}, 4},
      {"tiny", {1, 1}, 2},
      {"nothing", {0, 8}, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    tap_is_near(dmuon_cost_optimizer(cases[i].name, 2, cases[i].dims), cases[i].cost, 0,
                "cost of %s %lldx%lld", cases[i].name, (long long)cases[i].dims[0],
                (long long)cases[i].dims[1]);
  tap_is_near(dmuon_cost_optimizer("a.w", 1, (int64_t[]){4000000}), 4, 0, "a vector is cheap");
  tap_is_near(dmuon_cost_optimizer("a.w", 4, (int64_t[]){64, 64, 16, 16}), 2, 0,
              "four dimensions: rows against the rest");
  tap_is_near(dmuon_cost_optimizer("huge", 2, (int64_t[]){3000000000, 3000000000}),
              9223372036854775807.0 + 2250000000000.0, 1e6, "no overflow");
  tap_is_near(dmuon_cost_numel(0), 1, 0, "numel of nothing counts 1");
}

int main(void) {
  tap_plan(0);
  test_costs();

  start(0), layers(2, 2048, 8192, 512);
  tap_ok(assign(1, 4, usual), "A: 2 layers of 2048 on 4");
  tap_is_int(x.statistics.units, 8, "A: units");
  tap_is_int(x.statistics.packed_units, 2, "A: packed units");
  tap_ok(OWNERS(0, 3, 3, 3, 3, 1, 2, 0), "A: layer 0");
  tap_ok(OWNERS(7, 2, 2, 2, 2, 0, 1, 3), "A: layer 1");
  tap_ok(LOADS(1038, 1038, 795, 795), "A: loads");
  tap_is_near(x.statistics.max_cost, 1038, 0, "A: largest load");
  tap_is_near(x.statistics.mean_cost, 916.5, 0, "A: mean load");
  tap_is_near(x.statistics.lower_bound, 916.5, 0, "A: lower bound");
  start(1), layers(2, 2048, 8192, 512);
  tap_ok(assign(1, 4, usual), "A by numel");
  tap_ok(OWNERS(0, 3, 3, 3, 3, 1, 2, 0) && OWNERS(7, 2, 2, 2, 2, 0, 1, 3),
         "A by numel: the same owners");

  start(0), layers(2, 4096, 14336, 1024);
  tap_ok(assign(1, 8, usual), "B: 2 layers of 4096 on 8");
  tap_ok(OWNERS(0, 7, 3, 3, 6, 1, 2, 0), "B: layer 0");
  tap_ok(OWNERS(7, 7, 0, 0, 6, 4, 5, 3), "B: layer 1");
  tap_ok(LOADS(3751, 3621, 3621, 3751, 3621, 3621, 2068, 2068), "B: loads");

  tap_ok(assign(2, 4, usual), "B2: on 4 shards x 2 replicas");
  tap_ok(OWNERS2(0, LIST(3, 3, 3, 2, 1, 2, 0), LIST(1, 0, 0, 1, 0, 0, 0)), "B2: layer 0");
  tap_ok(OWNERS2(7, LIST(3, 2, 2, 2, 0, 1, 3), LIST(1, 0, 0, 1, 1, 1, 0)), "B2: layer 1");

  dmuon_assign_problem unbalanced = usual;
  unbalanced.column_balance = 0;
  tap_ok(assign(2, 4, unbalanced), "B3: columns not balanced");
  tap_ok(OWNERS2(0, LIST(3, 1, 1, 3, 0, 1, 0), LIST(1, 1, 1, 0, 1, 0, 0)), "B3: layer 0");
  tap_ok(OWNERS2(7, LIST(3, 0, 0, 3, 2, 2, 1), LIST(1, 0, 0, 0, 0, 1, 1)), "B3: layer 1");

  for (int one_group = 0; one_group < 2; one_group++) {
    start(0);
    add(one_group ? "" : "embed_tokens", "embed_tokens.weight", 1024, 8192);
    add(one_group ? "" : "lm_head", "lm_head.weight", 1024, 8192);
    tap_ok(assign(2, 4, usual) && owners_are(0, 2, (const int[]){0, 1}, (const int[]){0, 0}),
           "C: embedding and head on two columns, %s", one_group ? "one group" : "two groups");
    tap_ok(assign(2, 4, unbalanced) && owners_are(0, 2, (const int[]){0, 0}, (const int[]){0, 1}),
           "C: columns not balanced: on one column, two rows");
  }

  for (int numel = 0; numel < 2; numel++) {
    start(numel);
    add("", "embed", 65536, 1024), add("", "proj", 4096, 4096);
    tap_ok(assign(1, 2, usual) &&
               owners_are(0, 2, numel ? (const int[]){0, 1} : (const int[]){1, 0}, NULL),
           "D: embed against proj by %s", numel ? "numel" : "optimizer");
  }

  start(0), layers(2, 512, 2048, 128);
  tap_ok(assign(1, 8, usual), "E: 2 small layers on 8");
  tap_is_int(x.statistics.units, 2, "E: each layer is one unit");
  tap_is_int(x.statistics.idle_slots, 6, "E: six of eight own nothing");
  tap_ok(OWNERS(0, 0, 0, 0, 0, 0, 0, 0) && OWNERS(7, 1, 1, 1, 1, 1, 1, 1), "E: owners");
  dmuon_assign_problem loose = usual;
  loose.pack_small = 0;
  tap_ok(assign(1, 8, loose), "E: packing off");
  tap_ok(OWNERS(0, 7, 3, 4, 6, 1, 2, 0), "E: packing off, layer 0");
  tap_ok(OWNERS(7, 7, 0, 1, 6, 4, 5, 3), "E: packing off, layer 1");
  tap_is_int(x.statistics.units, 14, "E: packing off, units");
  tap_is_int(x.statistics.packed_units, 0, "E: packing off, none packed");
  loose.strategy = DMUON_STRATEGY_ROUND_ROBIN;
  tap_ok(assign(1, 4, loose), "E: round robin on 4");
  int turns = 1;
  for (int i = 0; i < x.count; i++) turns &= x.owners[i][1] == i % 4 && x.owners[i][0] == 0;
  tap_ok(turns, "E: parameter i belongs to i mod 4");
  loose.strategy = DMUON_STRATEGY_RANK0;
  tap_ok(assign(1, 4, loose), "E: rank0");
  int zero = 1;
  for (int i = 0; i < x.count; i++) zero &= x.owners[i][1] == 0 && x.owners[i][0] == 0;
  tap_ok(zero, "E: all belong to slot 0");

  start(0), layers(1, 4096, 14336, 1024);
  dmuon_assign_problem capped = usual;
  capped.max_owners_per_group = 2;
  tap_ok(assign(1, 8, capped), "F: at most two owners a layer");
  tap_ok(OWNERS(0, 1, 1, 1, 1, 1, 0, 0), "F: owners");
  return tap_done();
}
