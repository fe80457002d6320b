/* Turns a tree of jansson into text, and takes the text back (DMuonFree).
 *
 * The text is from malloc, not from jansson's allocator, which a program may have replaced: so that
 * what is freed here is what was allocated here. */
#include "base/json.h"

#include <stdlib.h>

DMuonErrorCode dmuon_json_finish(json_t *root, char **text) {
  const size_t flags = JSON_INDENT(2) | JSON_ENCODE_ANY;
  DMuonErrorCode code = DMUON_SUCCESS;
  char *buffer = NULL;
  size_t bytes = root ? json_dumpb(root, NULL, 0, flags) : 0;
  if (bytes > 0) buffer = malloc(bytes + 1);
  if (!root || !buffer) {
    code = DMUON_ERROR(DMUON_ERR_MEMORY, "no memory for a summary in JSON (%zu bytes)", bytes);
  } else if (!text || json_dumpb(root, buffer, bytes, flags) != bytes) {
    code = DMUON_ERROR(DMUON_ERR_INTERNAL, "a summary in JSON cannot be written");
  }
  json_decref(root);
  if (code) {
    free(buffer);
    return code;
  }
  buffer[bytes] = 0;
  *text = buffer;
  return DMUON_SUCCESS;
}

void DMuonFree(void *ptr) {
  free(ptr);
}
