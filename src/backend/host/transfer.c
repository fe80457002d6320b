/* The point-to-point layer: when a message is posted, and when it has come. Who sends what to whom
 * is decided by the operations. */
#include "backend/host/transfer.h"

#include "backend/host/engine.h"
#include "comm/bootstrap_link.h"

enum { KIND_DATA = 0, KIND_READY };

static DMuonErrorCode check(int rc, const char *call, int peer) {
  if (rc == MPI_SUCCESS) return DMUON_SUCCESS;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(rc, text, &length);
  DMUON_FAIL(DMUON_ERR_COMM, "%s with rank %d of the axis failed: %s", call, peer, text);
}

static void begin(dmuon_transfer *transfer, int is_send, void *buffer, int64_t bytes, int peer,
                  uint32_t number) {
  transfer->is_send = is_send;
  transfer->buffer = buffer;
  transfer->bytes = bytes;
  transfer->peer = peer;
  transfer->tag = (int)(number % DMUON_TRANSFER_NUMBERS) * 2;
  transfer->held_since = 0;
  transfer->data = transfer->ready = MPI_REQUEST_NULL;
}

static DMuonErrorCode post_data(dmuon_transfer_port *port, dmuon_transfer *transfer) {
  transfer->state = DMUON_TRANSFER_MOVING;
  port->messages++;
  return check(MPI_Isend(transfer->buffer, (int)transfer->bytes, MPI_BYTE, transfer->peer,
                         transfer->tag + KIND_DATA, port->comm, &transfer->data),
               "MPI_Isend", transfer->peer);
}

DMuonErrorCode dmuon_transfer_send(dmuon_transfer_port *port, dmuon_transfer *transfer,
                                   const void *buffer, int64_t bytes, int peer, uint32_t number) {
  union {
    const void *in;
    void *out;
  } same = {.in = buffer}; /* MPI reads it only */
  begin(transfer, 1, same.out, bytes, peer, number);
  if (bytes <= DMUON_TRANSFER_EAGER) return post_data(port, transfer);
  transfer->state = DMUON_TRANSFER_ASKING;
  return check(
      MPI_Irecv(NULL, 0, MPI_BYTE, peer, transfer->tag + KIND_READY, port->comm, &transfer->ready),
      "MPI_Irecv", peer);
}

DMuonErrorCode dmuon_transfer_receive(dmuon_transfer_port *port, dmuon_transfer *transfer,
                                      void *buffer, int64_t bytes, int peer, uint32_t number) {
  begin(transfer, 0, buffer, bytes, peer, number);
  transfer->state = DMUON_TRANSFER_MOVING;
  DMUON_TRY(check(MPI_Irecv(buffer, (int)bytes, MPI_BYTE, peer, transfer->tag + KIND_DATA,
                            port->comm, &transfer->data),
                  "MPI_Irecv", peer));
  if (bytes <= DMUON_TRANSFER_EAGER) return DMUON_SUCCESS;
  port->messages++;
  return check(
      MPI_Isend(NULL, 0, MPI_BYTE, peer, transfer->tag + KIND_READY, port->comm, &transfer->ready),
      "MPI_Isend", peer);
}

/* Whether the message that is there may be looked at. Seeing it is progress, the end of the delay
 * is not far. */
static int is_held_back(dmuon_transfer_port *port, dmuon_transfer *transfer) {
  if (port->delay <= 0) return 0;
  double now = dmuon_host_seconds();
  if (transfer->held_since == 0) {
    transfer->held_since = now;
    port->moves++;
  }
  if (now - transfer->held_since < port->delay) return 1;
  transfer->held_since = 0;
  return 0;
}

/* The data of a receive has come: is it what was expected. */
static DMuonErrorCode check_length(const dmuon_transfer *transfer, const MPI_Status *status) {
  int bytes = 0;
  DMUON_TRY(check(MPI_Get_count(status, MPI_BYTE, &bytes), "MPI_Get_count", transfer->peer));
  if (bytes != transfer->bytes)
    DMUON_FAIL(DMUON_ERR_COMM,
               "rank %d of the axis sent %d bytes where %lld belong: ranks disagree about the "
               "operation",
               transfer->peer, bytes, (long long)transfer->bytes);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_transfer_advance(dmuon_transfer_port *port, dmuon_transfer *transfer) {
  int done = 0;
  MPI_Status status;
  if (transfer->state == DMUON_TRANSFER_ASKING) {
    DMUON_TRY(
        check(MPI_Test(&transfer->ready, &done, MPI_STATUS_IGNORE), "MPI_Test", transfer->peer));
    if (!done || is_held_back(port, transfer)) return DMUON_SUCCESS;
    port->moves++;
    DMUON_TRY(post_data(port, transfer));
  }
  if (transfer->state != DMUON_TRANSFER_MOVING) return DMUON_SUCCESS;
  if (transfer->data != MPI_REQUEST_NULL) {
    DMUON_TRY(check(MPI_Test(&transfer->data, &done, &status), "MPI_Test", transfer->peer));
    if (!done) return DMUON_SUCCESS;
    if (!transfer->is_send) DMUON_TRY(check_length(transfer, &status));
  }
  DMUON_TRY(
      check(MPI_Test(&transfer->ready, &done, MPI_STATUS_IGNORE), "MPI_Test", transfer->peer));
  if (!done) return DMUON_SUCCESS;
  if (!transfer->is_send && is_held_back(port, transfer)) return DMUON_SUCCESS;
  transfer->state = DMUON_TRANSFER_DONE;
  port->moves++;
  return DMUON_SUCCESS;
}

int dmuon_transfer_give_up(dmuon_transfer *transfer) {
  int finalized = 1, over = 1;
  if (!dmuon_transfer_is_pending(transfer)) return 0;
  MPI_Finalized(&finalized);
  if (transfer->state == DMUON_TRANSFER_ASKING) {
    if (!finalized)
      (void)dmuon_link_take_back(&transfer->ready); /* empty: there is no buffer to care for */
  } else if (finalized) {
    over = transfer->data == MPI_REQUEST_NULL;
  } else if (transfer->is_send || transfer->bytes > DMUON_TRANSFER_EAGER) {
    over = dmuon_link_is_over(&transfer->data);
  } else {
    over = dmuon_link_take_back(&transfer->data);
  }
  transfer->state = DMUON_TRANSFER_IDLE;
  return !over;
}
