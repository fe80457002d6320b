/* Growing text: what views, messages and reports are put together in. A failed allocation is kept
 * in the object and reported once by dmuon_text_finish, so that callers can write line after line.
 */
#ifndef DMUON_BASE_TEXT_H
#define DMUON_BASE_TEXT_H

#include "base/memory.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

typedef struct {
  dmuon_memory *memory;
  char *data; /* always NUL-terminated once non-NULL */
  int64_t length, capacity;
  DMuonErrorCode failed;
} dmuon_text;

void dmuon_text_init(dmuon_text *text, dmuon_memory *memory);
void dmuon_text_add(dmuon_text *text, const char *format, ...) DMUON_PRINTF(2, 3);
/* The text (never NULL on success, owned by *text), or the error met while writing. */
DMuonErrorCode dmuon_text_finish(dmuon_text *text, const char **data);
void dmuon_text_free(dmuon_text *text);

/* Writes text to the file path (replaced), or to standard output when path is NULL. One of the two
 * places of the library that write output. */
DMuonErrorCode dmuon_text_write(const dmuon_text *text, const char *path);

/* "1.2 GB", "17 MB": for people. buffer of at least 32. */
const char *dmuon_text_bytes(char *buffer, double bytes);

DMUON_VISIBLE_END

#endif
