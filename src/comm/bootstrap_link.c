/* The messages of agreements: posting, waiting with a deadline, and payloads in pieces. It knows
 * the binomial tree's neighbours but not what is agreed on; that is agree.c's. Waiting is MPI_Test
 * with a yield, because with more ranks than cores a spinning wait keeps the awaited rank from
 * running. */
#include "comm/bootstrap_link.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/bootstrap_process.h"

enum { KIND_NOTE = 0, KIND_READY, KIND_PIECE };

/* Messages of neighbouring agreements must not be taken for each other; those of agreements so far
 * apart that tags repeat are kept in order by MPI. */
static int tag_of(const dmuon_link *link, int kind) {
  return (int)(link->sequence % 8192) * 4 + kind;
}

double dmuon_link_now(void) {
  return MPI_Wtime();
}

DMuonErrorCode dmuon_link_mpi(int rc, const char *call) {
  if (rc == MPI_SUCCESS) return DMUON_SUCCESS;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(rc, text, &length);
  DMUON_FAIL(DMUON_ERR_COMM, "%s failed: %s", call, text);
}

int dmuon_link_is_over(MPI_Request *request) {
  int done = 0;
  return *request == MPI_REQUEST_NULL ||
         (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done);
}

/* The looks are for libraries that need some calls for it. */
int dmuon_link_take_back(MPI_Request *request) {
  enum { LOOKS = 100 };
  if (dmuon_link_is_over(request)) return 1;
  if (MPI_Cancel(request) != MPI_SUCCESS) return 0;
  for (int i = 0; i < LOOKS; i++)
    if (dmuon_link_is_over(request)) return 1;
  return 0;
}

DMuonErrorCode dmuon_link_open(dmuon_link *link, dmuon_memory *memory, MPI_Comm comm,
                               double timeout) {
  memset(link, 0, sizeof *link);
  link->comm = comm;
  link->memory = memory;
  link->timeout = timeout;
  link->parent_in = link->parent_out = MPI_REQUEST_NULL;
  link->mpi_calls += 3;
  DMUON_TRY(
      dmuon_link_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_rank(comm, &link->rank), "MPI_Comm_rank"));
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_size(comm, &link->size), "MPI_Comm_size"));

  link->parent = link->rank ? link->rank & (link->rank - 1) : -1;
  for (int rank = link->rank; rank; rank &= rank - 1) link->depth++;
  for (int64_t bit = 1; link->rank + bit < link->size && !(link->rank & bit); bit *= 2) {
    link->child_in[link->child_count] = link->child_out[link->child_count] = MPI_REQUEST_NULL;
    link->child[link->child_count++] = (int)(link->rank + bit);
  }
  link->height = link->child_count;
  if (link->size == 1) return DMUON_SUCCESS;
  DMUON_TRY(
      dmuon_memory_alloc(memory, 2 * link->child_count + 2, sizeof *link->notes, &link->notes));
  DMUON_TRY(dmuon_memory_alloc(memory, DMUON_LINK_PIECE, 1, &link->piece));
  return dmuon_link_reserve(link, DMUON_LINK_INLINE);
}

/* Whether MPI may still write into, or read, the notes of a broken link. */
static int is_in_flight(dmuon_link *link) {
  int finalized = 1, pending = 0, done;
  MPI_Request *requests[2 * DMUON_TREE_DEPTH + 2];
  int count = 0;
  requests[count++] = &link->parent_in;
  requests[count++] = &link->parent_out;
  for (int i = 0; i < link->child_count; i++) {
    requests[count++] = &link->child_in[i];
    requests[count++] = &link->child_out[i];
  }
  MPI_Finalized(&finalized);
  for (int i = 0; i < count; i++) {
    if (*requests[i] == MPI_REQUEST_NULL) continue;
    if (finalized || MPI_Test(requests[i], &done, MPI_STATUS_IGNORE) || !done) pending = 1;
  }
  return pending;
}

