/* What communicators count is what the plan says: rank by rank and operation by operation, for a
 * model with parameters of every residency, on every mesh of the ranks; and summed over the ranks,
 * what arithmetic says that knows no plan. */
#include <dmuon.h>
#include <jansson.h>

#include "engine/plan.h"
#include "optim/optimizer.h"
#include "tap_mpi.h"

typedef struct {
  const char *name;
  DMuonDType dtype;
  int ndim;
  int64_t dims[2];
  DMuonRoute route;
  int is_array;
} spec;

static const spec specs[] = {
    {"embed.weight", DMUON_FLOAT32, 2, {37, 6}, DMUON_ROUTE_ADAMW_SHARDED, 0},
    {"layers.0.a", DMUON_FLOAT32, 2, {12, 8}, DMUON_ROUTE_MUON, 0},
    {"layers.0.b", DMUON_FLOAT32, 2, {8, 8}, DMUON_ROUTE_MUON, 0},
    {"layers.0.c", DMUON_BFLOAT16, 2, {5, 9}, DMUON_ROUTE_MUON, 0},
    {"layers.0.bias", DMUON_FLOAT32, 1, {13}, DMUON_ROUTE_ADAMW, 0},
    {"layers.0.empty", DMUON_FLOAT32, 1, {0}, DMUON_ROUTE_ADAMW, 0},
    {"layers.0.mask", DMUON_FLOAT32, 2, {4, 7}, DMUON_ROUTE_FROZEN, 0},
    {"layers.1.a", DMUON_FLOAT32, 2, {12, 8}, DMUON_ROUTE_MUON, 0},
    {"layers.1.b", DMUON_FLOAT32, 2, {33, 3}, DMUON_ROUTE_MUON, 0},
    {"layers.1.flat", DMUON_BFLOAT16, 1, {301}, DMUON_ROUTE_ADAMW_SHARDED, 0},
    {"layers.2.a", DMUON_FLOAT32, 2, {9, 9}, DMUON_ROUTE_MUON, 0},
    {"layers.2.own", DMUON_FLOAT32, 2, {10, 6}, DMUON_ROUTE_MUON, 1},
    {"layers.2.own_bias", DMUON_BFLOAT16, 1, {21}, DMUON_ROUTE_ADAMW, 1},
    {"layers.3.a", DMUON_BFLOAT16, 2, {7, 7}, DMUON_ROUTE_MUON, 0},
    {"layers.3.b", DMUON_BFLOAT16, 2, {7, 7}, DMUON_ROUTE_MUON, 0},
    {"tail.own", DMUON_FLOAT32, 1, {17}, DMUON_ROUTE_ADAMW, 1},
};
enum { PARAMS = sizeof specs / sizeof specs[0], MOST = 64 };

static float weights[PARAMS][MOST], gradients[PARAMS][MOST];

static int64_t numel(int p) {
  int64_t n = 1;
  for (int i = 0; i < specs[p].ndim; i++) n *= specs[p].dims[i];
  return n;
}

static int64_t bytes(int p) {
  return numel(p) * (specs[p].dtype == DMUON_BFLOAT16 ? 2 : 4);
}

typedef struct {
  const char *what, *reshard, *unshard, *order, *bucket_mb;
  int is_z2, is_program;
} way;

