/* The host's task engine with tasks of the test's own: order, events, deferred runs that must give
 * the eager bits (and must not when a wait is missing), timeouts, failures, allocation. */
#include "tap.h"

#include "backend/host/engine.h"
#include "backend/host/host.h"
#include "base/random.h"

static void must(DMuonErrorCode code) {
  if (!code) return;
  tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(0, "a call failed");
  exit(1);
}

/* A communication that needs so many passes, then copies a number. */
typedef struct {
  int passes; /* -1: never done */
  int moves;  /* says that it gets on */
  const float *from;
  float *to;
} fake_args;

static int fake_advances;

static DMuonErrorCode fake_advance(dmuon_host_engine *engine, void *args, int *done) {
  fake_args *f = args;
  fake_advances++;
  if (f->moves) dmuon_host_engine_note_progress(engine);
  if (f->moves && f->passes < 0 && fake_advances > f->moves) f->moves = 0;
  if (f->passes < 0 || f->passes-- > 0) return DMUON_SUCCESS;
  if (f->to) *f->to = *f->from;
  *done = 1;
  return DMUON_SUCCESS;
}
static void fake_describe(const void *args, dmuon_text *text) {
  (void)args;
  dmuon_text_add(text, "fake from rank %d", 3);
}
static const dmuon_host_task_class fake = {
    .name = "fake", .advance = fake_advance, .describe = fake_describe};

static DMuonErrorCode failing_advance(dmuon_host_engine *engine, void *args, int *done) {
  (void)engine, (void)args, (void)done;
  DMUON_FAIL(DMUON_ERR_PEER, "rank 5 is gone");
}
static const dmuon_host_task_class failing = {.name = "failing", .advance = failing_advance};

static dmuon_queue *inner_queue;
static float inner_target;
static DMuonErrorCode issuing_advance(dmuon_host_engine *engine, void *args, int *done) {
  (void)engine, (void)args;
  static const float two = 2;
  fake_args f = {0, 0, &two, &inner_target};
  static dmuon_host_channel channel;
  must(dmuon_host_engine_issue(inner_queue, &fake, &channel, &f, sizeof f));
  *done = 1;
  return DMUON_SUCCESS;
}
static const dmuon_host_task_class issuing = {.name = "issuing", .advance = issuing_advance};

enum { N = 64, ROUNDS = 6 };

/* Three queues, two channels, events recorded again and again: x is worked on, sent (fake) to y, y
 * goes into z, and x may change only when it has been sent. missing leaves out one of the waits. */
static void pipeline(dmuon_device *device, int missing, float *result) {
  const DMuonDeviceOps *ops = device->ops;
  dmuon_queue *work, *wire, *sum;
  dmuon_event *ready, *sent, *used;
  dmuon_host_channel channel = {0, 0}, other = {0, 0};
  static float x[N], y[N], z[N], one[N];
  for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = z[i] = 0, one[i] = 1.5f;
  must(ops->queue_create(device, 0, &work));
  must(ops->queue_create(device, 1, &wire));
  must(ops->queue_create(device, 0, &sum));
  must(ops->event_create(device, &ready));
  must(ops->event_create(device, &sent));
  must(ops->event_create(device, &used));
  for (int r = 0; r < ROUNDS; r++) {
    if (missing != 1) must(ops->event_wait(work, sent)); /* x may not change while it is sent */
    must(ops->axpby(work, N, DMUON_FLOAT32, 0.5, one, 1.25, x));
    must(ops->event_record(work, ready));
    if (missing != 2) must(ops->event_wait(wire, ready));
    if (missing != 3) must(ops->event_wait(wire, used)); /* y may not change before it is used */
    for (int i = 0; i < N; i++) {
      fake_args f = {i % 3, 0, x + i, y + i};
      must(dmuon_host_engine_issue(wire, &fake, i & 1 ? &channel : &other, &f, sizeof f));
    }
    must(ops->event_record(wire, sent));
    if (missing != 4) must(ops->event_wait(sum, sent));
    must(ops->axpby(sum, N, DMUON_FLOAT32, 1, y, 0.75, z));
    must(ops->axpby(sum, N, DMUON_FLOAT32, 0.125, one, 1, z));
    must(ops->event_record(sum, used));
    int done;
    must(ops->event_test(used, &done));
  }
  must(ops->event_sync(used));
  must(ops->queue_sync(work));
  must(ops->queue_sync(wire));
  must(ops->queue_sync(sum));
  memcpy(result, x, sizeof x);
  memcpy(result + N, y, sizeof y);
  memcpy(result + 2 * N, z, sizeof z);
  ops->event_destroy(ready), ops->event_destroy(sent), ops->event_destroy(used);
  ops->queue_destroy(work), ops->queue_destroy(wire), ops->queue_destroy(sum);
}

