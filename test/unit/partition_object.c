/* The partition as an object on plan meshes: wishes, refusals, answers, size. */
#define _POSIX_C_SOURCE 200809L
#include <dmuon.h>

#include "mesh/mesh.h"
#include "partition/partition.h"
#include "tap.h"

#include <jansson.h>

static DMuonMesh mesh;
static DMuonModel model;
static DMuonPartition part;

static void begin(int replicate, int shard) {
  if (DMuonMeshCreatePlan(replicate, shard, 1, &mesh) || DMuonModelCreate(mesh, &model) ||
      DMuonPartitionCreate(model, &part))
    tap_ok(0, "a plan could not begin: %s", DMuonErrorGetMessage());
}

static void end(void) {
  DMuonPartitionDestroy(&part);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

static void add(const char *name, int64_t rows, int64_t cols) {
  int64_t dims[2] = {rows, cols};
  if (DMuonModelAddParam(model, name, DMUON_FLOAT32, cols ? 2 : 1, dims, NULL))
    tap_ok(0, "%s: %s", name, DMuonErrorGetMessage());
}

/* Layers of q(h,h), k,v(kv,h), o(h,h), gate,up(i,h), down(h,i). */
static void add_layers(int count, int64_t h, int64_t inner, int64_t kv) {
  static const char *const tail[7] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                      "mlp.down_proj"};
  const int64_t shape[7][2] = {{h, h},     {kv, h},    {kv, h},   {h, h},
                               {inner, h}, {inner, h}, {h, inner}};
  for (int l = 0; l < count; l++)
    for (int k = 0; k < 7; k++) {
      char name[80];
      snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, tail[k]);
      add(name, shape[k][0], shape[k][1]);
    }
}

static int owner_is(int id, int replicate, int shard) {
  int r = -7, s = -7, t = -7;
  if (DMuonPartitionGetOwner(part, id, &r, &s, &t)) return 0;
  if (r != replicate || s != shard || t != 0)
    tap_diag("id %d: owner (%d, %d, %d), expected (%d, %d, 0)", id, r, s, t, replicate, shard);
  return r == replicate && s == shard && t == 0;
}

static void test_examples(void) {
  static const int b2[14][2] = {{3, 1}, {3, 0}, {3, 0}, {2, 1}, {1, 0}, {2, 0}, {0, 0},
                                {3, 1}, {2, 0}, {2, 0}, {2, 1}, {0, 1}, {1, 1}, {3, 0}};
  begin(2, 4);
  add_layers(2, 4096, 14336, 1024);
  tap_ok(!DMuonPartitionSetUp(part), "two layers of 4096 on 4 shards x 2 replicas");
  int good = 1;
  for (int i = 0; i < 14; i++) good &= owner_is(i, b2[i][1], b2[i][0]);
  tap_ok(good, "owners as worked out");
  DMuonPartitionInfo info = {.struct_size = sizeof info};
  tap_ok(!DMuonPartitionGetInfo(part, &info) && info.slots == 8 && info.idle_slots == 0, "info");
  tap_is_near(info.mean_cost, (4 * 1034 + 4 * 65 + 6 * 3621) / 8.0, 1e-9, "mean cost");
  int64_t fp32_muon = 8, widest = 14336 * 4096;
  tap_ok(info.max_bytes >= widest * fp32_muon && info.min_bytes > 0, "bytes of masters and state");
  end();
  begin(1, 2);
  add("embed", 65536, 1024), add("proj", 4096, 4096);
  tap_ok(!DMuonPartitionSetUp(part) && owner_is(0, 0, 1) && owner_is(1, 0, 0),
         "an embedding costs less than a matrix");
  end();
  begin(1, 2);
  add("embed", 65536, 1024), add("proj", 4096, 4096);
  tap_ok(!DMuonPartitionSetCostModel(part, "numel") && !DMuonPartitionSetUp(part) &&
             owner_is(0, 0, 0) && owner_is(1, 0, 1),
         "but has more elements");
  end();
}

