/* The step of the replicated form, planned on meshes that nobody has: recorded for every kind of
 * rank, found in order, and every planted fault found and named. */
#include "backend/trace/trace.h"
#include "planted.h"
#include "rehearsal.h"
#include "tap.h"

static dmuon_memory memory;

static void show(const dmuon_trace_report *report, int64_t most) {
  for (int64_t i = 0; i < report->count && i < most && i < DMUON_TRACE_FINDINGS; i++)
    tap_diag("rank %lld, %s: %s", (long long)report->findings[i].position,
             dmuon_trace_kind_names[report->findings[i].kind], report->findings[i].text);
}

static int is_clean(const rehearsal *made) {
  static dmuon_trace_report report;
  const dmuon_trace_set set = rehearsal_set(made);
  DMuonErrorCode code = dmuon_trace_verify(&memory, &set, &report);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  show(&report, 5);
  return !code && report.count == 0;
}

/* The finding of this kind that names `word`, or NULL. */
static const dmuon_trace_finding *finding(const dmuon_trace_report *report, dmuon_trace_kind kind,
                                          const char *word) {
  for (int64_t i = 0; i < report->count && i < DMUON_TRACE_FINDINGS; i++)
    if (report->findings[i].kind == kind && strstr(report->findings[i].text, word))
      return &report->findings[i];
  return NULL;
}

static void expect(planted *fault, dmuon_trace_kind kind, const char *word, const char *what) {
  DMuonErrorCode code = planted_verify(fault);
  const dmuon_trace_finding *found = code ? NULL : finding(&fault->report, kind, word);
  tap_ok(found != NULL, "%s is found", what);
  if (found)
    tap_diag("%s", found->text);
  else
    show(&fault->report, 4);
  planted_end(fault);
}

static int begin(const rehearsal *made, int position, planted *fault) {
  DMuonErrorCode code = planted_begin(made, position, fault);
  if (code) tap_ok(0, "%s", DMuonErrorGetMessage());
  return !code;
}

/* Every wait is missed on some rank when it is dropped. Not on every: one that owns nothing has
 * nothing to wait for. */
static void test_waits(const rehearsal *made, int needed) {
  enum { QUEUES = 6 };
  int waits[QUEUES * QUEUES] = {0}, missed[QUEUES * QUEUES] = {0}, pairs = 0, count = 0;
  char a[64], b[64];
  const dmuon_trace *first = &made->traces[0];
  for (int c = 0; c < made->class_count; c++) {
    DMuonErrorCode code = planted_drop_waits(&memory, &made->traces[c], QUEUES, waits, missed);
    if (code) tap_ok(0, "%s", DMuonErrorGetMessage());
  }
  for (int i = 0; i < QUEUES * QUEUES; i++) {
    if (!waits[i]) continue;
    tap_diag("waits of %s for %s: %d of %d are missed",
             dmuon_trace_queue_name(first, i / QUEUES, a),
             dmuon_trace_queue_name(first, i % QUEUES, b), missed[i], waits[i]);
    pairs++;
    count += missed[i] > 0;
  }
  tap_is_int(pairs, 8, "pairs of queues with waits");
  tap_is_int(count, needed, "pairs whose waits are missed when they are dropped");
}

