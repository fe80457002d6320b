/* Ringing and hearing. What it means that somebody rang is the link's to decide. */
#include "comm/bootstrap_bell.h"

#include <stdio.h>
#include <string.h>

#include "comm/bootstrap_link.h"

DMuonErrorCode dmuon_bell_open(dmuon_bell *bell, dmuon_memory *memory, MPI_Comm comm) {
  if (bell->is_open) return DMUON_SUCCESS;
  memset(bell, 0, sizeof *bell);
  bell->comm = comm;
  bell->listening = MPI_REQUEST_NULL;
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_rank(comm, &bell->rank), "MPI_Comm_rank"));
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_size(comm, &bell->size), "MPI_Comm_size"));
  bell->is_open = 1;
  if (bell->size == 1) return DMUON_SUCCESS;
  DMuonErrorCode code = dmuon_memory_alloc(memory, 1, sizeof *bell->in, &bell->in);
  if (!code) code = dmuon_memory_alloc(memory, 1, sizeof *bell->out, &bell->out);
  if (!code) code = dmuon_memory_alloc(memory, bell->size, sizeof *bell->ringing, &bell->ringing);
  for (int i = 0; !code && i < bell->size; i++) bell->ringing[i] = MPI_REQUEST_NULL;
  if (!code)
    code = dmuon_link_mpi(MPI_Irecv(bell->in, (int)sizeof *bell->in, MPI_BYTE, MPI_ANY_SOURCE,
                                    DMUON_BELL_TAG, comm, &bell->listening),
                          "MPI_Irecv");
  if (code) dmuon_bell_close(bell);
  return code;
}

void dmuon_bell_close(dmuon_bell *bell) {
  int finalized = 1, said = 1;
  if (!bell->is_open) return;
  bell->is_open = 0;
  MPI_Finalized(&finalized); /* then MPI has let go of everything */
  if (finalized || dmuon_link_take_back(&bell->listening)) dmuon_memory_free(bell->in);
  for (int i = 0; bell->ringing && i < bell->size && !finalized; i++)
    if (!dmuon_link_is_over(&bell->ringing[i])) said = 0;
  if (said) dmuon_memory_free(bell->out);
  dmuon_memory_free(bell->ringing);
  bell->in = bell->out = NULL;
  bell->ringing = NULL;
}

void dmuon_bell_ring(dmuon_bell *bell, DMuonErrorCode code, const char *text) {
  int finalized = 1;
  if (!bell->is_open || bell->has_rung) return;
  bell->has_rung = 1;
  MPI_Finalized(&finalized);
  if (bell->size == 1 || finalized) return;
  bell->out->code = (int32_t)code;
  bell->out->rank = bell->rank;
  size_t length = strlen(text);
  if (length >= sizeof bell->out->text) {
    memcpy(bell->out->text, text, sizeof bell->out->text - 4);
    memcpy(bell->out->text + sizeof bell->out->text - 4, "...", 4);
  } else {
    memcpy(bell->out->text, text, length + 1);
  }
  /* An error concerns one rank: the others are told all the same. */
  for (int i = 1; i < bell->size; i++) {
    int peer = (bell->rank + i) % bell->size;
    if (MPI_Isend(bell->out, (int)sizeof *bell->out, MPI_BYTE, peer, DMUON_BELL_TAG, bell->comm,
                  &bell->ringing[peer]))
      bell->ringing[peer] = MPI_REQUEST_NULL;
  }
}

const dmuon_bell_word *dmuon_bell_heard(dmuon_bell *bell) {
  int done = 0;
  if (!bell->is_open || bell->size == 1) return NULL;
  if (!bell->has_heard && bell->listening != MPI_REQUEST_NULL &&
      MPI_Test(&bell->listening, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) {
    bell->has_heard = 1;
    bell->in->text[sizeof bell->in->text - 1] = '\0';
  }
  return bell->has_heard ? bell->in : NULL;
}
