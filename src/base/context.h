/* What an object needs from the mesh it belongs to: memory, logger, options. The mesh owns it; an
 * object without a mesh owns one of its own. */
#ifndef DMUON_BASE_CONTEXT_H
#define DMUON_BASE_CONTEXT_H

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"

typedef struct {
  dmuon_memory memory;
  dmuon_logger logger;
  dmuon_options options;
} dmuon_context;

void dmuon_context_init(dmuon_context *context);
/* Frees the options; the memory counts stay readable. */
void dmuon_context_free(dmuon_context *context);

#endif
