/* TAP under MPI: tap.h where every assertion is collective over MPI_COMM_WORLD, false on one rank
 * is false on all, and rank 0 prints.
 *
 *   #include "tap_mpi.h"
 *   int main(int argc, char **argv) {
 *     tap_mpi_init(&argc, &argv);          // MPI_Init; tap_rank and tap_size are set
 *     tap_ok(..., "...");
 *     return tap_mpi_done();               // MPI_Finalize and the exit status
 *   }
 *
 * The agreement polls and yields: tests run with more ranks than cores. */
#ifndef TEST_TAP_MPI_H
#define TEST_TAP_MPI_H

#include <mpi.h>
#include <sched.h>

#include "tap.h"

static int tap_rank, tap_size;
static MPI_Comm tap_comm;

static void TAP_UNUSED tap_mpi_wait(MPI_Request *request) {
  int done = 0;
  while (MPI_Test(request, &done, MPI_STATUS_IGNORE), !done) sched_yield();
}

/* Each rank's diagnostics line on rank 0's log is not wanted; which ranks failed is. */
static int tap_mpi_agree(int condition) {
  int mine = condition ? tap_size : tap_rank, first;
  MPI_Request request;
  MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, tap_comm, &request);
  tap_mpi_wait(&request);
  if (first < tap_size && !condition)
    fprintf(stderr, "# rank %d: next assertion false here\n", tap_rank);
  return first == tap_size;
}

/* The value of all ranks, or -1 when they differ. */
static int TAP_UNUSED tap_mpi_common(int value) {
  int both[2] = {value, -value};
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, tap_comm, &request);
  tap_mpi_wait(&request);
  return both[0] == -both[1] ? both[0] : -1;
}

/* Whether any rank says so. */
static int TAP_UNUSED tap_mpi_any(int yes) {
  return tap_mpi_common(yes ? 1 : 0) != 0;
}

static void TAP_UNUSED tap_mpi_barrier(void) {
  MPI_Request request;
  MPI_Ibarrier(tap_comm, &request);
  tap_mpi_wait(&request);
}

/* For a program that has called MPI_Init or MPI_Init_thread itself. */
static void TAP_UNUSED tap_mpi_start(void) {
  MPI_Comm_dup(MPI_COMM_WORLD, &tap_comm);
  MPI_Comm_rank(tap_comm, &tap_rank);
  MPI_Comm_size(tap_comm, &tap_size);
  tap_state.quiet = tap_rank != 0;
  tap_state.agree = tap_mpi_agree;
}

static void TAP_UNUSED tap_mpi_init(int *argc, char ***argv) {
  MPI_Init(argc, argv);
  tap_mpi_start();
}

static int TAP_UNUSED tap_mpi_done(void) {
  int status = tap_done();
  MPI_Comm_free(&tap_comm);
  MPI_Finalize();
  return status;
}

#endif
