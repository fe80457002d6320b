/* One message between two ranks of a communicator, advanced without blocking. A message above
 * DMUON_TRANSFER_EAGER bytes is sent only once the receiver has said, with an empty message, that
 * its receive is posted: so MPI never has to keep large data for a receive that may not come, and
 * an abandoned operation leaves no half-sent message that MPI_Finalize would wait for.
 *
 * For tests of overlap a message can be held back: it counts as arrived only some time after it
 * was seen to be there. */
#ifndef DMUON_BACKEND_HOST_TRANSFER_H
#define DMUON_BACKEND_HOST_TRANSFER_H

#include <mpi.h>
#include <stdint.h>

#include "base/error.h"

#define DMUON_TRANSFER_EAGER 4096
/* Messages between the same two ranks that are under way at one time must differ in number modulo
 * this; those further apart are kept in order by MPI. Tags stay below 32767. */
#define DMUON_TRANSFER_NUMBERS 8192

typedef enum {
  DMUON_TRANSFER_IDLE = 0,
  DMUON_TRANSFER_ASKING, /* a send that waits for the receiver's word */
  DMUON_TRANSFER_MOVING,
  DMUON_TRANSFER_DONE
} dmuon_transfer_state;

typedef struct {
  dmuon_transfer_state state;
  int is_send, peer, tag;
  void *buffer;
  int64_t bytes;
  double held_since; /* when the message of this stage was seen; 0: not yet */
  MPI_Request data, ready;
} dmuon_transfer;

/* Where messages go and are counted. */
typedef struct {
  MPI_Comm comm;
  int64_t messages; /* sent */
  int64_t moves;    /* transfers that got a step further: whether a pass was fruitful */
  double delay;     /* seconds a message is held back */
} dmuon_transfer_port;

/* bytes <= INT_MAX. number is the same at both ends. buffer stays untouched (send), or unread and
 * unwritten (receive), until done. */
DMuonErrorCode dmuon_transfer_send(dmuon_transfer_port *port, dmuon_transfer *transfer,
                                   const void *buffer, int64_t bytes, int peer, uint32_t number);
DMuonErrorCode dmuon_transfer_receive(dmuon_transfer_port *port, dmuon_transfer *transfer,
                                      void *buffer, int64_t bytes, int peer, uint32_t number);
/* One look; the state tells. */
DMuonErrorCode dmuon_transfer_advance(dmuon_transfer_port *port, dmuon_transfer *transfer);
/* Nobody will look any more. A small message's receive is cancelled. What cannot be is the rest:
 * data on its way out, and data that the sender was told to send (it may do so late, and must find
 * its receive). Nonzero: MPI may still use the buffer, for ever. */
int dmuon_transfer_give_up(dmuon_transfer *transfer);
static inline int dmuon_transfer_is_pending(const dmuon_transfer *transfer) {
  return transfer->state == DMUON_TRANSFER_ASKING || transfer->state == DMUON_TRANSFER_MOVING;
}

#endif
