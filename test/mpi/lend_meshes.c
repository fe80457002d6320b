/* Lent parameters on several meshes: two pipeline stages of two data ranks, layers on their stage,
 * an embedding tied between both. The same gradients through the brackets as through arrays give
 * the same bits; one optimizer, one norm, one decision to skip. Each stage runs its own groups. */
#include <dmuon.h>
#include <math.h>
#include <string.h>

#include "tap_mpi.h"

enum { N = 8, STAGES = 2, CHUNKS = 2, STEPS = 4 };

static const int64_t dims[] = {N, N};
static float w[CHUNKS][N * N], g[CHUNKS][N * N], e[N * N], de[N * N];

static float layer_gradient(int chunk, int i, int step) {
  return sinf((float)(1 + i + 10 * tap_rank + 100 * chunk + step));
}
static float tied_gradient(int i, int step) {
  return cosf((float)(i + 3 * tap_rank + step));
}
static float start(const char *name, int64_t i) {
  return (float)DMuonRandomNormal(7, name, i);
}
static void fill(void *ctx, const DMuonParamInfo *param, int64_t first, int64_t count, void *data) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) ((float *)data)[i] = start(param->name, first + i);
}

static void layer_name(int chunk, char name[32]) {
  snprintf(name, 32, "layers.%d.weight", STAGES * chunk + tap_rank / 2);
}

typedef struct {
  DMuonMesh all, mine;
  DMuonModel model;
  DMuonOptimizer opt;
} run;

static DMuonErrorCode set_up(run *r, int lent, const char *device) {
  MPI_Comm stage;
  char name[32];
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &stage);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &r->all));
  DMUON_CALL(DMuonMeshCreate(stage, &r->mine));
  MPI_Comm_free(&stage);
  DMUON_CALL(DMuonMeshSetOption(r->all, "device", device));
  DMUON_CALL(DMuonMeshSetOption(r->mine, "device", device));
  DMUON_CALL(DMuonMeshSetTimeout(r->all, 20));
  DMUON_CALL(DMuonMeshSetTimeout(r->mine, 20));
  DMUON_CALL(DMuonModelCreate(r->all, &r->model));
  for (int c = 0; c < CHUNKS; c++) {
    layer_name(c, name);
    for (int i = 0; i < N * N; i++) w[c][i] = start(name, i);
    DMUON_CALL(
        lent ? DMuonModelAddParam(r->model, name, DMUON_FLOAT32, 2, dims, NULL)
             : DMuonModelAddParamArray(r->model, name, DMUON_FLOAT32, 2, dims, w[c], g[c], NULL));
  }
  for (int i = 0; i < N * N; i++) e[i] = start("embed.weight", i);
  DMUON_CALL(lent ? DMuonModelAddParam(r->model, "embed.weight", DMUON_FLOAT32, 2, dims, NULL)
                  : DMuonModelAddParamArray(r->model, "embed.weight", DMUON_FLOAT32, 2, dims, e, de,
                                            NULL));
  DMUON_CALL(DMuonModelSetMesh(r->model, "layers.*", r->mine, NULL));
  DMUON_CALL(DMuonModelSetMesh(r->model, "embed.weight", r->all, r->mine));
  DMUON_CALL(DMuonOptimizerCreate(r->model, &r->opt));
  DMUON_CALL(DMuonOptimizerSetClip(r->opt, DMUON_CLIP_GLOBAL, 1.0));
  DMUON_CALL(DMuonOptimizerSetInit(r->opt, fill, NULL));
  return DMuonOptimizerSetUp(r->opt);
}

static void tear_down(run *r) {
  DMuonOptimizerDestroy(&r->opt);
  DMuonModelDestroy(&r->model);
  DMuonMeshDestroy(&r->mine);
  DMuonMeshDestroy(&r->all);
}

static void gradients(int step) {
  for (int i = 0; i < N * N; i++) {
    for (int c = 0; c < CHUNKS; c++) g[c][i] = layer_gradient(c, i, step);
    de[i] = tied_gradient(i, step);
  }
  if (step == 2 && tap_rank == 3) g[0][5] = NAN; /* every stage skips this one */
}

