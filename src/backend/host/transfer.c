/* The point-to-point layer: when a message is posted, and when it has come. Who sends what to whom
 * is decided by the operations. */
#include "backend/host/transfer.h"

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

DMuonErrorCode dmuon_transfer_advance(dmuon_transfer_port *port, dmuon_transfer *transfer) {
  int done = 0;
  MPI_Status status;
  if (transfer->state == DMUON_TRANSFER_ASKING) {
    DMUON_TRY(
        check(MPI_Test(&transfer->ready, &done, MPI_STATUS_IGNORE), "MPI_Test", transfer->peer));
    if (!done) return DMUON_SUCCESS;
    port->moves++;
    DMUON_TRY(post_data(port, transfer));
  }
  if (transfer->state != DMUON_TRANSFER_MOVING) return DMUON_SUCCESS;
  if (transfer->data != MPI_REQUEST_NULL) {
    DMUON_TRY(check(MPI_Test(&transfer->data, &done, &status), "MPI_Test", transfer->peer));
    if (!done) return DMUON_SUCCESS;
    if (!transfer->is_send) {
      int bytes = 0;
      DMUON_TRY(check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", transfer->peer));
      if (bytes != transfer->bytes)
        DMUON_FAIL(DMUON_ERR_COMM,
                   "rank %d of the axis sent %d bytes where %lld belong: ranks disagree about the "
                   "operation",
                   transfer->peer, bytes, (long long)transfer->bytes);
    }
  }
  DMUON_TRY(
      check(MPI_Test(&transfer->ready, &done, MPI_STATUS_IGNORE), "MPI_Test", transfer->peer));
  if (!done) return DMUON_SUCCESS;
  transfer->state = DMUON_TRANSFER_DONE;
  port->moves++;
  return DMUON_SUCCESS;
}
