/* The structures of the task engine, shared by its files: engine.c (tasks and how they run),
 * queue.c (queues, events, waits), buffer.c (memory). Nobody else includes this. */
#ifndef DMUON_BACKEND_HOST_ENGINE_INTERNAL_H
#define DMUON_BACKEND_HOST_ENGINE_INTERNAL_H

#include <stddef.h>

#include "backend/host/engine.h"

/* As often somebody listens who has something to do. */
#define DMUON_HOST_LISTEN_SECONDS 0.005

typedef struct dmuon_host_task dmuon_host_task;
struct dmuon_host_task {
  dmuon_host_task *next; /* in its queue, or in the free list */
  const dmuon_host_task_class *task_class;
  dmuon_host_channel *channel; /* NULL: compute, or a wait */
  int64_t turn;                /* of the channel: runs when so many have finished */
  dmuon_queue *awaited;        /* a wait: for `position` of this queue; holds a reference */
  int64_t position;
  union {
    max_align_t align;
    unsigned char bytes[DMUON_HOST_TASK_BYTES];
  } args;
};

/* Tasks are allocated in blocks that live as long as the engine. */
typedef struct dmuon_host_block dmuon_host_block;
struct dmuon_host_block {
  dmuon_host_block *next;
  dmuon_host_task *tasks;
};

typedef struct dmuon_host_buffer dmuon_host_buffer; /* buffer.c */

struct dmuon_queue {
  dmuon_host_engine *engine; /* NULL once the engine is gone */
  dmuon_queue *next;         /* in the engine's list, high priority first */
  dmuon_host_task *head, *tail;
  int64_t issued, finished; /* tasks; event records are positions in this count */
  int high_priority;
  int references;        /* the handle, events recorded here, waits for them */
  DMuonErrorCode failed; /* what became of the unfinished tasks, when they were dropped */
};

struct dmuon_event {
  dmuon_queue *queue; /* last recorded here; NULL: never, which counts as done */
  int64_t position;
};

struct dmuon_host_engine {
  dmuon_context *context;
  dmuon_host_engine *next, *previous; /* the ring */
  void (*leave)(dmuon_host_engine *engine, dmuon_host_engine *remaining);
  void (*listen)(void);
  double listened; /* when */
  dmuon_queue *queues;
  dmuon_host_buffer *buffers;
  dmuon_host_task *free_tasks;
  dmuon_host_block *blocks;
  int64_t task_capacity;
  int deferred;
  uint64_t seed, draws;
  double timeout, delay;
  double idle_seconds;          /* in waits, with nothing to do */
  int64_t progress;             /* tasks finished, and whatever communication reports on its way */
  int communicating, computing; /* a task of this kind is being advanced right now */
  DMuonErrorCode failed;
  char message[512];
  void *scratch;
  int64_t scratch_bytes;
};

/* Somebody waits: is there anything that ends the wait. */
void dmuon_host_engine_listen(dmuon_host_engine *engine, double now);
/* One pass over the communication and the waits of every engine in the ring. */
void dmuon_host_ring_communicate(dmuon_host_engine *engine);
/* Runs one ready compute task in each engine of the ring; 0 when there was none. */
int dmuon_host_ring_compute(dmuon_host_engine *engine);
/* The sum of the ring's progress counts. */
int64_t dmuon_host_ring_progress(const dmuon_host_engine *engine);

/* A task from the free list (or a new block). */
DMuonErrorCode dmuon_host_task_take(dmuon_host_engine *engine, dmuon_host_task **task);
void dmuon_host_task_append(dmuon_queue *queue, dmuon_host_task *task);
/* In eager mode, outside of tasks: runs what is ready. */
DMuonErrorCode dmuon_host_engine_after_issue(dmuon_host_engine *engine);
/* Unfinished tasks of the queue go back to the free list; their queue has `failed`. */
void dmuon_host_queue_drop(dmuon_queue *queue, DMuonErrorCode code);
void dmuon_host_queue_release(dmuon_queue *queue);

#endif