/* The embedding's group is open around the layers'. */
static DMuonErrorCode brackets(run *r) {
  DMuonGroup tied, layer[CHUNKS];
  char key[32];
  DMUON_CALL(DMuonOptimizerFindGroup(r->opt, "embed", &tied));
  for (int c = 0; c < CHUNKS; c++) {
    snprintf(key, sizeof key, "layers.%d", STAGES * c + tap_rank / 2);
    DMUON_CALL(DMuonOptimizerFindGroup(r->opt, key, &layer[c]));
  }
  for (int c = 0; c < CHUNKS; c++) {
    DMUON_CALL(DMuonGroupForwardBegin(layer[c]));
    DMUON_CALL(DMuonGroupForwardEnd(layer[c]));
  }
  DMUON_CALL(DMuonGroupForwardBegin(tied));
  DMUON_CALL(DMuonGroupForwardEnd(tied));
  DMUON_CALL(DMuonGroupBackwardBegin(tied));
  DMUON_CALL(DMuonGroupSetGrad(tied, CHUNKS, de));
  for (int c = CHUNKS; c-- > 0;) {
    DMUON_CALL(DMuonGroupBackwardBegin(layer[c]));
    DMUON_CALL(DMuonGroupSetGrad(layer[c], c, g[c]));
    DMUON_CALL(DMuonGroupBackwardEnd(layer[c]));
  }
  return DMuonGroupBackwardEnd(tied);
}

static DMuonErrorCode train(run *r, int lent, DMuonStepInfo *info) {
  for (int step = 0; step < STEPS; step++) {
    gradients(step);
    if (lent) DMUON_CALL(brackets(r));
    DMUON_CALL(DMuonOptimizerStep(r->opt));
    DMUON_CALL(DMuonOptimizerGetStepInfo(r->opt, &info[step]));
    DMUON_CALL(DMuonOptimizerCheckInvariants(r->opt));
  }
  return DMuonOptimizerWait(r->opt);
}

static DMuonErrorCode compare(const char *device) {
  run arrays = {0}, lent = {0};
  DMuonStepInfo a[STEPS], b[STEPS];
  float value[N * N];
  for (int i = 0; i < STEPS; i++) a[i].struct_size = b[i].struct_size = sizeof a[i];
  DMUON_CALL(set_up(&arrays, 0, "host"));
  DMUON_CALL(train(&arrays, 0, a));
  float done[CHUNKS][N * N], tied[N * N];
  memcpy(done, w, sizeof w);
  memcpy(tied, e, sizeof e);
  DMUON_CALL(set_up(&lent, 1, device));
  DMUON_CALL(train(&lent, 1, b));
  for (int i = 0; i < STEPS; i++)
    tap_ok(a[i].skipped == b[i].skipped && a[i].skipped == (i == 2) &&
               (a[i].skipped || a[i].grad_norm == b[i].grad_norm),
           "%s, step %d: one norm, one decision", device, i);
  for (int c = 0; c < CHUNKS; c++) {
    DMUON_CALL(DMuonOptimizerGetParam(lent.opt, c, value, DMUON_ALL));
    tap_ok(!memcmp(value, done[c], sizeof value), "layer %d of each stage has the same bits", c);
  }
  DMUON_CALL(DMuonOptimizerGetParam(lent.opt, CHUNKS, value, DMUON_ALL));
  tap_ok(!memcmp(value, tied, sizeof value), "and so has the tied embedding");
  tear_down(&lent);
  tear_down(&arrays);
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  if (tap_size != 4) {
    tap_skip_all("wants 4 ranks");
    return tap_mpi_done();
  }
  static const char *const devices[] = {"host", "host:late", "host:deferred,seed=3,late"};
  for (int i = 0; i < 3; i++) {
    const DMuonErrorCode code = compare(devices[i]);
    if (!tap_ok(code == DMUON_SUCCESS, "%s: no call fails", devices[i]))
      tap_diag("%s", DMuonErrorGetMessage());
  }
  return tap_mpi_done();
}
