/* The staged communicator over the host's device: all operations against the host's own. Runs on
 * any number of ranks, without any other device. */
#include "backend/staged/staged.h"

#include "backend/host/host.h"
#include "comm_conformance.h"

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

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  run("staged", 0);
  run("staged, deferred", 1);
  return tap_mpi_done();
}
