/* Decides whether ranks agree about a model, and names the first thing about which they do not:
 * which parameter, both values, both ranks. Pure: it sees packed lists, no rank and no message. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/glob.h"
#include "base/sort.h"
#include "model/list.h"
#include "model/rules.h"

enum { WORDS = 240 }; /* a value in a message */

/* ---- finding names ---- */

static int compare_names(const void *a, const void *b, void *context) {
  (void)context;
  return strcmp(((const dmuon_name_index *)a)->name, ((const dmuon_name_index *)b)->name);
}

DMuonErrorCode dmuon_names_sort(dmuon_memory *memory, dmuon_name_index *names, int count) {
  return dmuon_sort(memory, names, count, sizeof *names, compare_names, NULL);
}

int dmuon_names_find(const dmuon_name_index *names, int count, const char *name) {
  int low = 0, high = count;
  while (low < high) {
    int middle = low + (high - low) / 2, order = strcmp(names[middle].name, name);
    if (order == 0) return names[middle].index;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return -1;
}

DMuonErrorCode dmuon_list_names(const dmuon_list *list, dmuon_name_index **names) {
  dmuon_name_index *made = NULL;
  DMUON_TRY(dmuon_memory_alloc(list->memory, list->param_count, sizeof *made, &made));
  for (int i = 0; i < list->param_count; i++)
    made[i] = (dmuon_name_index){list->params[i].param.name, i};
  DMuonErrorCode code = dmuon_names_sort(list->memory, made, list->param_count);
  if (code) {
    dmuon_memory_free(made);
    return code;
  }
  *names = made;
  return DMUON_SUCCESS;
}

/* ---- words for messages ---- */

static int rank_of(const int *rank_at, int position) {
  return rank_at ? rank_at[position] : position;
}

/* mesh "experts" (1x2x1 on ranks 0, 2) */
static const char *mesh_text(char *buffer, const dmuon_list_mesh *mesh, const int *rank_at) {
  int used = snprintf(buffer, WORDS, "mesh \"%.40s\" (", mesh->name);
  if (mesh->sizes[0])
    used += snprintf(buffer + used, WORDS - (size_t)used, "%dx%dx%d on ", mesh->sizes[0],
                     mesh->sizes[1], mesh->sizes[2]);
  used += snprintf(buffer + used, WORDS - (size_t)used, "rank%s ", mesh->size == 1 ? "" : "s");
  for (int i = 0; i < mesh->size; i++) {
    if (used > WORDS - 32 || i == 16) {
      used += snprintf(buffer + used, WORDS - (size_t)used, ", ... %d in all", mesh->size);
      break;
    }
    used += snprintf(buffer + used, WORDS - (size_t)used, "%s%d", i ? ", " : "",
                     rank_of(rank_at, mesh->ranks[i]));
  }
  snprintf(buffer + used, WORDS - (size_t)used, ")");
  return buffer;
}

typedef struct {
  const dmuon_list_param *a, *b;
  int rank_a, rank_b;
} pair;

static DMuonErrorCode differ(const pair *p, const char *what, const char *a, const char *b) {
  DMUON_FAIL(DMUON_ERR_DISAGREE, "%s: %s %s on rank %d, %s on rank %d", p->a->param.name, what, a,
             p->rank_a, b, p->rank_b);
}

static DMuonErrorCode compare_dtype(const pair *p, const char *what, DMuonDType a, DMuonDType b) {
  if (a == b) return DMUON_SUCCESS;
  return differ(p, what, dmuon_dtype_name(a), dmuon_dtype_name(b));
}

static DMuonErrorCode compare_string(const pair *p, const char *what, const char *a,
                                     const char *b) {
  char text[2][WORDS];
  if (strcmp(a, b) == 0) return DMUON_SUCCESS;
  snprintf(text[0], WORDS, "\"%.200s\"", a);
  snprintf(text[1], WORDS, "\"%.200s\"", b);
  return differ(p, what, text[0], text[1]);
}

static DMuonErrorCode compare_params(const pair *p) {
  const dmuon_param *a = &p->a->param, *b = &p->b->param;
  char text[2][WORDS];
  if (a->ndim != b->ndim || memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) != 0)
    return differ(p, "shape", dmuon_shape_text(text[0], WORDS, a->ndim, a->dims),
                  dmuon_shape_text(text[1], WORDS, b->ndim, b->dims));
  DMUON_TRY(compare_dtype(p, "dtype", a->dtype, b->dtype));
  if (a->is_lent != b->is_lent)
    return differ(p, "registered with", a->is_lent ? "no arrays" : "arrays",
                  b->is_lent ? "no arrays" : "arrays");
  if (a->reshard != b->reshard)
    return differ(p, "its group is", a->reshard == DMUON_Z2 ? "z2" : "z3",
                  b->reshard == DMUON_Z2 ? "z2" : "z3");
  if (a->route != b->route) {
    snprintf(text[0], WORDS, "%s (%.180s)", dmuon_route_name(a->route), a->route_reason);
    snprintf(text[1], WORDS, "%s (%.180s)", dmuon_route_name(b->route), b->route_reason);
    return differ(p, "route", text[0], text[1]);
  }
  DMUON_TRY(compare_string(p, "group", a->group, b->group));
  if (a->nbatch != b->nbatch || a->nrow != b->nrow) {
    snprintf(text[0], WORDS, "%d batch, %d row dims", a->nbatch, a->nrow);
    snprintf(text[1], WORDS, "%d batch, %d row dims", b->nbatch, b->nrow);
    return differ(p, "matrix view", text[0], text[1]);
  }
  if (a->output != b->output)
    return differ(p, "output side", dmuon_side_name(a->output), dmuon_side_name(b->output));
  if (a->nblocks != b->nblocks || a->repeat != b->repeat ||
      (a->nblocks && memcmp(a->blocks, b->blocks, (size_t)a->nblocks * sizeof *a->blocks) != 0))
    return differ(p, "matrix view", dmuon_view_text(text[0], WORDS, a),
                  dmuon_view_text(text[1], WORDS, b));
  DMUON_TRY(compare_dtype(p, "grad dtype", a->grad_dtype, b->grad_dtype));
  DMUON_TRY(compare_dtype(p, "master dtype", a->master_dtype, b->master_dtype));
  return compare_dtype(p, "state dtype", a->state_dtype, b->state_dtype);
}

