/* Puts together what the objects of one mesh share. Nothing is read here: neither environment nor
 * arguments, before the program asks for it. */
#include "base/context.h"

#include <string.h>

void dmuon_context_init(dmuon_context *context) {
  memset(context, 0, sizeof *context);
  dmuon_options_init(&context->options, &context->memory);
}

void dmuon_context_free(dmuon_context *context) {
  if (context) dmuon_options_free(&context->options);
}
