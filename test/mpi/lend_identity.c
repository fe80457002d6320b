/* A model in the library's memory ends with the bytes of the same model in arrays, whatever the
 * mesh, the owners, where values are kept and how long, what is fetched ahead, how brackets nest
 * and how gradients are given. The choices are combined so that every pair of values meets in some
 * run; in between, the deferred engine tries other orders. Ways to step: plain, clipped,
 * micro-batches added up locally, micro-batches reduced one by one (bytes of their own, near those
 * of the third). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "step_lent.h"
#include "tap_mpi.h"

enum { STEPS = 3, VALUES = 5, SEEDS = 20 };

/* Programs of one pass. */
static const char *const programs[VALUES] = {
    "f0F0 f1F1 f2F2 f3F3 f4F4 f5F5  b5B5 b4B4 b3B3 b2B2 b1B1 b0B0",
    /* recomputed in its own backward */
    "f0F0 f1F1 f2F2 f3F3 f4F4 f5F5  b5f5F5B5 b4f4F4B4 b3B3 b2f2f2F2F2B2 b1f1F1B1 b0f0F0B0",
    /* two groups recomputed, then their backwards */
    "f0F0 f1F1 f2F2 f3F3 f4F4 f5F5  b5B5 f3F3f4F4 b4B4b3B3 f1F1f2F2 b2B2b1B1 b0B0",
    /* run twice in a row, and backward twice */
    "f0F0 f1F1f1F1 f2F2 f3F3 f4F4 f5F5f5F5 f5F5f5F5  b5B5b5B5b5B5b5B5 b4B4 b3B3 b2B2 b1B1b1B1 b0B0",
    /* one around others, in backward one that comes first in the sequence */
    "f0 f1F1 f2f2F2F2 F0 f3 f4F4 F3 f5F5  b5 b4B4 b3b3B3B3 B5 b2B2 b1B1 b0B0",
};

/* A choice: an option, and the values it takes. Some are the test's own. */
typedef struct {
  const char *option;
  int count;
  const char *values[VALUES];
} choice;
static choice choices[] = {
    {"sizes", 0, {NULL}}, /* filled from the number of ranks: "R G" */
    {"program", 5, {"0", "1", "2", "3", "4"}},
    {"gradients", 4, {"add", "set", "overwrite", "arrays"}},
    {"adamw", 2, {"dedicated", "flat"}},
    {"opt.reshard", 2, {"z3", "z2"}},
    {"opt.order", 2, {"registered", "program"}},
    {"opt.prefetch_depth", 3, {"1", "0", "2"}},
    {"opt.backward_prefetch_depth", 3, {"1", "0", "2"}},
    {"opt.post_step_prefetch", 3, {"0", "1", "3"}},
    {"opt.replicate_async", 2, {"0", "1"}},
    {"opt.delay_stage2_to_optimizer", 2, {"1", "0"}},
    {"opt.publish_bucket_mb", 2, {"0", "0.0002"}},
    {"opt.muon_forward_unshard", 2, {"broadcast", "all_gather"}},
    {"opt.open_groups", 2, {"2", "3"}},
    {"owner_strategy", 3, {"lpt", "round_robin", "rank0"}},
    {"device", 4, {"host", "host:deferred,seed=77", "host:late", "host:deferred,seed=78,late"}},
    {"message_delay", 2, {"0", "0.00005"}},
    {"chunk_bytes", 2, {"4194304", "256"}},
};
enum { CHOICES = sizeof choices / sizeof *choices };
enum { SIZES = 0, PROGRAM, GRADIENTS, ADAMW };

typedef enum { PLAIN, CLIPPED, LOCAL, EACH, WAYS } way;
static const char *const way_names[] = {"plain", "clipped", "added up locally",
                                        "reduced each time"};

typedef struct {
  uint64_t weights, state;
} outcome;

/* Values at the beginning of each step, by the model in arrays, and after the last one. */
static void *history[STEPS + 1][CASE_PARAMS];

static void remember(const step_case *c, int step) {
  for (int p = 0; p < CASE_PARAMS; p++) {
    const size_t bytes = (size_t)(c->numel[p] * case_bytes(case_params[p].dtype));
    if (!history[step][p]) history[step][p] = malloc(bytes + 8);
    memcpy(history[step][p], c->weight[p], bytes);
  }
}

