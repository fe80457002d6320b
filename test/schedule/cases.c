/* What the cases do. Short ones run one step and the forward after it, which shows what of the step
 * was still under way. */
#include "cases.h"

#include "mesh/mesh.h"
#include "optim/optimizer.h"

static dmuon_device *device_of(DMuonOptimizer opt) {
  return dmuon_optimizer_mesh(opt)->device;
}

static DMuonErrorCode step(DMuonOptimizer opt) {
  dmuon_device_note(device_of(opt), "step");
  return DMuonOptimizerStep(opt);
}

static DMuonErrorCode begin_pass(DMuonOptimizer opt, DMuonPass pass) {
  static const char *const names[] = {"train", "accumulate", "evaluate"};
  dmuon_device_note(device_of(opt), "begin pass: %s", names[pass]);
  return DMuonOptimizerBeginPass(opt, pass);
}

static DMuonErrorCode train_once(DMuonOptimizer opt) {
  DMUON_TRY(rehearsal_forward(opt));
  DMUON_TRY(rehearsal_backward(opt));
  return step(opt);
}

static DMuonErrorCode short_train(DMuonOptimizer opt, int rank) {
  (void)rank;
  DMUON_TRY(train_once(opt));
  return rehearsal_forward(opt);
}

static DMuonErrorCode accumulate(DMuonOptimizer opt, int rank) {
  (void)rank;
  for (int round = 0; round < 2; round++) {
    if (round > 0) dmuon_device_note(device_of(opt), CASE_AGAIN);
    DMUON_TRY(begin_pass(opt, DMUON_PASS_ACCUMULATE));
    DMUON_TRY(rehearsal_forward(opt));
    DMUON_TRY(rehearsal_backward(opt));
    DMUON_TRY(begin_pass(opt, DMUON_PASS_TRAIN));
    DMUON_TRY(train_once(opt));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce_each(DMuonOptimizer opt, int rank) {
  (void)rank;
  for (int round = 0; round < 2; round++) {
    if (round > 0) dmuon_device_note(device_of(opt), CASE_AGAIN);
    DMUON_TRY(begin_pass(opt, DMUON_PASS_TRAIN));
    DMUON_TRY(rehearsal_forward(opt));
    DMUON_TRY(rehearsal_backward(opt));
    DMUON_TRY(begin_pass(opt, DMUON_PASS_TRAIN));
    DMUON_TRY(train_once(opt));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode evaluate(DMuonOptimizer opt, int rank) {
  DMUON_TRY(train_once(opt));
  DMUON_TRY(begin_pass(opt, DMUON_PASS_EVAL));
  DMUON_TRY(rehearsal_forward(opt));
  DMUON_TRY(begin_pass(opt, DMUON_PASS_TRAIN));
  return short_train(opt, rank);
}

/* A forward inside the group's own backward. */
static DMuonErrorCode recompute(DMuonOptimizer opt, int rank) {
  int count;
  (void)rank;
  DMUON_TRY(DMuonOptimizerGetGroupCount(opt, &count));
  for (int round = 0; round < 2; round++) {
    if (round > 0) dmuon_device_note(device_of(opt), CASE_AGAIN);
    DMUON_TRY(rehearsal_forward(opt));
    for (int g = count - 1; g >= 0; g--) {
      DMUON_TRY(rehearsal_begin(opt, g, 1));
      DMUON_TRY(rehearsal_begin(opt, g, 0));
      DMUON_TRY(rehearsal_end(opt, g, 0));
      DMUON_TRY(rehearsal_end(opt, g, 1));
    }
    DMUON_TRY(step(opt));
  }
  return DMUON_SUCCESS;
}

/* The odd rank leaves group 1 out. */
static DMuonErrorCode skip(DMuonOptimizer opt, int rank) {
  int count;
  const int left_out = rank == 1 ? 1 : -1;
  DMUON_TRY(DMuonOptimizerGetGroupCount(opt, &count));
  for (int round = 0; round < 2; round++) {
    if (round > 0) dmuon_device_note(device_of(opt), CASE_AGAIN);
    for (int g = 0; g < count; g++) {
      if (g == left_out) continue;
      DMUON_TRY(rehearsal_begin(opt, g, 0));
      DMUON_TRY(rehearsal_end(opt, g, 0));
    }
    for (int g = count - 1; g >= 0; g--) {
      if (g == left_out) continue;
      DMUON_TRY(rehearsal_begin(opt, g, 1));
      DMUON_TRY(rehearsal_end(opt, g, 1));
    }
    DMUON_TRY(step(opt));
  }
  return DMUON_SUCCESS;
}

/* One rank has nothing to do in the second pass of two. */
static DMuonErrorCode leave_a_pass_out(DMuonOptimizer opt, int rank) {
  for (int round = 0; round < 2; round++) {
    if (round > 0) dmuon_device_note(device_of(opt), CASE_AGAIN);
    for (int pass = 0; pass < 2; pass++) {
      DMUON_TRY(DMuonOptimizerBeginPass(opt, DMUON_PASS_TRAIN));
      if (pass == 1 && rank == 1) continue;
      DMUON_TRY(rehearsal_forward(opt));
      DMUON_TRY(rehearsal_backward(opt));
    }
    DMUON_TRY(step(opt));
  }
  return DMUON_SUCCESS;
}

/* The brackets of two groups at once. */
static DMuonErrorCode nested(DMuonOptimizer opt, int rank) {
  (void)rank;
  for (int round = 0; round < 2; round++) {
    if (round > 0) dmuon_device_note(device_of(opt), CASE_AGAIN);
    for (int pair = 0; pair < 4; pair++) { /* (0 1) (2 3), then (3 2) (1 0) */
      const int is_backward = pair >= 2;
      const int first = is_backward ? 7 - 2 * pair : 2 * pair;
      const int second = is_backward ? first - 1 : first + 1;
      DMUON_TRY(rehearsal_begin(opt, first, is_backward));
      DMUON_TRY(rehearsal_begin(opt, second, is_backward));
      DMUON_TRY(rehearsal_end(opt, second, is_backward));
      DMUON_TRY(rehearsal_end(opt, first, is_backward));
    }
    DMUON_TRY(step(opt));
  }
  return DMUON_SUCCESS;
}

/* Steps and passes without anything in them; a pass given up. */
static DMuonErrorCode odd_calls(DMuonOptimizer opt, int rank) {
  (void)rank;
  DMUON_TRY(step(opt));
  DMUON_TRY(rehearsal_forward(opt));
  DMUON_TRY(rehearsal_begin(opt, 3, 1));
  dmuon_device_note(device_of(opt), "cancel pass");
  DMUON_TRY(DMuonOptimizerCancelPass(opt));
  DMUON_TRY(train_once(opt));
  return step(opt);
}

/* One step behind the other, without a pass between them. */
static DMuonErrorCode step_again(DMuonOptimizer opt, int rank) {
  (void)rank;
  DMUON_TRY(train_once(opt));
  DMUON_TRY(step(opt));
  DMUON_TRY(step(opt));
  return train_once(opt);
}

/* No rank runs group 1. */
static DMuonErrorCode leave_out(DMuonOptimizer opt, int rank) {
  (void)rank;
  return skip(opt, 1);
}

static DMuonErrorCode shard_norms(DMuonModel model) {
  return DMuonModelSetRoute(model, "*.norm", DMUON_ROUTE_ADAMW_SHARDED);
}

static DMuonErrorCode shard_all(DMuonModel model) {
  return DMuonModelSetRoute(model, "*", DMUON_ROUTE_ADAMW_SHARDED);
}

static DMuonErrorCode freeze_norms(DMuonModel model) {
  return DMuonModelSetRoute(model, "*.norm", DMUON_ROUTE_FROZEN);
}

static DMuonErrorCode first_is_z2(DMuonModel model) {
  return DMuonModelSetReshard(model, "h.0", DMUON_Z2);
}

static DMuonErrorCode bf16(DMuonModel model) {
  return DMuonModelSetDTypes(model, "*", DMUON_BFLOAT16, DMUON_FLOAT32, DMUON_FLOAT32);
}

const schedule_case schedule_cases[] = {
    {.name = "z3_prefetch1", .is_golden = 1, .drive = short_train},
    {.name = "z3_prefetch0",
     .is_golden = 1,
     .drive = short_train,
     .options = {"prefetch_depth=0", "backward_prefetch_depth=0"}},
    {.name = "z3_prefetch2",
     .is_golden = 1,
     .drive = short_train,
     .options = {"prefetch_depth=2", "backward_prefetch_depth=2"}},
    {.name = "z2", .is_golden = 1, .drive = short_train, .options = {"reshard=z2"}},
    {.name = "sync", .is_golden = 1, .drive = short_train, .options = {"replicate_async=0"}},
    {.name = "accumulate", .is_golden = 1, .drive = accumulate},
    {.name = "recompute", .is_golden = 1, .drive = recompute},
    {.name = "sharded_adamw", .is_golden = 1, .adapt_model = shard_norms, .drive = short_train},
    {.name = "all_gather",
     .is_golden = 1,
     .drive = short_train,
     .options = {"muon_forward_unshard=all_gather"}},
    {.name = "evaluate", .is_golden = 1, .drive = evaluate},
    {.name = "skipped_group",
     .is_golden = 1,
     .drive = skip,
     .options = {"missing_gradient=zero"},
     .has_odd_rank = 1,
     .odd_rank = 1},
    {.name = "pass left out", .drive = leave_a_pass_out, .has_odd_rank = 1, .odd_rank = 1},
    {.name = "pass left out, nothing ahead",
     .drive = leave_a_pass_out,
     .options = {"prefetch_depth=0", "backward_prefetch_depth=0"},
     .has_odd_rank = 1,
     .odd_rank = 1},
    {.name = "pass left out, far ahead",
     .drive = leave_a_pass_out,
     .options = {"prefetch_depth=2", "backward_prefetch_depth=3"},
     .has_odd_rank = 1,
     .odd_rank = 1},
    {.name = "pass left out, first is z2",
     .adapt_model = first_is_z2,
     .drive = leave_a_pass_out,
     .has_odd_rank = 1,
     .odd_rank = 1},
    {.name = "two steps"},
    {.name = "reduce each time", .drive = reduce_each},
    {.name = "z2, reduce each time", .drive = reduce_each, .options = {"reshard=z2"}},
    {.name = "z2, accumulate", .drive = accumulate, .options = {"reshard=z2"}},
    {.name = "overwrite, recompute", .drive = recompute, .options = {"grad_mode=overwrite"}},
    {.name = "overwrite, accumulate", .drive = accumulate, .options = {"grad_mode=overwrite"}},
    {.name = "one group z2", .adapt_model = first_is_z2},
    {.name = "program order", .options = {"order=program"}},
    {.name = "program order, one group open", .options = {"order=program", "open_groups=1"}},
    {.name = "nested", .drive = nested, .options = {"open_groups=4"}},
    {.name = "nested, program order", .drive = nested, .options = {"order=program"}},
    {.name = "odd calls", .drive = odd_calls, .may_waste = 1},
    {.name = "z2, odd calls", .drive = odd_calls, .may_waste = 1, .options = {"reshard=z2"}},
    {.name = "step again",
     .drive = step_again,
     .may_waste = 1,
     .options = {"missing_gradient=zero"}},
    {.name = "left out, program order",
     .drive = leave_out,
     .may_waste = 1,
     .options = {"missing_gradient=zero", "order=program"}},
    {.name = "program order, step again",
     .drive = step_again,
     .may_waste = 1,
     .options = {"missing_gradient=zero", "order=program"}},
    {.name = "prefetch after step", .options = {"post_step_prefetch=2"}},
    {.name = "stage 2 in backward", .options = {"delay_stage2_to_optimizer=0"}},
    {.name = "buckets", .options = {"publish_bucket_mb=0.0005"}},
    {.name = "clipped", .options = {"clip=global", "clip_norm=1"}},
    {.name = "all sharded", .adapt_model = shard_all},
    {.name = "frozen norms", .adapt_model = freeze_norms},
    {.name = "frozen norms, z2", .adapt_model = freeze_norms, .options = {"reshard=z2"}},
    {.name = "all_gather, z2", .options = {"muon_forward_unshard=all_gather", "reshard=z2"}},
    {.name = "all_gather, accumulate",
     .drive = accumulate,
     .options = {"muon_forward_unshard=all_gather"}},
    {.name = "bf16 gradients", .adapt_model = bf16},
    {.name = "z2, skipped",
     .drive = skip,
     .has_odd_rank = 1,
     .odd_rank = 1,
     .options = {"reshard=z2", "missing_gradient=zero"}},
    {.name = "z2, evaluate", .drive = evaluate, .options = {"reshard=z2"}},
};
const int schedule_case_count = sizeof schedule_cases / sizeof schedule_cases[0];

rehearsal_plan schedule_plan(const schedule_case *c, int replicate, int shard) {
  rehearsal_plan plan = {.replicate = replicate,
                         .shard = shard,
                         .layers = 4,
                         .width = 8,
                         .is_lent = 1,
                         .adapt_model = c->adapt_model,
                         .has_odd_rank = c->has_odd_rank,
                         .odd_rank = c->odd_rank,
                         .drive = c->drive ? c->drive : rehearsal_train};
  for (int i = 0; i < 4 && c->options[i]; i++) plan.options[i] = c->options[i];
  return plan;
}
