/* Brackets that come in another order than a straight forward and backward, on some ranks or on
 * all: values are right wherever they are looked at, and every step ends with the bytes of a model
 * in arrays that was given the same gradients. Also what may come between passes: values set and
 * read, evaluation, cancelling, sample counts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "step_lent.h"
#include "tap_mpi.h"

enum { RANKS = 4, OPTIONS = 5 };

#define FORWARD "f0F0 f1F1 f2F2 f3F3 f4F4 f5F5 "
#define BACKWARD "b5B5 b4B4 b3B3 b2B2 b1B1 b0B0"
#define STRAIGHT FORWARD BACKWARD

typedef struct {
  const char *name;
  const char *options[OPTIONS][2];
  const char *z2;             /* groups of this pattern */
  const char *program[RANKS]; /* NULL: as on rank 0 */
} scene;

typedef struct {
  DMuonMesh mesh, twin_mesh;
  step_case lent, twin; /* twin: in arrays */
  int step;
  int64_t wrong; /* values */
  double near;   /* 0: equal to the bit */
} world;

static DMuonErrorCode begin(const scene *s, int replicate, int flat, world *w) {
  memset(w, 0, sizeof *w);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &w->twin_mesh));
  DMUON_CALL(case_create(w->twin_mesh, &w->twin));
  DMUON_CALL(case_set_up(w->twin_mesh, &w->twin));
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &w->mesh));
  DMUON_CALL(DMuonMeshSetTimeout(w->mesh, 15));
  DMUON_CALL(DMuonMeshSetSizes(w->mesh, replicate, DMUON_DECIDE, 1));
  for (int i = 0; i < OPTIONS && s->options[i][0]; i++) {
    if (!strcmp(s->options[i][0], "near")) {
      w->near = 1e-4;
      continue;
    }
    if (!strcmp(s->options[i][0], "one row")) {
      DMUON_CALL(DMuonMeshSetSizes(w->mesh, 1, DMUON_DECIDE, 1));
      continue;
    }
    DMUON_CALL(DMuonMeshSetOption(w->mesh, s->options[i][0], s->options[i][1]));
  }
  DMUON_CALL(lent_create(w->mesh, flat, &w->lent));
  if (s->z2) DMUON_CALL(DMuonModelSetReshard(w->lent.model, s->z2, DMUON_Z2));
  return case_set_up(w->mesh, &w->lent);
}

static void end(world *w) {
  case_destroy(&w->lent);
  case_destroy(&w->twin);
  DMuonMeshDestroy(&w->mesh);
  DMuonMeshDestroy(&w->twin_mesh);
}

static const char *program_of(const scene *s, int rank) {
  return s->program[rank] ? s->program[rank] : s->program[0];
}

static int comes_back(const char *program, int group) {
  char text[4];
  snprintf(text, sizeof text, "b%d", group);
  return strstr(program, text) != NULL;
}

/* Whether rank gives a gradient of parameter p in the pass. */
static int gives(const scene *s, int rank, const unsigned long long *without, int p) {
  for (int g = 0; g < LENT_GROUPS; g++)
    if (lent_is_in(p, g)) return comes_back(program_of(s, rank), g) && !(without[rank] >> p & 1);
  return 0;
}

static const unsigned long long nothing[RANKS] = {0};

