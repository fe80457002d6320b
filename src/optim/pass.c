/* Passes: what the brackets between two of its calls are for, and how a pass ends.
 *
 * Ranks may have opened different groups, or none. At the end of a pass each completes the sequence
 * of communication, so that all have issued the same; then they agree, in one small message,
 * whether anybody opened anything, and which gradients came late. */
#include <string.h>

#include "engine/lend.h"
#include "mesh/mesh.h"
#include "optim/pass.h"

/* One rank's word, combined over all. Then a bit a registry parameter: the bundle that begins with
 * it has late gradients somewhere. */
struct dmuon_pass_vote {
  int64_t bytes;
  int64_t caller, other_caller_rank; /* which optimizer, and whose differs: -1 nobody's */
  int32_t rank;
  int32_t code, code_rank;
  int32_t next, differing_rank; /* what comes next: a DMuonPass, or a call that ends passes */
  int32_t is_touched, has_sums;
};

static unsigned char *late_bits(const dmuon_pass_vote *vote) {
  return (unsigned char *)(vote + 1);
}

static int is_set(const unsigned char *bits, int i) {
  return bits[i / 8] >> (i % 8) & 1;
}

int64_t dmuon_pass_vote_bytes(int param_count) {
  return (int64_t)sizeof(dmuon_pass_vote) + ((int64_t)param_count + 63) / 64 * 8;
}

static void combine(void *into, const void *from, int64_t bytes, void *context) {
  dmuon_pass_vote *a = into;
  const dmuon_pass_vote *b = from;
  (void)context;
  if (!a->code && b->code) {
    a->code = b->code;
    a->code_rank = b->code_rank;
  }
  if (a->other_caller_rank < 0)
    a->other_caller_rank = a->caller != b->caller ? b->rank : b->other_caller_rank;
  if (a->differing_rank < 0) a->differing_rank = a->next != b->next ? b->rank : b->differing_rank;
  a->is_touched |= b->is_touched;
  a->has_sums |= b->has_sums;
  for (int64_t i = 0; i < bytes - (int64_t)sizeof *a; i++) late_bits(a)[i] |= late_bits(b)[i];
}

static void fill(DMuonOptimizer opt, int next, DMuonErrorCode code) {
  const dmuon_lend *lend = &opt->lend;
  const dmuon_registry *registry = &opt->model->registry;
  const int rank = dmuon_optimizer_mesh(opt)->rank;
  dmuon_pass_vote *vote = opt->pass_vote;
  const int64_t bytes = dmuon_pass_vote_bytes(registry->param_count);
  memset(vote, 0, (size_t)bytes);
  *vote = (dmuon_pass_vote){.bytes = bytes,
                            .caller = opt->number,
                            .other_caller_rank = -1,
                            .rank = rank,
                            .code = (int32_t)code,
                            .code_rank = code ? rank : -1,
                            .next = next,
                            .differing_rank = -1,
                            .is_touched = lend->is_touched};
  for (int id = 0; id < registry->local_count; id++) vote->has_sums |= lend->is_accumulated[id];
  for (int g = 0; g < lend->groups.count; g++) {
    const dmuon_group_plan *plan = &lend->groups.groups[g];
    if (!lend->states[g].is_late) continue;
    for (int k = 0; k < plan->part_count; k++) {
      const int first = lend->base->packing.bundles[plan->parts[k].bundle].first;
      late_bits(vote)[first / 8] |= (unsigned char)(1u << (first % 8));
    }
  }
}

static DMuonErrorCode agree(DMuonOptimizer opt, const char *call, int next, DMuonErrorCode code) {
  static const char *const names[] = {"TRAIN", "ACCUMULATE", "EVAL",
                                      "Step",  "CancelPass", "Destroy"};
  dmuon_bootstrap *bootstrap = dmuon_optimizer_mesh(opt)->bootstrap;
  dmuon_pass_vote *vote = opt->pass_vote;
  fill(opt, next, code);
  DMUON_TRY(dmuon_agree_reduce(bootstrap, call, vote, vote->bytes, combine, NULL));
  if (vote->code) return dmuon_agree_error(bootstrap, call, code, DMUON_ERR_DISAGREE);
  if (vote->other_caller_rank >= 0)
    DMUON_FAIL(DMUON_ERR_DISAGREE,
               "rank %lld called %s of another optimizer than rank 0; here of \"%s\", number %lld",
               (long long)vote->other_caller_rank, call, opt->object.name, (long long)opt->number);
  if (vote->differing_rank >= 0)
    DMUON_FAIL(DMUON_ERR_DISAGREE, "rank %d ends its pass otherwise than rank 0; here with %s",
               vote->differing_rank, names[next]);
  return DMUON_SUCCESS;
}