static void run_pipeline(dmuon_context *context, int deferred, uint64_t seed, int missing,
                         float *result) {
  dmuon_device *device = NULL;
  must(dmuon_host_device_create(context, deferred, seed, &device));
  pipeline(device, missing, result);
  device->ops->destroy(device);
}

static void test_deferred(dmuon_context *context) {
  float eager[3 * N], deferred[3 * N];
  run_pipeline(context, 0, 0, 0, eager);
  int same = 1;
  for (uint64_t seed = 0; seed < 20; seed++) {
    run_pipeline(context, 1, seed, 0, deferred);
    same &= !memcmp(eager, deferred, sizeof eager);
  }
  tap_ok(same, "20 deferred runs give the bits of the eager one");
  double x = 3, z = 0; /* element 3, in double, for what the eager bits should be */
  for (int r = 0; r < ROUNDS; r++) {
    x = 1.25 * x + 0.75;
    z = 0.75 * z + x + 0.1875;
  }
  tap_is_near(eager[3], x, 1e-5, "the pipeline computes what it should");
  tap_is_near(eager[2 * N + 3], z, 1e-5, "and its last queue too");
  for (int missing = 1; missing <= 4; missing++) {
    int shown = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
      run_pipeline(context, 1, seed, missing, deferred);
      shown += memcmp(eager, deferred, sizeof eager) != 0;
    }
    tap_ok(shown > 0, "leaving out wait %d changes the result of some deferred run", missing);
    tap_diag("wait %d missing: %d of 20 seeds show it", missing, shown);
  }
}

static void test_freed_memory(dmuon_context *context) {
  dmuon_device *device = NULL;
  must(dmuon_host_device_create(context, 1, 0, &device));
  float *buffer = NULL;
  void *ptr = NULL;
  must(device->ops->alloc(device, 4 * (int64_t)sizeof *buffer, &ptr));
  buffer = ptr;
  tap_ok((uintptr_t)ptr % 256 == 0, "buffers are 256-byte aligned");
  tap_ok(isnan(buffer[0]) && isnan(buffer[3]), "a new buffer holds NaN in deferred mode");
  device->ops->free(device, ptr);
  device->ops->free(device, NULL);
  int64_t before = context->memory.bytes;
  must(device->ops->alloc(device, 0, &ptr));
  device->ops->free(device, ptr);
  tap_is_int(context->memory.bytes, before, "an empty buffer is given back");
  device->ops->destroy(device);
}

static void test_events(dmuon_context *context) {
  dmuon_device *device = NULL, *second = NULL;
  must(dmuon_host_device_create(context, 1, 3, &device));
  must(dmuon_host_device_create(context, 0, 0, &second));
  const DMuonDeviceOps *ops = device->ops;
  dmuon_queue *q = NULL, *other = NULL;
  dmuon_event *event = NULL;
  static float a[4] = {1, 2, 3, 4}, b[4], c[4];
  int done = 0;
  must(ops->queue_create(device, 0, &q));
  must(ops->queue_create(second, 0, &other));
  must(ops->event_create(device, &event));
  must(ops->event_test(event, &done));
  tap_ok(done, "an event never recorded is done");
  must(ops->event_sync(event));
  /* A wait means the record before it, not a later one: q never gets to the second. */
  must(ops->axpby(q, 4, DMUON_FLOAT32, 2, a, 0, b));
  tap_ok(b[0] == 0, "deferred: nothing starts when issued");
  must(ops->event_record(q, event));
  must(ops->event_wait(other, event));
  must(ops->axpby(other, 4, DMUON_FLOAT32, 1, b, 0, c));
  tap_ok(c[3] == 0, "a queue of another engine waits");
  dmuon_host_engine_link(dmuon_host_device_engine(device), dmuon_host_device_engine(second));
  fake_args never = {-1, 0, NULL, NULL};
  dmuon_host_channel channel = {0, 0};
  must(dmuon_host_engine_issue(q, &fake, &channel, &never, sizeof never));
  must(ops->event_record(q, event));
  must(ops->queue_sync(other));
  tap_ok(c[3] == 8, "the wait ended with the record before it");
  must(ops->event_test(event, &done));
  tap_ok(!done, "the event recorded again is not done");
  /* The ring's other engine times out alone. */
  dmuon_host_device_set_timeout(device, 0.05);
  tap_is_int(ops->event_sync(event), DMUON_ERR_TIMEOUT, "event_sync ends with the timeout");
  tap_contains(DMuonErrorGetMessage(), "fake from rank 3", "the message says what was waited for");
  tap_contains(DMuonErrorGetMessage(), "0.05 seconds", "and how long");
  tap_is_int(ops->axpby(q, 4, DMUON_FLOAT32, 1, a, 0, c), DMUON_ERR_TIMEOUT,
             "then every call says so");
  tap_is_int(ops->queue_sync(q), DMUON_ERR_TIMEOUT, "queue_sync too");
  tap_contains(DMuonErrorGetMessage(), "fake from rank 3", "with the first message");
  tap_is_int(ops->axpby(other, 4, DMUON_FLOAT32, 1, a, 0, c), 0, "the other engine works on");
  tap_is_int(ops->event_wait(other, event), DMUON_ERR_TIMEOUT,
             "but cannot wait for work that was given up");
  ops->queue_destroy(q), ops->queue_destroy(other);
  ops->event_destroy(event);
  ops->destroy(device), ops->destroy(second);
}