void dmuon_link_close(dmuon_link *link) {
  /* Better a leak than memory that changes under its next owner. */
  if (!link->broken || !is_in_flight(link)) dmuon_memory_free(link->notes);
  dmuon_memory_free(link->piece);
  dmuon_memory_free(link->scratch);
  link->notes = NULL, link->piece = NULL, link->scratch = NULL;
}

DMuonErrorCode dmuon_link_reserve(dmuon_link *link, int64_t bytes) {
  if (bytes <= link->scratch_bytes) return DMUON_SUCCESS;
  char *scratch;
  DMUON_TRY(dmuon_memory_alloc(link->memory, bytes, 1, &scratch));
  dmuon_memory_free(link->scratch);
  link->scratch = scratch;
  link->scratch_bytes = bytes;
  return DMUON_SUCCESS;
}

/* tell: the others hear of it from this rank. */
static void break_link(dmuon_link *link, DMuonErrorCode code, const char *why, int tell) {
  link->broken = code >= 200 ? code : DMUON_ERR_INTERNAL;
  snprintf(link->message, sizeof link->message, "%s", dmuon_error_text());
  snprintf(link->why, sizeof link->why, "%.*s", DMUON_BELL_TEXT - 1, why);
  link->told = tell;
  if (tell && link->bell) dmuon_bell_ring(link->bell, link->broken, why);
  if (link->on_break) link->on_break(link->on_break_argument, link->broken);
}

void dmuon_link_break(dmuon_link *link, DMuonErrorCode code) {
  if (link->broken) return;
  link->by = code == DMUON_ERR_REVOKED ? -1 : link->rank;
  break_link(link, code, dmuon_error_text(), code != DMUON_ERR_REVOKED);
}

static DMuonErrorCode given_up_by(const dmuon_link *link, int rank, const char *why) {
  const char *name = strncmp(why, "mesh \"", 6) ? link->name : NULL; /* not twice */
  if (rank < 0) DMUON_FAIL(DMUON_ERR_REVOKED, "a rank of another mesh gave up: %s", why);
  DMUON_FAIL(DMUON_ERR_REVOKED, "%s%s%srank %d of %d gave up: %s", name ? "mesh \"" : "",
             name ? name : "", name ? "\": " : "", rank, link->size, why);
}

void dmuon_link_revoke(dmuon_link *link, int by, const char *why, int tell) {
  if (link->broken) return;
  link->by = by;
  break_link(link, given_up_by(link, by, why), why, tell);
}

void dmuon_link_listen(dmuon_link *link) {
  if (link->broken || !link->bell) return;
  const dmuon_bell_word *word = dmuon_bell_heard(link->bell);
  if (word) dmuon_link_revoke(link, word->rank, word->text, 0);
}

DMuonErrorCode dmuon_link_check(const dmuon_link *link) {
  if (!link->broken) return DMUON_SUCCESS;
  DMUON_FAIL(link->broken, "%s", link->message);
}

DMuonErrorCode dmuon_link_post_note(dmuon_link *link, int peer, int send, dmuon_link_note *note,
                                    MPI_Request *request) {
  link->mpi_calls++;
  int tag = tag_of(link, KIND_NOTE);
  if (!send) {
    int rc = MPI_Irecv(note, (int)sizeof *note, MPI_BYTE, peer, tag, link->comm, request);
    return dmuon_link_mpi(rc, "MPI_Irecv");
  }
  size_t bytes = offsetof(dmuon_link_note, payload);
  if (note->bytes <= DMUON_LINK_INLINE) bytes += (size_t)note->bytes;
  int rc = MPI_Isend(note, (int)bytes, MPI_BYTE, peer, tag, link->comm, request);
  return dmuon_link_mpi(rc, "MPI_Isend");
}

