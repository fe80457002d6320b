/* A step on a GPU (its double) is issued, not waited for: from the first bracket to the end of Step
 * no call of CUDA makes the host wait, no stream or event is even asked whether it is done, no
 * memory is taken, from the first step on; whichever device is current for the caller stays so; and
 * each step is ordered with another stream of his. (What waits because it must, clipping and staged
 * messages, is not among it.) */
#define _POSIX_C_SOURCE 200809L

#include <dmuon.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "double/double.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"
#include "tap_mpi.h"

enum { ROWS = 24, COLS = 40, LAYERS = 3, STEPS = 3, PARAMS = 2 * LAYERS, GPUS = 8 };

typedef struct {
  const char *label;
  int lent, replicate;
  DMuonDType dtype;
  const char *options[5]; /* pairs, ended by NULL */
} way;

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  void *weights[PARAMS], *gradients[PARAMS];
  cudaStream_t streams[STEPS]; /* the first is the default one */
  int moved;                   /* calls that changed the current device */
} run;

/* Every call of the library comes back with the device that was current. */
static DMuonErrorCode back(run *r, DMuonErrorCode code) {
  int current = -1;
  r->moved += cudaGetDevice(&current) != cudaSuccess || current != 0;
  return code;
}
#define LOOK(call) DMUON_CALL(back(r, (call)))

