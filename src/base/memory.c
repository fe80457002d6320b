/* Counted memory. Decides where blocks come from and what is counted: the bytes asked for, not the
 * header in front of each block. It does not decide what happens when memory is gone: the caller
 * gets DMUON_ERR_MEMORY and nothing has changed. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#endif

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* In front of every block, as large as the alignment, so that the block stays aligned. */
enum { ALIGNMENT = 64 };

typedef struct {
  dmuon_memory *owner;
  int64_t bytes;
  uint64_t mark; /* HEADER_MARK while alive: finds a pointer that is not ours, or freed twice */
} header;

#define HEADER_MARK UINT64_C(0x646d756f6e6d656d)

_Static_assert(sizeof(header) <= ALIGNMENT, "the header must fit in front of an aligned block");

static header *header_of(const void *ptr) {
  return (header *)((char *)(uintptr_t)ptr - ALIGNMENT);
}

/* The product, or -1 when there is no such block: negative, or beyond what a pointer can span. */
static int64_t block_bytes(int64_t count, size_t element_bytes) {
  const int64_t limit = (int64_t)(PTRDIFF_MAX - 2 * ALIGNMENT);
  if (count < 0 || element_bytes > (size_t)limit) return -1;
  if (element_bytes && count > limit / (int64_t)element_bytes) return -1;
  return count * (int64_t)element_bytes;
}

DMuonErrorCode dmuon_memory_alloc(dmuon_memory *memory, int64_t count, size_t element_bytes,
                                  void *out) {
  int64_t bytes = block_bytes(count, element_bytes);
  if (!memory || !out) DMUON_FAIL(DMUON_ERR_INTERNAL, "memory or out is NULL");
  if (bytes < 0) {
    DMUON_FAIL(DMUON_ERR_MEMORY, "no block can hold %lld elements of %zu bytes", (long long)count,
               element_bytes);
  }
  if (memory->fail_at > 0 && memory->allocations + 1 == memory->fail_at) {
    DMUON_FAIL(DMUON_ERR_MEMORY, "no memory for %lld bytes: allocation %lld is planned to fail",
               (long long)bytes, (long long)memory->fail_at);
  }
  void *raw = NULL;
  if (posix_memalign(&raw, ALIGNMENT, (size_t)bytes + ALIGNMENT) || !raw) {
    DMUON_FAIL(DMUON_ERR_MEMORY, "no memory for %lld bytes; %lld bytes are in use here",
               (long long)bytes, (long long)memory->bytes);
  }
  *(header *)raw = (header){.owner = memory, .bytes = bytes, .mark = HEADER_MARK};
  void *ptr = (char *)raw + ALIGNMENT;
  memset(ptr, 0, (size_t)bytes);
  memory->allocations++;
  memory->bytes += bytes;
  if (memory->bytes > memory->peak_bytes) memory->peak_bytes = memory->bytes;
  memcpy(out, &ptr, sizeof ptr); /* out is a T **: written as bytes, whatever T is */
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_memory_resize(dmuon_memory *memory, void *ptr, int64_t old_count,
                                   int64_t new_count, size_t element_bytes) {
  void *old = NULL, *fresh = NULL;
  if (!ptr) DMUON_FAIL(DMUON_ERR_INTERNAL, "ptr is NULL");
  memcpy(&old, ptr, sizeof old);
  int64_t old_bytes = block_bytes(old_count, element_bytes);
  if (old ? header_of(old)->bytes != old_bytes : old_count != 0) {
    DMUON_FAIL(DMUON_ERR_INTERNAL, "the block is not one of %lld elements of %zu bytes",
               (long long)old_count, element_bytes);
  }
  DMUON_TRY(dmuon_memory_alloc(memory, new_count, element_bytes, &fresh));
  int64_t new_bytes = header_of(fresh)->bytes;
  if (old) memcpy(fresh, old, (size_t)(old_bytes < new_bytes ? old_bytes : new_bytes));
  dmuon_memory_free(old);
  memcpy(ptr, &fresh, sizeof fresh);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_memory_strdup(dmuon_memory *memory, const char *text, char **out) {
  if (!text) DMUON_FAIL(DMUON_ERR_INTERNAL, "text is NULL");
  size_t bytes = strlen(text) + 1;
  char *copy = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)bytes, 1, &copy));
  memcpy(copy, text, bytes);
  *out = copy;
  return DMUON_SUCCESS;
}

void dmuon_memory_free(void *ptr) {
  if (!ptr) return;
  header *block = header_of(ptr);
  /* Not ours, or dead: leaking is the lesser evil, and there is nobody to tell. */
  if (block->mark != HEADER_MARK) return;
  block->mark = 0;
  block->owner->bytes -= block->bytes;
  free(block);
}
