/* The recorder and the verifier on a few operations each: what is an order and what is none. */
#include "backend/trace/trace.h"
#include "backend/trace/verify.h"
#include "tap.h"

static dmuon_memory memory;

/* A device, two queues, an event and two buffers. */
typedef struct {
  dmuon_context context;
  dmuon_device *device;
  const DMuonDeviceOps *ops;
  dmuon_queue *a, *b;
  dmuon_event *event;
  void *x, *y;
} stage;

enum { BYTES = 1024 };

static void must(DMuonErrorCode code) {
  if (!code) return;
  tap_diag("%s", DMuonErrorGetMessage());
  exit(1);
}

static void begin(stage *s, int64_t limit) {
  memset(s, 0, sizeof *s);
  dmuon_context_init(&s->context);
  must(dmuon_trace_device_create(&s->context, NULL, NULL, limit, &s->device));
  s->ops = s->device->ops;
  must(s->ops->queue_create(s->device, 0, &s->a));
  must(s->ops->queue_create(s->device, 0, &s->b));
  must(s->ops->event_create(s->device, &s->event));
  must(s->ops->alloc(s->device, BYTES, &s->x));
  must(s->ops->alloc(s->device, BYTES, &s->y));
  dmuon_device_name_queue(s->device, s->a, "left");
  dmuon_device_name_queue(s->device, s->b, "right");
  dmuon_device_name_buffer(s->device, s->x, "x of %d", 7);
}

/* Findings so far; one of `kind` that names `word` when there is one. */
static void judge(stage *s, int64_t count, dmuon_trace_kind kind, const char *word,
                  const char *what) {
  static dmuon_trace_report report;
  memset(&report, 0, sizeof report);
  must(dmuon_trace_verify_rank(&memory, &dmuon_trace_log_of(s->device)->trace, 3, &report));
  const dmuon_trace_finding *f = &report.findings[0];
  const int right =
      report.count == count &&
      (!count || (f->kind == kind && f->position == 3 && strstr(f->text, word) != NULL));
  tap_ok(right, "%s", what);
  for (int64_t i = 0; !right && i < report.count; i++)
    tap_diag("%s: %s", dmuon_trace_kind_names[report.findings[i].kind], report.findings[i].text);
}

static void end(stage *s) {
  s->ops->queue_destroy(s->a);
  s->ops->queue_destroy(s->b);
  s->ops->event_destroy(s->event);
  s->device->ops->destroy(s->device);
  tap_is_int(s->context.memory.bytes, 0, "everything was freed");
  dmuon_context_free(&s->context);
}

static void test_reads(void) {
  stage s;
  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->event_record(s.a, s.event));
  must(s.ops->event_wait(s.b, s.event));
  must(s.ops->copy(s.b, s.y, s.x, BYTES));
  judge(&s, 0, 0, "", "read behind a wait");
  must(s.ops->zero(s.a, s.x, 100));
  must(s.ops->copy(s.b, s.y, s.x, BYTES));
  judge(&s, 2, DMUON_TRACE_RACE_OVERWRITE, "no wait of left for right", "overwritten while read");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->copy(s.b, s.y, (char *)s.x + 8, 8));
  judge(&s, 1, DMUON_TRACE_RACE_READ, "buffer 0 (x of 7) bytes [8,16) read by",
        "read without a wait");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, 512));
  must(s.ops->event_record(s.a, s.event));
  must(s.ops->zero(s.a, (char *)s.x + 512, 512));
  must(s.ops->event_wait(s.b, s.event));
  must(s.ops->copy(s.b, s.y, s.x, 512));
  judge(&s, 0, 0, "", "half of it was recorded");
  must(s.ops->copy(s.b, (char *)s.y + 512, (char *)s.x + 512, 512));
  judge(&s, 1, DMUON_TRACE_RACE_READ, "[512,1024)", "the other half was not");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->queue_sync(s.a));
  must(s.ops->copy(s.b, s.y, s.x, BYTES));
  judge(&s, 0, 0, "", "what is issued comes behind what the host waited for");
  must(s.ops->event_record(s.b, s.event));
  must(s.ops->event_sync(s.event));
  must(s.ops->zero(s.a, s.x, BYTES));
  judge(&s, 0, 0, "", "and behind an event that it waited for");
  end(&s);
}