static int micros(way how) {
  return how == LOCAL || how == EACH ? 3 : 1;
}

/* ---- in arrays ------------------------------------------------------------------------------- */

static DMuonErrorCode arrays_steps(way how, step_case *c, outcome *result) {
  for (int step = 0; step < STEPS; step++) {
    remember(c, step);
    for (int micro = 0; micro < micros(how); micro++) {
      case_fill_gradients(c, step, micro);
      if (micro < micros(how) - 1) DMUON_CALL(DMuonOptimizerAccumulate(c->opt));
    }
    DMUON_CALL(DMuonOptimizerStep(c->opt));
  }
  remember(c, STEPS);
  result->weights = case_hash(c);
  return case_state_hash(c, &result->state);
}

static DMuonErrorCode run_arrays(way how, outcome *result) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  if (!code) code = DMuonMeshSetSizes(mesh, 1, DMUON_DECIDE, 1);
  if (!code) code = case_create(mesh, &c);
  if (!code && how == CLIPPED) code = DMuonOptimizerSetClip(c.opt, DMUON_CLIP_GLOBAL, .7);
  if (!code) code = case_set_up(mesh, &c);
  if (!code) code = arrays_steps(how, &c, result);
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  return code;
}

/* ---- lent ------------------------------------------------------------------------------------ */

static DMuonErrorCode make_mesh(const int *pick, const char *device, DMuonMesh *mesh) {
  const char *sizes = choices[SIZES].values[pick[SIZES]];
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, mesh));
  DMUON_CALL(DMuonMeshSetTimeout(*mesh, 20));
  DMUON_CALL(DMuonMeshSetSizes(*mesh, atoi(sizes), atoi(strchr(sizes, ' ')), 1));
  for (int i = ADAMW + 1; i < CHOICES; i++) {
    const char *value = choices[i].values[pick[i]];
    if (device && !strcmp(choices[i].option, "device")) value = device;
    DMUON_CALL(DMuonMeshSetOption(*mesh, choices[i].option, value));
  }
  if (pick[GRADIENTS] == LENT_OVERWRITE)
    DMUON_CALL(DMuonMeshSetOption(*mesh, "opt.grad_mode", "overwrite"));
  return DMUON_SUCCESS;
}

/* Sums of halves, and of what came late, round otherwise when there is something to add them to. */
static const char *program_of(way how, const int *pick) {
  return programs[how == LOCAL && pick[PROGRAM] > 2 ? pick[PROGRAM] - 2 : pick[PROGRAM]];
}

static DMuonErrorCode lent_steps(way how, const int *pick, step_case *c, outcome *result,
                                 int64_t *wrong) {
  lent_pass pass = {.c = c, .way = (lent_way)pick[GRADIENTS], .factor = 1};
  for (pass.step = 0; pass.step < STEPS; pass.step++) {
    pass.expected = how == EACH && pass.step > 0 ? NULL : (const void *const *)history[pass.step];
    for (pass.micro = 0; pass.micro < micros(how); pass.micro++) {
      const int is_last = pass.micro == micros(how) - 1;
      if (how == LOCAL)
        DMUON_CALL(
            DMuonOptimizerBeginPass(c->opt, is_last ? DMUON_PASS_TRAIN : DMUON_PASS_ACCUMULATE));
      if (how == EACH) DMUON_CALL(DMuonOptimizerBeginPass(c->opt, DMUON_PASS_TRAIN));
      DMUON_CALL(lent_run(&pass, program_of(how, pick)));
    }
    DMUON_CALL(DMuonOptimizerStep(c->opt));
    if (pass.step % 2) DMUON_CALL(DMuonOptimizerCheckInvariants(c->opt));
  }
  DMUON_CALL(lent_load(c));
  *wrong = pass.wrong;
  result->weights = case_hash(c);
  DMUON_CALL(case_state_hash(c, &result->state));
  return DMuonOptimizerCheckInvariants(c->opt);
}

