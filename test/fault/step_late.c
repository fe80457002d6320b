/* An asynchronous step under way: what may be called meanwhile without waiting for others, and what
 * is left of it when the program is over. Order is enforced by messages, not by time: where a call
 * waited for a rank that it must not wait for, the test would time out. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dmuon.h>

#include "left_to_mpi.h"
#include "tap_mpi.h"

enum { N = 64 };
static float w[3][N * N], g[3][N * N];

static void fill(int step) {
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < N * N; i++) g[k][i] = sinf((float)(1 + i + 100 * k + 7 * step + tap_rank));
}

static DMuonErrorCode open_run(DMuonMesh *mesh, DMuonModel *model, DMuonOptimizer *opt) {
  const int64_t dims[] = {N, N};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, mesh));
  DMUON_CALL(DMuonMeshSetTimeout(*mesh, 20));
  DMUON_CALL(DMuonModelCreate(*mesh, model));
  for (int k = 0; k < 3; k++) {
    char name[32];
    snprintf(name, sizeof name, "layers.%d.weight", k);
    for (int i = 0; i < N * N; i++) w[k][i] = cosf((float)(i + k));
    DMUON_CALL(DMuonModelAddParamArray(*model, name, DMUON_FLOAT32, 2, dims, w[k], g[k], NULL));
  }
  DMUON_CALL(DMuonOptimizerCreate(*model, opt));
  DMUON_CALL(DMuonOptimizerSetAsync(*opt, 1));
  return DMuonOptimizerSetUp(*opt);
}

/* Polls outside of the library, so that this rank advances nothing of it meanwhile. */
static void receive_token(int from) {
  char token;
  MPI_Request request;
  MPI_Irecv(&token, 1, MPI_CHAR, from, 0, tap_comm, &request);
  tap_mpi_wait(&request);
}

static void send_token(int to) {
  char token = 1;
  MPI_Request request;
  MPI_Isend(&token, 1, MPI_CHAR, to, 0, tap_comm, &request);
  tap_mpi_wait(&request);
}

/* Rank 0 accumulates behind its own step while rank 1 does not call the library. */
static void accumulate_behind_a_step(void) {
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  tap_ok(!open_run(&mesh, &model, &opt), "set up");
  for (int step = 0; step < 3; step++) {
    fill(step);
    tap_ok(!DMuonOptimizerStep(opt), "step %d", step);
    fill(step + 10);
    DMuonErrorCode code = DMUON_SUCCESS;
    if (tap_rank == 1) receive_token(0);
    code = DMuonOptimizerAccumulate(opt);
    if (!code) code = DMuonOptimizerZeroGrad(opt);
    if (!code) code = DMuonOptimizerAccumulate(opt);
    if (tap_rank == 0) send_token(1);
    tap_ok(!code, "accumulating waits for nobody");
  }
  fill(20);
  tap_ok(!DMuonOptimizerStep(opt) && !DMuonOptimizerWait(opt), "and Step takes it along");
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

/* What the accumulated step gave equals the sum handed over at once. */
static void accumulated_is_the_sum(void) {
  static float sum[3][N * N], once[3][N * N];
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  for (int way = 0; way < 2; way++) {
    tap_ok(!open_run(&mesh, &model, &opt), "set up");
    fill(3);
    memcpy(sum, g, sizeof g);
    if (way == 1) tap_ok(!DMuonOptimizerAccumulate(opt), "the first half");
    fill(4);
    for (int k = 0; k < 3 && way == 0; k++)
      for (int i = 0; i < N * N; i++) g[k][i] = sum[k][i] + g[k][i];
    tap_ok(!DMuonOptimizerStep(opt) && !DMuonOptimizerWait(opt), "step");
    if (way == 0) memcpy(once, w, sizeof w);
    DMuonOptimizerDestroy(&opt);
    DMuonModelDestroy(&model);
    DMuonMeshDestroy(&mesh);
  }
  tap_ok(!memcmp(once, w, sizeof w), "accumulated and summed beforehand: the same bits");
}

static void counts_after_means(void) {
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  tap_ok(!open_run(&mesh, &model, &opt), "set up");
  fill(0);
  tap_ok(!DMuonOptimizerAccumulate(opt), "a micro-batch of means");
  tap_ok(DMuonOptimizerSetSampleCount(opt, 5) == DMUON_ERR_STATE,
         "sample counts in the middle of it are refused");
  tap_ok(!DMuonOptimizerStep(opt) && !DMuonOptimizerSetSampleCount(opt, 5),
         "after Step they are not");
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

int main(int argc, char **argv) {
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  tap_mpi_init(&argc, &argv);
  accumulate_behind_a_step();
  accumulated_is_the_sum();
  counts_after_means();

  /* The program ends in disorder: MPI first. */
  tap_ok(!open_run(&mesh, &model, &opt), "set up");
  fill(5);
  tap_ok(!DMuonOptimizerStep(opt), "a step that nobody waits for");
  MPI_Comm_free(&tap_comm);
  MPI_Finalize();
  tap_state.agree = NULL;
  tap_ok(DMuonOptimizerStep(opt) == DMUON_ERR_STATE, "Step after MPI_Finalize is refused");
  tap_ok(DMuonOptimizerWait(opt) == DMUON_ERR_STATE, "so is Wait");
  tap_ok(!DMuonOptimizerView(opt, "/dev/null"), "View still works");
  tap_ok(!DMuonOptimizerDestroy(&opt) && !opt, "Destroy too");
  tap_ok(!DMuonModelDestroy(&model) && !DMuonMeshDestroy(&mesh) && !mesh, "of everything");
  return tap_done();
}
