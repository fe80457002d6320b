/* Summaries as JSON, through the jansson library. The text handed out is from malloc-like memory
 * that the public DMuonFree takes back. */
#ifndef DMUON_BASE_JSON_H
#define DMUON_BASE_JSON_H

#include <jansson.h>

#include "base/error.h"

/* Writes *root as indented text to *text and gives *root up (json_decref), also on failure.
 * root may be NULL (an allocation failed on the way): DMUON_ERR_MEMORY. */
DMuonErrorCode dmuon_json_finish(json_t *root, char **text);

#endif