/* In the sequence of reductions: the last group first. */
static DMuonErrorCode reduce_late(DMuonOptimizer opt) {
  dmuon_lend *lend = &opt->lend;
  const unsigned char *bits = late_bits(opt->pass_vote);
  for (int g = lend->groups.count - 1; g >= 0; g--) {
    const dmuon_group_plan *plan = &lend->groups.groups[g];
    unsigned char parts[DMUON_MAX_PARTS] = {0};
    int any = 0;
    for (int k = 0; k < plan->part_count; k++) {
      parts[k] =
          (unsigned char)is_set(bits, lend->base->packing.bundles[plan->parts[k].bundle].first);
      any |= parts[k];
    }
    if (any) DMUON_TRY(dmuon_lend_reduce(lend, g, parts));
  }
  return DMUON_SUCCESS;
}

/* Whether this rank does the rest of the pass before it asks the others: they may wait for its part
 * of what it left out. Only a BeginPass that follows Step at once, as most do, begins a pass
 * instead of ending one. */
static int ends_pass(const dmuon_lend *lend, int next) {
  return next > DMUON_PASS_EVAL || !lend->is_implicit || lend->is_touched;
}

DMuonErrorCode dmuon_pass_close(DMuonOptimizer opt, const char *call, int next,
                                DMuonErrorCode code) {
  dmuon_lend *lend = &opt->lend;
  const dmuon_pass_vote *vote = opt->pass_vote;
  if (!opt->has_lent) return code;
  const int ends_here = ends_pass(lend, next);
  DMuonErrorCode ended =
      dmuon_lend_close_brackets(lend, next == DMUON_ENDS_CANCEL || next == DMUON_ENDS_DESTROY);
  if (!ended && ends_here) ended = dmuon_lend_finish_pass(lend);
  DMUON_TRY(agree(opt, call, next, code ? code : ended));
  if (vote->is_touched) {
    if (!ends_here) DMUON_TRY(dmuon_lend_finish_pass(lend));
    /* The count of Step is what holds now; a BeginPass may come after the next pass's was said. */
    const double samples = next == DMUON_ENDS_STEP ? opt->samples : opt->pass_samples;
    if (lend->pass != DMUON_PASS_EVAL && samples >= 0) opt->accumulated_samples += samples;
  }
  DMUON_TRY(reduce_late(opt));
  if (next == DMUON_ENDS_STEP && vote->has_sums) {
    dmuon_lend_begin_pass(lend, DMUON_PASS_TRAIN, 1);
    DMUON_TRY(dmuon_lend_reduce_rest(lend));
  }
  if (next == DMUON_ENDS_STEP) dmuon_lend_begin_pass(lend, DMUON_PASS_TRAIN, 1);
  return DMUON_SUCCESS;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static DMuonErrorCode begin_pass(DMuonOptimizer opt, DMuonPass kind) {
  dmuon_lend *lend = &opt->lend;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (kind == DMUON_PASS_ACCUMULATE && dmuon_lend_is_used(lend))
    code = dmuon_lend_make_accumulators(lend);
  DMUON_TRY(dmuon_pass_close(opt, "BeginPass", (int)kind, code));
  if (dmuon_lend_is_used(lend) && lend->is_implicit && !opt->pass_vote->is_touched) {
    lend->pass = kind; /* what was fetched ahead is still good */
    lend->is_implicit = 0;
  } else {
    dmuon_lend_begin_pass(lend, kind, 0);
  }
  opt->pass_samples = opt->samples;
  return opt->settings.check_invariants ? DMuonOptimizerCheckInvariants(opt) : DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerBeginPass(DMuonOptimizer opt, DMuonPass kind) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  if ((int)kind < DMUON_PASS_TRAIN || kind > DMUON_PASS_EVAL)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "pass %d is no DMuonPass", (int)kind);
  return dmuon_optimizer_settle(opt, begin_pass(opt, kind));
}

static DMuonErrorCode cancel_pass(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_pass_close(opt, "CancelPass", DMUON_ENDS_CANCEL, DMUON_SUCCESS));
  dmuon_optimizer_forget_accumulated(opt);
  if (dmuon_lend_is_used(&opt->lend)) { /* looks at gradients that are under way end here */
    DMUON_TRY(opt->runtime.device->ops->queue_sync(opt->lend.caller));
    DMUON_TRY(dmuon_verdict_forget(&opt->verdict, &opt->runtime, opt->lend.caller));
  }
  return dmuon_lend_begin_step(&opt->lend);
}

DMuonErrorCode DMuonOptimizerCancelPass(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  return dmuon_optimizer_settle(opt, cancel_pass(opt));
}
