/* A rank that stops: it never calls, or freezes somewhere in a step. The others wait no longer than
 * the mesh's timeout, say who is missing, and from then on return at once; the rank that comes back
 * is told. All can give the objects up and go on with new ones, to the right bits. */
#include "config.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "freeze.h"
#include "left_to_mpi.h"
#include "step_case.h"
#include "tap_mpi.h"

enum { STEPS = 2, VICTIM = 3 };
#define TIMEOUT 0.5

static uint64_t expected;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* STOPPED: like SOMEWHERE, by a signal, until rank 0 lets it go on. */
typedef enum { AT_SET_UP, AT_STEP, AT_STATE, SOMEWHERE, STOPPED } place;

static DMuonErrorCode call(place where, DMuonMesh mesh, step_case *c) {
  static double data[512];
  DMuonErrorCode code;
  switch (where) {
    case AT_SET_UP:
      return case_set_up(mesh, c);
    case AT_STEP:
      return case_step(c, 0);
    case AT_STATE:
      return DMuonOptimizerGetState(c->opt, c->id[0], "momentum", data, DMUON_ALL);
    case SOMEWHERE:
    case STOPPED:
      for (int t = 0; t < 1000000; t++)
        if ((code = case_step(c, t))) return code;
      break;
  }
  return DMUON_SUCCESS;
}

static int some(int yes) {
  int any = 0;
  MPI_Request request;
  MPI_Iallreduce(&yes, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  return any;
}

static void stopped(const char *label, place where, const char *device, int async,
                    int milliseconds) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  const int victim = tap_rank == VICTIM;
  DMuonErrorCode code = case_open(MPI_COMM_WORLD, device, async, &mesh, &c);
  if (!code) code = DMuonMeshSetUp(mesh);
  if (!code && where != AT_SET_UP) code = case_set_up(mesh, &c);
  if (!code && where > AT_STEP) code = case_step(&c, 0);
  if (!code && where > AT_STEP) code = DMuonOptimizerWait(c.opt);
  if (!code) code = DMuonMeshSetTimeout(mesh, TIMEOUT);
  if (!tap_ok(!code, "%s: until then no call fails", label)) tap_diag("%s", DMuonErrorGetMessage());

  long process = (long)getpid();
  MPI_Request request;
  MPI_Ibcast(&process, 1, MPI_LONG, VICTIM, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  tap_mpi_barrier();
  double began = now();
  if (victim) {
    if (where >= SOMEWHERE)
      freeze_in(milliseconds, where == STOPPED ? stop_now : freeze_now);
    else
      freeze_now(0);
  }
  code = call(where, mesh, &c);
  if (where == STOPPED && tap_rank == 0) kill((pid_t)process, SIGCONT);
  const double waited = now() - began;
  const DMuonErrorCode first = code;
  char message[512];
  snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
  tap_ok(code == DMUON_ERR_TIMEOUT || code == DMUON_ERR_REVOKED, "%s: the mesh is given up on all",
         label);
  tap_ok(some(code == DMUON_ERR_TIMEOUT), "%s: somebody waited too long", label);
  const char *who = strstr(message, "rank 3");
  if (!who) who = strstr(message, "ranks 3");
  if (!tap_ok(victim || who || where >= SOMEWHERE, "%s: the one that did not come is named", label))
    tap_diag("%s", message);
  tap_ok(waited < 20, "%s: in bounded time", label);

  began = now();
  code = call(where >= SOMEWHERE ? AT_STEP : where, mesh, &c);
  DMuonErrorCode other = where == AT_SET_UP ? DMuonModelSetUp(c.model) : DMuonOptimizerWait(c.opt);
  if (where == AT_SET_UP && first != other) other = first; /* the model was ready */
  if (!tap_ok(code == first && other == first && now() - began < TIMEOUT,
              "%s: later calls say the same at once", label))
    tap_diag("first %s, then %s, %s", DMuonErrorGetName(first), DMuonErrorGetName(code),
             DMuonErrorGetName(other));
  DMuonOptimizerDestroy(&c.opt);
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  tap_ok(mesh == NULL, "%s: destroyed", label);
  uint64_t hash = 0;
  code = case_good_run(STEPS, &hash);
  if (!tap_ok(!code && hash == expected, "%s: a new mesh goes on, to the right bits", label))
    tap_diag("%s", DMuonErrorGetMessage());
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  const DMuonErrorCode code = case_good_run(STEPS, &expected);
  if (!tap_ok(!code, "nobody stops")) tap_diag("%s", DMuonErrorGetMessage());
  stopped("never sets up", AT_SET_UP, "host", 0, 0);
  stopped("never steps", AT_STEP, "host", 0, 0);
  stopped("does not give its state", AT_STATE, "host", 0, 0);
  stopped("freezes in some step", SOMEWHERE, "host", 0, 31);
  stopped("freezes in some asynchronous step", SOMEWHERE, "host", 1, 53);
  stopped("freezes in some deferred step", SOMEWHERE, "host:deferred,seed=3", 0, 42);
  stopped("is stopped in some step", STOPPED, "host", 0, 37);
  stopped("is stopped in some asynchronous step", STOPPED, "host", 1, 29);
  return tap_mpi_done();
}