/* The twin's gradients of the pass: zero where this rank gives none, NULL where nobody does. */
static DMuonErrorCode fill_twin(world *w, const scene *s, const unsigned long long *without,
                                int micro) {
  step_case *t = &w->twin;
  case_fill_gradients(t, w->step, micro);
  for (int p = 0; p < CASE_PARAMS; p++) {
    int any = 0;
    if (!gives(s, tap_rank, without, p))
      memset(t->gradient[p], 0, (size_t)(t->numel[p] * case_bytes(case_params[p].dtype)));
    for (int r = 0; r < RANKS; r++) any |= gives(s, r, without, p);
    DMUON_CALL(
        DMuonOptimizerSetArrays(t->opt, t->id[p], t->weight[p], any ? t->gradient[p] : NULL));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode run_pass(world *w, const scene *s, const unsigned long long *without,
                               int micro, int is_last) {
  lent_pass pass = {.c = &w->lent,
                    .step = w->step,
                    .micro = micro,
                    .factor = 1,
                    .expected = w->near > 0 ? NULL : (const void *const *)w->twin.weight,
                    .without = without[tap_rank]};
  DMUON_CALL(lent_run(&pass, program_of(s, tap_rank)));
  w->wrong += pass.wrong;
  DMUON_CALL(fill_twin(w, s, without, micro));
  return is_last ? DMUON_SUCCESS : DMuonOptimizerAccumulate(w->twin.opt);
}

static DMuonErrorCode step(world *w) {
  DMUON_CALL(DMuonOptimizerStep(w->lent.opt));
  DMUON_CALL(DMuonOptimizerStep(w->twin.opt));
  w->step++;
  return DMUON_SUCCESS;
}

static DMuonErrorCode train(world *w, const scene *s) {
  DMUON_CALL(run_pass(w, s, nothing, 0, 1));
  return step(w);
}

static double difference(const world *w) {
  double most = 0;
  for (int p = 0; p < CASE_PARAMS; p++)
    for (int64_t i = 0; i < w->lent.numel[p] && case_params[p].dtype != DMUON_BFLOAT16; i++)
      most = fmax(most, fabs(case_load(case_params[p].dtype, w->lent.weight[p], i) -
                             case_load(case_params[p].dtype, w->twin.weight[p], i)));
  return most;
}

/* 1 when both are equal to the bit, or near. */
static DMuonErrorCode equal(world *w, int *same) {
  uint64_t lent, twin;
  DMUON_CALL(DMuonOptimizerCheckInvariants(w->lent.opt));
  DMUON_CALL(lent_load(&w->lent));
  DMUON_CALL(DMuonOptimizerWait(w->twin.opt));
  DMUON_CALL(case_state_hash(&w->lent, &lent));
  DMUON_CALL(case_state_hash(&w->twin, &twin));
  if (w->near > 0) {
    *same = difference(w) <= w->near;
    if (!*same) fprintf(stderr, "# rank %d: off by %g\n", tap_rank, difference(w));
    return DMUON_SUCCESS;
  }
  *same = lent == twin && case_hash(&w->lent) == case_hash(&w->twin) && w->wrong == 0;
  for (int p = 0; p < CASE_PARAMS && !*same; p++)
    if (memcmp(w->lent.weight[p], w->twin.weight[p],
               (size_t)(w->lent.numel[p] * case_bytes(case_params[p].dtype))) != 0)
      fprintf(stderr, "# rank %d: %s differs\n", tap_rank, case_params[p].name);
  return DMUON_SUCCESS;
}

static void judge(DMuonErrorCode code, world *w, const char *name) {
  int same = 0;
  if (!code) code = equal(w, &same);
  if (code) fprintf(stderr, "# rank %d: %s: %s\n", tap_rank, name, DMuonErrorGetMessage());
  if (w->wrong) fprintf(stderr, "# rank %d: %lld wrong values\n", tap_rank, (long long)w->wrong);
  tap_ok(!code && same, "%s", name);
  end(w);
}

static const int replicates[] = {1, 2, 4};

/* ---- programs -------------------------------------------------------------------------------- */

/* clang-format off */
#define DEFERRED {"device", "host:deferred,seed=4"}
#define PROGRAM {"opt.order", "program"}
#define Z2 {"opt.reshard", "z2"}
/* What comes late is added up in another order: right, but not to the bit. */
#define NEAR {"near", ""}
/* All ranks on the shard axis, so that its stage of the mean has something to wait for. */
#define ONE_ROW {"one row", ""}
/* clang-format on */

static const scene scenes[] = {
    {"each rank leaves another group out",
     {{NULL}},
     NULL,
     {"f0F0 f1F1 f2F2 f3F3 f4F4  b4B4 b3B3 b2B2 b1B1 b0B0",
      "f1F1 f2F2 f3F3 f4F4 f5F5  b5B5 b4B4 b3B3 b2B2 b1B1",
      "f0F0 f1F1 f4F4 f5F5  b5B5 b4B4 b1B1 b0B0", ""}},
    {"the same, values kept, tasks put off",
     {DEFERRED, Z2, {"opt.prefetch_depth", "2"}},
     NULL,
     {"", "f1F1 f2F2 f3F3 f4F4 f5F5  b5B5 b4B4 b3B3 b2B2 b1B1",
      "f0F0 f1F1 f4F4 f5F5  b5B5 b4B4 b1B1 b0B0",
      "f0F0 f1F1 f2F2 f3F3 f4F4  b4B4 b3B3 b2B2 b1B1 b0B0"}},
    {"only one rank runs anything, nothing ahead",
     {{"opt.prefetch_depth", "0"}, {"opt.backward_prefetch_depth", "0"}, DEFERRED},
     NULL,
     {"", "", "f2F2 f4F4 b4B4 b2B2", ""}},
    {"the first layer's backward never comes",
     {{NULL}},
     NULL,
     {FORWARD "b5B5 b4B4 b3B3 b2B2 b1B1"}},
    {"a middle one's never comes, on one rank",
     {{NULL}},
     NULL,
     {STRAIGHT, FORWARD "b5B5 b4B4 b3B3 b1B1 b0B0", STRAIGHT, STRAIGHT}},
    {"one rank runs forward only", {DEFERRED}, NULL, {STRAIGHT, STRAIGHT, FORWARD, STRAIGHT}},
    {"a rank runs a group forward twice and back once",
     {{NULL}},
     NULL,
     {STRAIGHT, "f0F0 f1F1 f2F2 f3F3f3F3 f4F4 f5F5 " BACKWARD, STRAIGHT, STRAIGHT}},
    {"the first group is open around all (kept)",
     {{NULL}},
     "layers.0",
     {"f0 f1F1 f2F2 f3F3 f4F4 f5F5 F0  b0 b5B5 b4B4 b3B3 b2B2 b1B1 B0"}},
    {"the same with skipping and putting off",
     {DEFERRED},
     "layers.0",
     {"f0 f1F1 f2F2 f3F3 f4F4 f5F5 F0  b0 b5B5 b4B4 b3B3 b2B2 b1B1 B0",
      "f0 f1F1 f3F3 f4F4 F0  b0 b4B4 b3B3 b1B1 B0", "f1F1 f3F3 f4F4 b4B4 b3B3 b1B1",
      "f0 f1F1 f2F2 F0 b0 b2B2 b1B1 B0"}},
    {"the first group is open around all, in program order",
     {PROGRAM, DEFERRED},
     NULL,
     {"f0 f1F1 f2F2 f3F3 f4F4 f5F5 F0  b0 b5B5 b4B4 b3B3 b2B2 b1B1 B0"}},
    {"the first group is open around the others' forward alone",
     {DEFERRED, {"opt.open_groups", "3"}},
     NULL,
     {"f0 f1F1 f2F2 f3F3 f4F4 f5F5 F0 " BACKWARD}},
    {"a group open from forward to the end of backward",
     {DEFERRED},
     "layers.0",
     {"f0F0 f1F1 f2F2 f3F3 f4F4 f5F5 b5 f4F4 b4B4 f3f3F3F3 b3B3 B5 b2B2 b1B1 b0B0"}},
    {"the last group is open around all (kept)",
     {Z2},
     NULL,
     {"f5 f0F0 f1F1 f2F2 f3F3 f4F4 F5  b5 b4B4 b3B3 b2B2 b1B1 b0B0 B5"}},
    {"the last group is open around all, in program order",
     {PROGRAM, {"opt.open_groups", "3"}},
     NULL,
     {"f5 f0F0 f1F1 f2F2 f3F3 f4F4 F5  b5 b4B4 b3B3 b2B2 b1B1 b0B0 B5"}},
    {"around others in backward, while some are left out",
     {DEFERRED},
     NULL,
     {FORWARD "b5 b3B3 b2B2 B5 b1B1 b0B0", FORWARD "b5 b4B4 b2B2 B5", FORWARD "b4 b3B3 b1B1 B4",
      STRAIGHT}},
    {"tied: at the beginning and at the end (kept)",
     {{NULL}},
     "layers.0",
     {"f0F0 f1F1 f2F2 f3F3 f4F4 f5F5 f0F0  b0B0 b5B5 b4B4 b3B3 b2B2 b1B1 b0B0"}},
    {"tied, in program order",
     {PROGRAM, DEFERRED},
     NULL,
     {"f0F0 f1F1 f2F2 f3F3 f4F4 f5F5 f0F0  b0B0 b5B5 b4B4 b3B3 b2B2 b1B1 b0B0"}},
    {"another order, in program order",
     {PROGRAM},
     NULL,
     {"f3F3 f5F5 f0F0 f0F0 f1F1 f4F4 f2F2  b0B0b0B0 b2B2 b4B4 b1B1 b5B5 b3B3"}},
    {"program order, a module that runs again after backward",
     {PROGRAM},
     NULL,
     {"f0F0 f1F1 b1B1 f1F1 b1B1 b0B0 f2F2 b2B2"}},
    {"gradients that come after their turn, on one rank",
     {{"opt.open_groups", "4"}, NEAR},
     NULL,
     {STRAIGHT, FORWARD "b4B4 b5B5 b3B3 b1B1 b2B2 b0B0", STRAIGHT, STRAIGHT}},
    {"on all, and not the same ones",
     {DEFERRED, NEAR},
     NULL,
     {FORWARD "b4B4 b5B5 b3B3 b2B2 b1B1 b0B0", FORWARD "b3B3 b4B4 b2B2 b1B1 b0B0",
      FORWARD "b1B1 b2B2 b0B0", STRAIGHT}},
    {"a group whose second backward comes after its turn",
     {NEAR},
     "layers.2",
     {"f0F0 f1F1 f2F2f2F2 f3F3 f4F4 f5F5 b5B5 b4B4 b3B3 b2B2 b1B1 b2B2 b0B0", STRAIGHT, STRAIGHT,
      STRAIGHT}},
    {"a forward stays open while its turn in backward passes",
     {DEFERRED},
     NULL,
     {"f0F0 f1 f2F2 f3F3 f4F4 f5F5 b5B5 b4B4 b3B3 b2B2 b0B0 F1", STRAIGHT, STRAIGHT, STRAIGHT}},
    {"a rank is far ahead of the others",
     {ONE_ROW, {"owner_strategy", "rank0"}, {"opt.backward_prefetch_depth", "0"}},
     NULL,
     {STRAIGHT, "f0F0 b0B0", STRAIGHT, "f0F0 f1F1 b1B1 b0B0"}},
    {"far ahead with what is kept, without delay of the second stage",
     {{"opt.delay_stage2_to_optimizer", "0"},
      {"opt.backward_prefetch_depth", "0"},
      {"owner_strategy", "rank0"},
      ONE_ROW},
     "layers.0|layers.1|layers.2|embed",
     {STRAIGHT, "f0F0 f1F1 f2F2 f3F3 b3B3 b2B2 b1B1 b0B0", STRAIGHT, "f5F5 b5B5"}},
    {"brackets are still open at Step",
     {DEFERRED},
     NULL,
     {FORWARD "b5B5 b4B4 b3B3 b2B2 b1B1 b0B0", FORWARD "b5B5 b4B4 b3B3 b2B2 b1B1 b0B0 f0", STRAIGHT,
      STRAIGHT}},
};

static void run_scenes(void) {
  for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
    world w;
    DMuonErrorCode code = begin(&scenes[i], replicates[i % 3], i / 3 % 2, &w);
    for (int k = 0; !code && k < 3; k++) code = train(&w, &scenes[i]);
    judge(code, &w, scenes[i].name);
  }
}

/* ---- passes ---------------------------------------------------------------------------------- */

static const scene straight = {"straight", {{NULL}}, NULL, {STRAIGHT}};
static const scene forward = {"forward", {{NULL}}, NULL, {FORWARD}};
static const scene deferred = {
    "straight", {DEFERRED, {"opt.replicate_async", "1"}}, NULL, {STRAIGHT}};

static DMuonErrorCode look(world *w, const char *program) {
  lent_pass pass = {.c = &w->lent, .expected = (const void *const *)w->twin.weight};
  DMUON_CALL(lent_run(&pass, program));
  w->wrong += pass.wrong;
  return DMUON_SUCCESS;
}

static DMuonErrorCode evaluate(world *w, const scene *s) {
  for (int k = 0; k < 2; k++) {
    DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_EVAL));
    DMUON_CALL(look(w, tap_rank == 1 ? "f1F1 f4F4" : FORWARD));
    DMUON_CALL(DMuonOptimizerCheckInvariants(w->lent.opt));
    DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_TRAIN));
    DMUON_CALL(train(w, s));
  }
  /* Nothing but an evaluation before a step: no gradient, so nothing changes. */
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_EVAL));
  DMUON_CALL(look(w, "f0F0 f1 f2F2 F1"));
  DMUON_CALL(fill_twin(w, &forward, nothing, 0));
  DMUON_CALL(step(w));
  return train(w, s);
}

