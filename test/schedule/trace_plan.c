/* Plans for machines that nobody here has, in one process: a whole model on thousands of ranks,
 * each kind of rank played once, all of them judged together, in bounded memory.
 *
 *   trace_plan.t FILE R G [OPTION=VALUE ...]    one plan, with its times */
#include <time.h>

#include "backend/trace/trace.h"
#include "rehearsal.h"
#include "tap.h"

static dmuon_memory memory;

static double now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
  int kinds;
  int64_t records, findings;
  int64_t peak_bytes;
  double plan_seconds, verify_seconds;
  char finding[700];
} outcome;

static DMuonErrorCode carry_out(rehearsal_plan *plan, outcome *o) {
  static dmuon_trace_report report;
  rehearsal made;
  const double start = now();
  memset(o, 0, sizeof *o);
  memset(&report, 0, sizeof report);
  plan->judged = &report;
  DMuonErrorCode code = rehearsal_run(plan, &made);
  const double middle = now();
  const dmuon_trace_set set = rehearsal_set(&made);
  if (!code) code = dmuon_trace_verify_sequences(&memory, &set, &report);
  if (!code) code = dmuon_trace_verify_order(&memory, &set, &report);
  o->plan_seconds = middle - start;
  o->verify_seconds = now() - middle;
  o->kinds = made.class_count;
  o->findings = report.count;
  o->records = made.operations;
  o->peak_bytes = made.memory.peak_bytes + made.peak_bytes + memory.peak_bytes;
  if (!code && report.count)
    snprintf(o->finding, sizeof o->finding, "%s: %s",
             dmuon_trace_kind_names[report.findings[0].kind], report.findings[0].text);
  rehearsal_free(&made);
  return code;
}

static void show(const outcome *o) {
  tap_diag(
      "%d kinds of ranks, %lld operations, planned and judged in %.2f s, compared in %.2f s, %.0f "
      "MB",
      o->kinds, (long long)o->records, o->plan_seconds, o->verify_seconds,
      (double)o->peak_bytes / 1e6);
  if (o->findings) tap_diag("%lld findings: %s", (long long)o->findings, o->finding);
}

static DMuonErrorCode shard_vectors(DMuonModel model) {
  return DMuonModelSetRoute(model, "*norm*", DMUON_ROUTE_ADAMW_SHARDED);
}

static void test(const char *name, rehearsal_plan *plan, int most_kinds) {
  outcome o;
  DMuonErrorCode code = carry_out(plan, &o);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && o.findings == 0, "%s on %d x %d: in order", name, plan->replicate, plan->shard);
  tap_ok(!code && o.kinds <= most_kinds, "%d kinds of ranks, at most %d", o.kinds, most_kinds);
  tap_ok(!code && o.peak_bytes < 100 << 20, "in less than 100 MB");
  show(&o);
}

int main(int argc, char **argv) {
  char path[512];
  const char *top = getenv("abs_top_srcdir");
  rehearsal_plan plan = {.shapes = path, .is_lent = 1, .drive = rehearsal_train};
  if (argc >= 4) {
    outcome o;
    snprintf(path, sizeof path, "%s", argv[1]);
    plan.replicate = atoi(argv[2]);
    plan.shard = atoi(argv[3]);
    for (int i = 4; i < argc && i < 15; i++) plan.options[i - 4] = argv[i];
    DMuonErrorCode code = carry_out(&plan, &o);
    if (code) tap_diag("%s", DMuonErrorGetMessage());
    show(&o);
    return code || o.findings;
  }
  tap_plan(0);
  snprintf(path, sizeof path, "%s/test/data/shapes/gpt2-124m.txt", top ? top : ".");
  plan.replicate = 256;
  plan.shard = 8;
  test("gpt2-124m", &plan, 200);
  snprintf(path, sizeof path, "%s/test/data/shapes/llama3.2-1b.txt", top ? top : ".");
  plan.replicate = 2048;
  test("llama3.2-1b", &plan, 300);
  plan.adapt_model = shard_vectors;
  plan.options[0] = "reshard=z2";
  plan.options[1] = "muon_forward_unshard=all_gather";
  test("llama3.2-1b, gathered", &plan, 400);
  return tap_done();
}
