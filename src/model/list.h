/* What ranks say of a model, as a list that can be packed into bytes, sent, and merged with another
 * rank's. One list begins as one rank's own; merged over all ranks it is the registry.
 *
 * list.c stores and packs (nothing is decided there), merge.c compares. */
#ifndef DMUON_MODEL_LIST_H
#define DMUON_MODEL_LIST_H

#include "model/param.h"

/* Ranks as ascending ranges: two ints where all ranks hold a parameter. */
typedef struct {
  int first, last;
} dmuon_rank_range;
typedef struct {
  int count;
  dmuon_rank_range *ranges;
} dmuon_rank_set;

typedef struct {
  char *name;
  int sizes[3];   /* zero: not set up yet */
  int occurrence; /* the how-manieth mesh of just these ranks; 0 once it is set up */
  int size;
  int *ranks; /* the mesh's identity, with sizes and occurrence */
  dmuon_rank_set holders;
} dmuon_list_mesh;

typedef struct {
  dmuon_param param;     /* mesh, losses: indices into the list's meshes */
  int64_t ordinal;       /* among the parameters of its mesh on the rank that registered it */
  int64_t other_ordinal; /* the first differing one, and whose; other_rank -1: none */
  int other_rank;
  dmuon_rank_set holders;
} dmuon_list_param;

typedef struct {
  int kind, matched;
  char *pattern;
} dmuon_list_pattern;

typedef struct {
  dmuon_memory *memory;
  int mesh_count, mesh_capacity;
  dmuon_list_mesh *meshes;
  int param_count, param_capacity;
  dmuon_list_param *params;
  int pattern_count, pattern_capacity;
  dmuon_list_pattern *patterns;
} dmuon_list;

void dmuon_list_init(dmuon_list *list, dmuon_memory *memory);
void dmuon_list_free(dmuon_list *list);

/* Append deep copies. Nothing changes on failure. */
DMuonErrorCode dmuon_list_add_mesh(dmuon_list *list, const dmuon_list_mesh *mesh);
DMuonErrorCode dmuon_list_add_param(dmuon_list *list, const dmuon_list_param *param);
DMuonErrorCode dmuon_list_add_pattern(dmuon_list *list, const dmuon_list_pattern *pattern);

/* Index of the mesh with these sizes, occurrence and ranks, or -1. */
int dmuon_list_find_mesh(const dmuon_list *list, const dmuon_list_mesh *mesh);
int dmuon_rank_set_has(const dmuon_rank_set *set, int rank);
/* All of from come after all of into. */
DMuonErrorCode dmuon_rank_set_append(dmuon_memory *memory, dmuon_rank_set *into,
                                     const dmuon_rank_set *from);

/* Bytes from list->memory. All ranks run on machines of one endianness. */
DMuonErrorCode dmuon_list_pack(const dmuon_list *list, void **data, int64_t *bytes);
DMuonErrorCode dmuon_list_unpack(dmuon_list *list, dmuon_memory *memory, const void *data,
                                 int64_t bytes);

/* ---- merge.c ---- */

/* A name and where it stands; sorted by name, for finding. Equal names keep their order. */
typedef struct {
  const char *name;
  int index;
} dmuon_name_index;
DMuonErrorCode dmuon_names_sort(dmuon_memory *memory, dmuon_name_index *names, int count);
/* The entry's index, or -1. */
int dmuon_names_find(const dmuon_name_index *names, int count, const char *name);
/* The sorted names of a list's parameters, from list->memory; they point into the list. */
DMuonErrorCode dmuon_list_names(const dmuon_list *list, dmuon_name_index **names);

/* Adds to a what b says; ranks of a come before those of b. DMUON_ERR_DISAGREE names a parameter of
 * which the two say different things, both values and both ranks; a is then fit only for free.
 * rank_at turns a mesh's positions into ranks, for messages; NULL: they are ranks. */
DMuonErrorCode dmuon_list_merge(dmuon_list *a, const dmuon_list *b, const int *rank_at);
/* The same as a dmuon_merge; context is rank_at. */
DMuonErrorCode dmuon_list_merge_packed(dmuon_memory *memory, const void *a, int64_t a_bytes,
                                       const void *b, int64_t b_bytes, void **out,
                                       int64_t *out_bytes, void *context);

/* What only the whole shows: patterns that match nowhere (DMUON_ERR_SETUP), parameters and meshes
 * that a rank of theirs lacks, and orders that differ (DMUON_ERR_DISAGREE). The same verdict on
 * every rank. */
DMuonErrorCode dmuon_list_check(const dmuon_list *list, const int *rank_at);

#endif
