/* dmuon_bench overlap: what fetching ahead and publishing behind the next forward hide, shown on a
 * network whose every message takes a given time (option message_delay). Each rank runs a model of
 * equal groups through the brackets and "computes" for a given time in each of them, by letting the
 * library progress. Three schedules of the same step:
 *
 *   nothing hidden   prefetch_depth 0, backward_prefetch_depth 0, replicate_async 0
 *   fetches hidden   prefetch_depth 1, backward_prefetch_depth 1, replicate_async 0
 *   publish hidden   the same with replicate_async 1
 *
 * and what the first one's waits say of the others: with compute at least as long as a fetch, all
 * fetches but the first of forward and of backward disappear; publishing asynchronously then takes
 * away the publishes of a column but the first, which forward needs at once. */
#include "bench.h"

#include <dmuon.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { GROUPS = 8, SIDE = 32, WARM = 2, STEPS = 6 };

static const struct {
  const char *name, *prefetch, *async;
} schedules[] = {
    {"nothing hidden", "0", "0"}, {"fetches hidden", "1", "0"}, {"publish hidden", "1", "1"}};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/* Means over the steps, of the slowest rank; seconds. */
typedef struct {
  double total, forward, backward, step; /* a step; waits in forward, in backward; Step */
} timing;

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  double compute;
} run;

static DMuonErrorCode compute(const run *r) {
  const double end = bench_seconds() + r->compute;
  while (bench_seconds() < end) DMUON_CALL(DMuonMeshProgress(r->mesh));
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_up(run *r, int schedule, const char *delay, const bench_arguments *a) {
  const int64_t dims[] = {SIDE, SIDE};
  char *argv[64]; /* the library takes its options out of it */
  int argc = a->argc - 1 < 63 ? a->argc - 1 : 63;
  for (int i = 0; i < argc; i++) argv[i] = a->argv[i + 1];
  argv[argc] = NULL;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &r->mesh));
  DMUON_CALL(DMuonMeshSetFromOptions(r->mesh, &argc, argv));
  DMUON_CALL(DMuonMeshSetOption(r->mesh, "message_delay", delay));
  DMUON_CALL(DMuonMeshSetOption(r->mesh, "prefetch_depth", schedules[schedule].prefetch));
  DMUON_CALL(DMuonMeshSetOption(r->mesh, "backward_prefetch_depth", schedules[schedule].prefetch));
  DMUON_CALL(DMuonMeshSetOption(r->mesh, "replicate_async", schedules[schedule].async));
  DMUON_CALL(DMuonModelCreate(r->mesh, &r->model));
  DMUON_CALL(
      DMuonModelAddStack(r->model, "layers.%d.weight", 0, GROUPS, DMUON_FLOAT32, 2, dims, NULL));
  DMUON_CALL(DMuonOptimizerCreate(r->model, &r->opt));
  return DMuonOptimizerSetUp(r->opt);
}

static DMuonErrorCode one_step(const run *r, timing *t) {
  DMuonGroup group;
  const double begin = bench_seconds();
  double at;
  for (int g = 0; g < GROUPS; g++) {
    DMUON_CALL(DMuonOptimizerGetGroup(r->opt, g, &group));
    at = bench_seconds();
    DMUON_CALL(DMuonGroupForwardBegin(group));
    t->forward += bench_seconds() - at;
    DMUON_CALL(compute(r));
    DMUON_CALL(DMuonGroupForwardEnd(group));
  }
  for (int g = GROUPS; g-- > 0;) {
    void *grad;
    DMUON_CALL(DMuonOptimizerGetGroup(r->opt, g, &group));
    at = bench_seconds();
    DMUON_CALL(DMuonGroupBackwardBegin(group));
    t->backward += bench_seconds() - at;
    DMUON_CALL(DMuonGroupGetGrad(group, g, &grad));
    for (int i = 0; i < SIDE * SIDE; i++) ((float *)grad)[i] += (float)(i % 7) - 3;
    DMUON_CALL(compute(r));
    DMUON_CALL(DMuonGroupBackwardEnd(group));
  }
  at = bench_seconds();
  DMUON_CALL(DMuonOptimizerStep(r->opt));
  t->step += bench_seconds() - at;
  t->total += bench_seconds() - begin;
  return DMUON_SUCCESS;
}

/* Messages one after another along the tree that spreads something over n ranks. */
static int hops(int n) {
  int depth = 0;
  while (1 << depth < n) depth++;
  return depth;
}

static DMuonErrorCode measure(int schedule, const char *delay, double seconds,
                              const bench_arguments *a, int mesh[2], timing *t) {
  run r = {.compute = seconds};
  timing ignored = {0};
  DMuonErrorCode code = set_up(&r, schedule, delay, a);
  if (!code) code = DMuonMeshGetSizes(r.mesh, &mesh[0], &mesh[1], NULL);
  for (int i = 0; !code && i < WARM; i++) code = one_step(&r, &ignored);
  for (int i = 0; !code && i < STEPS; i++) code = one_step(&r, t);
  DMuonOptimizerDestroy(&r.opt);
  DMuonModelDestroy(&r.model);
  DMuonMeshDestroy(&r.mesh);
  int failed = code != DMUON_SUCCESS; /* anywhere: all stop */
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (failed && !code) code = DMUON_ERR_PEER;
  MPI_Allreduce(MPI_IN_PLACE, t, sizeof *t / sizeof(double), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  t->total /= STEPS, t->forward /= STEPS, t->backward /= STEPS, t->step /= STEPS;
  return code;
}

int bench_overlap(const bench_arguments *a) {
  timing t[SCHEDULES] = {{0}};
  double predicted[SCHEDULES];
  const char *delay = a->delay ? a->delay : "0.005";
  const double seconds = a->compute > 0 ? a->compute : 0.02;
  int rank, wrong = 0, mesh[2] = {1, 1};
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int s = 0; s < SCHEDULES && !wrong; s++)
    if (measure(s, delay, seconds, a, mesh, &t[s])) wrong = bench_fail();
  const double hidden = (t[0].forward + t[0].backward) * (GROUPS - 1) / GROUPS;
  predicted[0] = t[0].total;
  predicted[1] = t[0].total - hidden;
  /* The publishes of a column come one after another; forward needs the first of them at once. */
  predicted[2] = t[1].total - (GROUPS / mesh[1] - 1) * hops(mesh[0]) * atof(delay);
  if (rank == 0 && !wrong) {
    FILE *json = a->json ? fopen(a->json, "w") : NULL;
    printf(
        "%d groups, %.0f ms of compute a bracket, %s s a message; seconds a step, slowest rank\n",
        GROUPS, 1e3 * seconds, delay);
    printf("  %-16s %8s %8s %10s %8s %10s\n", "", "a step", "forward", "backward", "Step",
           "predicted");
    for (int s = 0; s < SCHEDULES; s++)
      printf("  %-16s %8.4f %8.4f %10.4f %8.4f %10.4f\n", schedules[s].name, t[s].total,
             t[s].forward, t[s].backward, t[s].step, predicted[s]);
    for (int s = 0; json && s < SCHEDULES; s++)
      fprintf(json, "%s{\"schedule\": \"%s\", \"seconds\": %.6f, \"predicted\": %.6f}%s",
              s ? ", " : "[", schedules[s].name, t[s].total, predicted[s],
              s == SCHEDULES - 1 ? "]\n" : "");
    if (json) fclose(json);
  }
  MPI_Finalize();
  return wrong;
}
