/* The plan on meshes of any size, each rank played in turn: figures by hand, sums over the ranks,
 * how often groups are fetched, and memory by mesh. */
#include <dmuon.h>

#include "engine/plan.h"
#include "model/model.h"
#include "partition/partition.h"
#include "tap.h"

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonPartition partition;
  dmuon_packing packing;
  dmuon_groups groups;
  dmuon_lend_settings settings;
  dmuon_plan plan;
} played;

/* A model that adds its own parameters and says who owns them. */
typedef DMuonErrorCode (*describe)(DMuonModel model, DMuonPartition partition);

static DMuonErrorCode play(int R, int G, int r, int s, describe what, int gathers, int all_z2,
                           played *p) {
  const dmuon_packing_options options = {.gathers = gathers};
  *p = (played){.settings = {.open_groups = 2, .prefetch_depth = 1, .all_z2 = all_z2}};
  DMUON_CALL(DMuonMeshCreatePlan(R, G, 1, &p->mesh));
  DMUON_CALL(DMuonMeshSetCoords(p->mesh, r, s, 0));
  DMUON_CALL(DMuonMeshSetOption(p->mesh, "pack_small_params", "0")); /* each matrix by itself */
  DMUON_CALL(DMuonModelCreate(p->mesh, &p->model));
  DMUON_CALL(DMuonPartitionCreate(p->model, &p->partition));
  DMUON_CALL(what(p->model, p->partition));
  DMUON_CALL(DMuonModelSetUp(p->model));
  DMUON_CALL(DMuonPartitionSetUp(p->partition));
  dmuon_memory *memory = &p->mesh->context.memory;
  DMUON_CALL(
      dmuon_packing_make(memory, &p->model->registry, p->partition->owners, &options, &p->packing));
  DMUON_CALL(dmuon_groups_make(memory, &p->model->registry, &p->packing, all_z2, &p->groups));
  p->plan = (dmuon_plan){&p->model->registry, &p->packing, &p->groups, &p->settings};
  return DMUON_SUCCESS;
}

static void leave(played *p) {
  dmuon_groups_free(&p->groups);
  dmuon_packing_free(&p->packing);
  DMuonPartitionDestroy(&p->partition);
  DMuonModelDestroy(&p->model);
  DMuonMeshDestroy(&p->mesh);
}

