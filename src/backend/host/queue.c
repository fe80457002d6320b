/* Queues and events of the host backend, and what it means to wait for them.
 *
 * An event is no object that fires: recording it notes how many tasks its queue had by then, and it
 * is done when so many have finished. So it can be recorded again while somebody still waits for
 * the record before, and recording costs no task. */
#include "config.h"

#include "backend/host/engine_internal.h"

#include <sched.h>
#include <time.h>

enum { PASSES_BEFORE_SLEEP = 1000, SLEEP_NANOSECONDS = 50000, PASSES_A_LISTEN = 16 };

DMuonErrorCode dmuon_host_queue_create(dmuon_host_engine *engine, int high_priority,
                                       dmuon_queue **queue) {
  dmuon_queue *q = NULL;
  DMUON_TRY(dmuon_memory_alloc(&engine->context->memory, 1, sizeof *q, &q));
  q->engine = engine;
  q->high_priority = high_priority;
  q->references = 1;
  dmuon_queue **place = &engine->queues;
  while (*place && (*place)->high_priority >= high_priority) place = &(*place)->next;
  q->next = *place;
  *place = q;
  *queue = q;
  return DMUON_SUCCESS;
}

void dmuon_host_queue_release(dmuon_queue *queue) {
  if (--queue->references == 0) dmuon_memory_free(queue);
}

void dmuon_host_queue_destroy(dmuon_queue *queue) {
  if (!queue) return;
  dmuon_host_engine *engine = queue->engine;
  if (engine) {
    /* Communication given up halfway leaves the other ranks without a partner, and its channel
     * without an end. */
    for (dmuon_host_task *task = queue->head; task; task = task->next) {
      if (!task->channel || engine->failed) continue;
      dmuon_host_engine_break(
          engine, DMUON_ERROR(DMUON_ERR_INTERNAL, "a queue was destroyed with %s unfinished",
                              task->task_class->name));
      break;
    }
    dmuon_host_queue_drop(queue, engine->failed ? engine->failed : DMUON_ERR_INTERNAL);
    for (dmuon_queue **place = &engine->queues; *place; place = &(*place)->next) {
      if (*place != queue) continue;
      *place = queue->next;
      break;
    }
    queue->engine = NULL;
  }
  dmuon_host_queue_release(queue);
}

dmuon_host_engine *dmuon_host_queue_engine(dmuon_queue *queue) {
  return queue->engine;
}

/* What the heads of the ring's queues say that they wait for. */
static void describe_heads(const dmuon_host_engine *engine, dmuon_text *text) {
  const dmuon_host_engine *e = engine;
  const char *separator = "";
  do {
    for (const dmuon_queue *queue = e->queues; queue; queue = queue->next) {
      const dmuon_host_task *task = queue->head;
      if (!task || !task->task_class) continue;
      dmuon_text_add(text, "%s", separator);
      if (task->task_class->describe)
        task->task_class->describe(task->args.bytes, text);
      else
        dmuon_text_add(text, "%s", task->task_class->name);
      if (task->channel && task->channel->finished != task->turn)
        dmuon_text_add(text, " (behind %lld others)",
                       (long long)(task->turn - task->channel->finished));
      separator = "; ";
    }
    e = e->next;
  } while (e != engine);
}

static DMuonErrorCode time_out(dmuon_host_engine *engine) {
  dmuon_text text;
  dmuon_text_init(&text, &engine->context->memory);
  describe_heads(engine, &text);
  const char *heads = "";
  if (dmuon_text_finish(&text, &heads)) heads = "";
  DMuonErrorCode code =
      DMUON_ERROR(DMUON_ERR_TIMEOUT, "nothing moved for %g seconds, the timeout; waiting for: %s",
                  engine->timeout, *heads ? heads : "nothing that is ready");
  dmuon_host_engine_break(engine, code);
  dmuon_text_free(&text);
  return code;
}

/* Waits until the queue has finished `position` tasks: one compute task, then whatever came in, and
 * so on; when there is nothing to do, another process gets the processor. */
