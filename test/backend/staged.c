/* The staged communicator over the host's device: all operations against the host's own. Runs on
 * any number of ranks, without any other device. */
#include "backend/staged/staged.h"

#include "backend/host/host.h"
#include "comm_conformance.h"
#include "left_to_mpi.h"

static void run(const char *mode, int deferred) {
  static dmuon_context context;
  dmuon_bootstrap *bootstrap = NULL;
  conformance c = {.mode = mode, .brief = deferred};
  int order[64];
  dmuon_context_init(&context);
  for (int i = 0; i < tap_size; i++) order[i] = tap_size - 1 - i;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &bootstrap);
  if (!code) code = dmuon_bootstrap_split(bootstrap, 1, tap_size, 1, order);
  conformance_side *sides[2] = {&c.tested, &c.host};
  const DMuonCommOps *ops[2] = {&dmuon_staged_comm_ops, &dmuon_host_comm_ops};
  for (int i = 0; i < 2; i++) {
    if (!code) code = dmuon_host_device_create(&context, i == 0 && deferred, 7, &sides[i]->device);
    if (!code) code = dmuon_host_device_join_process(sides[i]->device);
    if (!code)
      code = ops[i]->create(sides[i]->device, bootstrap, DMUON_AXIS_SHARD,
                            i ? DMUON_ROLE_SECOND : DMUON_ROLE_FIRST, &sides[i]->comm);
    if (!code) code = sides[i]->device->ops->queue_create(sides[i]->device, 0, &sides[i]->queue);
  }
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  if (!tap_ok(!code, "%s: set up", mode)) return;
  conformance_run(&c);
  for (int i = 0; i < 2; i++) {
    sides[i]->device->ops->queue_destroy(sides[i]->queue);
    sides[i]->comm->ops->free(sides[i]->comm);
    sides[i]->device->ops->destroy(sides[i]->device);
  }
  tap_ok(!dmuon_bootstrap_check(bootstrap), "%s: unbroken", mode);
  dmuon_bootstrap_destroy(&bootstrap);
  tap_is_int(context.memory.bytes, 0, "%s: nothing is left in memory", mode);
  dmuon_context_free(&context);
}

/* The last rank keeps out of it: the others give up in time, and it hears of it. */
static void run_silent(void) {
  static dmuon_context context;
  dmuon_bootstrap *bootstrap = NULL;
  dmuon_device *device = NULL;
  dmuon_queue *queue = NULL;
  dmuon_comm *comm = NULL;
  float x[4] = {1, 2, 3, 4};
  char message[600] = "";
  int order[64];
  const int is_silent = tap_rank == tap_size - 1;
  dmuon_context_init(&context);
  for (int i = 0; i < tap_size; i++) order[i] = i;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &bootstrap);
  if (!code) code = dmuon_bootstrap_split(bootstrap, 1, tap_size, 1, order);
  if (!code) code = dmuon_host_device_create(&context, 0, 0, &device);
  if (!code) code = dmuon_host_device_join_process(device);
  if (!code)
    code =
        dmuon_staged_comm_ops.create(device, bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_FIRST, &comm);
  if (!code) code = device->ops->queue_create(device, 0, &queue);
  if (!tap_ok(!code, "a silent rank: set up")) return;
  dmuon_bootstrap_set_timeout(bootstrap, 0.3);
  if (!is_silent) code = comm->ops->all_reduce(queue, comm, 4, DMUON_FLOAT32, x);
  if (code) snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
  const int is_first = code == DMUON_ERR_TIMEOUT && strstr(message, "on the shard axis");
  if (code) dmuon_bootstrap_break(bootstrap, code);
  while (!code) code = dmuon_bootstrap_listen(bootstrap), sched_yield();
  if (message[0] && !is_first) tap_diag("rank %d: %s", tap_rank, message);
  tap_ok(is_silent ? code == DMUON_ERR_REVOKED : is_first || code == DMUON_ERR_REVOKED,
         "a silent rank: the others give up, and it hears of it");
  tap_ok(comm->ops->all_reduce(queue, comm, 4, DMUON_FLOAT32, x) >= 200,
         "a silent rank: later operations fail at once");
  comm->ops->free(comm);
  device->ops->queue_destroy(queue);
  device->ops->destroy(device);
  dmuon_bootstrap_destroy(&bootstrap);
  dmuon_context_free(&context);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  run("staged", 0);
  run("staged, deferred", 1);
  if (tap_size > 1) run_silent();
  return tap_mpi_done();
}
