/* The thread's error record, written to by whoever decides that a call fails.
 *
 * Law: the first decider records (DMUON_FAIL), callers add frames (DMUON_TRY). Nothing prints. */
#ifndef DMUON_BASE_ERROR_H
#define DMUON_BASE_ERROR_H

#include <dmuon/error.h>

#include "base/visible.h"

DMUON_VISIBLE_BEGIN

#define DMUON_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* Replaces the thread's record by this failure and returns code. */
DMuonErrorCode dmuon_error_set(DMuonErrorCode code, const char *function, const char *file,
                               int line, const char *format, ...) DMUON_PRINTF(5, 6);

/* Records a failure and returns its code from the calling function. */
#define DMUON_FAIL(code, ...) \
  return dmuon_error_set((code), __func__, __FILE__, __LINE__, __VA_ARGS__)

/* The same as an expression, for functions with one exit. */
#define DMUON_ERROR(code, ...) dmuon_error_set((code), __func__, __FILE__, __LINE__, __VA_ARGS__)

/* Propagates a failure with a frame added. The public DMUON_CALL under its internal name. */
#define DMUON_TRY(call) DMUON_CALL(call)

/* The first line of the record (what is wrong), without the call stack: what travels to the other
 * ranks when a failure is agreed on. Never NULL. */
const char *dmuon_error_text(void);

DMUON_VISIBLE_END

#endif