DMuonErrorCode dmuon_link_wait(dmuon_link *link, MPI_Request *request, MPI_Request *alarm,
                               double deadline, int *done) {
  enum { PASSES_A_LISTEN = 16 };
  *done = 0;
  for (unsigned pass = 1;; pass++) {
    int flag = 0;
    DMUON_TRY(dmuon_link_mpi(MPI_Test(request, done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (*done) return DMUON_SUCCESS;
    if (alarm) {
      DMUON_TRY(dmuon_link_mpi(MPI_Test(alarm, &flag, MPI_STATUS_IGNORE), "MPI_Test"));
      if (flag) return DMUON_SUCCESS;
    }
    const int late = deadline > 0 && dmuon_link_now() > deadline;
    if (late || pass % PASSES_A_LISTEN == 0) dmuon_process_listen();
    DMUON_TRY(dmuon_link_check(link));
    if (late) return DMUON_SUCCESS;
    if (link->progress) {
      DMUON_TRY(link->progress(link->progress_argument));
    } else {
      dmuon_process_progress();
    }
    sched_yield();
  }
}

static double next_deadline(const dmuon_link *link) {
  return link->timeout > 0 ? dmuon_link_now() + link->timeout : 0;
}

/* A piece given up may still be read or written by MPI: it is left, and the next one gets memory of
 * its own. */
static DMuonErrorCode have_piece(dmuon_link *link) {
  if (link->piece) return DMUON_SUCCESS;
  return dmuon_memory_alloc(link->memory, DMUON_LINK_PIECE, 1, &link->piece);
}

DMuonErrorCode dmuon_link_send_body(dmuon_link *link, int peer, const void *data, int64_t bytes,
                                    MPI_Request *alarm, int *done) {
  *done = 1;
  for (int64_t at = 0; at < bytes && *done; at += DMUON_LINK_PIECE) {
    int64_t size = bytes - at < DMUON_LINK_PIECE ? bytes - at : DMUON_LINK_PIECE;
    MPI_Request request;
    link->mpi_calls += 2;
    DMUON_TRY(dmuon_link_mpi(
        MPI_Irecv(NULL, 0, MPI_BYTE, peer, tag_of(link, KIND_READY), link->comm, &request),
        "MPI_Irecv"));
    DMUON_TRY(dmuon_link_wait(link, &request, alarm, next_deadline(link), done));
    if (!*done) break; /* an empty receive: nothing to be written to */
    DMUON_TRY(have_piece(link));
    char *piece = link->piece;
    memcpy(piece, (const char *)data + at, (size_t)size);
    link->piece = NULL;
    DMUON_TRY(dmuon_link_mpi(
        MPI_Isend(piece, (int)size, MPI_BYTE, peer, tag_of(link, KIND_PIECE), link->comm, &request),
        "MPI_Isend"));
    /* No alarm here: the answer to the last piece may be seen before the end of its send. */
    DMUON_TRY(dmuon_link_wait(link, &request, NULL, next_deadline(link), done));
    if (*done) link->piece = piece;
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_link_receive_body(dmuon_link *link, int peer, void *data, int64_t bytes,
                                       int *done) {
  *done = 1;
  for (int64_t at = 0; at < bytes && *done; at += DMUON_LINK_PIECE) {
    int64_t size = bytes - at < DMUON_LINK_PIECE ? bytes - at : DMUON_LINK_PIECE;
    MPI_Request request, ready;
    link->mpi_calls += 2;
    DMUON_TRY(have_piece(link));
    char *piece = link->piece;
    link->piece = NULL;
    DMUON_TRY(dmuon_link_mpi(
        MPI_Irecv(piece, (int)size, MPI_BYTE, peer, tag_of(link, KIND_PIECE), link->comm, &request),
        "MPI_Irecv"));
    DMUON_TRY(dmuon_link_mpi(
        MPI_Isend(NULL, 0, MPI_BYTE, peer, tag_of(link, KIND_READY), link->comm, &ready),
        "MPI_Isend"));
    DMUON_TRY(dmuon_link_wait(link, &request, NULL, next_deadline(link), done));
    if (!*done) break;
    link->piece = piece;
    if (data) memcpy((char *)data + at, piece, (size_t)size);
    DMUON_TRY(dmuon_link_wait(link, &ready, NULL, next_deadline(link), done));
  }
  return DMUON_SUCCESS;
}
