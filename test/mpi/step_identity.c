/* One and the same bytes after some steps, whatever the mesh, the owners, the messages' form and
 * the order of execution. The choices are combined so that every pair of values meets in some run;
 * in between, the deferred engine tries 20 orders. Three ways to step: plain, clipped, with
 * micro-batches; each has bytes of its own. */
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "step_case.h"
#include "tap_mpi.h"

enum { STEPS = 3, VALUES = 4, SEEDS = 20 };

/* A choice: an option, and the values it takes; the mesh's sizes stand first. */
static struct {
  const char *option;
  int count;
  const char *values[VALUES];
} choices[] = {
    {"sizes", 0, {NULL}}, /* filled from the number of ranks: "R G" */
    {"opt.replicate_async", 2, {"0", "1"}},
    {"owner_strategy", 3, {"lpt", "round_robin", "rank0"}},
    {"pack_small_params", 2, {"1", "0"}},
    {"reduce_fanin", 3, {"32", "1", "2"}},
    {"chunk_bytes", 2, {"4194304", "1024"}},
    {"device", 4, {"host", "host:deferred,seed=77", "host:late", "host:deferred,seed=78,late"}},
    {"node_size", 3, {"0", "1", "2"}},
    {"message_delay", 2, {"0", "0.0002"}}, /* seconds: what is not waited for is not there yet */
    {"ns_batch", 3, {"0", "2", "64"}},
    {"max_owners_per_group", 2, {"0", "1"}},
};
enum { CHOICES = sizeof choices / sizeof *choices, SIZES = 0, ASYNC = 1, CAP = CHOICES - 1 };

typedef enum { PLAIN, CLIPPED, MICRO, WAYS } way;
static const char *const way_names[] = {"plain", "clipped", "micro-batches"};

typedef struct {
  uint64_t weights, state;
  int64_t calls, here; /* Newton-Schulz: as a step says, as this rank counted */
} outcome;

/* Groups of messages that MPI does not buffer: a slot taken over too early shows. AdamW's, for the
 * sake of time. */
enum { BULKS = 6, BULK = 8192 };
static float bulk_weight[BULKS][BULK], bulk_gradient[BULKS][BULK];

static DMuonErrorCode add_bulk(DMuonModel model) {
  static const int64_t dims[] = {BULK};
  for (int b = 0; b < BULKS; b++) {
    char name[40];
    snprintf(name, sizeof name, "layers.%d.bulk", 10 + b);
    for (int i = 0; i < BULK; i++) bulk_weight[b][i] = (float)(i % 7 - 3);
    DMUON_CALL(DMuonModelAddParamArray(model, name, DMUON_FLOAT32, 1, dims, bulk_weight[b],
                                       bulk_gradient[b], NULL));
  }
  return DMUON_SUCCESS;
}

static void fill(step_case *c, int step, int micro) {
  case_fill_gradients(c, step, micro);
  for (int b = 0; b < BULKS; b++)
    for (int i = 0; i < BULK; i++)
      bulk_gradient[b][i] = (float)((i * (c->rank + 3) + step + 5 * micro + b) % 11 - 5);
}

static uint64_t add_hash(uint64_t hash) {
  for (int b = 0; b < BULKS; b++)
    for (int i = 0; i < BULK; i++) {
      uint32_t bits;
      memcpy(&bits, &bulk_weight[b][i], sizeof bits);
      hash = (hash ^ bits) * 0x100000001b3u;
    }
  return hash;
}

static DMuonErrorCode make_mesh(const int *pick, const char *device, DMuonMesh *mesh) {
  const char *sizes = choices[SIZES].values[pick[SIZES]];
  const int replicate = atoi(sizes), shard = atoi(strchr(sizes, ' '));
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, mesh));
  DMUON_CALL(DMuonMeshSetSizes(*mesh, replicate, shard, 1));
  for (int i = 1; i < CHOICES; i++) {
    const char *value = choices[i].values[pick[i]];
    if (i == CAP && pick[i] == 0) continue; /* no cap */
    if (device && !strcmp(choices[i].option, "device")) value = device;
    DMUON_CALL(DMuonMeshSetOption(*mesh, choices[i].option, value));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode count_here(DMuonOptimizer opt, int64_t *count) {
  static const char key[] = "\"newton_schulz_here\":";
  char *json = NULL;
  DMUON_CALL(DMuonOptimizerSummary(opt, &json));
  const char *at = strstr(json, key);
  *count = at ? strtoll(at + strlen(key), NULL, 10) : -1;
  DMuonFree(json);
  return DMUON_SUCCESS;
}

static DMuonErrorCode run_steps(way how, int async, step_case *c, outcome *result) {
  for (int step = 0; step < STEPS; step++) {
    DMuonStepInfo info = {.struct_size = sizeof info};
    fill(c, step, 0);
    if (how == MICRO) {
      DMUON_CALL(DMuonOptimizerAccumulate(c->opt));
      fill(c, step, 1);
    }
    DMUON_CALL(DMuonOptimizerStep(c->opt));
    DMUON_CALL(DMuonOptimizerGetStepInfo(c->opt, &info));
    result->calls = info.newton_schulz_calls;
    if (async && step % 2) DMUON_CALL(DMuonOptimizerWait(c->opt));
  }
  DMUON_CALL(DMuonOptimizerWait(c->opt));
  DMUON_CALL(count_here(c->opt, &result->here));
  result->weights = add_hash(case_hash(c));
  return case_state_hash(c, &result->state);
}

static DMuonErrorCode run(way how, const int *pick, const char *device, outcome *result) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMuonErrorCode code = make_mesh(pick, device, &mesh);
  if (!code) code = case_create(mesh, &c);
  if (!code) code = add_bulk(c.model);
  if (!code && how == CLIPPED) code = DMuonOptimizerSetClip(c.opt, DMUON_CLIP_GLOBAL, .7);
  if (!code) code = case_set_up(mesh, &c);
  if (!code) code = run_steps(how, pick[ASYNC], &c, result);
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  return code;
}

