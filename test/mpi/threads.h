/* A life of an optimizer, run by whatever thread: for tests of who may call. */
#ifndef TEST_THREADS_H
#define TEST_THREADS_H

#include <dmuon.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { THREADS_N = 24, THREADS_STEPS = 3 };

typedef struct {
  MPI_Comm comm;
  int rank;
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  float w[2][THREADS_N * THREADS_N], g[2][THREADS_N * THREADS_N];
  DMuonErrorCode code;
  char message[512]; /* of the thread that called */
} thread_life;

static DMuonErrorCode thread_open(thread_life *l) {
  static const int64_t dims[] = {THREADS_N, THREADS_N};
  DMUON_CALL(DMuonMeshCreate(l->comm, &l->mesh));
  DMUON_CALL(DMuonModelCreate(l->mesh, &l->model));
  for (int k = 0; k < 2; k++) {
    char name[32];
    snprintf(name, sizeof name, "layers.%d.weight", k);
    for (int i = 0; i < THREADS_N * THREADS_N; i++) l->w[k][i] = cosf((float)(i + k));
    DMUON_CALL(
        DMuonModelAddParamArray(l->model, name, DMUON_FLOAT32, 2, dims, l->w[k], l->g[k], NULL));
  }
  DMUON_CALL(DMuonOptimizerCreate(l->model, &l->opt));
  return DMuonOptimizerSetUp(l->opt);
}

static DMuonErrorCode thread_step(thread_life *l, int step) {
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < THREADS_N * THREADS_N; i++)
      l->g[k][i] = sinf((float)(1 + i + 10 * k + step + 100 * l->rank));
  return DMuonOptimizerStep(l->opt);
}

static void thread_close(thread_life *l) {
  DMuonOptimizerDestroy(&l->opt);
  DMuonModelDestroy(&l->model);
  DMuonMeshDestroy(&l->mesh);
}

/* Runs body in a thread of its own, to its end. 0: there was no thread. */
static int thread_run(void *(*body)(void *), void *argument) {
  pthread_t thread;
  return !pthread_create(&thread, NULL, body, argument) && !pthread_join(thread, NULL);
}

#endif
