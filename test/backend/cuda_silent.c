/* A rank that does not take part, with the CUDA backend over the double: the others give up in time
 * and say in what, it hears of it, nobody waits for anybody in the end, and no buffer is touched
 * afterwards. Three ranks, the last one silent. */
#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "backend/cuda/cuda.h"
#include "backend/host/host.h"
#include "comm/bootstrap_process.h"
#include "tap_mpi.h"

static DMuonErrorCode progress(void *argument) {
  (void)argument;
  dmuon_process_progress();
  dmuon_process_listen();
  return DMUON_SUCCESS;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct {
  dmuon_context context;
  dmuon_bootstrap *bootstrap;
  dmuon_device *device;
  dmuon_queue *queue;
  dmuon_comm *comm;
} party;

/* As a mesh does it. */
static void on_break(void *argument, DMuonErrorCode code) {
  party *p = argument;
  p->comm->ops->abort(p->comm);
  dmuon_cuda_module.break_device(p->device, code);
}

static DMuonErrorCode open_party(party *p) {
  const int order[3] = {0, 1, 2};
  const dmuon_module_request request = {
      .text = "cuda", .ordinal = -1, .rank = tap_rank, .progress = progress};
  dmuon_context_init(&p->context);
  DMUON_TRY(dmuon_bootstrap_create(&p->context, MPI_COMM_WORLD, 60, &p->bootstrap));
  DMUON_TRY(dmuon_bootstrap_split(p->bootstrap, 1, 3, 1, order));
  DMUON_TRY(dmuon_cuda_module.create(&p->context, &request, &p->device));
  dmuon_cuda_module.set_timeout(p->device, 60);
  DMUON_TRY(dmuon_cuda_comm_ops.create(p->device, p->bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE,
                                       &p->comm));
  DMUON_TRY(p->device->ops->queue_create(p->device, 0, &p->queue));
  dmuon_bootstrap_on_break(p->bootstrap, on_break, p);
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce(party *p, float *in, float *out) {
  static const dmuon_segment segments[3] = {
      {0, 0, 100, 100}, {1, 100, 100, 100}, {2, 200, 100, 100}};
  const dmuon_reduce args = {.segment_count = 3,
                             .segments = segments,
                             .in = in,
                             .in_dtype = DMUON_FLOAT32,
                             .out = out,
                             .sum_dtype = DMUON_FLOAT32,
                             .divisor = 1};
  DMUON_TRY(p->comm->ops->reduce_segments(p->queue, p->comm, &args));
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  static party p;
  void *in = NULL, *out = NULL;
  tap_mpi_init(&argc, &argv);
  DMuonErrorCode code = open_party(&p);
  if (!code) code = p.device->ops->alloc(p.device, 1200, &in);
  if (!code) code = p.device->ops->alloc(p.device, 400, &out);
  if (!code) code = p.device->ops->zero(p.queue, in, 1200);
  if (!code) code = reduce(&p, in, out);
  if (!code) code = p.device->ops->queue_sync(p.queue);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code, "all take part");

  const double start = seconds();
  char message[600] = "";
  dmuon_cuda_module.set_timeout(p.device, 0.5);
  if (tap_rank < 2) {
    code = reduce(&p, in, out);
    if (!code) code = p.device->ops->queue_sync(p.queue);
    snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
    dmuon_bootstrap_break(p.bootstrap, code);
  } else {
    while (!(code = dmuon_bootstrap_listen(p.bootstrap)) && seconds() - start < 20) sched_yield();
  }
  tap_diag("%s", message);
  const double waited = seconds() - start;
  /* One of the two is first; the other may hear of it before its own time is over. */
  tap_ok(tap_rank == 2 ? code == DMUON_ERR_REVOKED
                       : code == DMUON_ERR_TIMEOUT || code == DMUON_ERR_REVOKED,
         "the others give up, the silent rank hears of it");
  tap_ok(tap_rank == 2 || code != DMUON_ERR_TIMEOUT ||
             strstr(message, "reducing segments on the shard axis"),
         "the message says in what");
  tap_ok(waited < 15, "in time");
  tap_ok(reduce(&p, in, out) >= 200, "later operations fail at once");
  tap_ok(p.device->ops->queue_sync(p.queue) >= 200, "so do waits");

  p.comm->ops->free(p.comm);
  p.device->ops->free(p.device, in);
  p.device->ops->free(p.device, out);
  p.device->ops->queue_destroy(p.queue);
  p.device->ops->destroy(p.device);
  dmuon_bootstrap_on_break(p.bootstrap, NULL, NULL);
  dmuon_bootstrap_destroy(&p.bootstrap);
  tap_ok(1, "everything was taken down");
  return tap_mpi_done();
}