/* near: the largest difference from history's end, of fp32 and fp64 parameters. */
static DMuonErrorCode run_lent(way how, const int *pick, const char *device, outcome *result,
                               int64_t *wrong, double *near) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMuonErrorCode code = make_mesh(pick, device, &mesh);
  if (!code) code = lent_create(mesh, pick[ADAMW] && how != CLIPPED, &c);
  if (!code && how == CLIPPED) code = DMuonOptimizerSetClip(c.opt, DMUON_CLIP_GLOBAL, .7);
  if (!code) code = case_set_up(mesh, &c);
  if (!code) code = lent_steps(how, pick, &c, result, wrong);
  if (code) fprintf(stderr, "# rank %d: %s\n", tap_rank, DMuonErrorGetMessage());
  *near = 0;
  for (int p = 0; !code && p < CASE_PARAMS; p++)
    for (int64_t i = 0; i < c.numel[p]; i++) {
      const DMuonDType dtype = case_params[p].dtype;
      if (dtype == DMUON_BFLOAT16) continue;
      *near = fmax(*near,
                   fabs(case_load(dtype, c.weight[p], i) - case_load(dtype, history[STEPS][p], i)));
    }
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  return code;
}

static void describe(const int *pick, char *text, size_t size) {
  size_t at = 0;
  text[0] = 0;
  for (int i = 0; i < CHOICES && at < size; i++)
    if (i == SIZES || pick[i] > 0)
      at +=
          (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", choices[i].values[pick[i]]);
}

static void compare(way how, const int *pick, const char *device, const outcome *first) {
  outcome got = {0};
  char text[256];
  int64_t wrong = 0;
  double near;
  const DMuonErrorCode code = run_lent(how, pick, device, &got, &wrong, &near);
  describe(pick, text, sizeof text);
  if (wrong) fprintf(stderr, "# rank %d: %lld wrong values\n", tap_rank, (long long)wrong);
  tap_ok(!code && wrong == 0 && got.weights == first->weights && got.state == first->state,
         "%s: the same bits: %s%s%s", way_names[how], text, device ? "; " : "",
         device ? device : "");
}

/* ---- every pair of values -------------------------------------------------------------------- */

static pairs table;

static void begin_pairs(void) {
  _Static_assert((int)CHOICES <= (int)PAIRS_CHOICES && (int)VALUES <= (int)PAIRS_VALUES,
                 "the table of pairs is too small");
  table = (pairs){.choices = CHOICES};
  for (int i = 0; i < CHOICES; i++) table.values[i] = choices[i].count;
}

static void try_orders(way how, const outcome *first) {
  for (int s = 1; s <= SEEDS; s++) {
    char device[40];
    int pick[CHOICES] = {0};
    if (how != PLAIN && s % 4) continue;
    for (int i = 0; i < CHOICES; i++) pick[i] = (s * (2 * i + 1) / (1 + i % 3)) % choices[i].count;
    snprintf(device, sizeof device, "host:deferred,seed=%d%s", s, s % 2 ? ",late" : "");
    compare(how, pick, device, first);
  }
}

static void run_way(way how) {
  static const int plain[CHOICES] = {0};
  outcome first = {0};
  int pick[CHOICES];
  uint64_t seed = 5 + (uint64_t)how;
  int64_t wrong = 0;
  double near = 0;
  /* 8 ranks are there for their sizes alone, one for what looks at its memory. */
  const int is_main = how == PLAIN || how == EACH;
  const int most = tap_size > 4 || tap_size == 1 ? 5 : is_main ? 1000 : 10;
  DMuonErrorCode code = run_arrays(how, &first);
  if (!tap_ok(!code, "%s: the model in arrays", way_names[how])) {
    tap_diag("%s", DMuonErrorGetMessage());
    return;
  }
  if (how == EACH) {
    code = run_lent(how, plain, NULL, &first, &wrong, &near);
    if (!tap_ok(!code && near < 1e-5, "%s: near what is added up locally: %g", way_names[how],
                near)) {
      tap_diag("%s", DMuonErrorGetMessage());
      return;
    }
  }
  begin_pairs();
  for (int runs = 0; pairs_next(&table, &seed, pick) && runs < most; runs++)
    compare(how, pick, NULL, &first);
  if (tap_size == 2 || tap_size == 4) try_orders(how, &first);
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
  for (int how = 0; how < WAYS; how++) run_way((way)how);
  return tap_mpi_done();
}
