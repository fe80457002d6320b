/* The bell: how a rank that gives up tells all others of its communicator at once, whatever they
 * are doing. One short message to each rank, straight from the one that gives up, into a receive
 * that every rank posted when the communicator was made: so a rank between them that is stopped
 * keeps nobody from hearing, and MPI has room for the message. Internal to src/comm.
 *
 * It rings once. As long as nobody rings, nothing is sent; listening is one test of a request. */
#ifndef DMUON_COMM_BOOTSTRAP_BELL_H
#define DMUON_COMM_BOOTSTRAP_BELL_H

#include <mpi.h>
#include <stdint.h>

#include "base/memory.h"

/* Small enough to be sent eagerly by every MPI: a second bell finds no receive. */
#define DMUON_BELL_TEXT 160
#define DMUON_BELL_TAG 3 /* of no message of an agreement */

typedef struct {
  int32_t code, rank;
  char text[DMUON_BELL_TEXT];
} dmuon_bell_word;

typedef struct {
  MPI_Comm comm; /* borrowed */
  int rank, size;
  int is_open, has_heard, has_rung;
  dmuon_bell_word *in, *out; /* memory that MPI knows */
  MPI_Request listening, *ringing;
} dmuon_bell;

/* Posts the receive. An open bell stays as it is; one half opened can be closed. The memory must
 * outlive the bell. Every rank has opened before any rings: the caller sees to it. */
DMuonErrorCode dmuon_bell_open(dmuon_bell *bell, dmuon_memory *memory, MPI_Comm comm);
/* Takes the receive back. What MPI may still use is left. */
void dmuon_bell_close(dmuon_bell *bell);
/* Tells all others, the first time it is called. Does not wait. Long text is cut. */
void dmuon_bell_ring(dmuon_bell *bell, DMuonErrorCode code, const char *text);
/* What the first rank that rang said; NULL: nobody did so far. */
const dmuon_bell_word *dmuon_bell_heard(dmuon_bell *bell);

#endif
