/* For tests under MPICH with more ranks than cores: its UCX transport polls without ever giving the
 * core away, which makes 8 ranks on 2 cores some forty times slower. Preloaded by test/launch.sh,
 * this stands before ucp_worker_progress and yields after a few polls that found nothing. */
#include "config.h" /* RTLD_NEXT is an extension */

#include <dlfcn.h>
#include <sched.h>

enum { PATIENCE = 16 };

typedef unsigned (*progress_function)(void *worker);

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker) {
  static progress_function original;
  static __thread unsigned idle;
  if (!original) *(void **)&original = dlsym(RTLD_NEXT, "ucp_worker_progress");
  unsigned events = original(worker);
  if (events) {
    idle = 0;
  } else if (++idle >= PATIENCE) {
    idle = 0;
    sched_yield();
  }
  return events;
}