static void test_wishes(void) {
  begin(1, 4);
  add_layers(1, 256, 1024, 64);
  tap_is_int(DMuonPartitionSetStrategy(part, "balanced"), DMUON_ERR_UNSUPPORTED,
             "balanced is not built");
  tap_contains(DMuonErrorGetMessage(), "lpt, round_robin, rank0", "what is, is listed");
  tap_is_int(DMuonPartitionSetStrategy(part, "roundrobin"), DMUON_ERR_ARGUMENT, "unknown strategy");
  tap_contains(DMuonErrorGetMessage(), "did you mean round_robin", "the nearest is named");
  tap_is_int(DMuonPartitionSetStrategy(part, NULL), DMUON_ERR_ARGUMENT, "NULL");
  tap_is_int(DMuonPartitionSetCostModel(part, "measured"), DMUON_ERR_UNSUPPORTED,
             "measured is not built");
  tap_is_int(DMuonPartitionSetCostModel(part, "flops"), DMUON_ERR_ARGUMENT, "unknown cost model");
  tap_is_int(DMuonPartitionSetOwner(part, "a[", 0, 0, 0), DMUON_ERR_ARGUMENT, "a broken pattern");
  tap_is_int(DMuonPartitionSetOwner(part, "*", -2, 0, 0), DMUON_ERR_ARGUMENT, "an owner of -2");
  int r = 5;
  tap_is_int(DMuonPartitionGetOwner(part, 0, &r, NULL, NULL), DMUON_ERR_STATE,
             "no owner before SetUp");
  tap_is_int(r, 5, "output untouched");
  tap_ok(!DMuonPartitionSetStrategy(part, "rank0"), "rank0");
  tap_ok(!DMuonMeshSetOption(mesh, "owner_strategy", "round_robin"), "an option");
  tap_ok(!DMuonMeshSetOption(mesh, "pack_small_params", "no"), "packing off");
  tap_ok(!DMuonPartitionSetOwner(part, "*.mlp.*", DMUON_DECIDE, 3, DMUON_DECIDE), "SetOwner");
  tap_ok(!DMuonPartitionSetOwner(part, "*.down_proj.*", 0, 2, DMUON_DECIDE), "a later one wins");
  tap_ok(!DMuonPartitionSetUp(part), "SetUp");
  tap_ok(owner_is(0, 0, 0) && owner_is(1, 0, 1) && owner_is(2, 0, 2) && owner_is(3, 0, 3),
         "the option overrides the program: in turn");
  tap_ok(owner_is(4, 0, 3) && owner_is(5, 0, 3) && owner_is(6, 0, 2), "fixed owners");
  const char *value, *source;
  tap_ok(!DMuonMeshGetOption(mesh, "owner_strategy", &value, &source) &&
             !strcmp(value, "round_robin") && !strcmp(source, "command line"),
         "the source is known");
  tap_is_int(DMuonPartitionSetStrategy(part, "lpt"), DMUON_ERR_STATE, "too late");
  tap_is_int(DMuonPartitionGetOwner(part, 7, &r, NULL, NULL), DMUON_ERR_ARGUMENT,
             "an id out of range");
  tap_contains(DMuonErrorGetMessage(), "id 7 out of range [0,7)", "with the range");
  end();
}

static double half_cost(void *ctx, const DMuonParamInfo *param) {
  const double *bad = ctx;
  if (!strcmp(param->name, "layers.1.w")) return *bad;
  return 0.5 * (double)param->numel;
}

static void test_costs(void) {
  double bad[3] = {NAN, -1, INFINITY};
  for (int i = 0; i < 3; i++) {
    begin(1, 2);
    add("layers.0.w", 8, 8), add("layers.1.w", 8, 8);
    DMuonPartitionSetCostFunction(part, half_cost, &bad[i]);
    tap_is_int(DMuonPartitionSetUp(part), DMUON_ERR_ARGUMENT, "a cost of %g is refused", bad[i]);
    tap_contains(DMuonErrorGetMessage(), "layers.1.w", "and named");
    bad[i] = 3;
    tap_ok(!DMuonPartitionSetUp(part), "and then put right");
    DMuonPartitionInfo info = {.struct_size = sizeof info};
    DMuonPartitionGetInfo(part, &info);
    tap_is_near(info.max_cost, 32, 0, "costs are the program's");
    end();
  }
  begin(1, 2);
  add("layers.0.w", 4096, 4096), add("layers.1.w", 4096, 4096), add("head.w", 4096, 4096);
  DMuonModelSetRoute(model, "layers.0.w", DMUON_ROUTE_ADAMW);
  DMuonModelSetRoute(model, "layers.1.w", DMUON_ROUTE_FROZEN);
  tap_ok(!DMuonPartitionSetUp(part), "routes by the program");
  tap_is_near(part->item_cost[0], 16, 0, "sent to AdamW: element-wise");
  tap_is_near(part->item_cost[1], 0, 0, "frozen: nothing");
  tap_is_near(part->item_cost[2], 1034, 0, "outside the blocks: as its shape");
  end();
  begin(1, 1);
  add("layers.0.w", 3 * 1024, 1024);
  int64_t sizes[3] = {1024, 1024, 1024};
  DMuonModelSetBlocks(model, "layers.0.w", 3, sizes, 1);
  tap_ok(!DMuonPartitionSetUp(part), "row blocks");
  tap_is_near(part->item_cost[0], 3 * (16 + 1), 0, "three matrices of 1024");
  end();
}

