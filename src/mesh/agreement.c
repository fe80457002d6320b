/* Agreement of a mesh's ranks on texts and errors, and who writes a View. It decides nothing about
 * what is compared. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"

DMuonErrorCode dmuon_mesh_agree_error(DMuonMesh mesh, const char *what, DMuonErrorCode code) {
  if (!mesh->bootstrap) return code;
  return dmuon_agree_error(mesh->bootstrap, what, code, DMUON_ERR_SETUP);
}

static const char *end_of_line(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end : line + strlen(line);
}

static int key_length(const char *line, const char *end) {
  const char *equals = memchr(line, '=', (size_t)(end - line));
  return (int)((equals ? equals : end) - line);
}

/* The value of a line, "set" for a key alone. */
static const char *value_of(const char *line, const char *end, int key, int *length) {
  if (line + key == end) {
    *length = 3;
    return "set";
  }
  *length = (int)(end - line) - key - 1;
  return line + key + 1;
}

/* The first line that differs between rank 0's text and rank's. Lines come in order of their keys,
 * or with the same keys on all ranks. */
static void describe(const char *what, const char *zero, const char *mine, int rank, char *out,
                     size_t bytes) {
  for (;;) {
    const char *a = end_of_line(zero), *b = end_of_line(mine);
    if (a - zero == b - mine && memcmp(zero, mine, (size_t)(a - zero)) == 0 && *a && *b) {
      zero = a + 1;
      mine = b + 1;
      continue;
    }
    int p = key_length(zero, a), q = key_length(mine, b), n, m;
    if (p == q && memcmp(zero, mine, (size_t)p) == 0) {
      const char *v = value_of(zero, a, p, &n), *w = value_of(mine, b, q, &m);
      snprintf(out, bytes, "%s: %.*s is %.*s on rank 0, %.*s on rank %d", what, p, zero, n, v, m, w,
               rank);
    } else {
      int here = !*zero || (*mine && strcmp(mine, zero) < 0);
      snprintf(out, bytes, "%s: rank %d says %.*s, rank %d does not", what, here ? rank : 0,
               here ? (int)(b - mine) : (int)(a - zero), here ? mine : zero, here ? 0 : rank);
    }
    return;
  }
}

/* The texts differ: rank `other` gets rank 0's and tells everybody where. */
static DMuonErrorCode name_difference(DMuonMesh mesh, const char *what, const char *mine,
                                      int other) {
  dmuon_memory *memory = &mesh->context.memory;
  int64_t bytes = (int64_t)strlen(mine) + 1;
  char *text = NULL, message[400] = "";
  DMUON_TRY(dmuon_agree_broadcast(mesh->bootstrap, what, 0, &bytes, sizeof bytes));
  DMuonErrorCode code = dmuon_memory_alloc(memory, bytes, 1, &text);
  code = dmuon_agree_error(mesh->bootstrap, what, code, DMUON_ERR_SETUP);
  if (!code) {
    if (mesh->rank == 0) memcpy(text, mine, (size_t)bytes);
    code = dmuon_agree_broadcast(mesh->bootstrap, what, 0, text, bytes);
  }
  if (!code) {
    if (mesh->rank == other) describe(what, text, mine, other, message, sizeof message);
    code = dmuon_agree_broadcast(mesh->bootstrap, what, other, message, sizeof message);
  }
  dmuon_memory_free(text);
  DMUON_TRY(code);
  DMUON_FAIL(DMUON_ERR_DISAGREE, "%s", message);
}

DMuonErrorCode dmuon_mesh_agree_text(DMuonMesh mesh, const char *what, DMuonErrorCode code,
                                     dmuon_text *text) {
  const char *data = "";
  int equal = 1, other = 0;
  if (!code) code = dmuon_text_finish(text, &data);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, what, code));
  if (!mesh->bootstrap) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_agree_equal(mesh->bootstrap, what, dmuon_hash_string(DMUON_HASH_SEED, data),
                              &equal, &other));
  if (!equal) DMUON_TRY(name_difference(mesh, what, data, other));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_mesh_write(DMuonMesh mesh, const char *what, const dmuon_text *text,
                                const char *path) {
  DMuonErrorCode code =
      mesh->rank == 0 || !mesh->bootstrap ? dmuon_text_write(text, path) : DMUON_SUCCESS;
  /* A broken mesh can still be looked at: nobody waits for anybody. */
  if (!mesh->bootstrap || dmuon_bootstrap_check_mpi() || dmuon_bootstrap_check(mesh->bootstrap))
    return code;
  return dmuon_agree_error(mesh->bootstrap, what, code, DMUON_ERR_SETUP);
}