static int64_t sum_over_ranks(int64_t here) {
  int64_t sum = 0;
  MPI_Request request;
  MPI_Iallreduce(&here, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  return sum;
}

static void describe(const int *pick, char *text, size_t size) {
  size_t at = 0;
  for (int i = 0; i < CHOICES && at < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", choices[i].values[pick[i]]);
}

/* Runs it and holds it against what came out first. */
static void compare(way how, const int *pick, const char *device, const outcome *first) {
  outcome got = {0};
  char text[256];
  const DMuonErrorCode code = run(how, pick, device, &got);
  describe(pick, text, sizeof text);
  tap_ok(!code && got.weights == first->weights && got.state == first->state,
         "%s: the same bits: %s%s%s", way_names[how], text, device ? "; " : "",
         device ? device : "");
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  const int64_t all = sum_over_ranks(got.here);
  if (all != STEPS * first->calls)
    tap_diag("Newton-Schulz ran %lld times, expected %lld", (long long)all,
             (long long)(STEPS * first->calls));
  if (!code && all != STEPS * first->calls)
    tap_ok(0, "%s: one Newton-Schulz a matrix a step: %s", way_names[how], text);
}

/* ---- every pair of values -------------------------------------------------------------------- */

static pairs table;

static void begin_pairs(void) {
  _Static_assert((int)CHOICES <= (int)PAIRS_CHOICES && (int)VALUES <= (int)PAIRS_VALUES,
                 "the table of pairs is too small");
  table = (pairs){.choices = CHOICES};
  for (int i = 0; i < CHOICES; i++) table.values[i] = choices[i].count;
}

static void run_way(way how) {
  static const int plain[CHOICES] = {0};
  outcome first = {0};
  int pick[CHOICES];
  uint64_t seed = 5 + (uint64_t)how, theirs[2];
  const DMuonErrorCode code = run(how, plain, NULL, &first);
  if (!tap_ok(!code, "%s: a first run", way_names[how])) {
    tap_diag("%s", DMuonErrorGetMessage());
    return;
  }
  MPI_Request request;
  theirs[0] = first.weights, theirs[1] = first.state;
  MPI_Ibcast(theirs, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  tap_ok(theirs[0] == first.weights && theirs[1] == first.state, "%s: all ranks end alike",
         way_names[how]);
  tap_is_int(sum_over_ranks(first.here), STEPS * first.calls,
             "%s: one Newton-Schulz a matrix a step over all ranks", way_names[how]);
  begin_pairs();
  while (pairs_next(&table, &seed, pick)) compare(how, pick, NULL, &first);
  for (int s = 1; s <= SEEDS; s++) {
    char device[40];
    int other[CHOICES] = {0};
    if ((how == MICRO || tap_size > 4) && s % 4) continue;
    other[SIZES] = s % choices[SIZES].count;
    other[ASYNC] = s / 2 % 2;
    snprintf(device, sizeof device, "host:deferred,seed=%d%s", s, s % 2 ? ",late" : "");
    compare(how, other, device, &first);
  }
}

int main(int argc, char **argv) {
  static char sizes[VALUES][24];
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (int shard = tap_size; shard >= 1 && choices[SIZES].count < VALUES; shard--) {
    if (tap_size % shard || (shard & (shard - 1))) continue;
    char *text = sizes[choices[SIZES].count];
    snprintf(text, sizeof sizes[0], "%d %d", tap_size / shard, shard);
    choices[SIZES].values[choices[SIZES].count++] = text;
  }
  /* 6 ranks are there for their sizes alone. */
  for (int how = 0; how < (tap_size == 6 ? MICRO : WAYS); how++) run_way((way)how);
  return tap_mpi_done();
}
