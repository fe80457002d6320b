/* Communication of the CUDA backend over the double: all operations against the host's, in each of
 * the ways of adding up, with NCCL keeping calls in order and without, and through host memory.
 * Runs on any number of ranks. */
#define _POSIX_C_SOURCE 200809L

#include "backend/host/host.h"
#include "backend/staged/staged.h"
#include "comm/bootstrap_process.h"
#include "comm_conformance.h"
#include "backend/cuda/cuda.h"

static DMuonErrorCode progress(void *argument) {
  (void)argument;
  dmuon_process_progress();
  dmuon_process_listen();
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_device(dmuon_context *context, int reduce_nccl, dmuon_device **device) {
  const dmuon_module_request request = {.text = "cuda",
                                        .ordinal = -1,
                                        .reduce_nccl = reduce_nccl,
                                        .rank = tap_rank,
                                        .progress = progress};
  DMUON_TRY(dmuon_cuda_module.create(context, &request, device));
  dmuon_cuda_module.set_timeout(*device, 60);
  return DMUON_SUCCESS;
}

typedef struct {
  const char *mode;
  const DMuonCommOps *ops;
  int reduce_nccl, brief;
  const char *implicit, *version; /* of NCCL's environment, and of NCCL */
  const char *order;              /* what is said of it */
} variant;

static int says(dmuon_device *device, const char *words) {
  const char *text = "";
  dmuon_text about;
  dmuon_text_init(&about, &device->context->memory);
  dmuon_cuda_module.describe(device, &about);
  int found = !dmuon_text_finish(&about, &text) && strstr(text, words);
  if (!found) tap_diag("described as: %s", text);
  dmuon_text_free(&about);
  return found;
}

static void run(const variant *v) {
  static dmuon_context context;
  dmuon_bootstrap *bootstrap = NULL;
  conformance c = {.mode = v->mode, .inexact = v->reduce_nccl, .brief = v->brief};
  int order[64];
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", v->implicit, 1);
  setenv("CUDA_DOUBLE_NCCL_VERSION", v->version, 1);
  dmuon_context_init(&context);
  for (int i = 0; i < tap_size; i++) order[i] = tap_size - 1 - i;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &bootstrap);
  if (!code) code = dmuon_bootstrap_split(bootstrap, 1, tap_size, 1, order);
  if (!code) code = make_device(&context, v->reduce_nccl, &c.tested.device);
  if (!code) code = dmuon_host_device_create(&context, 0, 0, &c.host.device);
  if (!code) code = dmuon_host_device_join_process(c.host.device);
  /* Both roles, as a mesh has them: the second is split off the first. */
  dmuon_comm *other = NULL;
  if (!code)
    code = v->ops->create(c.tested.device, bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_FIRST,
                          v->ops == &dmuon_staged_comm_ops ? &c.tested.comm : &other);
  if (!code && !c.tested.comm)
    code = v->ops->create(c.tested.device, bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_SECOND,
                          &c.tested.comm);
  if (!code)
    code = dmuon_host_comm_ops.create(c.host.device, bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_SECOND,
                                      &c.host.comm);
  conformance_side *sides[2] = {&c.tested, &c.host};
  for (int i = 0; i < 2 && !code; i++)
    code = sides[i]->device->ops->queue_create(sides[i]->device, 0, &sides[i]->queue);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  if (!tap_ok(!code, "%s: set up", v->mode)) return;
  if (other) tap_ok(says(c.tested.device, v->order), "%s: says so", v->mode);
  conformance_run(&c);
  if (other) { /* alternating */
    conformance both = c;
    both.brief = 1;
    both.tested.comm = other;
    conformance_test_many(&both);
    conformance_test_many(&c);
  }
  if (other) other->ops->free(other);
  for (int i = 0; i < 2; i++) {
    sides[i]->comm->ops->free(sides[i]->comm);
    sides[i]->device->ops->queue_destroy(sides[i]->queue);
    sides[i]->device->ops->destroy(sides[i]->device);
  }
  tap_ok(!dmuon_bootstrap_check(bootstrap), "%s: unbroken", v->mode);
  dmuon_bootstrap_destroy(&bootstrap);
  tap_is_int(context.memory.bytes, 0, "%s: nothing is left in memory", v->mode);
  dmuon_context_free(&context);
}

