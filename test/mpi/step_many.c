/* More ranks than matrices, and matrices that nothing divides: small odd shapes on 16 ranks; 19,
 * 16, 1 and no matrices on 8 ranks, and 2 on 3. Every rank is compared with the fp64 reference. */
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "tap_mpi.h"

#include <dmuon.h>

enum { MOST = 19, STEPS = 2 };

typedef struct {
  const char *label;
  int ranks, replicate, shard, count;
  int64_t shapes[4][2]; /* of the first four; then from the first again */
} many;
#define ODD                      \
  {                              \
    {72, 64}, {5, 3}, {10, 4}, { \
      3, 100                     \
    }                            \
  }
#define SMALL                 \
  {                           \
    {4, 6}, {6, 4}, {5, 5}, { \
      1, 7                    \
    }                         \
  }
static const many cases[] = {
    {"odd shapes", 16, 1, 16, 4, ODD},   {"odd shapes", 16, 16, 1, 4, ODD},
    {"odd shapes", 16, 4, 4, 4, ODD},    {"19 matrices", 16, 2, 8, 19, SMALL},
    {"19 matrices", 8, 2, 4, 19, SMALL}, {"16 matrices", 8, 1, 8, 16, SMALL},
    {"1 matrix", 8, 4, 2, 1, SMALL},     {"no matrix", 8, 8, 1, 0, SMALL},
    {"2 matrices", 3, 3, 1, 2, SMALL},   {"2 matrices", 3, 1, 3, 2, SMALL},
};

static double number(uint64_t key) {
  for (int i = 0; i < 2; i++) {
    key += 0x9e3779b97f4a7c15u;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    key ^= key >> 31;
  }
  return (double)(key >> 40) / (1 << 23) - 1;
}
/* rank -1: the weights. */
static double entry(int rank, int step, int matrix, int64_t i) {
  return number((uint64_t)(1000 * (rank + 2) + 100 * step + matrix) << 32 | (uint64_t)i);
}
static int64_t numel(const many *m, int matrix) {
  return m->shapes[matrix % 4][0] * m->shapes[matrix % 4][1];
}

/* What the reference makes of all ranks' gradients. */
static void expect(const many *m, ref_param *params, ref_info *info) {
  ref_rule rule;
  ref_recipe("dmuon", &rule);
  rule.clip = REF_CLIP_GLOBAL, rule.max_norm = 2;
  for (int p = 0; p < m->count; p++) {
    const size_t n = (size_t)numel(m, p);
    params[p] = (ref_param){.route = REF_MUON,
                            .batch = 1,
                            .rows = m->shapes[p % 4][0],
                            .cols = m->shapes[p % 4][1],
                            .weight = calloc(n, sizeof(double)),
                            .momentum_buffer = calloc(n, sizeof(double)),
                            .exp_avg = calloc(n, sizeof(double)),
                            .exp_avg_sq = calloc(n, sizeof(double))};
    for (size_t i = 0; i < n; i++) params[p].weight[i] = (float)entry(-1, 0, p, (int64_t)i);
  }
  ref_start(&rule, m->count, params);
  for (int step = 0; step < STEPS; step++) {
    double *mean[MOST] = {NULL};
    for (int p = 0; p < m->count; p++) {
      mean[p] = calloc((size_t)numel(m, p), sizeof(double));
      for (int r = 0; r < m->ranks; r++)
        for (int64_t i = 0; i < numel(m, p); i++) mean[p][i] += entry(r, step, p, i) / m->ranks;
    }
    ref_step(&rule, 1, m->count, params, mean, info);
    for (int p = 0; p < m->count; p++) free(mean[p]);
  }
}

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  float *weight[MOST], *gradient[MOST];
  DMuonStepInfo info;
} life;

static DMuonErrorCode run(const many *m, MPI_Comm comm, life *x) {
  DMUON_CALL(DMuonMeshCreate(comm, &x->mesh));
  DMUON_CALL(DMuonMeshSetSizes(x->mesh, m->replicate, m->shard, 1));
  DMUON_CALL(DMuonModelCreate(x->mesh, &x->model));
  for (int p = 0; p < m->count; p++) {
    char name[40];
    snprintf(name, sizeof name, "layers.%d.weight", p / 2 * 10 + p % 2);
    x->weight[p] = calloc((size_t)numel(m, p), sizeof(float));
    x->gradient[p] = calloc((size_t)numel(m, p), sizeof(float));
    for (int64_t i = 0; i < numel(m, p); i++) x->weight[p][i] = (float)entry(-1, 0, p, i);
    DMUON_CALL(DMuonModelAddParamArray(x->model, name, DMUON_FLOAT32, 2, m->shapes[p % 4],
                                       x->weight[p], x->gradient[p], NULL));
    DMUON_CALL(DMuonModelSetRoute(x->model, name, DMUON_ROUTE_MUON));
  }
  DMUON_CALL(DMuonOptimizerCreate(x->model, &x->opt));
  DMUON_CALL(DMuonOptimizerSetClip(x->opt, DMUON_CLIP_GLOBAL, 2));
  DMUON_CALL(DMuonOptimizerSetUp(x->opt));
  for (int step = 0; step < STEPS; step++) {
    for (int p = 0; p < m->count; p++)
      for (int64_t i = 0; i < numel(m, p); i++)
        x->gradient[p][i] = (float)entry(tap_rank, step, p, i);
    DMUON_CALL(DMuonOptimizerStep(x->opt));
  }
  x->info.struct_size = sizeof x->info;
  return DMuonOptimizerGetStepInfo(x->opt, &x->info);
}

static int agrees(const many *m, const life *x, const ref_param *params, const ref_info *expected) {
  int good = x->info.step == STEPS && x->info.newton_schulz_calls == expected->matrices &&
             fabs(x->info.grad_norm - expected->grad_norm) <= 2e-6 * expected->grad_norm;
  for (int p = 0; p < m->count; p++) {
    double value[72 * 64];
    for (int64_t i = 0; i < numel(m, p); i++) value[i] = x->weight[p][i];
    const double distance = ref_distance(numel(m, p), value, params[p].weight);
    if (distance <= 1e-5) continue;
    good = 0;
    printf("# rank %d: matrix %d at distance %g\n", tap_rank, p, distance);
  }
  return good;
}

static void try_case(const many *m) {
  MPI_Comm comm;
  life x = {0};
  ref_param params[MOST];
  ref_info expected = {0};
  DMuonErrorCode code = DMUON_SUCCESS;
  int good = 1;
  if (m->ranks > tap_size) return;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank < m->ranks ? 0 : MPI_UNDEFINED, tap_rank, &comm);
  if (comm != MPI_COMM_NULL) {
    memset(params, 0, sizeof params);
    code = run(m, comm, &x);
    expect(m, params, &expected);
    good = !code && agrees(m, &x, params, &expected);
  }
  if (!tap_ok(good, "%s on %d x %d ranks", m->label, m->replicate, m->shard) && code)
    tap_diag("%s", DMuonErrorGetMessage());
  if (comm == MPI_COMM_NULL) return;
  DMuonOptimizerDestroy(&x.opt);
  DMuonModelDestroy(&x.model);
  DMuonMeshDestroy(&x.mesh);
  MPI_Comm_free(&comm);
  for (int p = 0; p < m->count; p++) {
    free(x.weight[p]);
    free(x.gradient[p]);
    free(params[p].weight);
    free(params[p].momentum_buffer);
    free(params[p].exp_avg);
    free(params[p].exp_avg_sq);
  }
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) try_case(&cases[i]);
  tap_ok(tap_size == 16, "16 ranks");
  return tap_mpi_done();
}
