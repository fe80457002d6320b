/* Ranks that meet in calls of different kinds: all are told which, nothing is taken for something
 * else, nobody waits for long, and the next call that all make alike works. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "left_to_mpi.h"
#include "step_case.h"
#include "tap_mpi.h"

#define TIMEOUT 60.0 /* seconds: what must not be waited for */
#define SHORT 1.5    /* what has to be */

typedef enum { STEP, SYNC, STATE, OTHER_STATE, MESH_VIEW, OPTIONS_VIEW, VIEW, CALLS } kind;
static const char *const names[CALLS] = {"Step",      "SyncArrays",  "GetState", "GetState step",
                                         "mesh View", "ViewOptions", "View"};

static DMuonMesh mesh;
static step_case c;
static double state[512];

static DMuonErrorCode call(kind k, int step) {
  switch (k) {
    case STEP:
      case_fill_gradients(&c, step, 0);
      return DMuonOptimizerStep(c.opt);
    case SYNC:
      return DMuonOptimizerSyncArrays(c.opt, 0);
    case STATE:
      return DMuonOptimizerGetState(c.opt, c.id[0], "momentum", state, DMUON_ALL);
    case OTHER_STATE:
      return DMuonOptimizerGetState(c.opt, c.id[0], "step", state, DMUON_ALL);
    case MESH_VIEW:
      return DMuonMeshView(mesh, "/dev/null");
    case OPTIONS_VIEW:
      return DMuonMeshViewOptions(mesh, "/dev/null");
    case VIEW:
      return DMuonOptimizerView(c.opt, "/dev/null");
    case CALLS:
      break;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode open_all(void) {
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(case_create(mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  DMUON_CALL(call(STEP, 0));
  return DMuonMeshSetTimeout(mesh, TIMEOUT);
}

static void close_all(void) {
  case_destroy(&c);
  memset(&c, 0, sizeof c);
  DMuonMeshDestroy(&mesh);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Rank `odd` makes one call, the others another. */
static void meet(kind one, kind other, int odd) {
  uint64_t before = case_hash(&c);
  double began = now();
  DMuonErrorCode code = call(tap_rank == odd ? other : one, 1);
  char message[512];
  snprintf(message, sizeof message, "%.*s", (int)strcspn(DMuonErrorGetMessage(), "\n"),
           DMuonErrorGetMessage());
  int good = code == DMUON_ERR_DISAGREE && before == case_hash(&c);
  if (!tap_ok(good, "%s meets %s: DISAGREE everywhere, nothing changed", names[one], names[other]))
    fprintf(stderr, "# rank %d: %s: %s\n", tap_rank, DMuonErrorGetName(code), message);
  if (!tap_ok(now() - began < TIMEOUT / 2, "%s meets %s: at once", names[one], names[other]))
    fprintf(stderr, "# rank %d: %g s\n", tap_rank, now() - began);
  code = call(SYNC, 0);
  if (!code) code = call(STEP, 2);
  if (!tap_ok(!code, "%s meets %s: all go on", names[one], names[other]))
    fprintf(stderr, "# rank %d: %s\n", tap_rank, DMuonErrorGetMessage());
}

/* A rank that ends its mesh while others use it. */
static void destroyed_under(void) {
  const int odd = tap_size - 1;
  DMuonErrorCode code = DMuonMeshSetTimeout(mesh, SHORT);
  const double began = now();
  if (tap_rank == odd) {
    case_destroy(&c);
    memset(&c, 0, sizeof c);
    DMuonMeshDestroy(&mesh);
  } else {
    code = call(STEP, 3);
  }
  tap_ok(tap_rank == odd || code == DMUON_ERR_TIMEOUT || code == DMUON_ERR_REVOKED,
         "Step meets Destroy: it ends");
  tap_ok(now() - began < TIMEOUT / 2, "within bounded time");
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  const DMuonErrorCode code = open_all();
  if (!tap_ok(!code, "a model of everything")) tap_diag("%s", DMuonErrorGetMessage());
  for (int one = 0; one < CALLS && !code; one++)
    for (int other = 0; other < CALLS; other++)
      if (one != other) meet((kind)one, (kind)other, (one + other) % tap_size);
  destroyed_under();
  close_all();
  const DMuonErrorCode again = open_all();
  tap_ok(!again && !call(STEP, 1), "a new mesh works");
  close_all();
  return tap_mpi_done();
}
