/* The sharded form, planned on meshes that nobody has: every residency, mode and kind of pass is in
 * order on all kinds of ranks, each kind of wait is missed when it is dropped, and some schedules
 * are compared with the text kept in golden/.
 *
 *   trace_sharded.t -write DIRECTORY       writes the golden texts there (tools/update_golden)
 *   trace_sharded.t -show NAME [RANK]      prints one */
#include "backend/trace/trace.h"
#include "cases.h"
#include "planted.h"
#include "tap.h"

static dmuon_memory memory;

static int is_clean(const rehearsal *made, int may_waste) {
  static dmuon_trace_report report;
  const dmuon_trace_set set = rehearsal_set(made);
  DMuonErrorCode code = dmuon_trace_verify(&memory, &set, &report);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  int64_t wrong = report.count;
  for (int64_t i = 0; i < report.count && i < DMUON_TRACE_FINDINGS; i++)
    wrong -= may_waste && report.findings[i].kind == DMUON_TRACE_TWICE;
  for (int64_t i = 0; wrong && i < report.count && i < 4; i++)
    tap_diag("rank %lld, %s: %s", (long long)report.findings[i].position,
             dmuon_trace_kind_names[report.findings[i].kind], report.findings[i].text);
  if (wrong > 4) tap_diag("and %lld more", (long long)report.count - 4);
  return !code && wrong == 0;
}

/* ---- golden texts -------------------------------------------------------------------------- */

static DMuonErrorCode print(const rehearsal *made, int rank, dmuon_text *text) {
  const dmuon_trace *trace = &made->traces[made->class_of[rank]];
  const int64_t first = rehearsal_behind(trace, 0, REHEARSAL_START);
  int64_t end = rehearsal_behind(trace, first, CASE_AGAIN);
  const int64_t destroy = rehearsal_behind(trace, first, REHEARSAL_END);
  if (destroy < end) end = destroy;
  dmuon_text_init(text, &memory);
  dmuon_trace_print(trace, first, end - 1, text);
  const char *data;
  return dmuon_text_finish(text, &data);
}

/* The file's text, to be freed; NULL when there is none. */
static char *read_file(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return NULL;
  char *text = NULL;
  size_t length = 0, got;
  do {
    text = realloc(text, length + 4097);
    got = fread(text + length, 1, 4096, file);
    length += got;
  } while (got > 0);
  text[length] = 0;
  fclose(file);
  return text;
}

static void show_difference(const char *expected, const char *got) {
  for (int line = 1; *expected || *got; line++) {
    const size_t a = strcspn(expected, "\n"), b = strcspn(got, "\n");
    if (a != b || memcmp(expected, got, a) != 0) {
      tap_diag("line %d was: %.*s", line, (int)a, expected);
      tap_diag("line %d is:  %.*s", line, (int)b, got);
      return;
    }
    expected += a + (expected[a] != 0);
    got += b + (got[b] != 0);
  }
}

static void compare(const schedule_case *c, const rehearsal *made) {
  const char *top = getenv("abs_top_srcdir");
  char path[512];
  dmuon_text text;
  snprintf(path, sizeof path, "%s/test/schedule/golden/%s.txt", top ? top : ".", c->name);
  char *expected = read_file(path);
  DMuonErrorCode code = print(made, 0, &text);
  const int same = !code && expected && strcmp(expected, text.data) == 0;
  if (!expected) tap_diag("no %s", path);
  if (!code && expected && !same) show_difference(expected, text.data);
  tap_ok(same, "%s: as kept (tools/update_golden writes it anew)", c->name);
  free(expected);
  dmuon_text_free(&text);
}

static int write_golden(const char *directory) {
  for (int i = 0; i < schedule_case_count; i++) {
    const schedule_case *c = &schedule_cases[i];
    const rehearsal_plan plan = schedule_plan(c, 2, 2);
    char path[512];
    rehearsal made;
    dmuon_text text = {0};
    if (!c->is_golden) continue;
    snprintf(path, sizeof path, "%s/%s.txt", directory, c->name);
    DMuonErrorCode code = rehearsal_run(&plan, &made);
    if (!code) code = print(&made, 0, &text);
    if (!code) code = dmuon_text_write(&text, path);
    if (code) fprintf(stderr, "%s: %s\n", path, DMuonErrorGetMessage());
    dmuon_text_free(&text);
    rehearsal_free(&made);
    if (code) return 1;
  }
  return 0;
}

