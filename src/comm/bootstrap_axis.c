/* A rank's place on an axis of the split, and what the first rank of each line along an axis tells
 * the others of its line: through an agreement of all ranks, so that a failure of one is heard by
 * all. It decides nothing about what is told. */
#include <string.h>

#include "comm/agree.h"
#include "comm/bootstrap_private.h"

DMuonErrorCode dmuon_bootstrap_place(const dmuon_bootstrap *bootstrap, DMuonAxis axis, int *rank,
                                     int *size) {
  MPI_Comm comm = dmuon_bootstrap_comm(bootstrap, axis, DMUON_ROLE_FIRST);
  int place = 0, count = 1;
  if (comm != MPI_COMM_NULL) {
    DMUON_TRY(dmuon_link_mpi(MPI_Comm_rank(comm, &place), "MPI_Comm_rank"));
    DMUON_TRY(dmuon_link_mpi(MPI_Comm_size(comm, &count), "MPI_Comm_size"));
  }
  *rank = place;
  *size = count;
  return DMUON_SUCCESS;
}

/* The rank, in the bootstrap's numbering, of the first of this rank's line. */
static DMuonErrorCode find_leader(const dmuon_bootstrap *bootstrap, MPI_Comm comm, int *leader) {
  MPI_Group all = MPI_GROUP_NULL, line = MPI_GROUP_NULL;
  int first = 0;
  DMuonErrorCode code =
      dmuon_link_mpi(MPI_Comm_group(bootstrap->entry->base, &all), "MPI_Comm_group");
  if (!code) code = dmuon_link_mpi(MPI_Comm_group(comm, &line), "MPI_Comm_group");
  if (!code)
    code = dmuon_link_mpi(MPI_Group_translate_ranks(line, 1, &first, all, leader),
                          "MPI_Group_translate_ranks");
  if (line != MPI_GROUP_NULL) MPI_Group_free(&line);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  return code;
}

/* Pieces lie one behind another; each is a leader and what it says. */
static DMuonErrorCode join(dmuon_memory *memory, const void *a, int64_t a_bytes, const void *b,
                           int64_t b_bytes, void **out, int64_t *out_bytes, void *context) {
  char *both;
  (void)context;
  DMUON_TRY(dmuon_memory_alloc(memory, a_bytes + b_bytes, 1, &both));
  if (a_bytes) memcpy(both, a, (size_t)a_bytes);
  if (b_bytes) memcpy(both + a_bytes, b, (size_t)b_bytes);
  *out = both;
  *out_bytes = a_bytes + b_bytes;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_bootstrap_share(dmuon_bootstrap *bootstrap, const char *what, DMuonAxis axis,
                                     DMuonErrorCode code, void *data, int64_t bytes) {
  MPI_Comm comm = dmuon_bootstrap_comm(bootstrap, axis, DMUON_ROLE_FIRST);
  dmuon_memory *memory = &bootstrap->context->memory;
  const int64_t piece = (int64_t)sizeof(int64_t) + bytes;
  int leader = 0;
  char *said = NULL;
  int64_t said_bytes = 0, at = 0;
  if (!code && comm == MPI_COMM_NULL)
    code = DMUON_ERROR(DMUON_ERR_INTERNAL, "%s: the axis has one rank, who tells nobody", what);
  if (!code) code = find_leader(bootstrap, comm, &leader);
  const int64_t key = leader;
  if (!code) code = dmuon_memory_alloc(memory, piece, 1, &said);
  code = dmuon_agree_error(bootstrap, what, code, DMUON_ERR_SETUP);
  if (!code && leader == bootstrap->link.rank) {
    memcpy(said, &key, sizeof key);
    memcpy(said + sizeof key, data, (size_t)bytes);
    said_bytes = piece;
  }
  void *all = said;
  if (!code) code = dmuon_agree_merge(bootstrap, what, &all, &said_bytes, join, NULL);
  said = all;
  while (!code && at + piece <= said_bytes && memcmp(said + at, &key, sizeof key)) at += piece;
  if (!code && at + piece > said_bytes)
    code = DMUON_ERROR(DMUON_ERR_INTERNAL, "%s: rank %d told nothing", what, leader);
  if (!code) memcpy(data, said + at + sizeof key, (size_t)bytes);
  dmuon_memory_free(said);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}
