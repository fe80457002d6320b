/* dmuon_bench memory: what the owner of one fp32 matrix needs for it, under mpirun on any number of
 * ranks. Each rank holds a weight and a gradient array, as a training program does; one step is
 * made, and the owner's peaks are told beside those of the ranks that own nothing: of the library's
 * own allocations, and of the whole process as the kernel counts it, which has also this program's
 * arrays, MPI and the BLAS. */
#include "bench.h"

#include <dmuon.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIBRARY, PROCESS, KINDS };

typedef struct {
  int rank, ranks, mesh[3], owner;
  double peak[KINDS];  /* bytes, of the owner */
  double other[KINDS]; /* the largest of all other ranks; 0 without any */
} result;

/* The peak resident size of this process in bytes; 0 where the kernel does not tell. */
static double process_peak(void) {
  char line[256];
  double kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "VmHWM: %lf", &kilobytes) == 1) break;
  if (file) fclose(file);
  return 1024 * kilobytes;
}

/* "bytes": {..., "peak": N} of the optimizer's summary. */
static DMuonErrorCode library_peak(DMuonOptimizer opt, double *bytes) {
  char *json;
  DMUON_CALL(DMuonOptimizerSummary(opt, &json));
  const char *at = strstr(json, "\"peak\"");
  at = at ? strchr(at, ':') : NULL;
  *bytes = at ? strtod(at + 1, NULL) : 0;
  DMuonFree(json);
  return DMUON_SUCCESS;
}

static DMuonErrorCode one_step(const bench_arguments *a, DMuonModel model, DMuonNewtonSchulz ns,
                               DMuonOptimizer *opt) {
  if (a->steps) { /* fewer iterations are quicker and need the same memory */
    double table[3 * BENCH_MAX_STEPS];
    for (int i = 0; i < a->steps; i++) {
      table[3 * i] = 2, table[3 * i + 1] = -1.5, table[3 * i + 2] = 0.5;
    }
    DMUON_CALL(DMuonNewtonSchulzSetTable(ns, a->steps, table));
  } else {
    DMUON_CALL(DMuonNewtonSchulzSetCoefficients(ns, a->coefficients));
  }
  DMUON_CALL(DMuonNewtonSchulzSetVariant(ns, a->variant));
  DMUON_CALL(DMuonOptimizerCreate(model, opt));
  DMUON_CALL(DMuonOptimizerSetNewtonSchulz(*opt, ns));
  DMUON_CALL(DMuonOptimizerSetUp(*opt));
  DMUON_CALL(DMuonOptimizerStep(*opt));
  return DMuonOptimizerWait(*opt);
}

