/* Counted memory: every allocation of the library belongs to one dmuon_memory (of a mesh, or of an
 * object that lives without one). Tests use the counts to prove that Step allocates nothing, and
 * the fault hook to make the k-th allocation fail.
 *
 * Blocks are 64-byte aligned and remember their owner, so freeing needs no context. */
#ifndef DMUON_BASE_MEMORY_H
#define DMUON_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

typedef struct {
  int64_t bytes, peak_bytes; /* as asked for: in use now, and at most so far */
  int64_t allocations;       /* calls that succeeded so far */
  int64_t fail_at; /* > 0: the allocation that makes `allocations + 1` equal to it fails */
} dmuon_memory;

/* Sets *(T **)out to count zeroed elements. Zero elements give a valid pointer to nothing.
 * DMUON_ERR_MEMORY names the bytes asked for; *out is untouched then. */
DMuonErrorCode dmuon_memory_alloc(dmuon_memory *memory, int64_t count, size_t element_bytes,
                                  void *out);
/* Grows or shrinks a block of old_count elements (may be NULL with old_count 0); new ones are
 * zeroed; *ptr changes on success only. */
DMuonErrorCode dmuon_memory_resize(dmuon_memory *memory, void *ptr, int64_t old_count,
                                   int64_t new_count, size_t element_bytes);
/* A copy of a string. */
DMuonErrorCode dmuon_memory_strdup(dmuon_memory *memory, const char *text, char **out);
/* Frees a block of any dmuon_memory that is still alive; NULL is fine. */
void dmuon_memory_free(void *ptr);
/* Frees and sets the pointer to NULL: dmuon_memory_release(&x->data). */
#define dmuon_memory_release(pptr) (dmuon_memory_free(*(pptr)), (void)(*(pptr) = NULL))

DMUON_VISIBLE_END

#endif
