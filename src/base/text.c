/* Growing text, and the one place that writes it out. Decides how it grows and how a failure to
 * grow is kept; what is written, and that it is written at all, is the caller's. */
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dmuon_text_init(dmuon_text *text, dmuon_memory *memory) {
  *text = (dmuon_text){.memory = memory};
}

/* Makes room for `more` characters and the end. */
static DMuonErrorCode reserve(dmuon_text *text, int64_t more) {
  int64_t wanted = text->length + more + 1, capacity = text->capacity ? text->capacity : 256;
  if (wanted <= text->capacity) return DMUON_SUCCESS;
  while (capacity < wanted) capacity *= 2;
  DMUON_TRY(dmuon_memory_resize(text->memory, &text->data, text->capacity, capacity, 1));
  text->capacity = capacity;
  return DMUON_SUCCESS;
}

void dmuon_text_add(dmuon_text *text, const char *format, ...) {
  if (text->failed) return;
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int64_t room = text->capacity - text->length;
  int wanted =
      vsnprintf(text->data ? text->data + text->length : NULL, (size_t)room, format, arguments);
  if (wanted < 0) {
    text->failed = DMUON_ERROR(DMUON_ERR_INTERNAL, "a line of text cannot be formatted");
  } else if (wanted >= room) {
    text->failed = reserve(text, wanted);
    if (!text->failed) {
      vsnprintf(text->data + text->length, (size_t)wanted + 1, format, again);
    } else if (text->data) {
      text->data[text->length] = 0; /* whole lines only */
    }
  }
  if (!text->failed) text->length += wanted;
  va_end(again);
  va_end(arguments);
}

DMuonErrorCode dmuon_text_finish(dmuon_text *text, const char **data) {
  if (text->failed) {
    DMUON_FAIL(text->failed, "no memory for a text longer than %lld characters",
               (long long)text->length);
  }
  *data = text->data ? text->data : "";
  return DMUON_SUCCESS;
}

void dmuon_text_free(dmuon_text *text) {
  if (!text) return;
  dmuon_memory_free(text->data);
  *text = (dmuon_text){.memory = text->memory};
}

DMuonErrorCode dmuon_text_write(const dmuon_text *text, const char *path) {
  if (text->failed) {
    DMUON_FAIL(text->failed, "no memory for a text longer than %lld characters",
               (long long)text->length);
  }
  const char *shown = path ? path : "standard output";
  FILE *file = path ? fopen(path, "w") : stdout;
  if (!file) DMUON_FAIL(DMUON_ERR_FILE, "cannot open %s: %s", shown, strerror(errno));
  size_t length = (size_t)text->length;
  errno = 0;
  int is_written = length == 0 || fwrite(text->data, 1, length, file) == length;
  is_written = fflush(file) == 0 && is_written;
  int why = errno;
  if (path && fclose(file) != 0 && is_written) {
    is_written = 0;
    why = errno;
  }
  if (!is_written) {
    DMUON_FAIL(DMUON_ERR_FILE, "cannot write %zu bytes to %s: %s", length, shown, strerror(why));
  }
  return DMUON_SUCCESS;
}

const char *dmuon_text_bytes(char *buffer, double bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  const char *sign = bytes < 0 ? "-" : "";
  int unit = 0;
  if (!(bytes == bytes)) {
    memcpy(buffer, "? B", 4);
    return buffer;
  }
  if (bytes < 0) bytes = -bytes;
  while (bytes >= 999.5 && unit < 6) {
    bytes /= 1000;
    unit++;
  }
  if (bytes > 1e9) bytes = 1e9;
  /* From integers, so that no locale puts a comma. */
  if (unit > 0 && bytes < 9.95) {
    int tenths = (int)(bytes * 10 + 0.5);
    snprintf(buffer, 32, "%s%d.%d %s", sign, tenths / 10, tenths % 10, units[unit]);
  } else {
    snprintf(buffer, 32, "%s%d %s", sign, (int)(bytes + 0.5), units[unit]);
  }
  return buffer;
}
