/* Two ranks, matrices whose messages MPI hands over directly, and one rank that freezes: the other
 * gives up, destroys everything and uses the memory for something else. When the frozen rank wakes,
 * its messages must find nothing of that: not what was freed, and not the caller's arrays. */
#include "config.h"

#include <dmuon.h>
#include <stdlib.h>
#include <string.h>

#include "freeze.h"
#include "left_to_mpi.h"
#include "tap_mpi.h"

enum {
  SIDE = 768,
  MATRICES = 3,
  NUMEL = SIDE * SIDE,
  VICTIM = 1,
  CANARIES = 1000,
  CANARY_WORDS = 25000
};
#define TIMEOUT 0.4
#define CANARY 0x5ca1ab1eu

/* One parameter more than matrices: frozen, larger than what is sent at once. */
static float weights[MATRICES][NUMEL], still[2 * NUMEL], gradients[MATRICES][NUMEL], state[NUMEL];
static uint32_t *canaries[CANARIES];

static uint64_t hash_floats(uint64_t hash, const float *data, int count) {
  for (int i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &data[i], sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  return hash;
}

/* Everything of the caller's that a call may write. */
static uint64_t hash_arrays(void) {
  uint64_t hash = hash_floats(1469598103934665603u, weights[0], MATRICES * NUMEL);
  return hash_floats(hash_floats(hash, still, 2 * NUMEL), state, NUMEL);
}

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
} life;

static void fill(int rank) {
  for (int m = 0; m < MATRICES; m++)
    for (int i = 0; i < NUMEL; i++) {
      weights[m][i] = (float)((i * 7 + m + rank) % 13 - 6);
      gradients[m][i] = (float)((i * 5 + m + 3 * rank) % 17 - 8);
    }
  for (int i = 0; i < 2 * NUMEL; i++) still[i] = (float)((i * 11 + rank) % 19 - 9);
}

static DMuonErrorCode open_life(const char *sizes, int async, life *l) {
  static const int64_t dims[] = {SIDE, SIDE}, still_dims[] = {2 * SIDE, SIDE};
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_WORLD, &l->mesh);
  if (!code) code = DMuonMeshSetOption(l->mesh, sizes, "2");
  if (!code) code = DMuonModelCreate(l->mesh, &l->model);
  for (int m = 0; m < MATRICES && !code; m++) {
    char name[40];
    snprintf(name, sizeof name, "layers.%d.weight", m);
    code = DMuonModelAddParamArray(l->model, name, DMUON_FLOAT32, 2, dims, weights[m], gradients[m],
                                   NULL);
  }
  if (!code)
    code =
        DMuonModelAddParamArray(l->model, "still", DMUON_FLOAT32, 2, still_dims, still, NULL, NULL);
  if (!code) code = DMuonModelSetRoute(l->model, "still", DMUON_ROUTE_FROZEN);
  if (!code) code = DMuonOptimizerCreate(l->model, &l->opt);
  if (!code) code = DMuonOptimizerSetAsync(l->opt, async);
  fill(tap_rank);
  if (!code) code = DMuonOptimizerSetUp(l->opt);
  return code;
}

static void close_life(life *l) {
  DMuonOptimizerDestroy(&l->opt);
  DMuonModelDestroy(&l->model);
  DMuonMeshDestroy(&l->mesh);
}

/* Takes the memory that was just given back. */
static void set_canaries(void) {
  for (int c = 0; c < CANARIES; c++) {
    canaries[c] = malloc(CANARY_WORDS * sizeof *canaries[c]);
    for (int i = 0; canaries[c] && i < CANARY_WORDS; i++) canaries[c][i] = CANARY;
  }
}

static int canaries_live(void) {
  int live = 1;
  for (int c = 0; c < CANARIES; c++)
    for (int i = 0; canaries[c] && i < CANARY_WORDS; i++) live &= canaries[c][i] == CANARY;
  for (int c = 0; c < CANARIES && live; c++)
    free(canaries[c]); /* else malloc's words are gone, too */
  return live;
}

typedef enum { AT_STATE, IN_ARRAYS, IN_STEP } place;

static DMuonErrorCode call(place where, life *l) {
  DMuonErrorCode code;
  switch (where) {
    case IN_ARRAYS:
      for (int t = 0; t < 10000; t++)
        if ((code = DMuonOptimizerSyncArrays(l->opt, VICTIM))) return code;
      break;
    case AT_STATE:
      return DMuonOptimizerGetState(l->opt, 0, "momentum", state, DMUON_ALL);
    case IN_STEP:
      for (int t = 0; t < 10000; t++)
        if ((code = DMuonOptimizerStep(l->opt))) return code;
      break;
  }
  return DMUON_SUCCESS;
}

static void frozen(const char *label, place where, const char *sizes, int async, int milliseconds) {
  life l = {NULL, NULL, NULL};
  const int victim = tap_rank == VICTIM;
  DMuonErrorCode code = open_life(sizes, async, &l);
  const uint64_t after_set_up = hash_arrays();
  fill(0);
  tap_ok(!code && after_set_up == hash_arrays(), "%s: all start from the arrays of rank 0", label);
  fill(tap_rank);
  if (!code && where == AT_STATE) code = DMuonOptimizerStep(l.opt);
  if (!code && where == AT_STATE) code = DMuonOptimizerWait(l.opt);
  if (!code) code = DMuonMeshSetTimeout(l.mesh, TIMEOUT);
  if (!tap_ok(!code, "%s: until then no call fails", label)) tap_diag("%s", DMuonErrorGetMessage());

  tap_mpi_barrier();
  if (victim && where != AT_STATE) freeze_in(milliseconds, freeze_now);
  if (victim && where == AT_STATE) freeze_now(0);
  code = call(where, &l);
  char message[512];
  snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
  const uint64_t at_return = hash_arrays();
  close_life(&l);
  set_canaries();
  /* From here on the other rank wakes, sends what it had to, and gives up itself; meanwhile this
   * one looks after its messages. */
  if (!tap_ok(victim || code == DMUON_ERR_TIMEOUT || code == DMUON_ERR_REVOKED, "%s: given up",
              label))
    tap_diag("%s: %s", DMuonErrorGetName(code), message);
  for (int i = 0; i < 100; i++) tap_mpi_barrier();
  tap_ok(canaries_live(), "%s: nothing is written where buffers were freed", label);
  tap_ok(hash_arrays() == at_return, "%s: nor into the caller's arrays", label);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  freeze_seconds = 1.6;
  frozen("in a broadcast of arrays", IN_ARRAYS, "replicate", 0, 30);
  frozen("before giving its state", AT_STATE, "shard", 0, 0);
  frozen("in some step", IN_STEP, "replicate", 0, 40);
  frozen("in some later step", IN_STEP, "shard", 0, 170);
  frozen("in some asynchronous step", IN_STEP, "replicate", 1, 300);
  return tap_mpi_done();
}