/* An evaluation in the middle of what is added up. */
static DMuonErrorCode evaluate_between(world *w, const scene *s) {
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_ACCUMULATE));
  DMUON_CALL(run_pass(w, s, nothing, 0, 0));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_EVAL));
  DMUON_CALL(look(w, FORWARD));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_TRAIN));
  DMUON_CALL(run_pass(w, s, nothing, 1, 1));
  DMUON_CALL(step(w));
  return train(w, s);
}

/* All micro-batches added up here, none reduced before Step. */
static DMuonErrorCode accumulate_only(world *w, const scene *s) {
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_ACCUMULATE));
  DMUON_CALL(run_pass(w, s, nothing, 0, 0));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_ACCUMULATE));
  DMUON_CALL(run_pass(w, s, nothing, 1, 1));
  DMUON_CALL(step(w));
  return train(w, s);
}

static DMuonErrorCode step_twice(world *w, const scene *s) {
  DMUON_CALL(train(w, s));
  DMUON_CALL(fill_twin(w, &forward, nothing, 0));
  DMUON_CALL(step(w));
  DMUON_CALL(step(w));
  return train(w, s);
}

static DMuonErrorCode cancel(world *w, const scene *s) {
  lent_pass lost = {.c = &w->lent, .step = 99, .factor = 1};
  DMUON_CALL(train(w, s));
  DMUON_CALL(lent_run(&lost, tap_rank == 2 ? "f0F0 f1" : FORWARD "b5B5 b4B4 b3"));
  DMUON_CALL(DMuonOptimizerCancelPass(w->lent.opt));
  DMUON_CALL(DMuonOptimizerCheckInvariants(w->lent.opt));
  DMUON_CALL(train(w, s));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_ACCUMULATE));
  DMUON_CALL(lent_run(&lost, STRAIGHT));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_TRAIN));
  DMUON_CALL(lent_run(&lost, STRAIGHT));
  DMUON_CALL(DMuonOptimizerCancelPass(w->lent.opt));
  return train(w, s);
}