/* layers.1 is Z2 in all of them. */
static const way ways[] = {
    {"Z3", "z3", "broadcast", "registered", "0", 0, 0},
    {"Z2, small buckets", "z2", "broadcast", "registered", "0.0001", 1, 0},
    {"Z3, gathered", "z3", "all_gather", "registered", "0", 0, 0},
    {"Z2, gathered, program order", "z2", "all_gather", "program", "0", 1, 1},
    {"Z3, program order", "z3", "broadcast", "program", "0.0002", 0, 1},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static const dmuon_plan_step kinds[] = {{1, 0, 0}, {3, 0, 0}, {3, 1, 0}, {1, 0, 2}};
enum { KINDS = sizeof kinds / sizeof kinds[0], TIMES = 2 };

typedef struct {
  DMuonMesh mesh;
  DMuonOptimizer opt;
  int R, G, groups;
  DMuonGroup group[16];
} run;

static DMuonErrorCode make(run *u, int R, int G, const way *w) {
  DMuonModel model;
  *u = (run){.R = R, .G = G};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &u->mesh));
  DMUON_CALL(DMuonMeshSetSizes(u->mesh, R, G, 1));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "reshard", w->reshard));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "muon_forward_unshard", w->unshard));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "order", w->order));
  DMUON_CALL(DMuonMeshSetOption(u->mesh, "publish_bucket_mb", w->bucket_mb));
  DMUON_CALL(DMuonModelCreate(u->mesh, &model));
  for (int p = 0; p < PARAMS; p++) {
    const spec *s = &specs[p];
    if (s->is_array)
      DMUON_CALL(DMuonModelAddParamArray(model, s->name, s->dtype, s->ndim, s->dims, weights[p],
                                         gradients[p], NULL));
    else
      DMUON_CALL(DMuonModelAddParam(model, s->name, s->dtype, s->ndim, s->dims, NULL));
    DMUON_CALL(DMuonModelSetRoute(model, s->name, s->route));
  }
  DMUON_CALL(DMuonModelSetReshard(model, "layers.1", DMUON_Z2));
  DMUON_CALL(DMuonOptimizerCreate(model, &u->opt));
  DMUON_CALL(DMuonModelDestroy(&model));
  DMUON_CALL(DMuonOptimizerSetUp(u->opt));
  DMUON_CALL(DMuonOptimizerGetGroupCount(u->opt, &u->groups));
  for (int g = 0; g < u->groups; g++) DMUON_CALL(DMuonOptimizerGetGroup(u->opt, g, &u->group[g]));
  return DMUON_SUCCESS;
}

static DMuonErrorCode backward(run *u, int g) {
  const int *ids;
  int count;
  void *grad;
  DMUON_CALL(DMuonGroupBackwardBegin(u->group[g]));
  DMUON_CALL(DMuonGroupGetParams(u->group[g], &count, &ids));
  for (int i = 0; i < count; i++) {
    const spec *s = &specs[ids[i]];
    if (s->is_array || s->route == DMUON_ROUTE_FROZEN) continue;
    DMUON_CALL(DMuonGroupGetGrad(u->group[g], ids[i], &grad));
    if (s->dtype != DMUON_FLOAT32) continue; /* zeros */
    for (int64_t k = 0; k < numel(ids[i]); k++) ((float *)grad)[k] += (float)(k % 7) - 3;
  }
  return DMuonGroupBackwardEnd(u->group[g]);
}

static DMuonErrorCode pass(run *u, DMuonPass kind) {
  DMUON_CALL(DMuonOptimizerBeginPass(u->opt, kind));
  for (int g = 0; g < u->groups; g++) {
    DMUON_CALL(DMuonGroupForwardBegin(u->group[g]));
    DMUON_CALL(DMuonGroupForwardEnd(u->group[g]));
  }
  for (int g = u->groups; kind != DMUON_PASS_EVAL && g-- > 0;) DMUON_CALL(backward(u, g));
  return DMUON_SUCCESS;
}

static DMuonErrorCode step(run *u, const dmuon_plan_step *kind) {
  for (int i = 0; i < kind->evaluations; i++) DMUON_CALL(pass(u, DMUON_PASS_EVAL));
  for (int m = 0; m < kind->micro_batches; m++)
    DMUON_CALL(pass(u, kind->accumulates && m < kind->micro_batches - 1 ? DMUON_PASS_ACCUMULATE
                                                                        : DMUON_PASS_TRAIN));
  DMUON_CALL(DMuonOptimizerStep(u->opt));
  return DMuonOptimizerWait(u->opt);
}

/* ---- what was counted ------------------------------------------------------------------------ */

