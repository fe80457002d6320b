/* The logger of a mesh: silent unless the program gave a function. The other of the two places of
 * the library that put out text. Levels: 1 somebody should look at it, 2 once a set-up, 3 each
 * step. */
#ifndef DMUON_BASE_LOG_H
#define DMUON_BASE_LOG_H

#include "base/error.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

typedef struct {
  void (*function)(void *context, int level, const char *line);
  void *context;
} dmuon_logger;

void dmuon_log(const dmuon_logger *logger, int level, const char *format, ...) DMUON_PRINTF(3, 4);

DMUON_VISIBLE_END

#endif
