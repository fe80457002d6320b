/* The k-th allocation fails on one rank (each in turn), for every k until none does, with
 * parameters in the library's memory of every residency: set-up and the first pass that is added up
 * return one and the same code on all ranks, nothing hangs, and once there is memory again the same
 * objects set up, step, end with the right bits, and leave not a byte more than usual. */
#include <stdlib.h>
#include <string.h>

#include "mesh/mesh.h"
#include "optim/optimizer.h"
#include "tap_mpi.h"

#include <dmuon.h>

enum { PARAMS = 5, MOST = 32, STEPS = 2, LIMIT = 5000 };

static const struct {
  const char *name;
  DMuonDType dtype;
  int64_t dims[2];
  DMuonRoute route;
} params[PARAMS] = {{"layers.0.qkv", DMUON_FLOAT32, {6, 4}, DMUON_ROUTE_MUON},
                    {"layers.0.bias", DMUON_FLOAT32, {1, 5}, DMUON_ROUTE_ADAMW},
                    {"layers.1.w", DMUON_BFLOAT16, {4, 4}, DMUON_ROUTE_MUON},
                    {"embed.w", DMUON_FLOAT32, {5, 4}, DMUON_ROUTE_ADAMW_SHARDED},
                    {"embed.fixed", DMUON_FLOAT32, {2, 2}, DMUON_ROUTE_FROZEN}};

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
} world;

/* Small whole numbers, exact in every dtype. */
static void fill(const DMuonParamInfo *param, int64_t first, int64_t count, int seed, void *data) {
  for (int64_t i = 0; i < count; i++) {
    const float value = (float)(((i + first) * 7 + seed * 13) % 17 - 8);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (param->dtype == DMUON_FLOAT32)
      ((float *)data)[i] = value;
    else
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
  }
}

static void init(void *ctx, const DMuonParamInfo *param, int64_t first, int64_t count, void *data) {
  (void)ctx;
  fill(param, first, count, 1, data);
}

static DMuonErrorCode build(int fail_at, world *w) {
  char text[24];
  memset(w, 0, sizeof *w);
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &w->mesh));
  DMUON_CALL(DMuonMeshSetTimeout(w->mesh, 30));
  DMUON_CALL(DMuonMeshSetSizes(w->mesh, 1, DMUON_DECIDE, 1));
  snprintf(text, sizeof text, "%d", tap_rank == fail_at % tap_size ? fail_at : 0);
  DMUON_CALL(DMuonMeshSetOption(w->mesh, "fail_allocation", text));
  DMUON_CALL(DMuonModelCreate(w->mesh, &w->model));
  for (int p = 0; p < PARAMS; p++) {
    DMUON_CALL(
        DMuonModelAddParam(w->model, params[p].name, params[p].dtype, 2, params[p].dims, NULL));
    DMUON_CALL(DMuonModelSetRoute(w->model, params[p].name, params[p].route));
  }
  DMUON_CALL(DMuonModelSetReshard(w->model, "embed", DMUON_Z2));
  DMUON_CALL(DMuonOptimizerCreate(w->model, &w->opt));
  DMUON_CALL(DMuonOptimizerSetInit(w->opt, init, NULL));
  return DMuonOptimizerSetClip(w->opt, DMUON_CLIP_GLOBAL, 3);
}

