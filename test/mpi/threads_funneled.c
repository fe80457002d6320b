/* MPI was told that its main thread alone calls it: another thread's calls into the library are
 * refused there, with nothing sent, and the main thread goes on as if nothing had been. */
#include "tap_mpi.h"
#include "threads.h"

/* A mesh that the wrong thread destroys stays where it is. Read by the leak sanitizer alone. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:DMuonMeshCreate\nleak:DMuonMeshSetUp\n";
}

static thread_life life, other;
static DMuonMesh spare;

static void *call_them_all(void *argument) {
  int *refused = argument;
  DMuonMesh mesh = NULL;
  char *json = NULL;
  const DMuonErrorCode codes[] = {DMuonMeshCreate(MPI_COMM_WORLD, &mesh),
                                  DMuonMeshProgress(life.mesh),
                                  DMuonMeshSetUp(life.mesh),
                                  DMuonMeshRevoke(life.mesh, "from the wrong thread"),
                                  DMuonMeshSetTimeout(life.mesh, 5),
                                  DMuonOptimizerStep(life.opt),
                                  DMuonOptimizerWait(life.opt),
                                  DMuonOptimizerSyncArrays(life.opt, 0),
                                  DMuonOptimizerStepMany(1, &life.opt)};
  *refused = !mesh;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    if (codes[i] == DMUON_ERR_THREAD) continue;
    *refused = 0;
    fprintf(stderr, "# call %zu: %s\n", i, DMuonErrorGetName(codes[i]));
  }
  snprintf(life.message, sizeof life.message, "%s", DMuonErrorGetMessage());
  if (DMuonMeshDestroy(&spare) || spare) *refused = 0; /* never fails */
  if (DMuonOptimizerSummary(life.opt, &json)) *refused = 0; /* no communication: fine */
  DMuonFree(json);
  return NULL;
}

int main(int argc, char **argv) {
  int provided = MPI_THREAD_SINGLE, refused = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  tap_mpi_start();
  if (provided >= MPI_THREAD_SERIALIZED) {
    tap_skip_all("this MPI lets every thread call");
    return tap_mpi_done();
  }
  life.comm = other.comm = MPI_COMM_WORLD;
  life.rank = other.rank = tap_rank;
  DMuonErrorCode code = thread_open(&life);
  for (int step = 0; step < THREADS_STEPS && !code; step++) code = thread_step(&life, step);
  tap_ok(!code, "the main thread");
  thread_close(&life);
  memcpy(other.w, life.w, sizeof life.w);

  code = thread_open(&life);
  if (!code) code = thread_step(&life, 0);
  if (!code) code = DMuonMeshCreate(MPI_COMM_WORLD, &spare);
  if (!code) code = DMuonMeshSetUp(spare);
  /* On one rank alone: had it sent anything, the others would be in the middle of something. */
  int ran = 1;
  if (tap_rank == tap_size - 1)
    ran = thread_run(call_them_all, &refused);
  else
    refused = 1;
  tap_ok(ran && refused, "calls from another thread are refused");
  tap_ok(tap_rank < tap_size - 1 || strstr(life.message, "MPI_THREAD_SERIALIZED"),
         "saying what would be right");
  for (int step = 1; step < THREADS_STEPS && !code; step++) code = thread_step(&life, step);
  tap_ok(!code && !memcmp(other.w, life.w, sizeof life.w),
         "the main thread goes on, to the right bits");
  thread_close(&life);
  DMuonMeshDestroy(&spare);
  code = DMuonMeshCreate(MPI_COMM_WORLD, &spare);
  if (!code) code = DMuonMeshSetUp(spare);
  tap_ok(!code, "also after a mesh that the other thread gave up");
  DMuonMeshDestroy(&spare);
  return tap_mpi_done();
}