static DMuonErrorCode zero_grad(world *w, const scene *s) {
  lent_pass lost = {.c = &w->lent, .step = 99, .factor = 1};
  DMUON_CALL(train(w, s));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_ACCUMULATE));
  DMUON_CALL(lent_run(&lost, STRAIGHT));
  DMUON_CALL(DMuonOptimizerZeroGrad(w->lent.opt));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_TRAIN));
  DMUON_CALL(train(w, s));
  DMUON_CALL(lent_run(&lost, STRAIGHT));
  DMUON_CALL(DMuonOptimizerZeroGrad(w->lent.opt));
  DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt, DMUON_PASS_TRAIN));
  return train(w, s);
}

static DMuonErrorCode sample_counts(world *w, const scene *s) {
  for (int k = 0; k < 2; k++) {
    for (int micro = 0; micro < 3; micro++) {
      const double samples = (tap_rank + 2 * micro + k) % 5;
      DMUON_CALL(DMuonOptimizerSetSampleCount(w->lent.opt, samples));
      DMUON_CALL(DMuonOptimizerSetSampleCount(w->twin.opt, samples));
      DMUON_CALL(DMuonOptimizerBeginPass(w->lent.opt,
                                         micro < 2 ? DMUON_PASS_ACCUMULATE : DMUON_PASS_TRAIN));
      DMUON_CALL(run_pass(w, s, nothing, micro, micro == 2));
    }
    DMuonStepInfo lent = {.struct_size = sizeof lent}, twin = lent;
    DMUON_CALL(step(w));
    DMUON_CALL(DMuonOptimizerGetStepInfo(w->lent.opt, &lent));
    DMUON_CALL(DMuonOptimizerGetStepInfo(w->twin.opt, &twin));
    w->wrong += lent.samples != twin.samples;
  }
  return DMUON_SUCCESS;
}

