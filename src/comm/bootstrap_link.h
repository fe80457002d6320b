/* Messages between two ranks of one communicator that can be given up: what agreements are made of.
 * A link belongs to one communicator that carries nothing else. Internal to src/comm.
 *
 * Every message is small, or is a piece of a larger one that is sent only against a receive known
 * to be posted. All of them go through buffers of the link: MPI never sees the caller's memory,
 * which is his again as soon as a call returns, whatever it returns. When a wait is given up,
 * requests stay with MPI, and with them the link's buffers (left, never freed). */
#ifndef DMUON_COMM_BOOTSTRAP_LINK_H
#define DMUON_COMM_BOOTSTRAP_LINK_H

#include "comm/agree.h"
#include "comm/bootstrap_bell.h"
#include "comm/tree.h"

#define DMUON_LINK_INLINE 1024
#define DMUON_LINK_PIECE (64 * 1024)
#define DMUON_LINK_SILENT 8 /* so many silent ranks are named */
#define DMUON_LINK_CALL 40  /* so much of what is agreed on travels */

typedef enum {
  DMUON_NOTE_DATA = 0,
  DMUON_NOTE_FAILED, /* payload is a dmuon_link_failure */
  DMUON_NOTE_SILENT  /* ranks did not answer: give up */
} dmuon_note_kind;

typedef struct {
  int32_t code, rank;
  char text[DMUON_LINK_INLINE - 8];
} dmuon_link_failure;

/* The first message of an edge of the agreement's tree. */
typedef struct {
  int32_t kind, silent_count;
  int32_t silent[DMUON_LINK_SILENT];
  int32_t silent_by, padding;      /* the rank that waited for them */
  char call[DMUON_LINK_CALL];      /* what the sender agrees on */
  int64_t bytes;                   /* of the whole payload */
  char payload[DMUON_LINK_INLINE]; /* the payload itself when it fits */
} dmuon_link_note;

typedef struct {
  MPI_Comm comm;
  int rank, size;
  dmuon_memory *memory;
  double timeout;
  DMuonErrorCode (*progress)(void *);
  void *progress_argument;

  uint32_t sequence; /* of the next agreement */
  int64_t mpi_calls; /* messages and what set it up; not tests */

  /* The binomial tree to rank 0: node r holds [r, r + 2^k). Children ascend. */
  int parent, depth, height;
  int child_count, child[DMUON_TREE_DEPTH];
  dmuon_link_note *notes; /* in from each child, in from parent, out to parent, out to children */
  MPI_Request child_in[DMUON_TREE_DEPTH], child_out[DMUON_TREE_DEPTH], parent_in, parent_out;
  char *piece;   /* the one under way; NULL: the last was given up and left */
  void *scratch; /* one incoming payload, whole */
  int64_t scratch_bytes;

  const char *name; /* of the mesh, for messages; borrowed; NULL: none */
  DMuonErrorCode broken;
  char message[1024];
  int told;                  /* this rank told the others when it broke */
  int by;                    /* revoked: the rank that gave up, -1 when none of these ranks; ... */
  char why[DMUON_BELL_TEXT]; /* ... and its reason */
  dmuon_bell *bell;          /* tells the others; borrowed; NULL: there is none */
  void (*on_break)(void *argument, DMuonErrorCode code);
  void *on_break_argument;
} dmuon_link;

/* comm is borrowed; gets MPI_ERRORS_RETURN. A link half opened can be closed. */
DMuonErrorCode dmuon_link_open(dmuon_link *link, dmuon_memory *memory, MPI_Comm comm,
                               double timeout);
void dmuon_link_close(dmuon_link *link);
/* The first time: keeps code and the thread's record, calls on_break, and tells the others, unless
 * they are known to hear of it without: DMUON_ERR_REVOKED is what another rank decided. */
void dmuon_link_break(dmuon_link *link, DMuonErrorCode code);
/* Breaks the link because rank `by` gave up (-1: one that is not here), unless it is broken; tell:
 * nobody else tells the others. */
void dmuon_link_revoke(dmuon_link *link, int by, const char *why, int tell);
DMuonErrorCode dmuon_link_check(const dmuon_link *link);
/* Breaks the link when another rank has given up. */
void dmuon_link_listen(dmuon_link *link);

double dmuon_link_now(void);
/* code with the text MPI has for rc, when rc is an error. */
DMuonErrorCode dmuon_link_mpi(int rc, const char *call);
/* Nonzero when a request is over, with or without its message. */
int dmuon_link_is_over(MPI_Request *request);
/* Takes a request back: nonzero when it is over. A receive that had not met its message yet ends at
 * once, whatever other ranks do. */
int dmuon_link_take_back(MPI_Request *request);

/* Posts the send or the receive of one note. */
DMuonErrorCode dmuon_link_post_note(dmuon_link *link, int peer, int send, dmuon_link_note *note,
                                    MPI_Request *request);
/* Until request is done, or alarm (may be NULL) is, or the deadline has passed (0: never).
 * Progresses and yields. *done: request is. */
DMuonErrorCode dmuon_link_wait(dmuon_link *link, MPI_Request *request, MPI_Request *alarm,
                               double deadline, int *done);
/* A payload larger than a note, in pieces. Each wait lasts at most the timeout; *done 0: given up.
 * data NULL when receiving: dropped. */
DMuonErrorCode dmuon_link_send_body(dmuon_link *link, int peer, const void *data, int64_t bytes,
                                    MPI_Request *alarm, int *done);
DMuonErrorCode dmuon_link_receive_body(dmuon_link *link, int peer, void *data, int64_t bytes,
                                       int *done);

/* The calls of agree.h on a link (agree.c). */
DMuonErrorCode dmuon_link_reduce(dmuon_link *link, const char *what, void *data, int64_t bytes,
                                 dmuon_combine combine, void *context);
DMuonErrorCode dmuon_link_agree_error(dmuon_link *link, const char *what, DMuonErrorCode code,
                                      DMuonErrorCode local_as);
DMuonErrorCode dmuon_link_reserve(dmuon_link *link, int64_t bytes);

#endif
