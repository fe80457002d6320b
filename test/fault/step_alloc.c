/* The k-th allocation fails on one rank (each in turn), for k = 1, 2, 3, ... until none does:
 * set-up and everything after it return one and the same code on all ranks, nothing hangs, and once
 * there is memory again the same objects set up, step, and end with the right bits and with not a
 * byte more than usual. */
#include <stdlib.h>
#include <string.h>

#include "mesh/mesh.h"
#include "optim/optimizer.h"
#include "tap_mpi.h"

#include <dmuon.h>

enum { PARAMS = 4, MOST = 64, STEPS = 2, LIMIT = 5000 };

static const struct {
  const char *name;
  DMuonDType dtype;
  int64_t dims[2];
} params[PARAMS] = {{"layers.0.qkv", DMUON_FLOAT32, {6, 4}},
                    {"layers.0.w", DMUON_BFLOAT16, {4, 4}},
                    {"layers.1.w", DMUON_FLOAT64, {3, 5}},
                    {"embed", DMUON_FLOAT32, {5, 4}}};

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  unsigned char weight[PARAMS][8 * MOST], gradient[PARAMS][8 * MOST];
} world;

static int64_t element_bytes(int p) {
  return params[p].dtype == DMUON_FLOAT64 ? 8 : params[p].dtype == DMUON_FLOAT32 ? 4 : 2;
}

static int64_t numel(int p) {
  return params[p].dims[0] * params[p].dims[1];
}

/* Small whole numbers, exact in every dtype. */
static void fill(void *data, int p, int seed) {
  for (int64_t i = 0; i < numel(p); i++) {
    const float value = (float)((i * 7 + seed * 13 + p * 5) % 17 - 8);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (params[p].dtype == DMUON_FLOAT64) ((double *)data)[i] = value;
    if (params[p].dtype == DMUON_FLOAT32) ((float *)data)[i] = value;
    if (params[p].dtype == DMUON_BFLOAT16) ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
  }
}

static uint64_t hash_of(const world *w) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int p = 0; p < PARAMS; p++)
    for (int64_t i = 0; i < numel(p) * element_bytes(p); i++)
      hash = (hash ^ w->weight[p][i]) * 0x100000001b3u;
  return hash;
}

/* Everything before the first set-up. */
static DMuonErrorCode build(int fail_at, world *w) {
  static const int64_t blocks[] = {2, 2, 2};
  char text[24];
  memset(w, 0, sizeof *w);
  for (int p = 0; p < PARAMS; p++) fill(w->weight[p], p, 1);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &w->mesh));
  DMUON_CALL(DMuonMeshSetTimeout(w->mesh, 30));
  snprintf(text, sizeof text, "%d", tap_rank == fail_at % tap_size ? fail_at : 0);
  DMUON_CALL(DMuonMeshSetOption(w->mesh, "fail_allocation", text));
  DMUON_CALL(DMuonModelCreate(w->mesh, &w->model));
  for (int p = 0; p < PARAMS; p++)
    DMUON_CALL(DMuonModelAddParamArray(w->model, params[p].name, params[p].dtype, 2, params[p].dims,
                                       w->weight[p], w->gradient[p], NULL));
  DMUON_CALL(DMuonModelSetBlocks(w->model, "layers.0.qkv", 3, blocks, 1));
  DMUON_CALL(DMuonOptimizerCreate(w->model, &w->opt));
  DMUON_CALL(DMuonOptimizerSetHyper(w->opt, "layers.*", DMUON_HYPER_LR, .1));
  return DMuonOptimizerSetClip(w->opt, DMUON_CLIP_GLOBAL, 3);
}

static DMuonErrorCode use(world *w) {
  double state[MOST];
  for (int t = 0; t < STEPS; t++) {
    for (int p = 0; p < PARAMS; p++) fill(w->gradient[p], p, 3 * tap_rank + t);
    DMUON_CALL(DMuonOptimizerStep(w->opt));
  }
  return DMuonOptimizerGetState(w->opt, 0, "momentum", state, DMUON_ALL);
}

static void dispose(world *w, int64_t *bytes) {
  DMuonOptimizerDestroy(&w->opt);
  DMuonModelDestroy(&w->model);
  *bytes = w->mesh ? w->mesh->context.memory.bytes : 0;
  DMuonMeshDestroy(&w->mesh);
}

static world w; /* arrays that optimizers point into: not on the stack */

int main(int argc, char **argv) {
  int64_t usual = 0, bytes = 0;
  int tries = 0, same = 1, known = 1, right = 1, again = 1, tight = 1, abandoned = 1;
  tap_mpi_init(&argc, &argv);
  tap_plan(8);
  DMuonErrorCode code = build(0, &w);
  if (!code) code = DMuonOptimizerSetUp(w.opt);
  if (!code) code = use(&w);
  const uint64_t expected = hash_of(&w);
  dispose(&w, &usual);
  if (!tap_ok(!code, "with all the memory")) tap_diag("%s", DMuonErrorGetMessage());

  for (int k = 1, failing = 1; failing && k < LIMIT; k++) {
    failing = 0;
    code = build(k, &w);
    if (tap_mpi_any(code != 0)) {
      tap_diag("k = %d: before set-up: %s", k, DMuonErrorGetMessage());
      known = 0;
    }
    code = DMuonOptimizerSetUp(w.opt);
    for (int stage = 0; stage < 2; stage++) {
      const int got = tap_mpi_common((int)code);
      if (got == -1) same = 0;
      if (got == 0 && stage == 0) {
        code = use(&w);
        continue;
      }
      if (got == 0) break;
      failing = 1;
      if (got != DMUON_ERR_MEMORY) {
        if (known) tap_diag("k = %d: %s: %s", k, DMuonErrorGetName(code), DMuonErrorGetMessage());
        known = 0;
      }
      break;
    }
    /* Some are given up as they are; others get their memory, and go on. */
    if (!w.mesh->object.is_set_up) DMuonMeshSetOption(w.mesh, "fail_allocation", "0");
    w.mesh->context.memory.fail_at = 0;
    if (failing && k % 4 == 0) {
      dispose(&w, &bytes);
      if (bytes > usual) abandoned = 0;
      tries++;
      continue;
    }
    if (failing && !DMuonErrorIsFatal(code)) {
      code = DMuonOptimizerSetUp(w.opt);
      if (!code && w.opt->info.step == 0) code = use(&w);
      if (tap_mpi_any(code != 0)) {
        if (again) tap_diag("k = %d: again: %s", k, DMuonErrorGetMessage());
        again = 0;
      } else if (w.opt->info.step != STEPS || hash_of(&w) != expected) {
        right = 0;
      }
    }
    dispose(&w, &bytes);
    if (tap_mpi_any(bytes != usual)) {
      if (tight)
        tap_diag("k = %d: %lld bytes left, usually %lld", k, (long long)bytes, (long long)usual);
      tight = 0;
    }
    tries++;
  }
  tap_ok(tries > 50 && tries < LIMIT, "so many allocations failed: %d", tries);
  tap_ok(same, "each time the same code on all ranks");
  tap_ok(known, "and it is DMUON_ERR_MEMORY");
  tap_ok(again, "with memory again, the same objects go on");
  tap_ok(right, "to the right bits");
  tap_ok(tight, "and leave not a byte more than usual");
  tap_ok(abandoned, "nor do those that are given up half built");
  return tap_mpi_done();
}