/* The copies must be on one mesh; of the meshes of losses only the number of data ranks is shared.
 */
static DMuonErrorCode compare_meshes(const pair *p, const dmuon_list *meshes,
                                     const dmuon_list_mesh *b_copies,
                                     const dmuon_list_mesh *b_losses, const int *rank_at) {
  const dmuon_param *a = &p->a->param;
  char text[2][WORDS];
  if (dmuon_list_find_mesh(meshes, b_copies) != a->mesh)
    return differ(p, "copies on", mesh_text(text[0], &meshes->meshes[a->mesh], rank_at),
                  mesh_text(text[1], b_copies, rank_at));
  const dmuon_list_mesh *a_losses = &meshes->meshes[a->losses];
  int divisor_a = a_losses->sizes[0] * a_losses->sizes[1];
  int divisor_b = b_losses->sizes[0] * b_losses->sizes[1];
  if (divisor_a == divisor_b) return DMUON_SUCCESS;
  snprintf(text[0], WORDS, "%d", divisor_a);
  snprintf(text[1], WORDS, "%d", divisor_b);
  return differ(p, "data ranks whose losses its gradient sums:", text[0], text[1]);
}

/* ---- merging ---- */

/* map[i] = where mesh i of b stands in a. */
static DMuonErrorCode merge_meshes(dmuon_list *a, const dmuon_list *b, int *map) {
  for (int i = 0; i < b->mesh_count; i++) {
    map[i] = dmuon_list_find_mesh(a, &b->meshes[i]);
    if (map[i] >= 0) {
      DMUON_TRY(
          dmuon_rank_set_append(a->memory, &a->meshes[map[i]].holders, &b->meshes[i].holders));
    } else {
      map[i] = a->mesh_count;
      DMUON_TRY(dmuon_list_add_mesh(a, &b->meshes[i]));
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode merge_param(dmuon_list *a, int found, const dmuon_list *b, int from,
                                  const int *map, const int *rank_at) {
  const dmuon_list_param *add = &b->params[from];
  if (found < 0) {
    DMUON_TRY(dmuon_list_add_param(a, add));
    dmuon_param *copy = &a->params[a->param_count - 1].param;
    copy->mesh = map[add->param.mesh];
    copy->losses = map[add->param.losses];
    return DMUON_SUCCESS;
  }
  dmuon_list_param *into = &a->params[found];
  pair p = {into, add, into->holders.ranges[0].first, add->holders.ranges[0].first};
  DMUON_TRY(compare_params(&p));
  DMUON_TRY(
      compare_meshes(&p, a, &b->meshes[add->param.mesh], &b->meshes[add->param.losses], rank_at));
  if (into->other_rank < 0) {
    /* A differing order may only be the shadow of a missing name, so it is judged at the end. */
    if (add->ordinal != into->ordinal) {
      into->other_ordinal = add->ordinal;
      into->other_rank = p.rank_b;
    } else if (add->other_rank >= 0) {
      into->other_ordinal = add->other_ordinal;
      into->other_rank = add->other_rank;
    }
  }
  return dmuon_rank_set_append(a->memory, &into->holders, &add->holders);
}

static DMuonErrorCode merge_params(dmuon_list *a, const dmuon_list *b, const int *map,
                                   const int *rank_at) {
  dmuon_name_index *names = NULL;
  DMUON_TRY(dmuon_list_names(a, &names));
  int count = a->param_count; /* names of b that are added are new ones */
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < b->param_count && !code; i++)
    code =
        merge_param(a, dmuon_names_find(names, count, b->params[i].param.name), b, i, map, rank_at);
  dmuon_memory_free(names);
  return code;
}

static DMuonErrorCode merge_patterns(dmuon_list *a, const dmuon_list *b) {
  for (int i = 0; i < b->pattern_count; i++) {
    const dmuon_list_pattern *add = &b->patterns[i];
    int k = 0;
    while (k < a->pattern_count &&
           (a->patterns[k].kind != add->kind || strcmp(a->patterns[k].pattern, add->pattern) != 0))
      k++;
    if (k < a->pattern_count) {
      a->patterns[k].matched = a->patterns[k].matched || add->matched;
    } else {
      DMUON_TRY(dmuon_list_add_pattern(a, add));
    }
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_list_merge(dmuon_list *a, const dmuon_list *b, const int *rank_at) {
  int *map = NULL;
  DMUON_TRY(dmuon_memory_alloc(a->memory, b->mesh_count, sizeof *map, &map));
  DMuonErrorCode code = merge_meshes(a, b, map);
  if (!code) code = merge_params(a, b, map, rank_at);
  if (!code) code = merge_patterns(a, b);
  dmuon_memory_free(map);
  return code;
}

DMuonErrorCode dmuon_list_merge_packed(dmuon_memory *memory, const void *a, int64_t a_bytes,
                                       const void *b, int64_t b_bytes, void **out,
                                       int64_t *out_bytes, void *context) {
  dmuon_list left, right;
  dmuon_list_init(&left, memory);
  dmuon_list_init(&right, memory);
  DMuonErrorCode code = dmuon_list_unpack(&left, memory, a, a_bytes);
  if (!code) code = dmuon_list_unpack(&right, memory, b, b_bytes);
  if (!code) code = dmuon_list_merge(&left, &right, context);
  if (!code) code = dmuon_list_pack(&left, out, out_bytes);
  dmuon_list_free(&left);
  dmuon_list_free(&right);
  return code;
}

/* ---- the whole ---- */

static int first_missing(const dmuon_list_mesh *mesh, const dmuon_rank_set *holders,
                         const int *rank_at) {
  if (holders->count == 1 && holders->ranges[0].last - holders->ranges[0].first + 1 == mesh->size)
    return -1; /* holders are members, so as many are all */
  int lowest = -1;
  for (int i = 0; i < mesh->size; i++) {
    int rank = rank_of(rank_at, mesh->ranks[i]);
    if (!dmuon_rank_set_has(holders, rank) && (lowest < 0 || rank < lowest)) lowest = rank;
  }
  return lowest;
}

static DMuonErrorCode check_patterns(const dmuon_list *list) {
  for (int i = 0; i < list->pattern_count; i++) {
    const dmuon_list_pattern *pattern = &list->patterns[i];
    if (pattern->matched) continue;
    const char **names = NULL, *near = NULL;
    DMUON_TRY(dmuon_memory_alloc(list->memory, list->param_count, sizeof *names, &names));
    for (int k = 0; k < list->param_count; k++) names[k] = list->params[k].param.name;
    if (!strpbrk(pattern->pattern, "*?[|"))
      near = dmuon_nearest_name(pattern->pattern, list->param_count, names);
    dmuon_memory_free(names);
    DMUON_FAIL(DMUON_ERR_SETUP,
               "pattern \"%s\" of DMuonModel%s matches none of the %d parameters on any rank%s%s%s",
               pattern->pattern, dmuon_rule_kind_name(pattern->kind), list->param_count,
               near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_list_check(const dmuon_list *list, const int *rank_at) {
  char text[WORDS];
  for (int i = 0; i < list->mesh_count; i++) {
    const dmuon_list_mesh *mesh = &list->meshes[i];
    int missing = mesh->sizes[0] ? -1 : first_missing(mesh, &mesh->holders, rank_at);
    if (missing >= 0)
      DMUON_FAIL(DMUON_ERR_DISAGREE, "%s is named in DMuonModelSetMesh on rank %d, not on rank %d",
                 mesh_text(text, mesh, rank_at), mesh->holders.ranges[0].first, missing);
  }
  for (int i = 0; i < list->param_count; i++) {
    const dmuon_list_param *entry = &list->params[i];
    const dmuon_list_mesh *mesh = &list->meshes[entry->param.mesh];
    int missing = first_missing(mesh, &entry->holders, rank_at);
    if (missing >= 0)
      DMUON_FAIL(DMUON_ERR_DISAGREE,
                 "%s: registered on rank %d, missing on rank %d; all ranks of its %s hold it",
                 entry->param.name, entry->holders.ranges[0].first, missing,
                 mesh_text(text, mesh, rank_at));
  }
  for (int i = 0; i < list->param_count; i++) {
    const dmuon_list_param *entry = &list->params[i];
    if (entry->other_rank >= 0)
      DMUON_FAIL(DMUON_ERR_DISAGREE,
                 "%s: order of registration: number %lld of its mesh on rank %d, number %lld on "
                 "rank %d",
                 entry->param.name, (long long)entry->ordinal, entry->holders.ranges[0].first,
                 (long long)entry->other_ordinal, entry->other_rank);
  }
  return check_patterns(list);
}