static void test_content(void) {
  stage s;
  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, 1000));
  must(s.ops->copy(s.a, s.y, s.x, BYTES));
  judge(&s, 1, DMUON_TRACE_UNDEFINED, "[1000,1024) read, but never written", "never written");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->discard(s.a, s.x, BYTES));
  must(s.ops->copy(s.a, s.y, s.x, 10));
  judge(&s, 1, DMUON_TRACE_UNDEFINED, "discarded by", "read when discarded");
  must(s.ops->discard(s.a, (char *)s.x + 20, 10));
  judge(&s, 2, DMUON_TRACE_UNDEFINED, "discarded by", "discarded twice");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  s.ops->free(s.device, s.x);
  judge(&s, 1, DMUON_TRACE_RACE_FREE, "no wait of the host thread for left", "freed in use");
  must(s.ops->copy(s.a, s.y, s.x, 10));
  judge(&s, 2, DMUON_TRACE_RACE_FREE, "freed by", "read when freed");
  end(&s);
}

static void test_caller(void) {
  stage s;
  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->lend(s.a));
  must(s.ops->reclaim(s.a, s.x, BYTES, 1));
  must(s.ops->copy(s.a, s.y, s.x, BYTES));
  judge(&s, 0, 0, "", "lent and reclaimed");
  must(s.ops->copy(s.b, s.y, s.x, BYTES));
  judge(&s, 2, DMUON_TRACE_RACE_READ, "no wait of right for the caller",
        "another queue must wait for what the caller did");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->reclaim(s.a, s.x, BYTES, 0));
  judge(&s, 1, DMUON_TRACE_RACE_READ, "no wait of the caller for left", "used without being lent");
  end(&s);

  begin(&s, 1000);
  must(s.ops->zero(s.a, s.x, BYTES));
  must(s.ops->lend(s.a));
  must(s.ops->zero(s.b, s.x, BYTES)); /* meanwhile */
  must(s.ops->reclaim(s.a, s.x, BYTES, 0));
  judge(&s, 2, DMUON_TRACE_RACE_OVERWRITE, "no wait of right for left", "overwritten while lent");
  end(&s);

  begin(&s, 1000);
  float mine[4] = {0};
  must(s.ops->copy(s.a, s.y, mine, sizeof mine));
  must(dmuon_trace_touch(s.device, mine, sizeof mine, 1));
  judge(&s, 1, DMUON_TRACE_RACE_OVERWRITE, "caller's array", "an array of the caller's in use");
  end(&s);
}

static void test_limit(void) {
  stage s;
  begin(&s, 4);
  for (int i = 0; i < 5; i++) must(s.ops->zero(s.a, s.x, BYTES));
  judge(&s, 1, DMUON_TRACE_FORGOTTEN, "came behind the 4", "a trace that is not whole says so");
  dmuon_trace_log_reset(dmuon_trace_log_of(s.device));
  must(s.ops->zero(s.a, s.x, BYTES));
  judge(&s, 0, 0, "", "emptied, it goes on");
  end(&s);
}

/* What operations answer that nobody carries out. */
static void test_answers(void) {
  stage s;
  float values[4] = {0};
  int64_t index = 7;
  dmuon_norm norm = {0};
  double seconds = 5;
  int done = 0;
  begin(&s, 1000);
  must(s.ops->find_nonfinite(s.a, &(dmuon_pack){.n = 4, .src = values}, &index, NULL));
  must(s.ops->norm(s.a, DMUON_FLOAT32, 1, 4, values, 4, &norm));
  must(s.ops->stamp(s.a, &seconds));
  must(s.ops->event_record(s.a, s.event));
  must(s.ops->event_test(s.event, &done));
  tap_ok(index == -1 && dmuon_norm_value(&norm) == 1 && seconds == 0 && done, "harmless answers");
  end(&s);
}

int main(void) {
  tap_plan(0);
  test_reads();
  test_content();
  test_caller();
  test_limit();
  test_answers();
  return tap_done();
}