static void test_timeout_is_without_progress(dmuon_context *context) {
  dmuon_device *device = NULL;
  dmuon_queue *q = NULL;
  must(dmuon_host_device_create(context, 0, 0, &device));
  must(device->ops->queue_create(device, 0, &q));
  dmuon_host_device_set_timeout(device, 0.02);
  dmuon_host_channel channel = {0, 0};
  fake_advances = 0;
  fake_args moving = {-1, 3000, NULL, NULL}; /* moves for 3000 passes, then no more */
  must(dmuon_host_engine_issue(q, &fake, &channel, &moving, sizeof moving));
  tap_is_int(device->ops->queue_sync(q), DMUON_ERR_TIMEOUT, "a task that stops moving times out");
  tap_ok(fake_advances > 3000, "but not while it moves");
  device->ops->queue_destroy(q);
  device->ops->destroy(device);
}

static void test_failures(dmuon_context *context) {
  dmuon_device *device = NULL;
  dmuon_queue *q = NULL, *waiting = NULL;
  dmuon_event *event = NULL;
  must(dmuon_host_device_create(context, 1, 0, &device));
  const DMuonDeviceOps *ops = device->ops;
  must(ops->queue_create(device, 0, &q));
  must(ops->queue_create(device, 0, &waiting));
  must(ops->event_create(device, &event));
  float x = 1, y = 0;
  must(dmuon_host_engine_issue(q, &failing, NULL, NULL, 0));
  must(ops->event_record(q, event));
  must(ops->event_wait(waiting, event));
  must(ops->axpby(waiting, 1, DMUON_FLOAT32, 1, &x, 0, &y));
  tap_is_int(ops->queue_sync(waiting), DMUON_ERR_PEER, "a task's error comes out of a wait");
  tap_contains(DMuonErrorGetMessage(), "rank 5 is gone", "with its message");
  tap_is_int(ops->progress(device), DMUON_ERR_PEER, "and out of every later call");
  tap_ok(y == 0, "what waited for it was not run");
  ops->queue_destroy(q), ops->queue_destroy(waiting);
  ops->event_destroy(event);
  ops->destroy(device);

  must(dmuon_host_device_create(context, 0, 0, &device));
  must(ops->queue_create(device, 0, &q));
  DMuonErrorCode code = DMUON_ERROR(DMUON_ERR_REVOKED, "given up by the program");
  dmuon_host_device_break(device, code);
  tap_is_int(ops->zero(q, &y, 4), DMUON_ERR_REVOKED, "a broken device refuses work");
  tap_contains(DMuonErrorGetMessage(), "given up by the program", "with the message it broke with");
  ops->queue_destroy(q);
  ops->queue_destroy(NULL), ops->event_destroy(NULL);
  ops->destroy(device);
}

static void test_progress_inside_compute(dmuon_context *context) {
  dmuon_device *device = NULL;
  dmuon_queue *wire = NULL, *work = NULL;
  must(dmuon_host_device_create(context, 0, 0, &device));
  const DMuonDeviceOps *ops = device->ops;
  must(ops->queue_create(device, 0, &wire));
  must(ops->queue_create(device, 0, &work));
  dmuon_host_channel channel = {0, 0};
  static const float three = 3;
  float to = 0;
  const int64_t m = 800;
  void *a = NULL, *c = NULL;
  must(ops->alloc(device, m * m * 4, &a));
  must(ops->alloc(device, m * m * 4, &c));
  must(ops->zero(work, a, m * m * 4));
  fake_args f = {8, 0, &three, &to};
  must(dmuon_host_engine_issue(wire, &fake, &channel, &f, sizeof f));
  tap_ok(to == 0, "a communication under way");
  must(ops->gemm(work, DMUON_FLOAT32, 0, 0, m, m, m, 1, a, m, a, m, 0, c, m, NULL));
  tap_ok(to == 3, "ends inside a long product");
  /* One channel: the second starts after the first, though its queue is free. */
  float first = 0, second = 0;
  fake_args late = {40, 0, &three, &first}, early = {0, 0, &first, &second};
  must(dmuon_host_engine_issue(wire, &fake, &channel, &late, sizeof late));
  must(dmuon_host_engine_issue(work, &fake, &channel, &early, sizeof early));
  must(ops->queue_sync(work));
  tap_ok(second == 3, "tasks of one channel run one after another across queues");
  inner_queue = wire;
  must(dmuon_host_engine_issue(work, &issuing, NULL, NULL, 0));
  must(ops->queue_sync(wire));
  tap_ok(inner_target == 2, "a task may issue another");
  ops->free(device, a), ops->free(device, c);
  ops->queue_destroy(wire), ops->queue_destroy(work);
  ops->destroy(device);
}