static int show(const char *name, int rank) {
  for (int i = 0; i < schedule_case_count; i++) {
    const rehearsal_plan plan = schedule_plan(&schedule_cases[i], 2, 2);
    rehearsal made;
    dmuon_text text = {0};
    if (strcmp(schedule_cases[i].name, name) != 0) continue;
    DMuonErrorCode code = rehearsal_run(&plan, &made);
    if (!code) code = print(&made, rank, &text);
    if (!code) code = dmuon_text_write(&text, NULL);
    if (code) fprintf(stderr, "%s\n", DMuonErrorGetMessage());
    dmuon_text_free(&text);
    rehearsal_free(&made);
    return code != 0;
  }
  fprintf(stderr, "no case %s\n", name);
  return 2;
}

/* ---- judging ------------------------------------------------------------------------------- */

enum { QUEUES = 7 };
static int waits[QUEUES * QUEUES], missed[QUEUES * QUEUES];
static char names[QUEUES][64];

static void count_waits(const rehearsal *made) {
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int c = 0; !code && c < made->class_count; c++)
    code = planted_drop_waits(&memory, &made->traces[c], QUEUES, waits, missed);
  if (code) tap_ok(0, "%s", DMuonErrorGetMessage());
  for (int q = 0; q < QUEUES && q < made->traces[0].queue_count; q++)
    dmuon_trace_queue_name(&made->traces[0], q, names[q]);
}

/* Waits that order nothing which other edges do not: a gathered parameter's new values come behind
 * its last fetch through the update already; the caller that waits for stage 2 (switched on by
 * delay_stage2_to_optimizer=0) reads nothing of it. */
static int is_implied(const char *waits_there, const char *for_this) {
  return (strcmp(waits_there, "publish") == 0 && strcmp(for_this, "unshard") == 0) ||
         (strcmp(waits_there, "caller") == 0 && strcmp(for_this, "replicate_reduce") == 0);
}

static void test_case(const schedule_case *c, int replicate, int shard) {
  const rehearsal_plan plan = schedule_plan(c, replicate, shard);
  rehearsal made;
  DMuonErrorCode code = rehearsal_run(&plan, &made);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && is_clean(&made, c->may_waste), "%s, %d x %d: in order on %d kinds of ranks",
         c->name, replicate, shard, made.class_count);
  if (!code && replicate == 2 && shard == 2) {
    count_waits(&made);
    if (c->is_golden) compare(c, &made);
  }
  rehearsal_free(&made);
}

/* The same on a device that decides late: the step does not wait for what was found in
 * gradients. */
static void test_late(const schedule_case *c, int replicate, int shard) {
  rehearsal_plan plan = schedule_plan(c, replicate, shard);
  rehearsal made;
  int last = 0;
  while (plan.options[last]) last++;
  plan.options[last] = "device=trace:late";
  DMuonErrorCode code = rehearsal_run(&plan, &made);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && is_clean(&made, c->may_waste), "%s, %d x %d, decided late: in order", c->name,
         replicate, shard);
  rehearsal_free(&made);
}

/* ---- planted faults ------------------------------------------------------------------------ */

static void expect(planted *f, dmuon_trace_kind kind, const char *word, const char *what) {
  const dmuon_trace_finding *found = NULL;
  DMuonErrorCode code = planted_verify(f);
  for (int64_t i = 0; !code && i < f->report.count && i < DMUON_TRACE_FINDINGS && !found; i++)
    if (f->report.findings[i].kind == kind && strstr(f->report.findings[i].text, word))
      found = &f->report.findings[i];
  tap_ok(found != NULL, "%s is found and named", what);
  if (found) tap_diag("%s", found->text);
  for (int64_t i = 0; !found && i < f->report.count && i < 3; i++)
    tap_diag("%s: %s", dmuon_trace_kind_names[f->report.findings[i].kind],
             f->report.findings[i].text);
  planted_end(f);
}

static int begin(const rehearsal *made, int position, planted *f) {
  DMuonErrorCode code = planted_begin(made, position, f);
  if (code) tap_ok(0, "%s", DMuonErrorGetMessage());
  return !code;
}

