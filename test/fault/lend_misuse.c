/* Brackets and passes in the wrong place: each is refused at once, with a code and what was wrong,
 * and leaves everything as it was: the same model goes on and ends with the bytes of one in arrays
 * that never saw it. Also a gradient that is not finite, and that brackets and steps take no
 * memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mesh/mesh.h"
#include "step_lent.h"
#include "tap_mpi.h"

#define STRAIGHT "f0F0 f1F1 f2F2 f3F3 f4F4 f5F5 b5B5 b4B4 b3B3 b2B2 b1B1 b0B0"

static DMuonMesh mesh, twin_mesh;
static step_case lent, twin;
static DMuonGroup group[LENT_GROUPS];
static int steps;

/* A pass and a step of both. */
static DMuonErrorCode train(const char *program) {
  lent_pass pass = {.c = &lent, .step = steps, .factor = 1};
  DMUON_CALL(lent_run(&pass, program));
  case_fill_gradients(&twin, steps, 0);
  steps++;
  DMUON_CALL(DMuonOptimizerStep(lent.opt));
  return DMuonOptimizerStep(twin.opt);
}

static DMuonErrorCode begin(const char *option, const char *value) {
  steps = 0;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &twin_mesh));
  DMUON_CALL(case_create(twin_mesh, &twin));
  DMUON_CALL(case_set_up(twin_mesh, &twin));
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonMeshSetTimeout(mesh, 15));
  DMUON_CALL(DMuonMeshSetSizes(mesh, 2, DMUON_DECIDE, 1));
  if (option) DMUON_CALL(DMuonMeshSetOption(mesh, option, value));
  DMUON_CALL(lent_create(mesh, 1, &lent));
  DMUON_CALL(case_set_up(mesh, &lent));
  for (int g = 0; g < LENT_GROUPS; g++) DMUON_CALL(DMuonOptimizerGetGroup(lent.opt, g, &group[g]));
  return train(STRAIGHT);
}

/* Goes on with a pass, and gives everything up. */
static void finish(const char *program, const char *name) {
  uint64_t a = 0, b = 1;
  DMuonErrorCode code = train(program);
  if (!code) code = train(STRAIGHT);
  if (!code) code = DMuonOptimizerCheckInvariants(lent.opt);
  if (!code) code = lent_load(&lent);
  if (!code) code = case_state_hash(&lent, &a);
  if (!code) code = case_state_hash(&twin, &b);
  if (code) fprintf(stderr, "# rank %d: %s\n", tap_rank, DMuonErrorGetMessage());
  tap_ok(!code && a == b && case_hash(&lent) == case_hash(&twin), "%s: goes on to the right bits",
         name);
  case_destroy(&lent);
  case_destroy(&twin);
  DMuonMeshDestroy(&mesh);
  DMuonMeshDestroy(&twin_mesh);
}

static void start(const char *option, const char *value) {
  if (!tap_ok(begin(option, value) == DMUON_SUCCESS, "a model, one step old"))
    tap_diag("%s", DMuonErrorGetMessage());
}

static void refused(DMuonErrorCode got, DMuonErrorCode code, const char *phrase) {
  const int as_said = got == code && strstr(DMuonErrorGetMessage(), phrase) != NULL;
  if (!as_said)
    fprintf(stderr, "# rank %d: got %s: %s\n", tap_rank, DMuonErrorGetName(got),
            got ? DMuonErrorGetMessage() : "");
  tap_ok(as_said, "%s: \"%s\"", DMuonErrorGetName(code), phrase);
}

static void ok(DMuonErrorCode code, const char *what) {
  if (!tap_ok(code == DMUON_SUCCESS, "%s", what)) tap_diag("%s", DMuonErrorGetMessage());
}

/* ---- brackets -------------------------------------------------------------------------------- */

static void test_brackets(void) {
  start(NULL, NULL);
  refused(DMuonGroupForwardEnd(group[1]), DMUON_ERR_STATE, "layers.1 is sharded");
  refused(DMuonGroupForwardEnd(group[1]), DMUON_ERR_STATE, "ForwardEnd makes no sense");
  refused(DMuonGroupBackwardBegin(group[1]), DMUON_ERR_STATE, "did not run forward in this pass");
  refused(DMuonGroupBackwardEnd(group[1]), DMUON_ERR_STATE, "no backward bracket is open");
  ok(DMuonGroupForwardBegin(group[0]), "a forward opens");
  refused(DMuonGroupBackwardBegin(group[0]), DMUON_ERR_STATE, "layers.0 is computing forward");
  refused(DMuonGroupBackwardEnd(group[0]), DMUON_ERR_STATE, "BackwardEnd makes no sense");
  tap_ok(DMuonGroupIsOpen(group[0]) && !DMuonGroupIsOpen(group[1]) && !DMuonGroupIsOpen(NULL),
         "it is open still, others are not");
  ok(DMuonGroupForwardEnd(group[0]), "it closes");
  refused(DMuonGroupForwardEnd(group[0]), DMUON_ERR_STATE, "no forward bracket is open");
  ok(DMuonOptimizerCancelPass(lent.opt), "the pass is cancelled");
  finish(STRAIGHT, "brackets without sense");
}

