/* The thread's error record: a code, one line of text, and the call stack below it.
 *
 * Decides how a failure is kept and shown. Everything lies in fixed buffers, so that recording a
 * failure can never fail itself (the failure may be that memory is gone); what does not fit is cut.
 * It does not decide what is an error, and puts nothing out. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 1536, MESSAGE_BYTES = 4096 };

typedef struct {
  DMuonErrorCode code;
  char text[TEXT_BYTES];       /* what is wrong: one line */
  char message[MESSAGE_BYTES]; /* the same, and a line for each frame */
  size_t length;               /* of message */
  int is_cut;                  /* frames have been left out */
} error_record;

static _Thread_local error_record record;

/* The one list of codes. */
#define ERROR_CODES(X)     \
  X(DMUON_SUCCESS)         \
  X(DMUON_ERR_ARGUMENT)    \
  X(DMUON_ERR_STATE)       \
  X(DMUON_ERR_UNSUPPORTED) \
  X(DMUON_ERR_NOT_FOUND)   \
  X(DMUON_ERR_THREAD)      \
  X(DMUON_ERR_DISAGREE)    \
  X(DMUON_ERR_SETUP)       \
  X(DMUON_ERR_MEMORY)      \
  X(DMUON_ERR_FILE)        \
  X(DMUON_ERR_FORMAT)      \
  X(DMUON_ERR_PEER)        \
  X(DMUON_ERR_TIMEOUT)     \
  X(DMUON_ERR_REVOKED)     \
  X(DMUON_ERR_COMM)        \
  X(DMUON_ERR_DEVICE)      \
  X(DMUON_ERR_INTERNAL)

const char *DMuonErrorGetName(DMuonErrorCode code) {
  /* A switch without default: the compiler names a code that is missing from the list. */
  switch (code) {
#define NAME_CASE(name) \
  case name:            \
    return #name;
    ERROR_CODES(NAME_CASE)
#undef NAME_CASE
  }
  return "unknown DMuonErrorCode";
}

int DMuonErrorIsFatal(DMuonErrorCode code) {
  return (int)code >= (int)DMUON_ERR_PEER;
}

/* The text is one line whatever names the caller's data had in it. */
static void flatten(char *text) {
  for (; *text; text++) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = ' ';
  }
}

static void add_frame(const char *function, const char *file, int line) {
  static const char cut[] = "\n  ...";
  char frame[512];
  if (record.is_cut) return;
  if (!file) file = "?";
  while (!strncmp(file, "../", 3)) file += 3; /* of a build outside the source tree */
  snprintf(frame, sizeof frame, "\n  in %s (%s:%d)", function ? function : "?", file, line);
  size_t bytes = strlen(frame);
  if (record.length + bytes + sizeof cut > sizeof record.message) {
    memcpy(record.message + record.length, cut, sizeof cut);
    record.length += sizeof cut - 1;
    record.is_cut = 1;
    return;
  }
  memcpy(record.message + record.length, frame, bytes + 1);
  record.length += bytes;
}

static void begin(DMuonErrorCode code, const char *text) {
  record.code = code;
  record.is_cut = 0;
  record.length = strlen(text);
  memcpy(record.text, text, record.length + 1);
  memcpy(record.message, text, record.length + 1);
}

DMuonErrorCode dmuon_error_set(DMuonErrorCode code, const char *function, const char *file,
                               int line, const char *format, ...) {
  char text[TEXT_BYTES]; /* not the record itself: it may be among the arguments */
  va_list arguments;
  va_start(arguments, format);
  int wanted = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (wanted < 0) memcpy(text, "?", 2);
  if (wanted >= (int)sizeof text) memcpy(text + sizeof text - 4, "...", 4);
  flatten(text);
  begin(code, text);
  add_frame(function, file, line);
  return code;
}

DMuonErrorCode DMuonErrorTrace(DMuonErrorCode code, const char *function, const char *file,
                               int line) {
  if (code == DMUON_SUCCESS) return code;
  /* A code that came without a record, from a program's own function say: an older record must not
   * speak for it. */
  if (record.code != code) begin(code, DMuonErrorGetName(code));
  add_frame(function, file, line);
  return code;
}

const char *DMuonErrorGetMessage(void) {
  return record.code ? record.message : "no error";
}

const char *dmuon_error_text(void) {
  return record.code ? record.text : "no error";
}

void DMuonErrorClear(void) {
  record.code = DMUON_SUCCESS;
  record.text[0] = record.message[0] = 0;
  record.length = 0;
  record.is_cut = 0;
}