/* Two meshes of one process on one GPU: NCCL wants one order over both. */
static void run_two(const char *implicit) {
  enum { N = 300, ROUNDS = 4 };
  static dmuon_context contexts[2];
  dmuon_bootstrap *bootstraps[2] = {NULL};
  conformance_side sides[2] = {{0}};
  void *arrays[2] = {NULL};
  double values[N];
  int order[64];
  int64_t wrong = 0;
  DMuonErrorCode code = DMUON_SUCCESS;
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", implicit, 1);
  setenv("CUDA_DOUBLE_NCCL_VERSION", "22809", 1);
  for (int i = 0; i < tap_size; i++) order[i] = i;
  for (int i = 0; i < N; i++) values[i] = tap_rank + i;
  for (int m = 0; m < 2; m++) {
    conformance_side *s = &sides[m];
    dmuon_context_init(&contexts[m]);
    if (!code) code = dmuon_bootstrap_create(&contexts[m], MPI_COMM_WORLD, 60, &bootstraps[m]);
    if (!code) code = dmuon_bootstrap_split(bootstraps[m], 1, tap_size, 1, order);
    if (!code) code = make_device(&contexts[m], 0, &s->device);
    if (!code)
      code = dmuon_cuda_comm_ops.create(s->device, bootstraps[m], DMUON_AXIS_SHARD,
                                        DMUON_ROLE_REDUCE, &s->comm);
    if (!code) code = s->device->ops->queue_create(s->device, 0, &s->queue);
    arrays[m] = conformance_array(s, values, sizeof values, &code);
  }
  /* Sums of sums: each round multiplies by the number of ranks. */
  for (int round = 0; round < ROUNDS; round++)
    for (int m = 0; m < 2 && !code; m++)
      code = sides[m].comm->ops->all_reduce(sides[m].queue, sides[m].comm, N, DMUON_FLOAT64,
                                            arrays[m]);
  for (int m = 0; m < 2; m++) {
    if (!code) code = conformance_copy(&sides[m], arrays[m], values, sizeof values, 0);
    double first = 0;
    for (int r = 0; r < tap_size; r++) first += r;
    for (int i = 0; i < N && !code; i++)
      wrong += values[i] != (first + (double)tap_size * i) * pow(tap_size, ROUNDS - 1);
  }
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && !wrong, "two meshes in turn, launch order implicit %s", implicit);
  for (int m = 0; m < 2 && !code; m++) {
    conformance_side *s = &sides[m];
    s->device->ops->free(s->device, arrays[m]);
    s->comm->ops->free(s->comm);
    s->device->ops->queue_destroy(s->queue);
    s->device->ops->destroy(s->device);
    dmuon_bootstrap_destroy(&bootstraps[m]);
    dmuon_context_free(&contexts[m]);
  }
}

/* One communicator on two queues with nothing between them: its memory must not be mixed up. */
static void run_two_queues(const char *implicit, int fanin) {
  enum { N = 300, ROUNDS = 4 };
  static dmuon_context context;
  dmuon_bootstrap *bootstrap = NULL;
  conformance_side sides[2] = {{0}};
  void *arrays[2] = {NULL};
  double values[N];
  int order[64];
  int64_t wrong = 0;
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", implicit, 1);
  setenv("CUDA_DOUBLE_NCCL_VERSION", "22809", 1);
  for (int i = 0; i < tap_size; i++) order[i] = i;
  for (int i = 0; i < N; i++) values[i] = tap_rank + i;
  dmuon_context_init(&context);
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &bootstrap);
  if (!code) code = dmuon_bootstrap_split(bootstrap, 1, tap_size, 1, order);
  if (!code) code = make_device(&context, 0, &sides[0].device);
  if (!code)
    code = dmuon_cuda_comm_ops.create(sides[0].device, bootstrap, DMUON_AXIS_SHARD,
                                      DMUON_ROLE_REDUCE, &sides[0].comm);
  if (!code) sides[0].comm->fanin = fanin;
  sides[1] = sides[0];
  for (int q = 0; q < 2; q++) {
    if (!code) code = sides[q].device->ops->queue_create(sides[q].device, 0, &sides[q].queue);
    arrays[q] = conformance_array(&sides[q], values, sizeof values, &code);
  }
  for (int round = 0; round < ROUNDS; round++)
    for (int q = 0; q < 2 && !code; q++)
      code = sides[q].comm->ops->all_reduce(sides[q].queue, sides[q].comm, N, DMUON_FLOAT64,
                                            arrays[q]);
  double first = 0;
  for (int r = 0; r < tap_size; r++) first += r;
  for (int q = 0; q < 2; q++) {
    if (!code) code = conformance_copy(&sides[q], arrays[q], values, sizeof values, 0);
    for (int i = 0; i < N && !code; i++)
      wrong += values[i] != (first + (double)tap_size * i) * pow(tap_size, ROUNDS - 1);
  }
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code && !wrong, "one communicator on two queues, launch order implicit %s, fanin %d",
         implicit, fanin);
  if (code) return;
  for (int q = 0; q < 2; q++) sides[q].device->ops->free(sides[q].device, arrays[q]);
  sides[0].comm->ops->free(sides[0].comm);
  for (int q = 0; q < 2; q++) sides[q].device->ops->queue_destroy(sides[q].queue);
  sides[0].device->ops->destroy(sides[0].device);
  dmuon_bootstrap_destroy(&bootstrap);
  dmuon_context_free(&context);
}

int main(int argc, char **argv) {
  static const variant variants[] = {
      {"ordered", &dmuon_cuda_comm_ops, 0, 0, "1", "22809", "launch order implicit"},
      {"ordered, old NCCL", &dmuon_cuda_comm_ops, 0, 1, "1", "22500", "launch order by events"},
      {"by NCCL", &dmuon_cuda_comm_ops, 1, 1, "0", "22809", "launch order by events"},
      {"staged", &dmuon_staged_comm_ops, 0, 1, "0", "22809", ""},
  };
  tap_mpi_init(&argc, &argv);
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) run(&variants[i]);
  run_two("0");
  run_two("1");
  run_two_queues("0", 32);
  run_two_queues("1", 32);
  run_two_queues("1", 1);
  return tap_mpi_done();
}