/* By communicator: unshard, stage 1, stage 2, publish. */
enum { COMMS = 4 };
static const struct {
  DMuonAxis axis;
  dmuon_role role;
  int flows[2]; /* of the plan, -1: no second */
} comms[COMMS] = {{DMUON_AXIS_SHARD, DMUON_ROLE_UNSHARD, {DMUON_FLOW_UNSHARD, DMUON_FLOW_MOVE}},
                  {DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE, {DMUON_FLOW_SHARD_REDUCE, -1}},
                  {DMUON_AXIS_REPLICATE, DMUON_ROLE_REDUCE, {DMUON_FLOW_REPLICATE_REDUCE, -1}},
                  {DMUON_AXIS_REPLICATE, DMUON_ROLE_PUBLISH, {DMUON_FLOW_PUBLISH, -1}}};

typedef struct {
  int64_t operations[COMMS], bytes[COMMS];
  int64_t axis_bytes[2], axis_operations[2], all_bytes; /* from the public call */
} counts;

static counts look(run *u) {
  counts c = {{0}, {0}, {0}, {0}, 0};
  for (int i = 0; i < COMMS; i++) {
    const dmuon_comm *comm = dmuon_mesh_comm(u->mesh, comms[i].axis, comms[i].role);
    c.operations[i] = comm->counters.operations;
    c.bytes[i] = comm->counters.bytes;
  }
  for (int axis = 0; axis < 2; axis++) {
    DMuonCommInfo info = {.struct_size = sizeof info};
    if (DMuonMeshGetCommInfo(u->mesh, (DMuonAxis)axis, &info)) return c;
    c.axis_bytes[axis] = info.bytes_sent;
    c.axis_operations[axis] = info.operations;
  }
  DMuonCommInfo info = {.struct_size = sizeof info};
  if (!DMuonMeshGetCommInfo(u->mesh, DMUON_AXIS_ALL, &info)) c.all_bytes = info.bytes_sent;
  return c;
}