static void test_refusals(void) {
  begin(2, 2);
  add("layers.0.w", 8, 8);
  DMuonPartitionSetOwner(part, "nothing.*", 0, 0, 0);
  tap_is_int(DMuonPartitionSetUp(part), DMUON_ERR_SETUP, "a pattern that matches nothing");
  tap_contains(DMuonErrorGetMessage(), "nothing.*", "is named");
  end();
  begin(2, 2);
  add("layers.0.w", 8, 8);
  DMuonPartitionSetOwner(part, "*", 2, 0, 0);
  tap_ok(DMuonPartitionSetUp(part) != DMUON_SUCCESS, "an owner outside the mesh");
  tap_contains(DMuonErrorGetMessage(), "replicate owner 2 out of range [0,2) for layers.0.w",
               "named");
  end();
  begin(1, 2);
  tap_ok(!DMuonPartitionSetUp(part), "a model without parameters");
  DMuonPartitionInfo info = {.struct_size = sizeof info};
  tap_ok(!DMuonPartitionGetInfo(part, &info) && info.idle_slots == 2, "all slots idle");
  end();
  tap_is_int(DMuonPartitionSetUp(NULL), DMUON_ERR_ARGUMENT, "NULL handle");
  tap_ok(!DMuonPartitionDestroy(NULL) && !DMuonPartitionDestroy(&part), "destroying nothing");
  begin(1, 1);
  tap_is_int(DMuonPartitionSetUp((DMuonPartition)model), DMUON_ERR_ARGUMENT, "another class");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
  tap_ok(!DMuonPartitionSetUp(part), "a partition keeps its model and mesh");
  end();
}

static void test_reports(void) {
  uint64_t first = 0, second = 0, other = 0;
  begin(1, 4), add_layers(1, 256, 1024, 64);
  DMuonPartitionSetUp(part), DMuonPartitionGetHash(part, &first);
  end();
  begin(1, 4), add_layers(1, 256, 1024, 64);
  DMuonPartitionSetUp(part), DMuonPartitionGetHash(part, &second);
  tap_ok(first == second && first != 0, "equal plans, equal hashes");
  char *json = NULL;
  tap_ok(!DMuonPartitionSummary(part, &json), "summary");
  json_error_t error;
  json_t *root = json_loads(json ? json : "", 0, &error);
  tap_is_int(json_integer_value(json_object_get(root, "slots")), 4, "slots");
  tap_is_int(json_integer_value(json_object_get(root, "packed_units")), 1, "packed units");
  tap_is_int((int64_t)json_array_size(json_object_get(root, "owners")), 7, "an entry a parameter");
  tap_is_int((int64_t)json_array_size(json_object_get(root, "slot_loads")), 4, "an entry a slot");
  json_decref(root);
  DMuonFree(json);
  char path[] = "partition_object_XXXXXX", line[4096] = "";
  int fd = mkstemp(path);
  tap_ok(fd >= 0 && !DMuonPartitionView(part, path), "view");
  FILE *file = fopen(path, "r");
  size_t length = file ? fread(line, 1, sizeof line - 1, file) : 0;
  line[length] = 0;
  tap_contains(line, "7 parameters in 1 units (1 packed) on 4 slots of mesh 1x4x1", "first line");
  tap_contains(line, "idle slots:    3", "idle slots");
  tap_contains(line, "model.layers.0.mlp.down_proj.weight", "who owns what");
  if (file) fclose(file);
  remove(path);
  tap_is_int(DMuonPartitionView(part, "/nowhere/at/all"), DMUON_ERR_FILE, "a path that is none");
  end();
  begin(1, 4), add_layers(1, 256, 1024, 64);
  DMuonMeshSetOption(mesh, "pack_small_params", "0");
  DMuonPartitionSetUp(part), DMuonPartitionGetHash(part, &other);
  tap_ok(other != first, "other owners, another hash");
  end();
}

static void is_busiest(const json_t *root, const char *axis, double seconds, int64_t bytes,
                       int rank, const char *what) {
  const json_t *of = json_object_get(json_object_get(root, "busiest_owner"), axis);
  tap_is_near(json_number_value(json_object_get(of, "seconds")), seconds, 1e-12, "%s: seconds",
              what);
  tap_is_int(json_integer_value(json_object_get(of, "bytes")), bytes, "%s: bytes", what);
  tap_is_int(json_integer_value(json_object_get(of, "rank")), rank, "%s: rank", what);
}