static dmuon_host_engine *left_with;
static int leaves;
static void on_leave(dmuon_host_engine *engine, dmuon_host_engine *remaining) {
  (void)engine;
  left_with = remaining;
  leaves++;
}

static void test_ring(dmuon_context *context) {
  dmuon_host_engine *e[4];
  dmuon_queue *q[4];
  dmuon_host_channel channel[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  static const float one = 1;
  float to[4] = {0};
  for (int i = 0; i < 4; i++) {
    must(dmuon_host_engine_create(context, &e[i]));
    dmuon_host_engine_on_leave(e[i], on_leave);
    must(dmuon_host_queue_create(e[i], 0, &q[i]));
  }
  dmuon_host_engine_link(e[1], e[0]);
  dmuon_host_engine_link(e[3], e[2]);
  dmuon_host_engine_link(e[3], e[1]);
  dmuon_host_engine_link(e[3], e[1]); /* again: nothing changes */
  for (int i = 0; i < 4; i++) {
    fake_args f = {5, 0, &one, &to[i]};
    must(dmuon_host_engine_issue(q[i], &fake, &channel[i], &f, sizeof f));
  }
  for (int k = 0; k < 8; k++) must(dmuon_host_engine_poll(e[2]));
  tap_ok(to[0] + to[1] + to[2] + to[3] == 4, "one poll advances all engines of the ring");
  for (int i = 0; i < 4; i++) dmuon_host_queue_destroy(q[i]);
  for (int i = 0; i < 4; i++) {
    dmuon_host_engine_destroy(e[i]);
    tap_ok(leaves == i + 1 && (left_with != NULL) == (i < 3), "engine %d leaves, %s", i,
           i < 3 ? "others remain" : "the last");
  }
}

static void test_allocation(dmuon_context *context) {
  dmuon_device *device = NULL;
  dmuon_queue *q = NULL;
  dmuon_event *event = NULL;
  must(dmuon_host_device_create(context, 1, 0, &device));
  const DMuonDeviceOps *ops = device->ops;
  must(ops->queue_create(device, 0, &q));
  must(ops->event_create(device, &event));
  must(ops->reserve(device, 200));
  must(ops->reserve_matrix(q, DMUON_FLOAT16, 30, 50));
  static uint16_t a[1500], b[1500], c[1500];
  int64_t before = context->memory.allocations;
  for (int i = 0; i < 200; i++)
    must(ops->gemm(q, DMUON_FLOAT16, 0, 1, 30, 30, 50, 1, a, 50, b, 50, 0, c, 30, NULL));
  must(ops->event_record(q, event));
  must(ops->event_sync(event));
  tap_is_int(context->memory.allocations - before, 0, "nothing is allocated within the reserve");
  for (int i = 0; i < 201; i++) must(ops->zero(q, c, 10));
  tap_ok(context->memory.allocations > before, "beyond it the engine grows");
  must(ops->queue_sync(q));
  context->memory.fail_at = context->memory.allocations + 1;
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < 1000 && !code; i++) code = ops->zero(q, c, 10);
  tap_is_int(code, DMUON_ERR_MEMORY, "a failed allocation is said when issuing");
  context->memory.fail_at = 0;
  tap_is_int(ops->queue_sync(q), 0, "and breaks nothing");
  ops->event_destroy(event);
  ops->queue_destroy(q);
  ops->destroy(device);
}

int main(void) {
  dmuon_context context;
  tap_plan(0);
  dmuon_context_init(&context);
  test_deferred(&context);
  test_freed_memory(&context);
  test_events(&context);
  test_timeout_is_without_progress(&context);
  test_failures(&context);
  test_progress_inside_compute(&context);
  test_ring(&context);
  test_allocation(&context);
  tap_is_int(context.memory.bytes, 0, "everything was freed");
  dmuon_context_free(&context);
  return tap_done();
}