/* A parameter without gradient on all ranks, others on some. */
static DMuonErrorCode missing(world *w, const scene *s) {
  unsigned long long without[RANKS];
  for (int k = 0; k < 3; k++) {
    for (int r = 0; r < RANKS; r++)
      without[r] = 1ull << CASE_QKV | 1ull << CASE_BIAS | 1ull << (4 + r + k) | 1ull << (15 + k);
    DMUON_CALL(run_pass(w, s, without, 0, 1));
    DMUON_CALL(step(w));
  }
  return train(w, s);
}

/* Prefetched values are renewed when they are set. */
static DMuonErrorCode move_on(world *w, const scene *s) {
  DMUON_CALL(train(w, s));
  for (int p = 0; p < CASE_PARAMS; p++) {
    step_case *c = &w->lent, *t = &w->twin;
    const int64_t bytes = c->numel[p] * case_bytes(case_params[p].dtype);
    const int root = p % RANKS;
    unsigned char *got = malloc((size_t)bytes + 8), *kept = malloc((size_t)bytes + 8);
    memset(got, 0x55, (size_t)bytes + 8);
    memset(kept, 0x55, (size_t)bytes + 8);
    DMuonErrorCode code = DMuonOptimizerGetParam(c->opt, c->id[p], got, root);
    w->wrong += memcmp(got, tap_rank == root ? t->weight[p] : kept, (size_t)bytes) != 0;
    w->wrong += got[bytes] != 0x55;
    for (int64_t i = 0; i < c->numel[p]; i++)
      case_store(case_params[p].dtype, t->weight[p], i, case_weight(p, i + 1) * .5);
    memset(got, 0x77, (size_t)bytes);
    if (tap_rank == root) memcpy(got, t->weight[p], (size_t)bytes);
    if (!code && p % 2) code = DMuonOptimizerSetParam(c->opt, c->id[p], got, root);
    if (!code && p % 2 == 0)
      code = DMuonOptimizerSetParam(c->opt, c->id[p], t->weight[p], DMUON_ALL);
    free(got);
    free(kept);
    DMUON_CALL(code);
  }
  DMUON_CALL(DMuonOptimizerSyncArrays(w->twin.opt, DMUON_ALL));
  DMUON_CALL(DMuonOptimizerCheckInvariants(w->lent.opt));
  return train(w, s);
}

