/* Hands lines to the program's logger. Decides only how a line is cut; without a function nothing
 * is even formatted. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dmuon_log(const dmuon_logger *logger, int level, const char *format, ...) {
  if (!logger || !logger->function) return;
  char line[2048];
  va_list arguments;
  va_start(arguments, format);
  int wanted = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (wanted < 0) return;
  if (wanted >= (int)sizeof line) memcpy(line + sizeof line - 4, "...", 4);
  logger->function(logger->context, level, line);
}