static int as_planned(run *u, const dmuon_plan_step *kind, const counts *before,
                      const counts *after) {
  const dmuon_plan plan = {&u->opt->model->registry, &u->opt->runtime.packing, &u->opt->lend.groups,
                           &u->opt->lend.settings};
  const dmuon_traffic traffic = dmuon_plan_mesh(&plan, 0, kind);
  int good = 1;
  for (int i = 0; i < COMMS; i++) {
    dmuon_flow want = {0, 0, 0};
    for (int k = 0; k < 2 && comms[i].flows[k] >= 0; k++) {
      want.operations += TIMES * traffic.flow[comms[i].flows[k]].operations;
      want.bytes += TIMES * traffic.flow[comms[i].flows[k]].bytes;
    }
    const int64_t operations = after->operations[i] - before->operations[i];
    const int64_t sent = after->bytes[i] - before->bytes[i];
    if (operations == want.operations && sent == want.bytes) continue;
    fprintf(stderr, "# rank %d, communicator %d: %lld operations, %lld bytes; planned %lld, %lld\n",
            tap_rank, i, (long long)operations, (long long)sent, (long long)want.operations,
            (long long)want.bytes);
    good = 0;
  }
  for (int axis = 0; axis < 2; axis++) {
    const dmuon_flow want = dmuon_traffic_along(&traffic, (DMuonAxis)axis);
    good &= after->axis_bytes[axis] - before->axis_bytes[axis] == TIMES * want.bytes;
    good &= after->axis_operations[axis] - before->axis_operations[axis] == TIMES * want.operations;
  }
  return good && after->all_bytes - before->all_bytes ==
                     TIMES * dmuon_traffic_along(&traffic, DMUON_AXIS_ALL).bytes;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Program order: the last group's values, and with two buffers those of the group before it, are
 * still there when backward begins. Groups of lent parameters: embed, layers.0 to 3; of them
 * layers.1 is Z2. */
static int64_t fetches(int p, const way *w, const dmuon_plan_step *kind) {
  const int is_z2 = w->is_z2 || strncmp(specs[p].name, "layers.1", 8) == 0;
  const int is_kept =
      strncmp(specs[p].name, "layers.3", 8) == 0 || strncmp(specs[p].name, "layers.2", 8) == 0;
  const int a_pass = w->is_program && is_kept ? 1 : 2;
  return kind->evaluations + (is_z2 ? 1 : a_pass * kind->micro_batches);
}

static void should_be(int R, int G, const way *w, const dmuon_plan_step *kind, int64_t *want,
                      int64_t *may_move) {
  const int reductions = kind->accumulates ? 1 : kind->micro_batches;
  memset(want, 0, COMMS * sizeof *want);
  *may_move = 0;
  for (int p = 0; p < PARAMS; p++) {
    const spec *s = &specs[p];
    const int64_t all = (int64_t)(G - 1) * R * bytes(p), rows = R - 1;
    want[0] += all * (s->is_array ? 1 : fetches(p, w, kind));
    if (s->route == DMUON_ROUTE_FROZEN) continue;
    want[1] += all * (s->is_array ? 1 : reductions);
    want[2] += rows * 4 * numel(p) * (s->is_array ? 1 : reductions); /* sums are fp32 */
    want[3] += rows * bytes(p);
    if (s->route == DMUON_ROUTE_MUON && !s->is_array && G > 1) *may_move += bytes(p);
  }
}

static int adds_up(int R, int G, const way *w, const dmuon_plan_step *kind, const counts *before,
                   const counts *after) {
  int64_t mine[COMMS], sum[COMMS], want[COMMS], may_move;
  int good = 1;
  MPI_Request request;
  for (int i = 0; i < COMMS; i++) mine[i] = after->bytes[i] - before->bytes[i];
  MPI_Iallreduce(mine, sum, COMMS, MPI_INT64_T, MPI_SUM, tap_comm, &request);
  tap_mpi_wait(&request);
  should_be(R, G, w, kind, want, &may_move);
  if (strcmp(w->unshard, "all_gather") != 0) may_move = 0;
  for (int i = 0; i < COMMS; i++) {
    const int64_t more = sum[i] - TIMES * want[i];
    if (more == 0 || (i == 0 && more > 0 && more <= TIMES * may_move)) continue;
    tap_diag("communicator %d: %lld bytes over all ranks, should be %lld", i, (long long)sum[i],
             (long long)(TIMES * want[i]));
    good = 0;
  }
  /* Some matrix lies elsewhere than its owner does. */
  return good && (may_move == 0 || sum[0] > TIMES * want[0]);
}

/* The plan's own sum over the ranks, said without communication. */
static int is_known_everywhere(run *u, const dmuon_plan_step *kind, const counts *before,
                               const counts *after) {
  const dmuon_plan plan = {&u->opt->model->registry, &u->opt->runtime.packing, &u->opt->lend.groups,
                           &u->opt->lend.settings};
  dmuon_traffic all = {{{0, 0, 0}}};
  int64_t mine = after->all_bytes - before->all_bytes, sum;
  MPI_Request request;
  for (int b = 0; b < plan.packing->bundle_count; b++) {
    const dmuon_traffic one = dmuon_plan_bundle_everywhere(&plan, b, kind);
    dmuon_traffic_add(&all, &one);
  }
  MPI_Iallreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, tap_comm, &request);
  tap_mpi_wait(&request);
  return sum == TIMES * dmuon_traffic_along(&all, DMUON_AXIS_ALL).bytes;
}

/* ---- what programs are told ------------------------------------------------------------------ */

static int64_t number(const json_t *object, const char *a, const char *b, const char *c) {
  object = json_object_get(object, a);
  if (b) object = json_object_get(object, b);
  if (c) object = json_object_get(object, c);
  return json_is_integer(object) ? (int64_t)json_integer_value(object) : -1;
}

