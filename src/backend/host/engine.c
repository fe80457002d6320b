/* The task engine: how tasks are kept, in which order they run, what becomes of failures. Queues,
 * events and waiting are in queue.c; what a task does is in the files that issue it.
 *
 * Two kinds of passes move things. Communication (and waits for events, which cost nothing) is
 * advanced in every pass of every engine of the ring, also from inside a compute task that polls.
 * Compute is run one task at a time and never from inside another task, so nothing here recurses
 * deeper than compute task, poll, communication task. */
#include "config.h"

#include "backend/host/engine_internal.h"

#include <string.h>
#include <time.h>

#include "base/random.h"

enum { TASKS_PER_BLOCK = 64 };

double dmuon_host_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

DMuonErrorCode dmuon_host_engine_create(dmuon_context *context, dmuon_host_engine **engine) {
  dmuon_host_engine *e = NULL;
  DMUON_TRY(dmuon_memory_alloc(&context->memory, 1, sizeof *e, &e));
  e->context = context;
  e->next = e->previous = e;
  *engine = e;
  return DMUON_SUCCESS;
}

void dmuon_host_engine_destroy(dmuon_host_engine *engine) {
  if (!engine) return;
  dmuon_host_engine *remaining = engine->next == engine ? NULL : engine->next;
  engine->previous->next = engine->next;
  engine->next->previous = engine->previous;
  if (engine->leave) engine->leave(engine, remaining);
  while (engine->queues) {
    dmuon_queue *queue = engine->queues;
    engine->queues = queue->next;
    dmuon_host_queue_drop(queue, engine->failed ? engine->failed : DMUON_ERR_INTERNAL);
    queue->engine = NULL;
  }
  while (engine->blocks) {
    dmuon_host_block *block = engine->blocks;
    engine->blocks = block->next;
    dmuon_memory_free(block->tasks);
    dmuon_memory_free(block);
  }
  dmuon_memory_free(engine->scratch);
  dmuon_memory_free(engine);
}

void dmuon_host_engine_set_deferred(dmuon_host_engine *engine, int deferred, uint64_t seed) {
  engine->deferred = deferred;
  engine->seed = seed;
  engine->draws = 0;
}

int dmuon_host_engine_is_deferred(const dmuon_host_engine *engine) {
  return engine->deferred;
}

void dmuon_host_engine_set_timeout(dmuon_host_engine *engine, double seconds) {
  engine->timeout = seconds;
}

void dmuon_host_engine_set_delay(dmuon_host_engine *engine, double seconds) {
  engine->delay = seconds;
}

double dmuon_host_engine_delay(const dmuon_host_engine *engine) {
  return engine->delay;
}

double dmuon_host_engine_idle_seconds(const dmuon_host_engine *engine) {
  return engine->idle_seconds;
}

dmuon_context *dmuon_host_engine_context(const dmuon_host_engine *engine) {
  return engine->context;
}

void dmuon_host_engine_on_leave(dmuon_host_engine *engine,
                                void (*leave)(dmuon_host_engine *engine,
                                              dmuon_host_engine *remaining)) {
  engine->leave = leave;
}

void dmuon_host_engine_on_wait(dmuon_host_engine *engine, void (*listen)(void)) {
  engine->listen = listen;
}

void dmuon_host_engine_listen(dmuon_host_engine *engine, double now) {
  engine->listened = now;
  if (engine->listen) engine->listen();
}

void dmuon_host_engine_link(dmuon_host_engine *engine, dmuon_host_engine *other) {
  if (!other) return;
  for (dmuon_host_engine *e = engine->next; e != engine; e = e->next)
    if (e == other) return;
  if (other == engine) return;
  /* Two rings become one: their ends are crossed over. */
  dmuon_host_engine *after = engine->next, *before = other->previous;
  engine->next = other;
  other->previous = engine;
  before->next = after;
  after->previous = before;
}

void dmuon_host_engine_note_progress(dmuon_host_engine *engine) {
  engine->progress++;
}

int64_t dmuon_host_ring_progress(const dmuon_host_engine *engine) {
  const dmuon_host_engine *e = engine;
  int64_t sum = 0;
  do {
    sum += e->progress;
    e = e->next;
  } while (e != engine);
  return sum;
}

/* Tasks. */