static void test_planted(void) {
  const rehearsal_plan plan = schedule_plan(&schedule_cases[0], 2, 2);
  rehearsal made;
  planted f;
  int64_t at, to;
  if (rehearsal_run(&plan, &made)) {
    tap_ok(0, "%s", DMuonErrorGetMessage());
    return;
  }
  const int64_t start = rehearsal_behind(&made.traces[0], 0, REHEARSAL_START);
  if (begin(&made, 0, &f)) { /* the caller reads before his values are there */
    at = planted_find(&f.trace, DMUON_TRACE_WAIT, "caller", start, 0);
    f.trace.records[at].operation = DMUON_TRACE_NOTHING;
    expect(&f, DMUON_TRACE_RACE_READ, "no wait of the caller for unshard", "a missing wait");
  }
  if (begin(&made, 0, &f)) { /* the buffer is given away before the caller is done */
    at = planted_find(&f.trace, DMUON_TRACE_RECORD, "caller", start, 0);
    planted_move(&f.trace, at, planted_find(&f.trace, DMUON_TRACE_LEND, "caller", start, 0));
    expect(&f, DMUON_TRACE_RACE_OVERWRITE, "no wait of unshard for the caller",
           "a release too early");
  }
  if (begin(&made, 0, &f)) {
    at = planted_find(&f.trace, DMUON_TRACE_DISCARD, "unshard", start, 1);
    if (planted_repeat(&f.trace, at)) tap_ok(0, "no memory");
    expect(&f, DMUON_TRACE_TWICE, "discarded again", "a group resharded twice");
  }
  if (begin(&made, 0, &f)) {
    for (at = start;
         (at = planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "unshard", at, 0)) >= 0; at++) {
      const dmuon_trace_record *r = &f.trace.records[at];
      if (f.trace.accesses[r->first_access + r->access_count - 1].is_write) break;
    }
    if (planted_repeat(&f.trace, at)) tap_ok(0, "no memory");
    expect(&f, DMUON_TRACE_TWICE, "brought again", "a group fetched twice");
  }
  if (begin(&made, 3, &f)) {
    at = planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "unshard", start, 0);
    dmuon_trace_piece *piece = &f.trace.pieces[f.trace.records[at].first_piece];
    piece->from = !piece->from;
    expect(&f, DMUON_TRACE_SEQUENCE, "piece 0 has root", "a swapped root");
  }
  if (begin(&made, 2, &f)) {
    at = planted_find(&f.trace, DMUON_TRACE_REDUCE_SEGMENTS, "replicate_reduce", start, 1);
    f.trace.records[at].operation = DMUON_TRACE_NOTHING;
    expect(&f, DMUON_TRACE_SEQUENCE, "is issued by rank 0 and missing on rank 2",
           "a dropped collective");
  }
  if (begin(&made, 1, &f)) { /* the first reduction before the last fetch of forward */
    at = planted_find(&f.trace, DMUON_TRACE_REDUCE_SEGMENTS, "shard_reduce", start, 0);
    to = planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "unshard", start, 3);
    planted_move(&f.trace, at, to);
    expect(&f, DMUON_TRACE_CIRCLE, "before operation 3 of shard/unshard",
           "another order on one rank");
  }
  if (begin(&made, 0, &f)) { /* gradients are cleared while stage 1 still sends them */
    int n = 0;
    do at = planted_find(&f.trace, DMUON_TRACE_ZERO, "caller", start, n++);
    while (at >= 0 && f.trace.records[at - 1].operation != DMUON_TRACE_WAIT);
    if (at >= 0) f.trace.records[at - 1].operation = DMUON_TRACE_NOTHING;
    expect(&f, DMUON_TRACE_RACE_OVERWRITE, "no wait of caller for shard_reduce",
           "a gradient buffer taken over too early");
  }
  if (begin(&made, 0, &f)) { /* the next forward fetches what is still being published */
    const int64_t step = rehearsal_behind(&f.trace, start, "step");
    int n = 0;
    do at = planted_find(&f.trace, DMUON_TRACE_GATHER_SEGMENTS, "publish", step, n++);
    while (at >= 0 && !f.trace.accesses[f.trace.records[at].first_access].is_write);
    const int64_t published = planted_find(&f.trace, DMUON_TRACE_RECORD, "publish", at, 0);
    for (int64_t i = published + 1; at >= 0 && i < f.trace.record_count; i++)
      if (f.trace.records[i].operation == DMUON_TRACE_WAIT &&
          f.trace.records[i].event == f.trace.records[published].event)
        f.trace.records[i].operation = DMUON_TRACE_NOTHING;
    expect(&f, DMUON_TRACE_RACE_READ, "no wait of unshard for publish",
           "a publish that is not consumed");
  }
  rehearsal_free(&made);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "-write") == 0) return write_golden(argv[2]);
  if (argc >= 3 && strcmp(argv[1], "-show") == 0)
    return show(argv[2], argc > 3 ? atoi(argv[3]) : 0);
  tap_plan(0);
  for (int i = 0; i < schedule_case_count; i++) {
    test_case(&schedule_cases[i], 2, 2);
    test_case(&schedule_cases[i], 1, 3);
    test_case(&schedule_cases[i], 3, 1);
    test_case(&schedule_cases[i], 5, 3);
    test_late(&schedule_cases[i], 2, 2);
    test_late(&schedule_cases[i], 3, 2);
  }
  for (int i = 0; i < QUEUES * QUEUES; i++)
    if (waits[i] && i / QUEUES != i % QUEUES && !is_implied(names[i / QUEUES], names[i % QUEUES]))
      tap_ok(missed[i] > 0, "waits of %s for %s: %d of %d are missed when dropped",
             names[i / QUEUES], names[i % QUEUES], missed[i], waits[i]);
  test_planted();
  return tap_done();
}
