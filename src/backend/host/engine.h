/* The task engine of the host backend. It knows queues, channels, tasks and events, and nothing of
 * what a task does; it calls no MPI and no BLAS.
 *
 * A task starts when it is at the head of its queue, the events its queue was told to wait for have
 * fired, and (with a channel) it is the oldest unfinished task of its channel. A task is advanced
 * until it says that it is done. Compute tasks finish in one call, in blocks of at most about 5 ms
 * between which they call dmuon_host_engine_poll; communication tasks (those with a channel) do one
 * non-blocking pass a call.
 *
 * Eager: issuing a task runs whatever is ready. Deferred (seeded): nothing starts when issued;
 * tasks run in a seeded legal order when somebody waits, and a wait first starts every ready
 * communication in order. The results must be bit for bit the same, or a wait is missing.
 *
 * Engines of all meshes of a process are linked in a ring, and every wait and poll advances all. */
#ifndef DMUON_BACKEND_HOST_ENGINE_H
#define DMUON_BACKEND_HOST_ENGINE_H

#include "base/context.h"
#include "device/device.h"

typedef struct dmuon_host_engine dmuon_host_engine;
/* The dmuon_queue and dmuon_event of the host backend are the engine's. */

/* Tasks of one channel run one at a time, in the order issued. Embedded in a communicator. */
typedef struct {
  int64_t issued, finished;
} dmuon_host_channel;

typedef struct {
  const char *name;
  /* Advances once; sets *done when finished. An error breaks the engine. */
  DMuonErrorCode (*advance)(dmuon_host_engine *engine, void *args, int *done);
  /* Says in a few words what it waits for: "reduce on the shard axis from ranks 1, 3". May be NULL.
   */
  void (*describe)(const void *args, dmuon_text *text);
  /* The task is dropped unfinished, at whatever stage: what it began elsewhere is given up. May be
   * NULL. */
  void (*give_up)(dmuon_host_engine *engine, void *args);
} dmuon_host_task_class;

#define DMUON_HOST_TASK_BYTES 192 /* room for a task's arguments */

DMuonErrorCode dmuon_host_engine_create(dmuon_context *context, dmuon_host_engine **engine);
void dmuon_host_engine_destroy(dmuon_host_engine *engine); /* unlinks it; NULL is fine */
void dmuon_host_engine_set_deferred(dmuon_host_engine *engine, int deferred, uint64_t seed);
int dmuon_host_engine_is_deferred(const dmuon_host_engine *engine);
/* Longest time without any progress in a wait; 0: for ever. Live. */
void dmuon_host_engine_set_timeout(dmuon_host_engine *engine, double seconds);
/* An artificial delay of every message in seconds, for tests of overlap; 0 by default. Kept here,
 * applied by the communicators. */
void dmuon_host_engine_set_delay(dmuon_host_engine *engine, double seconds);
double dmuon_host_engine_delay(const dmuon_host_engine *engine);
/* Seconds that waits on this engine's queues have spent so far with nothing to do. */
double dmuon_host_engine_idle_seconds(const dmuon_host_engine *engine);
/* A monotonic clock. */
double dmuon_host_seconds(void);
/* The context the engine was made with. */
dmuon_context *dmuon_host_engine_context(const dmuon_host_engine *engine);
/* The engine of a device of this backend (device.c). */
dmuon_host_engine *dmuon_host_device_engine(dmuon_device *device);

/* Joins the ring of a living engine (others NULL: a ring of one). */
void dmuon_host_engine_link(dmuon_host_engine *engine, dmuon_host_engine *other);
/* leave is called by the engine's destroy, once it is out of the ring, with an engine that remains
 * there (NULL: it was the last): for whoever keeps a way into the ring. NULL: nobody. */
void dmuon_host_engine_on_leave(dmuon_host_engine *engine,
                                void (*leave)(dmuon_host_engine *engine,
                                              dmuon_host_engine *remaining));

/* Called now and then while something waits. It may break engines. NULL: nothing. */
void dmuon_host_engine_on_wait(dmuon_host_engine *engine, void (*listen)(void));

/* Memory of the device, 256-byte aligned. One that was left is never given back when freed. */
DMuonErrorCode dmuon_host_buffer_alloc(dmuon_host_engine *engine, int64_t bytes, void **ptr);
void dmuon_host_buffer_free(dmuon_host_engine *engine, void *ptr);
/* The buffer that ptr points into, of any engine of the ring, is left: MPI may still use it. */
void dmuon_host_buffer_leave(dmuon_host_engine *engine, const void *ptr);

/* Copies args into a task and appends it to queue; channel NULL for compute. In eager mode runs
 * what is ready. Allocates only beyond what was reserved. From inside a task's advance it only
 * appends. */
DMuonErrorCode dmuon_host_engine_issue(dmuon_queue *queue, const dmuon_host_task_class *task_class,
                                       dmuon_host_channel *channel, const void *args,
                                       size_t args_bytes);
dmuon_host_engine *dmuon_host_queue_engine(dmuon_queue *queue);
/* Tasks (operations and waits) that can be issued and unfinished at one time without allocating. */
DMuonErrorCode dmuon_host_engine_reserve(dmuon_host_engine *engine, int64_t operations);

/* Queues and events: what the entries of DMuonDeviceOps say. They may be used across engines of one
 * ring. Records and waits refer to positions of a queue, so an event can be recorded again at once.
 */
DMuonErrorCode dmuon_host_queue_create(dmuon_host_engine *engine, int high_priority,
                                       dmuon_queue **queue);
void dmuon_host_queue_destroy(dmuon_queue *queue);
DMuonErrorCode dmuon_host_queue_sync(dmuon_queue *queue);
DMuonErrorCode dmuon_host_event_create(dmuon_host_engine *engine, dmuon_event **event);
void dmuon_host_event_destroy(dmuon_event *event);
DMuonErrorCode dmuon_host_event_record(dmuon_queue *queue, dmuon_event *event);
DMuonErrorCode dmuon_host_event_wait(dmuon_queue *queue, dmuon_event *event);
DMuonErrorCode dmuon_host_event_test(dmuon_event *event, int *done);
DMuonErrorCode dmuon_host_event_sync(dmuon_event *event);

/* One non-blocking pass over the communication tasks of all engines in the ring: for use between
 * blocks of compute, inside a task. */
DMuonErrorCode dmuon_host_engine_poll(dmuon_host_engine *engine);
/* One non-blocking pass over everything ready in the ring: the device's `progress`. */
DMuonErrorCode dmuon_host_engine_progress(dmuon_host_engine *engine);
/* A communication task got a step further without being done: the timeout starts anew. */
void dmuon_host_engine_note_progress(dmuon_host_engine *engine);
/* Breaks the engine: unfinished tasks are dropped (from inside a task: once it returns), later
 * calls return code and message (the thread's record). A code below 200 becomes DMUON_ERR_DEVICE.
 */
void dmuon_host_engine_break(dmuon_host_engine *engine, DMuonErrorCode code);
DMuonErrorCode dmuon_host_engine_check(const dmuon_host_engine *engine);
/* Scratch for compute tasks, 64-byte aligned; one runs at a time, so they share it. Grows (a
 * counted allocation) when a request is larger than any before: set-up asks for the largest. */
DMuonErrorCode dmuon_host_engine_scratch(dmuon_host_engine *engine, int64_t bytes, void **ptr);

#endif