/* States of both are exchanged: what one gives, the other takes. */
static DMuonErrorCode states(world *w, const scene *s) {
  static const char *const muon[] = {"momentum", "master", "step", NULL};
  static const char *const adamw[] = {"exp_avg", "exp_avg_sq", "master", "step", NULL};
  DMUON_CALL(train(w, s));
  DMUON_CALL(run_pass(w, s, nothing, 3, 1)); /* the twin goes on alone */
  DMUON_CALL(DMuonOptimizerCancelPass(w->lent.opt));
  DMUON_CALL(DMuonOptimizerStep(w->twin.opt));
  for (int p = 0; p < CASE_PARAMS; p++) {
    if (case_params[p].route == DMUON_ROUTE_FROZEN) continue;
    const char *const *names = case_params[p].route == DMUON_ROUTE_MUON ? muon : adamw;
    for (int k = 0; names[k]; k++) {
      const int root = (p + k) % RANKS;
      const size_t bytes = (size_t)(8 * case_numel(p) + 8);
      unsigned char *data = calloc(bytes, 1), *back = calloc(bytes, 1);
      DMuonErrorCode code = DMuonOptimizerGetState(w->twin.opt, w->twin.id[p], names[k], data,
                                                   (p + k) % 2 ? DMUON_ALL : root);
      if (!code)
        code = DMuonOptimizerSetState(w->lent.opt, w->lent.id[p], names[k], data,
                                      (p + k) % 2 ? DMUON_ALL : root);
      if (!code) code = DMuonOptimizerGetState(w->lent.opt, w->lent.id[p], names[k], back, root);
      w->wrong += tap_rank == root && memcmp(data, back, bytes) != 0;
      free(data);
      free(back);
      DMUON_CALL(code);
    }
  }
  w->step++;
  return train(w, s);
}