static int is_root_right(run *u, const json_t *param) {
  const json_t *owner = json_object_get(param, "owner");
  const int *coords = u->mesh->coords, G = u->G;
  if (!json_is_array(owner)) return json_is_null(json_object_get(param, "stage1_root_rank"));
  const int r = (int)json_integer_value(json_array_get(owner, 0));
  const int s = (int)json_integer_value(json_array_get(owner, 1));
  const int active = json_is_true(json_object_get(param, "stage2_active"));
  if (strcmp(json_string_value(json_object_get(param, "route")), "frozen") == 0)
    return json_is_null(json_object_get(param, "publish_root_rank")) && !active;
  return number(param, "stage1_root_rank", NULL, NULL) ==
             u->mesh->rank_at[coords[DMUON_AXIS_REPLICATE] * G + s] &&
         number(param, "stage2_root_rank", NULL, NULL) == u->mesh->rank_at[r * G + s] &&
         number(param, "publish_root_rank", NULL, NULL) == u->mesh->rank_at[r * G + s] &&
         active == (u->R > 1 && s == coords[DMUON_AXIS_SHARD]);
}

/* The summary's figures of one step, from before anything ran, against the counters of it. */
static int is_told(run *u, char *text, const counts *before, const counts *after) {
  json_t *summary = json_loads(text, 0, NULL);
  const json_t *plan = json_object_get(summary, "comm_plan");
  const json_t *totals = json_object_get(plan, "totals"), *groups = json_object_get(plan, "groups");
  int params = 0, good = number(plan, "group_count", NULL, NULL) == u->groups;
  for (int axis = 0; axis < 2; axis++)
    good &= TIMES * number(totals, "step", axis == 0 ? "replicate" : "shard", "bytes") ==
            after->axis_bytes[axis] - before->axis_bytes[axis];
  for (size_t g = 0; g < json_array_size(groups); g++) {
    const json_t *list = json_object_get(json_array_get(groups, g), "params");
    params += (int)json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++)
      good &= is_root_right(u, json_array_get(list, i));
  }
  good &= number(summary, "memory_plan", "total", NULL) > 0;
  json_decref(summary);
  return good && params == PARAMS;
}

/* ------------------------------------------------------------------------------------------ */

static void check_way(int R, int G, const way *w) {
  run u;
  int planned[KINDS] = {0}, sums[KINDS] = {0}, known[KINDS] = {0}, told = 0;
  char *summary = NULL;
  DMuonErrorCode code = make(&u, R, G, w);
  if (!code) code = DMuonOptimizerSummary(u.opt, &summary);
  if (!code) code = step(&u, &kinds[0]); /* what the first step does once is no step's */
  for (int k = 0; !code && k < KINDS; k++) {
    const counts before = look(&u);
    for (int i = 0; !code && i < TIMES; i++) code = step(&u, &kinds[k]);
    const counts after = look(&u);
    if (k == 0) told = is_told(&u, summary, &before, &after);
    planned[k] = as_planned(&u, &kinds[k], &before, &after);
    sums[k] = adds_up(R, G, w, &kinds[k], &before, &after);
    known[k] = is_known_everywhere(&u, &kinds[k], &before, &after);
  }
  if (code) fprintf(stderr, "%s\n", DMuonErrorGetMessage());
  tap_ok(code == DMUON_SUCCESS, "%d x %d, %s: runs", R, G, w->what);
  tap_ok(told, "%d x %d, %s: the summary says so before anything runs", R, G, w->what);
  DMuonFree(summary);
  for (int k = 0; k < KINDS; k++) {
    const dmuon_plan_step *kind = &kinds[k];
    tap_ok(planned[k] && sums[k] && known[k],
           "%d x %d, %s, %d micro-batches%s, %d evaluations: counters are the plan (%d), sums are "
           "right (%d) and planned (%d)",
           R, G, w->what, kind->micro_batches, kind->accumulates ? " accumulated" : "",
           kind->evaluations, planned[k], sums[k], known[k]);
  }
  DMuonOptimizerDestroy(&u.opt);
  DMuonMeshDestroy(&u.mesh);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  for (int R = 1; R <= tap_size; R++)
    for (int w = 0; tap_size % R == 0 && w < WAYS; w++) check_way(R, tap_size / R, &ways[w]);
  return tap_mpi_done();
}