static void test_inside(void) {
  const void *data = &mesh;
  void *grad = &lent;
  start(NULL, NULL);
  const int weight = lent.id[4], frozen = lent.id[CASE_FROZEN];
  refused(DMuonGroupGetData(group[1], weight, &data), DMUON_ERR_STATE, "inside a bracket only");
  ok(DMuonGroupForwardBegin(group[1]), "a forward opens");
  refused(DMuonGroupGetGrad(group[1], weight, &grad), DMUON_ERR_STATE, "inside a backward bracket");
  refused(DMuonGroupSetGrad(group[1], weight, twin.gradient[4]), DMUON_ERR_STATE,
          "inside a backward bracket");
  refused(DMuonGroupGetArrays(group[1], NULL, &grad), DMUON_ERR_STATE, "inside a backward bracket");
  refused(DMuonGroupGetData(group[1], lent.id[0], &data), DMUON_ERR_ARGUMENT,
          "is not in group layers.1");
  refused(DMuonGroupGetData(group[1], 1000, &data), DMUON_ERR_ARGUMENT, "1000");
  ok(DMuonGroupForwardEnd(group[1]), "it closes");
  ok(DMuonGroupForwardBegin(group[2]), "the next opens");
  ok(DMuonGroupForwardEnd(group[2]), "and closes");
  ok(DMuonGroupBackwardBegin(group[2]), "its backward opens");
  refused(DMuonGroupGetGrad(group[2], frozen, &grad), DMUON_ERR_UNSUPPORTED, "is frozen");
  refused(DMuonGroupSetGrad(group[2], frozen, twin.gradient[0]), DMUON_ERR_UNSUPPORTED,
          "is frozen");
  refused(DMuonGroupGetGrad(group[2], lent.id[9], NULL), DMUON_ERR_ARGUMENT, "NULL");
  refused(DMuonGroupForwardEnd(group[2]), DMUON_ERR_STATE, "layers.2 is computing backward");
  refused(DMuonGroupForwardBegin(NULL), DMUON_ERR_ARGUMENT, "group is NULL");
  refused(DMuonOptimizerGetGroup(lent.opt, 6, NULL), DMUON_ERR_ARGUMENT, "[0,6)");
  refused(DMuonOptimizerFindGroup(lent.opt, "layers.9", NULL), DMUON_ERR_NOT_FOUND, "layers.9");
  tap_ok(data == &mesh && grad == &lent, "no output was touched");
  ok(DMuonOptimizerCancelPass(lent.opt), "the pass is cancelled");
  finish(STRAIGHT, "what is asked for in the wrong place");
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void test_buffers(void) {
  lent_pass pass = {.c = &lent, .step = 1, .factor = 1};
  start(NULL, NULL);
  ok(lent_run(&pass, "f0F0 f1F1 f2F2"), "three forwards");
  refused(DMuonGroupForwardBegin(group[0]), DMUON_ERR_STATE, "has had its turn in this pass");
  refused(DMuonGroupForwardBegin(group[0]), DMUON_ERR_STATE, "must be Z2 (DMuonModelSetReshard)");
  refused(DMuonGroupForwardBegin(group[0]), DMUON_ERR_STATE, "(DMuonOptimizerSetOrder)");
  refused(DMuonGroupForwardBegin(group[0]), DMUON_ERR_STATE, "(open_groups)");
  pass.step = steps;
  ok(lent_run(&pass, "f3F3 f4F4 f5F5"), "the others");
  for (int g = LENT_GROUPS; g-- > 0;) { /* by hand: the programs know nothing of the first part */
    ok(DMuonGroupBackwardBegin(group[g]), "backward");
    for (int p = 0; p < CASE_PARAMS; p++) {
      void *grad;
      if (!lent_is_in(p, g) || p == CASE_FROZEN) continue;
      if (DMuonGroupGetGrad(group[g], lent.id[p], &grad)) break;
      for (int64_t i = 0; i < lent.numel[p]; i++)
        case_store(case_params[p].dtype, grad, i, case_gradient(p, i, lent.rank, steps, 0));
    }
    ok(DMuonGroupBackwardEnd(group[g]), "and its end");
  }
  finish("", "a group that comes again too late");

  start(NULL, NULL);
  ok(DMuonGroupForwardBegin(group[0]), "one is open");
  ok(DMuonGroupForwardBegin(group[1]), "two are open");
  refused(DMuonGroupForwardBegin(group[2]), DMUON_ERR_STATE, "all 2 value buffers are in use");
  refused(DMuonGroupForwardBegin(group[2]), DMUON_ERR_STATE, "option open_groups");
  ok(DMuonGroupForwardEnd(group[1]), "the second closes");
  ok(DMuonGroupForwardBegin(group[2]), "now it opens");
  ok(DMuonGroupForwardEnd(group[2]), "closes");
  ok(DMuonGroupForwardEnd(group[0]), "and the first");
  ok(DMuonOptimizerCancelPass(lent.opt), "the pass is cancelled");
  finish(STRAIGHT, "too many open groups");

  start("opt.open_groups", "1");
  ok(lent_run(&pass, "f0F0 f1F1 f2F2 f3F3 f4F4 f5F5"), "forwards");
  ok(DMuonGroupBackwardBegin(group[5]), "a backward opens");
  refused(DMuonGroupBackwardBegin(group[4]), DMUON_ERR_STATE, "gradient buffers are in use");
  ok(DMuonGroupBackwardEnd(group[5]), "it closes");
  ok(DMuonGroupBackwardBegin(group[4]), "now the other opens");
  ok(DMuonOptimizerCancelPass(lent.opt), "the pass is cancelled");
  finish(STRAIGHT, "too many open backwards");
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void test_passes(void) {
  lent_pass pass = {.c = &lent, .step = 77, .factor = 1};
  start(NULL, NULL);
  refused(DMuonOptimizerBeginPass(lent.opt, (DMuonPass)7), DMUON_ERR_ARGUMENT, "pass 7");
  ok(DMuonOptimizerBeginPass(lent.opt, DMUON_PASS_EVAL), "an evaluation");
  ok(lent_run(&pass, "f0F0 f1F1"), "runs");
  refused(DMuonGroupBackwardBegin(group[1]), DMUON_ERR_STATE, "EVAL: no backward follows");
  refused(DMuonOptimizerBeginPass(lent.opt, tap_rank == 2 ? DMUON_PASS_TRAIN : DMUON_PASS_EVAL),
          DMUON_ERR_DISAGREE, "rank 2 ends its pass otherwise than rank 0");
  ok(DMuonOptimizerBeginPass(lent.opt, DMUON_PASS_TRAIN), "said alike");
  ok(lent_run(&pass, "f0F0 f1F1"), "it runs");
  refused(
      DMuonOptimizerBeginPass(lent.opt, tap_rank == 3 ? DMUON_PASS_ACCUMULATE : DMUON_PASS_TRAIN),
      DMUON_ERR_DISAGREE, "rank 3");
  ok(DMuonOptimizerCancelPass(lent.opt), "the pass is cancelled");
  finish(STRAIGHT, "passes that differ");
}

static void test_values(void) {
  const int id = lent.id[0];
  start(NULL, NULL);
  float other[12 * 8] = {0};
  other[0] = (float)tap_rank;
  ok(DMuonGroupForwardBegin(group[0]), "a forward opens");
  refused(DMuonOptimizerSetParam(lent.opt, id, other, 0), DMUON_ERR_DISAGREE,
          "a pass is under way");
  ok(DMuonGroupForwardEnd(group[0]), "it closes");
  refused(DMuonOptimizerSetState(lent.opt, id, "momentum", other, 0), DMUON_ERR_DISAGREE,
          "a pass is under way");
  ok(DMuonOptimizerCancelPass(lent.opt), "the pass is cancelled");
  refused(DMuonOptimizerSetParam(lent.opt, id, other, DMUON_ALL), DMUON_ERR_DISAGREE, "differ");
  refused(DMuonOptimizerSetParam(lent.opt, id, other, tap_rank == 1 ? 1 : 0), DMUON_ERR_DISAGREE,
          "rank 1");
  refused(DMuonOptimizerSetParam(lent.opt, id, other, 4), DMUON_ERR_ARGUMENT, "[0,4)");
  refused(DMuonOptimizerSetParam(lent.opt, 1000, other, 0), DMUON_ERR_ARGUMENT, "1000");
  refused(DMuonOptimizerSetState(lent.opt, id, "exp_avg", other, 0), DMUON_ERR_NOT_FOUND,
          "momentum, master, step");
  refused(DMuonOptimizerGetParam(lent.opt, id, tap_rank == 2 ? NULL : other, 2), DMUON_ERR_DISAGREE,
          "NULL");
  refused(DMuonOptimizerSetParam(twin.opt, twin.id[0], other, 0), DMUON_ERR_UNSUPPORTED,
          "SyncArrays");
  finish(STRAIGHT, "values set in the wrong way");
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void test_nonfinite(void) {
  DMuonStepInfo info = {.struct_size = sizeof info};
  uint64_t before = 0, after = 1, weights;
  lent_pass pass = {.c = &lent, .step = 50, .factor = 1};
  static const char *const kinds[] = {"reduced at once", "added up first"};
  for (int kind = 0; kind < 2; kind++) {
    start("device", kind ? "host:deferred,seed=8" : "host");
    ok(lent_load(&lent), "values");
    ok(case_state_hash(&lent, &before), "and states before");
    weights = case_hash(&lent);
    if (kind) {
      ok(DMuonOptimizerBeginPass(lent.opt, DMUON_PASS_ACCUMULATE), "a first micro-batch");
      pass.factor = tap_rank == 1 ? INFINITY : 1;
      ok(lent_run(&pass, "f0F0 f1F1 b1B1"), "not finite on rank 1");
      pass.factor = 1;
      ok(DMuonOptimizerBeginPass(lent.opt, DMUON_PASS_TRAIN), "a second");
      ok(lent_run(&pass, STRAIGHT), "which is");
    } else {
      pass.factor = tap_rank >= 2 ? NAN : 1;
      ok(lent_run(&pass, "f0F0 f1F1 f2F2 b1B1"), "not a number on ranks 2 and 3");
    }
    ok(DMuonOptimizerStep(lent.opt), "a step");
    ok(DMuonOptimizerGetStepInfo(lent.opt, &info), "what it did");
    tap_ok(info.skipped == 1 && info.step == 1, "it was skipped, %s", kinds[kind]);
    tap_is_string(info.nonfinite_name, "layers.1.square", "the first such parameter");
    tap_is_int(info.nonfinite_rank, kind ? 1 : 2, "the lowest such rank");
    ok(lent_load(&lent), "values");
    ok(case_state_hash(&lent, &after), "and states after");
    tap_ok(before == after && case_hash(&lent) == weights, "nothing changed");
    finish(STRAIGHT, kinds[kind]);
  }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_allocations(void) {
  static const char *const options[][2] = {{"device", "host"},
                                           {"device", "host:deferred,seed=3"},
                                           {"opt.replicate_async", "1"},
                                           {"opt.order", "program"}};
  for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
    lent_pass pass = {.c = &lent, .factor = 1};
    start(options[k][0], options[k][1]);
    ok(DMuonOptimizerBeginPass(lent.opt, DMUON_PASS_ACCUMULATE), "what the first one takes");
    ok(lent_run(&pass, STRAIGHT), "a micro-batch");
    ok(DMuonOptimizerStep(lent.opt), "a step");
    DMuonErrorCode code = DMuonOptimizerWait(lent.opt);
    const int64_t before = mesh->context.memory.allocations;
    for (int t = 0; !code && t < 3; t++) {
      for (int m = 0; !code && m < 2; m++) {
        code = DMuonOptimizerBeginPass(lent.opt, m ? DMUON_PASS_TRAIN : DMUON_PASS_ACCUMULATE);
        if (!code) code = lent_run(&pass, STRAIGHT);
      }
      if (!code) code = DMuonOptimizerStep(lent.opt);
      if (!code) code = DMuonOptimizerBeginPass(lent.opt, DMUON_PASS_EVAL);
      if (!code) code = lent_run(&pass, "f0F0 f1F1 f2F2");
    }
    ok(code, "three steps");
    tap_is_int(mesh->context.memory.allocations - before, 0, "take no memory: %s", options[k][1]);
    case_destroy(&lent);
    case_destroy(&twin);
    DMuonMeshDestroy(&mesh);
    DMuonMeshDestroy(&twin_mesh);
  }
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  test_brackets();
  test_inside();
  test_buffers();
  test_passes();
  test_values();
  test_nonfinite();
  test_allocations();
  return tap_mpi_done();
}