static void run_phases(void) {
  static const struct {
    const char *name;
    DMuonErrorCode (*run)(world *, const scene *);
  } phases[] = {{"evaluation between steps, and before one", evaluate},
                {"evaluation between micro-batches", evaluate_between},
                {"all micro-batches added up, then Step", accumulate_only},
                {"Step after Step", step_twice},
                {"a pass is cancelled", cancel},
                {"gradients are forgotten", zero_grad},
                {"sample counts", sample_counts},
                {"gradients that nobody asked for", missing},
                {"values are read and set", move_on},
                {"states are read and set", states}};
  static const scene ahead = {
      "ahead",
      {{"opt.post_step_prefetch", "2"}, {"opt.muon_forward_unshard", "all_gather"}},
      "layers.1",
      {STRAIGHT}};
  const scene *const ways[] = {&straight, &deferred, &ahead};
  for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
    for (int k = 0; k < 3; k++) {
      world w;
      char name[100];
      DMuonErrorCode code = begin(ways[k], replicates[(i + (size_t)k) % 3], k == 2 || i % 2, &w);
      if (!code) code = phases[i].run(&w, ways[k]);
      snprintf(name, sizeof name, "%s%s", phases[i].name,
               k == 1   ? ", put off"
               : k == 2 ? ", fetched ahead, gathered"
                        : "");
      judge(code, &w, name);
    }
}

/* Values under way when everything is given up. */
static void test_destroy(void) {
  static const scene slow = {
      "slow", {{"opt.replicate_async", "1"}, {"message_delay", "0.002"}}, NULL, {STRAIGHT}};
  world w;
  DMuonErrorCode code = begin(&slow, 4, 0, &w);
  if (!code) code = train(&w, &slow);
  tap_ok(!code, "a step whose values are under way");
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_is_int(DMuonOptimizerDestroy(&w.lent.opt), 0, "is given up without Wait");
  end(&w);
}