static DMuonErrorCode pass(world *w, int seed) {
  int groups;
  DMuonGroup group;
  DMUON_CALL(DMuonOptimizerGetGroupCount(w->opt, &groups));
  for (int g = 0; g < groups; g++) {
    DMUON_CALL(DMuonOptimizerGetGroup(w->opt, g, &group));
    DMUON_CALL(DMuonGroupForwardBegin(group));
    DMUON_CALL(DMuonGroupForwardEnd(group));
  }
  for (int g = groups; g-- > 0;) {
    const int *ids;
    int count;
    DMUON_CALL(DMuonOptimizerGetGroup(w->opt, g, &group));
    DMUON_CALL(DMuonGroupGetParams(group, &count, &ids));
    DMUON_CALL(DMuonGroupBackwardBegin(group));
    for (int k = 0; k < count; k++) {
      DMuonParamInfo info = {.struct_size = sizeof info};
      void *grad;
      if (params[ids[k]].route == DMUON_ROUTE_FROZEN) continue;
      DMUON_CALL(DMuonModelGetParam(w->model, ids[k], &info));
      DMUON_CALL(DMuonGroupGetGrad(group, ids[k], &grad));
      fill(&info, 0, info.numel, seed, grad);
    }
    DMUON_CALL(DMuonGroupBackwardEnd(group));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode use(world *w) {
  for (int t = 0; t < STEPS; t++) {
    DMUON_CALL(DMuonOptimizerBeginPass(w->opt, DMUON_PASS_ACCUMULATE));
    DMUON_CALL(pass(w, 3 * tap_rank + t));
    DMUON_CALL(DMuonOptimizerBeginPass(w->opt, DMUON_PASS_TRAIN));
    DMUON_CALL(pass(w, 3 * tap_rank + t + 1));
    DMUON_CALL(DMuonOptimizerStep(w->opt));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode hash_of(const world *w, uint64_t *hash) {
  *hash = 0xcbf29ce484222325u;
  for (int p = 0; p < PARAMS; p++) {
    unsigned char data[4 * MOST] = {0};
    DMUON_CALL(DMuonOptimizerGetParam(w->opt, p, data, DMUON_ALL));
    for (size_t i = 0; i < sizeof data; i++) *hash = (*hash ^ data[i]) * 0x100000001b3u;
  }
  return DMUON_SUCCESS;
}

static void dispose(world *w, int64_t *bytes) {
  DMuonOptimizerDestroy(&w->opt);
  DMuonModelDestroy(&w->model);
  *bytes = w->mesh ? w->mesh->context.memory.bytes : 0;
  DMuonMeshDestroy(&w->mesh);
}

int main(int argc, char **argv) {
  world w;
  int64_t usual = 0, bytes = 0;
  uint64_t expected = 0, got = 0;
  int tries = 0, same = 1, known = 1, right = 1, again = 1, tight = 1;
  tap_mpi_init(&argc, &argv);
  tap_plan(7);
  DMuonErrorCode code = build(0, &w);
  if (!code) code = DMuonOptimizerSetUp(w.opt);
  if (!code) code = use(&w);
  if (!code) code = hash_of(&w, &expected);
  dispose(&w, &usual);
  if (!tap_ok(!code, "with all the memory")) tap_diag("%s", DMuonErrorGetMessage());

  for (int k = 1, failing = 1; failing && k < LIMIT; k++) {
    failing = 0;
    code = build(k, &w);
    if (tap_mpi_any(code != 0)) known = 0;
    code = DMuonOptimizerSetUp(w.opt);
    int result = tap_mpi_common((int)code);
    if (result == 0) {
      code = use(&w);
      result = tap_mpi_common((int)code);
    }
    failing = result != 0;
    if (result == -1) same = 0;
    if (failing && result != DMUON_ERR_MEMORY) {
      if (known) tap_diag("k = %d: %s: %s", k, DMuonErrorGetName(code), DMuonErrorGetMessage());
      known = 0;
    }
    if (!w.mesh->object.is_set_up) DMuonMeshSetOption(w.mesh, "fail_allocation", "0");
    w.mesh->context.memory.fail_at = 0;
    if (failing && k % 4 && !tap_mpi_any(DMuonErrorIsFatal(code))) {
      code = DMuonOptimizerSetUp(w.opt);
      if (!code) code = use(&w);
      if (!code) code = hash_of(&w, &got);
      if (tap_mpi_any(code != 0)) {
        if (again) tap_diag("k = %d: again: %s", k, DMuonErrorGetMessage());
        again = 0;
      } else if (w.opt->info.step != STEPS || got != expected) {
        right = 0;
      }
    }
    dispose(&w, &bytes);
    if (tap_mpi_any(bytes > usual)) {
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
  return tap_mpi_done();
}