static DMuonErrorCode add(const way *w, run *r) {
  static const int64_t dims[2][2] = {{ROWS, COLS}, {COLS, 0}};
  for (int p = 0; p < PARAMS; p++) {
    char name[32];
    const int is_vector = p % 2;
    const int64_t bytes = 4 * (is_vector ? COLS : ROWS * COLS);
    snprintf(name, sizeof name, is_vector ? "layers.%d.norm" : "layers.%d.w", p / 2);
    if (w->lent) {
      LOOK(DMuonModelAddParam(r->model, name, w->dtype, 2 - is_vector, dims[is_vector], NULL));
      continue;
    }
    float value[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) value[i] = (float)(i * 7 % 13 - 6) * 0.125f;
    LOOK(DMuonMeshAlloc(r->mesh, bytes, &r->weights[p]));
    LOOK(DMuonMeshAlloc(r->mesh, bytes, &r->gradients[p]));
    LOOK(DMuonMeshCopy(r->mesh, r->weights[p], value, bytes));
    LOOK(DMuonMeshCopy(r->mesh, r->gradients[p], value, bytes));
    LOOK(DMuonModelAddParamArray(r->model, name, DMUON_FLOAT32, 2 - is_vector, dims[is_vector],
                                 r->weights[p], r->gradients[p], NULL));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_up(const way *w, run *r) {
  LOOK(DMuonMeshCreate(MPI_COMM_WORLD, &r->mesh));
  LOOK(DMuonMeshSetSizes(r->mesh, w->replicate, DMUON_DECIDE, 1));
  LOOK(DMuonMeshSetDevice(r->mesh, DMUON_DEVICE_CUDA, 1 + tap_rank));
  for (int i = 0; w->options[i]; i += 2)
    LOOK(DMuonMeshSetOption(r->mesh, w->options[i], w->options[i + 1]));
  LOOK(DMuonMeshSetUp(r->mesh));
  LOOK(DMuonModelCreate(r->mesh, &r->model));
  DMUON_CALL(add(w, r));
  LOOK(DMuonOptimizerCreate(r->model, &r->opt));
  LOOK(DMuonOptimizerSetUp(r->opt));
  return DMUON_SUCCESS;
}

/* All gradients a small number, in the order of the caller's stream, on the mesh's device. */
static DMuonErrorCode fill(DMuonGroup group, DMuonDType dtype, cudaStream_t stream) {
  const int *ids;
  int count = 0;
  void *grad;
  DMUON_CALL(DMuonGroupGetParams(group, &count, &ids));
  for (int i = 0; i < count; i++) {
    const size_t elements = ids[i] % 2 ? COLS : ROWS * COLS;
    DMUON_CALL(DMuonGroupGetGrad(group, ids[i], &grad));
    (void)cudaSetDevice(1 + tap_rank);
    const cudaError_t result =
        cudaMemsetAsync(grad, 0x3c, elements * (dtype == DMUON_FLOAT32 ? 4 : 2), stream);
    (void)cudaSetDevice(0);
    if (result != cudaSuccess) return DMUON_ERR_DEVICE;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode pass(const way *w, run *r, cudaStream_t stream) {
  DMuonGroup group;
  const void *data;
  int count = 0;
  LOOK(DMuonOptimizerSetStream(r->opt, stream));
  if (w->lent) LOOK(DMuonOptimizerGetGroupCount(r->opt, &count));
  for (int g = 0; g < count; g++) {
    LOOK(DMuonOptimizerGetGroup(r->opt, g, &group));
    LOOK(DMuonGroupForwardBegin(group));
    LOOK(DMuonGroupGetData(group, 2 * g, &data));
    LOOK(DMuonGroupForwardEnd(group));
  }
  for (int g = count; g-- > 0;) {
    LOOK(DMuonOptimizerGetGroup(r->opt, g, &group));
    LOOK(DMuonGroupBackwardBegin(group));
    LOOK(fill(group, w->dtype, stream));
    LOOK(DMuonGroupBackwardEnd(group));
  }
  LOOK(DMuonOptimizerStep(r->opt));
  return DMUON_SUCCESS;
}

/* on: a call that asks whether something is done fails, and one that blocks ends the test. */
static void forbid(int on) {
  double_fail_call("cudaStreamQuery", on, cudaErrorUnknown);
  double_fail_call("cudaEventQuery", on, cudaErrorUnknown);
  double_forbid_blocking(on);
}

/* What the next group waits for, along the shard axis, goes before everything else. */
static int goes_first(const run *r) {
  const dmuon_runtime *runtime = &r->opt->runtime;
  const dmuon_mesh_queues *queues = &runtime->queues[0];
  const dmuon_queue *const later[] = {queues->replicate_reduce, queues->publish, runtime->compute,
                                      runtime->local};
  int least = 0, greatest = 0, right = 1;
  (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
  right &= double_stream_priority(queues->shard_reduce->stream) == greatest;
  right &= double_stream_priority(queues->unshard->stream) == greatest;
  for (size_t i = 0; i < sizeof later / sizeof *later; i++)
    right &= double_stream_priority(later[i]->stream) == least;
  return right && greatest < least;
}

static void test(const way *w) {
  run r = {0};
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMuonErrorCode code = set_up(w, &r);
  if (!tap_ok(!code, "%s: set up", w->label)) {
    tap_diag("%s", DMuonErrorGetMessage());
    return;
  }
  tap_ok(goes_first(&r), "%s: the queues of the shard axis alone have high priority", w->label);
  (void)cudaSetDevice(1 + tap_rank);
  for (int t = 1; t < STEPS; t++)
    (void)cudaStreamCreateWithPriority(&r.streams[t], cudaStreamNonBlocking, 0);
  (void)cudaSetDevice(0);
  const int64_t allocations = r.mesh->context.memory.allocations;
  forbid(1);
  for (int t = 0; t < STEPS && !code; t++) code = pass(w, &r, r.streams[t]);
  forbid(0);
  if (!tap_ok(!code, "%s: %d steps, nothing waited for", w->label, STEPS))
    tap_diag("%s", DMuonErrorGetMessage());
  tap_is_int(r.mesh->context.memory.allocations, allocations, "%s: no memory taken", w->label);
  if (!code) code = back(&r, DMuonOptimizerWait(r.opt));
  if (!code) code = back(&r, DMuonOptimizerGetStepInfo(r.opt, &info));
  tap_ok(!code && info.step == STEPS && !info.skipped, "%s: all of them took place", w->label);
  (void)back(&r, DMuonOptimizerDestroy(&r.opt));
  (void)back(&r, DMuonModelDestroy(&r.model));
  for (int p = 0; p < PARAMS; p++) {
    (void)back(&r, DMuonMeshFree(r.mesh, &r.weights[p]));
    (void)back(&r, DMuonMeshFree(r.mesh, &r.gradients[p]));
  }
  (void)back(&r, DMuonMeshDestroy(&r.mesh));
  for (int t = 1; t < STEPS; t++) (void)cudaStreamDestroy(r.streams[t]);
  tap_is_int(r.moved, 0, "%s: the caller's current device is as he left it", w->label);
}

int main(int argc, char **argv) {
  static const way ways[] = {
      {"lent, 2 x 2", 1, 2, DMUON_FLOAT32, {NULL}},
      {"lent, bf16, 4 x 1", 1, 4, DMUON_BFLOAT16, {NULL}},
      {"lent, z2, gathered",
       1,
       2,
       DMUON_FLOAT32,
       {"reshard", "z2", "muon_forward_unshard", "all_gather", NULL}},
      {"lent, by NCCL", 1, 2, DMUON_BFLOAT16, {"reduce", "nccl", NULL}},
      {"arrays, asynchronous", 0, 2, DMUON_FLOAT32, {"replicate_async", "1", NULL}},
  };
  setenv("CUDA_DOUBLE_GPUS", "8",
         1); /* on every rank, the same ones: its own, and another current */
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) test(&ways[i]);
  return tap_mpi_done();
}