static void test_planted(const rehearsal *made) {
  planted f;
  const int last = made->ranks - 1;
  int64_t at;
  if (begin(made, 0, &f)) { /* stage 2 of the reduction before stage 1 is done */
    at = planted_find(&f.trace, DMUON_TRACE_REDUCE_SEGMENTS, "replicate_reduce", 0, 0);
    f.trace.records[planted_find(&f.trace, DMUON_TRACE_WAIT, "replicate_reduce", 0, 0)].operation =
        DMUON_TRACE_NOTHING;
    expect(&f, DMUON_TRACE_RACE_READ, "no wait of replicate_reduce for shard_reduce",
           "a dropped wait");
  }
  if (begin(made, last, &f)) {
    at = planted_find(&f.trace, DMUON_TRACE_REDUCE_SEGMENTS, "shard_reduce", 0, 1);
    dmuon_trace_piece *piece = &f.trace.pieces[f.trace.records[at].first_piece];
    piece->from = !piece->from;
    expect(&f, DMUON_TRACE_SEQUENCE, "piece 0 has root", "a swapped root");
  }
  if (begin(made, last, &f)) {
    at = planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "unshard", 0, 1);
    f.trace.records[at].operation = DMUON_TRACE_NOTHING;
    expect(&f, DMUON_TRACE_SEQUENCE, "shard/unshard: operation", "a dropped collective");
  }
  if (begin(made, 1, &f)) { /* unshard before a reduction that others issue first */
    at = planted_find(&f.trace, DMUON_TRACE_REDUCE_SEGMENTS, "shard_reduce", 0, 0);
    planted_move(&f.trace, planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "unshard", at, 0),
                 at);
    expect(&f, DMUON_TRACE_CIRCLE, "before operation 0 of shard/reduce", "another order on a rank");
  }
  if (begin(made, 0, &f)) { /* the caller fills gradients while they are still packed */
    const int64_t step = planted_find(&f.trace, DMUON_TRACE_PACK, "compute", 0, 0);
    at = planted_find(&f.trace, DMUON_TRACE_TOUCH, NULL, step, 0);
    planted_move(&f.trace, at, step + 1);
    expect(&f, DMUON_TRACE_RACE_OVERWRITE, "no wait of the host thread for compute",
           "a gradient written too early");
  }
  if (begin(made, 0, &f)) {
    at = planted_find(&f.trace, DMUON_TRACE_FREE, NULL, 0, 0);
    planted_move(&f.trace, at, planted_find(&f.trace, DMUON_TRACE_TOUCH, NULL, 0, 0));
    expect(&f, DMUON_TRACE_RACE_FREE, "freed", "a buffer freed too early");
  }
  if (begin(made, 0, &f)) {
    for (at = 0; (at = planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "unshard", at, 0)) >= 0;
         at++) {
      const dmuon_trace_record *r = &f.trace.records[at];
      if (f.trace.accesses[r->first_access + r->access_count - 1].is_write) break;
    }
    if (planted_repeat(&f.trace, at)) tap_ok(0, "no memory");
    expect(&f, DMUON_TRACE_TWICE, "brought again", "values brought twice");
  }
}

/* Prints the trace of one kind for people: trace_step.t KIND. */
static void print(const rehearsal *made, int kind) {
  dmuon_text text;
  const char *data;
  dmuon_text_init(&text, &memory);
  const dmuon_trace *trace = &made->traces[kind];
  dmuon_trace_print(trace, rehearsal_behind(trace, 0, REHEARSAL_START), trace->record_count, &text);
  if (!dmuon_text_finish(&text, &data)) printf("%s", data);
  dmuon_text_free(&text);
}

static void test_plan(const char *name, const rehearsal_plan *plan, int kinds, int needed) {
  rehearsal made;
  DMuonErrorCode code = rehearsal_run(plan, &made);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code, "%s: planned", name);
  if (!code) {
    tap_is_int(made.class_count, kinds, "kinds of ranks");
    tap_ok(is_clean(&made), "%s: in order", name);
    if (needed) test_waits(&made, needed);
    if (needed) test_planted(&made);
  }
  rehearsal_free(&made);
}

int main(int argc, char **argv) {
  rehearsal_plan plan = {.replicate = 2,
                         .shard = 2,
                         .layers = 3,
                         .width = 8,
                         .options = {"initial_root=-1"},
                         .drive = rehearsal_step_arrays};
  if (argc > 1) {
    rehearsal made;
    if (!rehearsal_run(&plan, &made)) print(&made, atoi(argv[1]));
    rehearsal_free(&made);
    return 0;
  }
  tap_plan(0);
  test_plan("2 x 2", &plan, 4, 6);
  plan.options[1] = "replicate_async=1";
  test_plan("2 x 2, asynchronous", &plan, 4, 6);
  plan.options[2] = "clip=global";
  plan.options[3] = "clip_norm=1";
  test_plan("clipping by a global norm", &plan, 4, 7);
  plan.options[1] = NULL;
  plan.replicate = 64;
  plan.shard = 8;
  test_plan("64 x 8", &plan, 7, 0);
  return tap_done();
}