static DMuonErrorCode wait_for(dmuon_queue *queue, int64_t position) {
  dmuon_host_engine *engine = queue->engine;
  if (queue->finished >= position) return DMUON_SUCCESS;
  if (!engine || queue->failed) {
    if (engine) DMUON_TRY(dmuon_host_engine_check(engine));
    DMUON_FAIL(queue->failed ? queue->failed : DMUON_ERR_INTERNAL,
               "the queue waited for was destroyed with work unfinished");
  }
  if (engine->communicating || engine->computing)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "a task waits for its own engine");
  int64_t progress = -1;
  double since = 0;
  int fruitless = 0;
  for (;;) {
    DMUON_TRY(dmuon_host_engine_check(engine));
    dmuon_host_ring_communicate(engine);
    if (queue->finished >= position) return DMUON_SUCCESS;
    int ran = dmuon_host_ring_compute(engine);
    if (queue->finished >= position) return DMUON_SUCCESS;
    DMUON_TRY(dmuon_host_engine_check(engine));
    int64_t now_progress = dmuon_host_ring_progress(engine);
    double now = dmuon_host_seconds();
    if (ran || now_progress != progress) {
      progress = now_progress;
      fruitless = 0;
      if (now - engine->listened > DMUON_HOST_LISTEN_SECONDS) dmuon_host_engine_listen(engine, now);
      continue;
    }
    if (fruitless++ == 0) since = now;
    const int late = engine->timeout > 0 && now - since > engine->timeout;
    if (late || fruitless % PASSES_A_LISTEN == 0) {
      dmuon_host_engine_listen(engine, now); /* before everybody says what one has said */
      DMUON_TRY(dmuon_host_engine_check(engine));
    }
    if (late) DMUON_TRY(time_out(engine));
    sched_yield();
    if (fruitless > PASSES_BEFORE_SLEEP) {
      struct timespec nap = {0, SLEEP_NANOSECONDS};
      nanosleep(&nap, NULL);
    }
    engine->idle_seconds += dmuon_host_seconds() - now;
  }
}

DMuonErrorCode dmuon_host_queue_sync(dmuon_queue *queue) {
  if (queue->engine) DMUON_TRY(dmuon_host_engine_check(queue->engine));
  DMUON_TRY(wait_for(queue, queue->issued));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_event_create(dmuon_host_engine *engine, dmuon_event **event) {
  dmuon_event *e = NULL;
  DMUON_TRY(dmuon_memory_alloc(&engine->context->memory, 1, sizeof *e, &e));
  *event = e;
  return DMUON_SUCCESS;
}

void dmuon_host_event_destroy(dmuon_event *event) {
  if (!event) return;
  if (event->queue) dmuon_host_queue_release(event->queue);
  dmuon_memory_free(event);
}

DMuonErrorCode dmuon_host_event_record(dmuon_queue *queue, dmuon_event *event) {
  DMUON_TRY(dmuon_host_engine_check(queue->engine));
  queue->references++;
  if (event->queue) dmuon_host_queue_release(event->queue);
  event->queue = queue;
  event->position = queue->issued;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_event_wait(dmuon_queue *queue, dmuon_event *event) {
  dmuon_host_engine *engine = queue->engine;
  DMUON_TRY(dmuon_host_engine_check(engine));
  /* Done already, or earlier on the same queue: no edge is missing. */
  if (!event->queue || event->queue == queue || event->queue->finished >= event->position)
    return DMUON_SUCCESS;
  dmuon_host_task *task = NULL;
  DMUON_TRY(dmuon_host_task_take(engine, &task));
  task->awaited = event->queue;
  task->position = event->position;
  task->awaited->references++;
  dmuon_host_task_append(queue, task);
  DMUON_TRY(dmuon_host_engine_after_issue(engine));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_event_test(dmuon_event *event, int *done) {
  dmuon_queue *queue = event->queue;
  if (queue && queue->finished < event->position) {
    if (queue->failed || !queue->engine) DMUON_TRY(wait_for(queue, event->position));
    DMUON_TRY(dmuon_host_engine_progress(queue->engine));
  }
  *done = !queue || queue->finished >= event->position;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_event_sync(dmuon_event *event) {
  if (event->queue) DMUON_TRY(wait_for(event->queue, event->position));
  return DMUON_SUCCESS;
}
