/* Threads that call one after the other, on different ranks different ones: the values are those of
 * one thread. */
#include "tap_mpi.h"
#include "threads.h"

static thread_life life;

static void *open_it(void *unused) {
  (void)unused;
  life.code = thread_open(&life);
  return NULL;
}

static void *step_it(void *step) {
  if (!life.code) life.code = thread_step(&life, *(int *)step);
  return NULL;
}

static void *close_it(void *unused) {
  (void)unused;
  thread_close(&life);
  return NULL;
}

static void *fail(void *unused) {
  (void)unused;
  life.code = DMuonOptimizerStep(NULL);
  snprintf(life.message, sizeof life.message, "%s", DMuonErrorGetMessage());
  return NULL;
}

static int run(int with_threads) {
  int ran = 1;
  if (with_threads)
    ran &= thread_run(open_it, NULL);
  else
    open_it(NULL);
  for (int step = 0; step < THREADS_STEPS; step++) {
    if (with_threads && (step + tap_rank) % 3) /* a new one, or the main one */
      ran &= thread_run(step_it, &step);
    else
      step_it(&step);
  }
  if (with_threads)
    ran &= thread_run(close_it, NULL);
  else
    close_it(NULL);
  return ran && !life.code;
}

int main(int argc, char **argv) {
  static float expected[2][THREADS_N * THREADS_N];
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  tap_mpi_start();
  if (provided < MPI_THREAD_SERIALIZED) {
    tap_skip_all("this MPI has no MPI_THREAD_SERIALIZED");
    return tap_mpi_done();
  }
  life.comm = MPI_COMM_WORLD;
  life.rank = tap_rank;
  if (!tap_ok(run(0), "one thread")) tap_diag("%s", DMuonErrorGetMessage());
  memcpy(expected, life.w, sizeof expected);
  tap_ok(run(1), "several, one after the other");
  tap_ok(!memcmp(expected, life.w, sizeof expected), "the same bits");
  DMuonErrorClear();
  tap_ok(thread_run(fail, NULL) && life.code == DMUON_ERR_ARGUMENT &&
             strstr(life.message, "NULL") && !strcmp(DMuonErrorGetMessage(), "no error"),
         "a thread's errors are its own");
  return tap_mpi_done();
}