static void test_random(void) {
  tap_is_near(DMuonRandomUniform(1, "layers.0.weight", 0), 0.53257715284240248, 0,
              "a uniform number");
  tap_is_near(DMuonRandomUniform(1, "layers.0.weight", 12345678901), 0.44147104437784335, 0,
              "another");
  tap_is_near(DMuonRandomUniform(2, "embed", 7), 0.71562822276042037, 0, "of another stream");
  tap_is_near(DMuonRandomNormal(1, "layers.0.weight", 3), 0.34600868938223867, 1e-15,
              "a normal number");
  double sum = 0, squares = 0;
  for (int i = 0; i < 10000; i++) {
    const double x = DMuonRandomNormal(5, "x", i);
    sum += x;
    squares += x * x;
  }
  tap_is_near(sum / 10000, 0, .04, "their mean");
  tap_is_near(squares / 10000, 1, .05, "and variance");
}

/* ---- programs by chance ---------------------------------------------------------------------- */

enum { CHANCES = 12, CHANCE_STEPS = 3, TEXT = 160 };

static int one_in(uint64_t seed, int64_t *drawn, int n) {
  return DMuonRandomUniform(seed, "programs", (*drawn)++) * n < 1;
}

/* Any groups in order, then the backwards of any of them in the reverse, some of them
 * recomputed. */
static void write_program(uint64_t seed, int64_t *drawn, char text[TEXT]) {
  int ran[LENT_GROUPS], used = 0;
  text[0] = 0;
  if (one_in(seed, drawn, 6)) return;
  for (int g = 0; g < LENT_GROUPS; g++) {
    ran[g] = !one_in(seed, drawn, 4);
    if (ran[g]) used += snprintf(text + used, TEXT - (size_t)used, "f%dF%d ", g, g);
  }
  for (int g = LENT_GROUPS; g-- > 0;) {
    if (!ran[g] || one_in(seed, drawn, 6)) continue;
    used += snprintf(text + used, TEXT - (size_t)used,
                     one_in(seed, drawn, 3) ? "b%df%dF%dB%d " : "b%d", g, g, g, g);
    if (text[used - 1] != ' ') used += snprintf(text + used, TEXT - (size_t)used, "B%d ", g);
  }
}

/* Every rank draws all ranks' programs, so that it knows what the twin must be given. */
static DMuonErrorCode run_chance(uint64_t seed, world *w) {
  static const char *const choices[][2] = {
      {"opt.prefetch_depth", "0"}, {"opt.prefetch_depth", "3"}, {"opt.reshard", "z2"}, DEFERRED,
      {"opt.open_groups", "4"},    {"opt.replicate_async", "0"}};
  char text[RANKS][TEXT];
  int64_t drawn = 0;
  scene s = {.name = "by chance"};
  for (int i = 0, n = 0; i < 6 && n < OPTIONS - 1; i++) {
    if (!one_in(seed, &drawn, 3)) continue;
    s.options[n][0] = choices[i][0];
    s.options[n++][1] = choices[i][1];
  }
  for (int r = 0; r < RANKS; r++) s.program[r] = text[r];
  DMUON_CALL(begin(&s, replicates[seed % 3], 0, w));
  for (int step = 0; step < CHANCE_STEPS; step++) {
    for (int r = 0; r < RANKS; r++) write_program(seed, &drawn, text[r]);
    DMUON_CALL(train(w, &s));
  }
  return DMUON_SUCCESS;
}

static void run_chances(void) {
  for (uint64_t seed = 1; seed <= CHANCES; seed++) {
    char name[64];
    world w;
    const DMuonErrorCode code = run_chance(seed, &w);
    snprintf(name, sizeof name, "programs by chance, seed %d", (int)seed);
    judge(code, &w, name);
  }
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  run_scenes();
  run_phases();
  test_destroy();
  test_random();
  run_chances();
  return tap_mpi_done();
}