/* What owners root, over links of 450 GB/s in a node and 50 GB/s a rank between nodes. */
static void test_seconds(void) {
  enum { M = 1 << 20 };
  const int64_t dims[] = {4096, 1024};
  begin(2, 4);
  DMuonMeshSetOption(mesh, "topology", "node:2 gpu:4 nvlink:all@450GB ib:4@400Gb");
  add("a", 2048, 1024), add("b", 1024, 1024), add("frozen", 8192, 1024);
  DMuonModelAddParam(model, "c", DMUON_BFLOAT16, 2, dims, NULL);
  DMuonModelSetRoute(model, "frozen", DMUON_ROUTE_FROZEN);
  DMuonPartitionSetOwner(part, "a", 0, 0, 0), DMuonPartitionSetOwner(part, "b", 1, 0, 0);
  DMuonPartitionSetOwner(part, "frozen", 0, 3, 0), DMuonPartitionSetOwner(part, "c", 1, 2, 0);
  tap_ok(!DMuonPartitionSetUp(part), "a partition on a machine of two nodes");
  tap_ok(mesh->links[DMUON_AXIS_SHARD].link_class == DMUON_LINK_NVLINK &&
             mesh->links[DMUON_AXIS_REPLICATE].link_class == DMUON_LINK_INFINIBAND,
         "shard over NVLink, replicate over InfiniBand");
  char *text = NULL;
  tap_ok(!DMuonPartitionSummary(part, &text), "summary");
  json_t *root = json_loads(text ? text : "", 0, NULL);
  /* a and b: three gradients in fp32, the values once. */
  is_busiest(root, "shard", 4 * 4 * 3.0 * M / 450e9, (int64_t)4 * 4 * 3 * M, 0,
             "shard: the column of a and b");
  /* c: one partial sum in fp32, the values in bf16. */
  is_busiest(root, "replicate", (4 + 2) * 4.0 * M / 50e9, (int64_t)(4 + 2) * 4 * M, 6,
             "replicate: the owner of c");
  json_decref(root);
  DMuonFree(text);
  char path[] = "partition_object_XXXXXX", line[4096] = "";
  int fd = mkstemp(path);
  tap_ok(fd >= 0 && !DMuonPartitionView(part, path), "view");
  FILE *file = fopen(path, "r");
  size_t length = file ? fread(line, 1, sizeof line - 1, file) : 0;
  line[length] = 0;
  tap_contains(line, "busiest owner: at least 0.000112 s a step along shard (rank 0: ",
               "0.000112 s along shard");
  tap_contains(line, "over NVLink), at least 0.000503 s a step along replicate (rank 6: ",
               "0.000503 s along replicate");
  if (file) fclose(file);
  remove(path);
  end();
  begin(1, 1);
  add("a", 64, 64);
  dmuon_partition_busiest alone;
  tap_ok(!DMuonPartitionSetUp(part) &&
             !dmuon_partition_find_busiest(part, DMUON_AXIS_SHARD, &alone) && alone.bytes == 0 &&
             alone.seconds == 0 && alone.position == -1,
         "a rank by itself sends nothing");
  end();
}

static void test_size(void) {
  begin(128, 128);
  add_layers(162, 16384, 53248, 1024);
  add("model.embed_tokens.weight", 128256, 16384), add("model.norm.weight", 16384, 0);
  add("lm_head.weight", 128256, 16384);
  tap_ok(!DMuonModelSetUp(model), "1,137 tensors");
  int64_t before = mesh->context.memory.bytes;
  mesh->context.memory.peak_bytes = before;
  tap_ok(!DMuonPartitionSetUp(part), "on 16,384 slots");
  int64_t peak = mesh->context.memory.peak_bytes;
  tap_diag("partition: %.2f MB at most; with mesh and model %.2f MB", (double)(peak - before) / 1e6,
           (double)peak / 1e6);
  tap_ok(peak < 4000000, "mesh, model and partition together under 4 MB");
  end();
  /* Every allocation of SetUp may fail; then it can be repeated. */
  int failures = 0, wrong = 0;
  for (int64_t k = 1;; k++) {
    begin(2, 4), add_layers(2, 4096, 14336, 1024);
    DMuonModelSetUp(model);
    dmuon_memory *memory = &mesh->context.memory;
    memory->fail_at = memory->allocations + k;
    DMuonErrorCode code = DMuonPartitionSetUp(part);
    memory->fail_at = 0;
    if (code) {
      failures++;
      wrong += code != DMUON_ERR_MEMORY || DMuonPartitionSetUp(part) || !owner_is(0, 1, 3);
    }
    end();
    if (!code) break;
  }
  tap_ok(failures > 10 && !wrong, "%d allocations failed in turn, SetUp repeated each time",
         failures);
}

int main(void) {
  tap_plan(0);
  test_examples();
  test_wishes();
  test_costs();
  test_refusals();
  test_reports();
  test_seconds();
  test_size();
  return tap_done();
}
