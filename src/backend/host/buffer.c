/* The memory that operations work on: blocks that a device lends, and which of them MPI may still
 * use after an operation was given up. Those are left alone for good: whoever frees one has nothing
 * to do with messages, and cannot know. It does not decide what is left; a communicator does that
 * when its operation is dropped. */
#include "backend/host/engine_internal.h"

#include <string.h>

/* A block begins with this, somewhere in the first ALIGNMENT bytes before what is lent. */
enum { ALIGNMENT = 256 };

struct dmuon_host_buffer {
  dmuon_host_buffer *next, *previous; /* in the engine's list */
  void *block;
  int64_t bytes; /* lent */
  int is_left;
};

_Static_assert(sizeof(dmuon_host_buffer) <= ALIGNMENT, "no room for the header of a buffer");

static char *lent_by(dmuon_host_buffer *buffer) {
  return (char *)(buffer + 1);
}

DMuonErrorCode dmuon_host_buffer_alloc(dmuon_host_engine *engine, int64_t bytes, void **ptr) {
  char *block = NULL;
  if (bytes < 0 || bytes > INT64_MAX - 2 * ALIGNMENT)
    DMUON_FAIL(DMUON_ERR_MEMORY, "a buffer of %lld bytes was asked for", (long long)bytes);
  DMUON_TRY(dmuon_memory_alloc(&engine->context->memory, bytes + 2 * ALIGNMENT, 1, &block));
  char *lent = block + sizeof(dmuon_host_buffer);
  lent += (ALIGNMENT - (uintptr_t)lent % ALIGNMENT) % ALIGNMENT;
  dmuon_host_buffer *buffer = (dmuon_host_buffer *)(void *)lent - 1;
  *buffer = (dmuon_host_buffer){.next = engine->buffers, .block = block, .bytes = bytes};
  if (engine->buffers) engine->buffers->previous = buffer;
  engine->buffers = buffer;
  /* What is read before it is written shows in deferred mode: all bits set is NaN in every type. */
  if (engine->deferred) memset(lent, 0xff, (size_t)bytes);
  *ptr = lent;
  return DMUON_SUCCESS;
}

void dmuon_host_buffer_free(dmuon_host_engine *engine, void *ptr) {
  if (!ptr) return;
  dmuon_host_buffer *buffer = (dmuon_host_buffer *)ptr - 1;
  if (buffer->next) buffer->next->previous = buffer->previous;
  if (buffer->previous)
    buffer->previous->next = buffer->next;
  else
    engine->buffers = buffer->next;
  if (buffer->is_left) return;
  if (engine->deferred) memset(ptr, 0xff, (size_t)buffer->bytes);
  dmuon_memory_free(buffer->block);
}

/* Operations of one mesh work on buffers of another's device, too. */
void dmuon_host_buffer_leave(dmuon_host_engine *engine, const void *ptr) {
  uintptr_t at = (uintptr_t)ptr;
  dmuon_host_engine *e = engine;
  do {
    for (dmuon_host_buffer *buffer = e->buffers; buffer; buffer = buffer->next) {
      uintptr_t start = (uintptr_t)lent_by(buffer);
      if (at >= start && at < start + (uintptr_t)buffer->bytes) buffer->is_left = 1;
    }
    e = e->next;
  } while (e != engine);
}