DMuonErrorCode dmuon_host_engine_reserve(dmuon_host_engine *engine, int64_t operations) {
  int64_t missing = operations - engine->task_capacity;
  if (missing <= 0) return DMUON_SUCCESS;
  dmuon_memory *memory = &engine->context->memory;
  dmuon_host_block *block = NULL;
  dmuon_host_task *tasks = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, missing, sizeof *tasks, &tasks));
  DMuonErrorCode code = dmuon_memory_alloc(memory, 1, sizeof *block, &block);
  if (code) {
    dmuon_memory_free(tasks);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  for (int64_t i = 0; i < missing; i++) {
    tasks[i].next = engine->free_tasks;
    engine->free_tasks = &tasks[i];
  }
  block->tasks = tasks;
  block->next = engine->blocks;
  engine->blocks = block;
  engine->task_capacity += missing;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_task_take(dmuon_host_engine *engine, dmuon_host_task **task) {
  if (!engine->free_tasks)
    DMUON_TRY(dmuon_host_engine_reserve(engine, engine->task_capacity + TASKS_PER_BLOCK));
  *task = engine->free_tasks;
  engine->free_tasks = (*task)->next;
  (*task)->next = NULL;
  (*task)->task_class = NULL;
  (*task)->channel = NULL;
  (*task)->awaited = NULL;
  return DMUON_SUCCESS;
}

void dmuon_host_task_append(dmuon_queue *queue, dmuon_host_task *task) {
  if (queue->tail)
    queue->tail->next = task;
  else
    queue->head = task;
  queue->tail = task;
  queue->issued++;
}

static void task_unlink_head(dmuon_queue *queue) {
  dmuon_host_task *task = queue->head;
  queue->head = task->next;
  if (!queue->head) queue->tail = NULL;
  dmuon_queue *awaited = task->awaited;
  task->next = queue->engine->free_tasks;
  queue->engine->free_tasks = task;
  if (awaited) dmuon_host_queue_release(awaited);
}

static void task_finish_head(dmuon_queue *queue) {
  dmuon_host_channel *channel = queue->head->channel;
  task_unlink_head(queue);
  queue->finished++;
  if (channel) channel->finished++;
  queue->engine->progress++;
}

void dmuon_host_queue_drop(dmuon_queue *queue, DMuonErrorCode code) {
  if (!queue->head) return;
  queue->failed = code;
  while (queue->head) {
    dmuon_host_task *task = queue->head;
    if (task->task_class && task->task_class->give_up)
      task->task_class->give_up(queue->engine, task->args.bytes);
    task_unlink_head(queue);
  }
}

static int is_active(const dmuon_host_engine *engine) {
  return engine->communicating || engine->computing;
}

static void drop_if_broken(dmuon_host_engine *engine) {
  if (!engine->failed || is_active(engine)) return;
  for (dmuon_queue *queue = engine->queues; queue; queue = queue->next)
    dmuon_host_queue_drop(queue, engine->failed);
}

void dmuon_host_engine_break(dmuon_host_engine *engine, DMuonErrorCode code) {
  if (engine->failed) return;
  engine->failed = DMuonErrorIsFatal(code) ? code : DMUON_ERR_DEVICE;
  const char *text = dmuon_error_text();
  size_t length = strlen(text);
  if (length >= sizeof engine->message) length = sizeof engine->message - 1;
  memcpy(engine->message, text, length);
  engine->message[length] = 0;
  drop_if_broken(engine);
}

DMuonErrorCode dmuon_host_engine_check(const dmuon_host_engine *engine) {
  if (engine->failed) DMUON_FAIL(engine->failed, "%s", engine->message);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_engine_issue(dmuon_queue *queue, const dmuon_host_task_class *task_class,
                                       dmuon_host_channel *channel, const void *args,
                                       size_t args_bytes) {
  dmuon_host_engine *engine = queue->engine;
  if (args_bytes > DMUON_HOST_TASK_BYTES)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "arguments of %s take %zu bytes, a task has room for %d",
               task_class->name, args_bytes, DMUON_HOST_TASK_BYTES);
  DMUON_TRY(dmuon_host_engine_check(engine));
  dmuon_host_task *task = NULL;
  DMUON_TRY(dmuon_host_task_take(engine, &task));
  task->task_class = task_class;
  task->channel = channel;
  if (channel) task->turn = channel->issued++;
  if (args_bytes) memcpy(task->args.bytes, args, args_bytes);
  dmuon_host_task_append(queue, task);
  DMUON_TRY(dmuon_host_engine_after_issue(engine));
  return DMUON_SUCCESS;
}

/* Passes. */

/* Advances the wait or communication at the head of queue; nonzero when it finished. */
static int communicate_head(dmuon_host_engine *engine, dmuon_queue *queue) {
  dmuon_host_task *task = queue->head;
  int done = 0;
  if (task->awaited) {
    dmuon_queue *awaited = task->awaited;
    done = awaited->finished >= task->position;
    if (!done && awaited->failed) {
      dmuon_host_engine_break(
          engine,
          DMUON_ERROR(awaited->failed, "a queue waits for work that was given up elsewhere"));
      return 0;
    }
  } else {
    if (task->channel->finished != task->turn) return 0;
    DMuonErrorCode code = task->task_class->advance(engine, task->args.bytes, &done);
    if (code) dmuon_host_engine_break(engine, code);
    if (engine->failed) return 0;
  }
  if (done) task_finish_head(queue);
  return done;
}

/* Repeats while something finishes, since that may make others ready: when it returns, every
 * communication that can start has started. */
static void engine_communicate(dmuon_host_engine *engine) {
  if (engine->failed || engine->communicating) return;
  engine->communicating = 1;
  int finished;
  do {
    finished = 0;
    for (dmuon_queue *queue = engine->queues; queue; queue = queue->next) {
      while (!engine->failed && queue->head && (queue->head->awaited || queue->head->channel)) {
        if (!communicate_head(engine, queue)) break;
        finished = 1;
      }
    }
  } while (finished && !engine->failed);
  engine->communicating = 0;
  drop_if_broken(engine);
}

void dmuon_host_ring_communicate(dmuon_host_engine *engine) {
  dmuon_host_engine *e = engine;
  do {
    engine_communicate(e);
    e = e->next;
  } while (e != engine);
}

static int has_ready_compute(const dmuon_queue *queue) {
  return queue->head && !queue->head->awaited && !queue->head->channel;
}

/* Eager: the first ready one, high priority queues first. Deferred: by seed. */
static dmuon_queue *choose_compute(dmuon_host_engine *engine) {
  int ready = 0;
  for (dmuon_queue *queue = engine->queues; queue; queue = queue->next) {
    if (!has_ready_compute(queue)) continue;
    if (!engine->deferred) return queue;
    ready++;
  }
  if (!ready) return NULL;
  int chosen = (int)(dmuon_random_bits(engine->seed, 0, engine->draws++) % (uint64_t)ready);
  for (dmuon_queue *queue = engine->queues; queue; queue = queue->next)
    if (has_ready_compute(queue) && chosen-- == 0) return queue;
  return NULL;
}

static int engine_compute(dmuon_host_engine *engine) {
  if (engine->failed || is_active(engine)) return 0;
  dmuon_queue *queue = choose_compute(engine);
  if (!queue) return 0;
  dmuon_host_task *task = queue->head;
  int done = 0;
  engine->computing = 1;
  DMuonErrorCode code = task->task_class->advance(engine, task->args.bytes, &done);
  engine->computing = 0;
  if (code)
    dmuon_host_engine_break(engine, code);
  else if (done && !engine->failed)
    task_finish_head(queue);
  drop_if_broken(engine);
  return 1;
}

int dmuon_host_ring_compute(dmuon_host_engine *engine) {
  dmuon_host_engine *e = engine;
  int ran = 0;
  do {
    ran |= engine_compute(e);
    e = e->next;
  } while (e != engine);
  return ran;
}

DMuonErrorCode dmuon_host_engine_poll(dmuon_host_engine *engine) {
  if (!engine->communicating) {
    dmuon_host_ring_communicate(engine);
    const double now = dmuon_host_seconds();
    if (now - engine->listened > DMUON_HOST_LISTEN_SECONDS) dmuon_host_engine_listen(engine, now);
  }
  DMUON_TRY(dmuon_host_engine_check(engine));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_engine_progress(dmuon_host_engine *engine) {
  if (!engine->communicating) {
    dmuon_host_ring_communicate(engine);
    /* A deferred engine does one piece a pass, so that somebody who progresses for long (the wait
     * of another layer) gets everything done, and somebody who does it once does not. */
    while (!is_active(engine) && dmuon_host_ring_compute(engine)) {
      dmuon_host_ring_communicate(engine);
      if (engine->deferred) break;
    }
  }
  DMUON_TRY(dmuon_host_engine_check(engine));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_engine_after_issue(dmuon_host_engine *engine) {
  if (engine->deferred || is_active(engine)) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_host_engine_progress(engine));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_engine_scratch(dmuon_host_engine *engine, int64_t bytes, void **ptr) {
  if (bytes > engine->scratch_bytes) {
    void *larger = NULL;
    DMUON_TRY(dmuon_memory_alloc(&engine->context->memory, bytes, 1, &larger));
    dmuon_memory_free(engine->scratch);
    engine->scratch = larger;
    engine->scratch_bytes = bytes;
  }
  *ptr = engine->scratch;
  return DMUON_SUCCESS;
}