static DMuonErrorCode measure(const bench_arguments *a, DMuonMesh mesh, float *weights,
                              const float *gradients, result *r) {
  const int64_t dims[] = {a->rows, a->cols};
  DMuonModel model;
  DMuonNewtonSchulz ns;
  DMuonOptimizer opt = NULL;
  DMuonParamInfo info = {.struct_size = sizeof info};
  int place[3];
  double mine[KINDS] = {0}, parts[2 * KINDS + 1] = {0}, all[2 * KINDS + 1];

  DMUON_CALL(DMuonModelCreate(mesh, &model));
  DMUON_CALL(DMuonModelAddParamArray(model, "layers.0.weight", DMUON_FLOAT32, 2, dims, weights,
                                     gradients, NULL));
  DMUON_CALL(DMuonModelSetRoute(model, "*", DMUON_ROUTE_MUON));
  DMUON_CALL(DMuonNewtonSchulzCreate(mesh, &ns));
  DMUON_CALL(one_step(a, model, ns, &opt));
  DMUON_CALL(library_peak(opt, &mine[LIBRARY]));
  mine[PROCESS] = process_peak();

  DMUON_CALL(DMuonModelGetParam(model, 0, &info));
  DMUON_CALL(DMuonMeshGetSizes(mesh, &r->mesh[0], &r->mesh[1], &r->mesh[2]));
  DMUON_CALL(DMuonMeshGetCoords(mesh, &place[0], &place[1], &place[2]));
  const int here = place[0] == info.owner_replicate && place[1] == info.owner_shard;
  for (int k = 0; k < KINDS; k++) parts[here ? k : KINDS + k] = mine[k];
  parts[2 * KINDS] = here ? r->rank : 0;
  MPI_Allreduce(parts, all, 2 * KINDS + 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  memcpy(r->peak, all, sizeof r->peak);
  memcpy(r->other, all + KINDS, sizeof r->other);
  r->owner = (int)all[2 * KINDS];

  DMUON_CALL(DMuonOptimizerDestroy(&opt));
  DMUON_CALL(DMuonNewtonSchulzDestroy(&ns));
  return DMuonModelDestroy(&model);
}

static int show(const bench_arguments *a, const result *r) {
  const double unit = 4.0 * a->rows * a->cols;
  printf("%d x %d fp32 on %d ranks, mesh %d x %d x %d, owner %d; one array has %.1f MB\n", a->rows,
         a->cols, r->ranks, r->mesh[0], r->mesh[1], r->mesh[2], r->owner, 1e-6 * unit);
  printf("                          owner MB   in arrays   largest other MB\n");
  printf("  allocated by library  %10.1f  %10.2f   %16.1f\n", 1e-6 * r->peak[LIBRARY],
         r->peak[LIBRARY] / unit, 1e-6 * r->other[LIBRARY]);
  printf("  resident in all       %10.1f  %10.2f   %16.1f\n", 1e-6 * r->peak[PROCESS],
         r->peak[PROCESS] / unit, 1e-6 * r->other[PROCESS]);
  if (!a->json) return 0;
  FILE *file = fopen(a->json, "w");
  if (!file) {
    perror(a->json);
    return 1;
  }
  fprintf(file, "{\"benchmark\": \"memory\", \"shape\": [%d, %d], \"ranks\": %d,\n", a->rows,
          a->cols, r->ranks);
  fprintf(file, " \"mesh\": [%d, %d, %d], \"owner\": %d,\n", r->mesh[0], r->mesh[1], r->mesh[2],
          r->owner);
  fprintf(file, " \"library_peak_bytes\": %.0f, \"process_peak_bytes\": %.0f,\n", r->peak[LIBRARY],
          r->peak[PROCESS]);
  fprintf(file, " \"others_library_peak_bytes\": %.0f, \"others_process_peak_bytes\": %.0f}\n",
          r->other[LIBRARY], r->other[PROCESS]);
  return fclose(file) != 0;
}

static DMuonErrorCode run(const bench_arguments *a, float *weights, const float *gradients,
                          result *r) {
  DMuonMesh mesh;
  int argc = a->argc;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonMeshSetSizes(mesh, DMUON_DECIDE, DMUON_DECIDE, 1));
  DMUON_CALL(DMuonMeshSetFromOptions(mesh, &argc, a->argv));
  DMUON_CALL(measure(a, mesh, weights, gradients, r));
  return DMuonMeshDestroy(&mesh);
}

int bench_memory(const bench_arguments *given) {
  bench_arguments a = *given;
  if (!a.rows) a.rows = a.cols = 4096;
  const size_t count = (size_t)a.rows * (size_t)a.cols;
  result r = {0};
  unsigned state = 1;
  int failed = 0;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &r.ranks);
  float *weights = malloc(count * sizeof *weights), *gradients = malloc(count * sizeof *gradients);
  if (!weights || !gradients) {
    fprintf(stderr, "dmuon_bench: no memory for %d x %d\n", a.rows, a.cols);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    gradients[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
    weights[i] = 0.02f * gradients[i];
  }
  if (run(&a, weights, gradients, &r)) {
    bench_fail();
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (r.rank == 0) failed = show(&a, &r);
  free(weights), free(gradients);
  MPI_Finalize();
  return failed;
}