static DMuonErrorCode add(DMuonModel model, const char *name, DMuonDType dtype, int64_t rows,
                          int64_t cols, DMuonRoute route) {
  const int64_t dims[] = {rows, cols};
  DMUON_CALL(DMuonModelAddParam(model, name, dtype, 2, dims, NULL));
  return DMuonModelSetRoute(model, name, route);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* 2 x 3 ranks: a of 40 elements at (0,0), b of 24 at (1,0), c of 12 at (1,2), in bf16 with fp32
 * gradients; mask of 10 frozen at (0,1). */
static DMuonErrorCode three(DMuonModel model, DMuonPartition partition) {
  DMUON_CALL(add(model, "h.0.a", DMUON_BFLOAT16, 8, 5, DMUON_ROUTE_MUON));
  DMUON_CALL(add(model, "h.0.b", DMUON_BFLOAT16, 6, 4, DMUON_ROUTE_MUON));
  DMUON_CALL(add(model, "h.0.c", DMUON_BFLOAT16, 4, 3, DMUON_ROUTE_ADAMW));
  DMUON_CALL(add(model, "h.0.mask", DMUON_BFLOAT16, 2, 5, DMUON_ROUTE_FROZEN));
  DMUON_CALL(DMuonModelSetDTypes(model, "h.*", DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32));
  DMUON_CALL(DMuonPartitionSetOwner(partition, "h.0.a", 0, 0, 0));
  DMUON_CALL(DMuonPartitionSetOwner(partition, "h.0.b", 1, 0, 0));
  DMUON_CALL(DMuonPartitionSetOwner(partition, "h.0.c", 1, 2, 0));
  return DMuonPartitionSetOwner(partition, "h.0.mask", 0, 1, 0);
}

static const dmuon_plan_step once = {1, 0, 0};

static void check_flow(const dmuon_traffic *traffic, dmuon_flow_kind kind, int64_t operations,
                       int64_t elements, int64_t bytes, const char *what) {
  const dmuon_flow *flow = &traffic->flow[kind];
  tap_ok(flow->operations == operations && flow->payload == elements && flow->bytes == bytes,
         "%s, %s of axis %d: %lld operations, %lld elements, %lld bytes", what,
         dmuon_flow_name(kind), (int)dmuon_flow_axis(kind), (long long)flow->operations,
         (long long)flow->payload, (long long)flow->bytes);
}

static void test_by_hand(void) {
  played p;
  /* Rank (1, 0): its column owns a and b, it updates b. Two bundles: the frozen one is fetched too.
   */
  tap_ok(play(2, 3, 1, 0, three, 0, 0, &p) == DMUON_SUCCESS, "a plan of rank (1,0) of 2 x 3");
  tap_is_int(p.groups.count, 1, "one group");
  dmuon_traffic traffic = dmuon_plan_group(&p.plan, 0, &once);
  check_flow(&traffic, DMUON_FLOW_UNSHARD, 4, 2 * (12 + 10), 2 * 2 * (12 + 10), "(1,0)");
  check_flow(&traffic, DMUON_FLOW_SHARD_REDUCE, 1, 12, 4 * 12, "(1,0)");
  check_flow(&traffic, DMUON_FLOW_REPLICATE_REDUCE, 1, 40, 4 * 40, "(1,0)");
  check_flow(&traffic, DMUON_FLOW_PUBLISH, 1, 40, 2 * 40, "(1,0)");
  check_flow(&traffic, DMUON_FLOW_MOVE, 0, 0, 0, "(1,0)");
  const dmuon_flow shard = dmuon_traffic_along(&traffic, DMUON_AXIS_SHARD);
  tap_is_int(shard.bytes, 2 * 2 * 22 + 4 * 12, "along the shard axis");
  tap_is_int(dmuon_traffic_along(&traffic, DMUON_AXIS_ALL).bytes, shard.bytes + 4 * 40 + 2 * 40,
             "along both");

  traffic = dmuon_plan_group(&p.plan, 0, &(dmuon_plan_step){3, 0, 2});
  check_flow(&traffic, DMUON_FLOW_UNSHARD, 2 * (2 * 3 + 2), 8 * 22, 2 * 8 * 22,
             "three micro-batches reduced each, two evaluations");
  check_flow(&traffic, DMUON_FLOW_SHARD_REDUCE, 3, 36, 4 * 36, "three reduced each");
  check_flow(&traffic, DMUON_FLOW_PUBLISH, 1, 40, 2 * 40, "three reduced each");
  traffic = dmuon_plan_group(&p.plan, 0, &(dmuon_plan_step){3, 1, 0});
  check_flow(&traffic, DMUON_FLOW_UNSHARD, 12, 6 * 22, 2 * 6 * 22, "three added up here");
  check_flow(&traffic, DMUON_FLOW_REPLICATE_REDUCE, 1, 40, 4 * 40, "three added up here");
  traffic = dmuon_plan_group(&p.plan, 0, &(dmuon_plan_step){0, 0, 1});
  tap_is_int(dmuon_traffic_along(&traffic, DMUON_AXIS_ALL).bytes, 2 * 22,
             "an evaluation fetches once and does nothing else");
  leave(&p);

  /* Z2: fetched once, however many micro-batches. */
  tap_ok(play(2, 3, 0, 1, three, 0, 1, &p) == DMUON_SUCCESS, "rank (0,1), Z2");
  traffic = dmuon_plan_group(&p.plan, 0, &(dmuon_plan_step){3, 0, 1});
  check_flow(&traffic, DMUON_FLOW_UNSHARD, 4, 2 * 76, 2 * 2 * 76, "(0,1), Z2");
  check_flow(&traffic, DMUON_FLOW_SHARD_REDUCE, 3, 3 * 76, 4 * 3 * 76, "(0,1), Z2");
  check_flow(&traffic, DMUON_FLOW_REPLICATE_REDUCE, 3, 0, 0, "(0,1), Z2");
  tap_is_int(traffic.flow[DMUON_FLOW_PUBLISH].bytes, 0, "its column owns nothing that is updated");
  leave(&p);
}

/* ---- seconds --------------------------------------------------------------------------------- */

static const char machine[] = "node:2 gpu:4 nvlink:all@450GB ib:4@400Gb";
enum { M = 1 << 20 };

/* a of 4 M elements at (0,0), b of 2 M at (1,0), c of 1 M at (1,2); types as above. */
static DMuonErrorCode on_a_machine(DMuonModel model, DMuonPartition partition) {
  DMUON_CALL(DMuonMeshSetOption(model->mesh, "topology", machine));
  DMUON_CALL(add(model, "h.0.a", DMUON_BFLOAT16, 4096, 1024, DMUON_ROUTE_MUON));
  DMUON_CALL(add(model, "h.0.b", DMUON_BFLOAT16, 2048, 1024, DMUON_ROUTE_MUON));
  DMUON_CALL(add(model, "h.0.c", DMUON_BFLOAT16, 1024, 1024, DMUON_ROUTE_ADAMW));
  DMUON_CALL(DMuonModelSetDTypes(model, "h.*", DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32));
  DMUON_CALL(DMuonPartitionSetOwner(partition, "h.0.a", 0, 0, 0));
  DMUON_CALL(DMuonPartitionSetOwner(partition, "h.0.b", 1, 0, 0));
  return DMuonPartitionSetOwner(partition, "h.0.c", 1, 2, 0);
}

/* NVLink: 6 us, 450 GB/s. InfiniBand: 5 us, a port of 400 Gb/s for each of a node's four ranks. */
static void test_seconds(void) {
  played p;
  tap_ok(play(2, 4, 1, 0, on_a_machine, 0, 0, &p) == DMUON_SUCCESS, "rank (1,0) of 2 x 4 on %s",
         machine);
  /* c is fetched twice in bf16, its gradient leaves in fp32. */
  tap_is_near(dmuon_plan_seconds(&p.plan, DMUON_AXIS_SHARD, &once),
              3 * 6e-6 + (2 * 2 + 4) * (double)M / 450e9, 1e-12, "shard: three operations, 8 MB");
  /* a's gradient leaves in fp32, its new values come in bf16. */
  tap_is_near(dmuon_plan_seconds(&p.plan, DMUON_AXIS_REPLICATE, &once),
              2 * 5e-6 + (4 * 4 + 2 * 4) * (double)M / 50e9, 1e-12,
              "replicate: two operations, 25 MB");
  tap_is_near(dmuon_plan_seconds(&p.plan, DMUON_AXIS_SHARD, &(dmuon_plan_step){3, 1, 0}),
              7 * 6e-6 + (6 * 2 + 4) * (double)M / 450e9, 1e-12,
              "three micro-batches added up here: fetched six times");
  leave(&p);
  tap_ok(play(2, 4, 0, 3, on_a_machine, 0, 0, &p) == DMUON_SUCCESS, "rank (0,3), who owns nothing");
  tap_is_near(dmuon_plan_seconds(&p.plan, DMUON_AXIS_SHARD, &once),
              3 * 6e-6 + (2 * 2 + 4) * 7 * (double)M / 450e9, 1e-12, "everything along its row");
  leave(&p);
}

/* ---- sums over the ranks --------------------------------------------------------------------- */

enum { LAYERS = 6, EQUAL = 8, SIDE = 64 };

static DMuonErrorCode of_every_kind(DMuonModel model, DMuonPartition partition) {
  static float array[35], gradient[35];
  const int64_t odd[] = {7, 5};
  char name[64];
  (void)partition;
  DMUON_CALL(add(model, "embed.w", DMUON_FLOAT32, 101, 3, DMUON_ROUTE_ADAMW_SHARDED));
  for (int l = 0; l < LAYERS; l++) {
    snprintf(name, sizeof name, "h.%d.w", l);
    DMUON_CALL(
        add(model, name, l % 2 ? DMUON_FLOAT32 : DMUON_BFLOAT16, 9 + l, 7, DMUON_ROUTE_MUON));
    snprintf(name, sizeof name, "h.%d.v", l);
    DMUON_CALL(add(model, name, DMUON_FLOAT32, 5, 4 + l, DMUON_ROUTE_MUON));
    snprintf(name, sizeof name, "h.%d.mask", l);
    DMUON_CALL(add(model, name, DMUON_FLOAT32, 3, l, DMUON_ROUTE_FROZEN));
  }
  DMUON_CALL(
      DMuonModelAddParamArray(model, "h.1.own", DMUON_FLOAT32, 2, odd, array, gradient, NULL));
  return DMuonModelSetRoute(model, "h.1.own", DMUON_ROUTE_MUON);
}

static void test_sums(int R, int G, int gathers) {
  int64_t sum[DMUON_FLOWS] = {0}, everywhere[DMUON_FLOWS] = {0}, want[DMUON_FLOWS] = {0};
  int64_t matrices = 0;
  int good = 1;
  for (int rank = 0; rank < R * G; rank++) {
    played p;
    good &= play(R, G, rank / G, rank % G, of_every_kind, gathers, 0, &p) == DMUON_SUCCESS;
    const dmuon_registry *registry = &p.model->registry;
    const dmuon_traffic here = dmuon_plan_mesh(&p.plan, 0, &once);
    for (int k = 0; k < DMUON_FLOWS; k++) sum[k] += here.flow[k].bytes;
    for (int b = 0; rank == R * G - 1 && b < p.packing.bundle_count; b++) {
      const dmuon_traffic all = dmuon_plan_bundle_everywhere(&p.plan, b, &once);
      for (int k = 0; k < DMUON_FLOWS; k++) everywhere[k] += all.flow[k].bytes;
    }
    for (int i = 0; rank == 0 && i < registry->param_count; i++) {
      const dmuon_param *param = &registry->params[i];
      const int64_t bytes = param->numel * (param->dtype == DMUON_BFLOAT16 ? 2 : 4);
      const int is_updated = param->route != DMUON_ROUTE_FROZEN;
      want[DMUON_FLOW_UNSHARD] += (G - 1) * R * bytes * (param->is_lent ? 2 : 1);
      want[DMUON_FLOW_SHARD_REDUCE] += is_updated * (G - 1) * R * bytes;
      want[DMUON_FLOW_REPLICATE_REDUCE] += is_updated * (R - 1) * 4 * param->numel;
      want[DMUON_FLOW_PUBLISH] += is_updated * (R - 1) * bytes;
      if (param->route == DMUON_ROUTE_MUON && param->is_lent) matrices += bytes;
    }
    leave(&p);
  }
  want[DMUON_FLOW_MOVE] = everywhere[DMUON_FLOW_MOVE];
  tap_ok(good && memcmp(sum, want, sizeof sum) == 0,
         "%d x %d%s: 3(G-1)R P along the shard axis in Z3, (R-1)P each for stage 2 and publish", R,
         G, gathers ? ", gathered" : "");
  tap_ok(memcmp(sum, everywhere, sizeof sum) == 0, "%d x %d%s: sums said from one rank", R, G,
         gathers ? ", gathered" : "");
  tap_ok(gathers && G > 1 ? sum[DMUON_FLOW_MOVE] > 0 && sum[DMUON_FLOW_MOVE] <= matrices
                          : sum[DMUON_FLOW_MOVE] == 0,
         "%d x %d%s: %lld bytes moved to flat homes", R, G, gathers ? ", gathered" : "",
         (long long)sum[DMUON_FLOW_MOVE]);
}

/* ---- fetches --------------------------------------------------------------------------------- */

static DMuonErrorCode row_of_groups(DMuonModel model, DMuonPartition partition) {
  char name[64];
  (void)partition;
  for (int l = 0; l < LAYERS; l++) {
    snprintf(name, sizeof name, "h.%d.w", l);
    DMUON_CALL(add(model, name, DMUON_FLOAT32, 8, 8, DMUON_ROUTE_MUON));
  }
  return DMuonModelSetReshard(model, "h.4", DMUON_Z2);
}

static void test_fetches(void) {
  played p;
  int total = 0;
  tap_ok(play(1, 4, 0, 2, row_of_groups, 0, 0, &p) == DMUON_SUCCESS, "six groups");
  for (int g = 0; g < LAYERS; g++) total += dmuon_plan_fetches(&p.plan, g, DMUON_PASS_TRAIN);
  tap_is_int(total, 2 * 5 + 1, "registered order: Z3 twice a pass, Z2 once");
  tap_is_int(dmuon_plan_fetches(&p.plan, 0, DMUON_PASS_EVAL), 1, "and once in an evaluation");
  p.settings.order = DMUON_ORDER_PROGRAM;
  const int want[LAYERS] = {2, 2, 2, 1, 1, 1};
  for (int g = 0; g < LAYERS; g++)
    tap_is_int(dmuon_plan_fetches(&p.plan, g, DMUON_PASS_TRAIN), want[g],
               "program order, two buffers: group %d", g);
  p.settings.open_groups = LAYERS;
  total = 0;
  for (int g = 0; g < LAYERS; g++) total += dmuon_plan_fetches(&p.plan, g, DMUON_PASS_TRAIN);
  tap_is_int(total, LAYERS, "program order, a buffer for each: once");
  leave(&p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static DMuonErrorCode equal_matrices(DMuonModel model, DMuonPartition partition) {
  char name[64];
  (void)partition;
  for (int i = 0; i < 4 * EQUAL; i++) {
    snprintf(name, sizeof name, "h.%d.w%d", i / EQUAL, i % EQUAL);
    DMUON_CALL(add(model, name, DMUON_BFLOAT16, SIDE, SIDE, DMUON_ROUTE_MUON));
  }
  return DMuonModelSetDTypes(model, "h.*", DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32);
}

static void test_memory(int R, int G) {
  const int64_t numel = (int64_t)4 * EQUAL * SIDE * SIDE;
  int values = 1, updated = 1, buffers = 1;
  for (int rank = 0; rank < R * G; rank++) {
    played p;
    dmuon_update_plan updates[4 * EQUAL] = {{0}};
    if (play(R, G, rank / G, rank % G, equal_matrices, 0, 0, &p)) values = 0;
    updates[p.packing.bundles[0].params[0].id] = (dmuon_update_plan){.workspace_bytes = 12345};
    const dmuon_memory_plan m = dmuon_plan_memory(&p.plan, updates);
    values &= m.homes == 2 * numel / G;
    updated &= m.masters == 4 * numel / (R * G) && m.state == 4 * numel / (R * G);
    updated &= m.workspace == (p.packing.bundles[0].params[0].is_mine ? 12345 : 0);
    buffers &= m.value_buffers == 2 * 2 * numel / 4 && m.grad_buffers <= 3 * 4 * numel / 4;
    buffers &= m.accumulators == 4 * numel && m.arrays == 0;
    leave(&p);
  }
  tap_ok(values, "%d x %d: values fall as 1/G on every rank", R, G);
  tap_ok(updated, "%d x %d: masters and state as 1/(R G)", R, G);
  tap_ok(buffers, "%d x %d: two groups' values and three groups' gradients on top", R, G);
}

int main(void) {
  test_by_hand();
  test_seconds();
  for (int R = 1; R <= 8; R *= 2)
    for (int gathers = 0; gathers < 2; gathers++) test_sums(R, 8 / R, gathers);
  test_sums(3, 5, 0);
  test_sums(3, 5, 1);
  test_fetches();
  for (int R = 1; R <= 8; R++)
    for (int G = 1; R * G <= 8; G++)
      if (8 % (R * G) == 0) test_memory(R, G);
  return tap_done();
}
