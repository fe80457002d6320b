/* When a rank gives up, with the CUDA backend over the double: one that does not take part, and
 * calls of NCCL that fail on one rank, while a communicator is made, an operation is issued, or
 * waited for. All ranks hear of it in time, the one that met it says in what, later calls fail at
 * once, and nothing hangs when everything is taken down. Three ranks. */
#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "backend/cuda/cuda.h"
#include "comm/bootstrap_process.h"
#include "double/double.h"
#include "tap_mpi.h"

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static DMuonErrorCode progress(void *argument) {
  (void)argument;
  dmuon_process_progress();
  dmuon_process_listen();
  return DMUON_SUCCESS;
}

typedef struct {
  dmuon_context context;
  dmuon_bootstrap *bootstrap;
  dmuon_device *device;
  dmuon_queue *queue;
  dmuon_comm *comm;
  void *in, *out;
} party;

/* As a mesh does it. */
static void on_break(void *argument, DMuonErrorCode code) {
  party *p = argument;
  if (p->comm) p->comm->ops->abort(p->comm);
  dmuon_cuda_module.break_device(p->device, code);
}

static DMuonErrorCode open_device(party *p) {
  const int order[3] = {0, 1, 2};
  const dmuon_module_request request = {
      .text = "cuda", .ordinal = -1, .rank = tap_rank, .progress = progress};
  DMUON_TRY(dmuon_bootstrap_create(&p->context, MPI_COMM_WORLD, 20, &p->bootstrap));
  DMUON_TRY(dmuon_bootstrap_split(p->bootstrap, 1, 3, 1, order));
  DMUON_TRY(dmuon_cuda_module.create(&p->context, &request, &p->device));
  dmuon_cuda_module.set_timeout(p->device, 20);
  DMUON_TRY(p->device->ops->queue_create(p->device, 0, &p->queue));
  DMUON_TRY(p->device->ops->alloc(p->device, 1200, &p->in));
  DMUON_TRY(p->device->ops->alloc(p->device, 400, &p->out));
  DMUON_TRY(p->device->ops->zero(p->queue, p->in, 1200));
  dmuon_bootstrap_on_break(p->bootstrap, on_break, p);
  return DMUON_SUCCESS;
}

static DMuonErrorCode connect_ranks(party *p) {
  return dmuon_cuda_comm_ops.create(p->device, p->bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE,
                                    &p->comm);
}

static DMuonErrorCode reduce(party *p) {
  static const dmuon_segment segments[3] = {
      {0, 0, 100, 100}, {1, 100, 100, 100}, {2, 200, 100, 100}};
  const dmuon_reduce args = {.segment_count = 3,
                             .segments = segments,
                             .in = p->in,
                             .in_dtype = DMUON_FLOAT32,
                             .out = p->out,
                             .sum_dtype = DMUON_FLOAT32,
                             .divisor = 1};
  return p->comm->ops->reduce_segments(p->queue, p->comm, &args);
}

static DMuonErrorCode reduce_and_wait(party *p) {
  DMUON_TRY(reduce(p));
  DMUON_TRY(p->device->ops->queue_sync(p->queue));
  return DMUON_SUCCESS;
}

static void close_party(party *p) {
  if (p->comm) p->comm->ops->free(p->comm);
  if (p->device) {
    p->device->ops->free(p->device, p->in);
    p->device->ops->free(p->device, p->out);
    p->device->ops->queue_destroy(p->queue);
    p->device->ops->destroy(p->device);
  }
  if (p->bootstrap) dmuon_bootstrap_on_break(p->bootstrap, NULL, NULL);
  dmuon_bootstrap_destroy(&p->bootstrap);
  dmuon_context_free(&p->context);
}

typedef enum { SILENT, WHILE_MADE, WHILE_ISSUED, WHILE_WAITED_FOR } moment;

static const struct {
  const char *what;
  moment when;
  const char *call;          /* that fails on rank 2; NULL: rank 2 keeps out of it */
  DMuonErrorCode code;       /* of rank 2, or of the others where it is silent */
  const char *words, *other; /* of the message */
} cases[] = {
    {"a silent rank", SILENT, NULL, DMUON_ERR_TIMEOUT, "reducing segments on the shard axis", ""},
    {"a communicator is not made", WHILE_MADE, "ncclCommInitRankConfig", DMUON_ERR_COMM,
     "ncclCommInitRankConfig on the shard axis", "rank 2"},
    {"a communicator fails while it is made", WHILE_MADE, "ncclCommGetAsyncError", DMUON_ERR_COMM,
     "ncclCommGetAsyncError on the shard axis", "rank 2"},
    {"a send fails", WHILE_ISSUED, "ncclSend", DMUON_ERR_COMM, "ncclSend on the shard axis",
     "rank 2"},
    {"a communicator fails in a wait", WHILE_WAITED_FOR, "ncclCommGetAsyncError", DMUON_ERR_COMM,
     "ncclCommGetAsyncError on the shard axis", "rank 2"},
    /* The last one: the double leaves that group open. */
    {"a group fails", WHILE_ISSUED, "ncclGroupEnd", DMUON_ERR_COMM,
     "reducing segments on the shard axis", "rank 2"},
};

/* What this rank does of case i; its code. */
static DMuonErrorCode play(party *p, int i) {
  const int is_faulty = tap_rank == 2;
  if (is_faulty && cases[i].call && cases[i].when == WHILE_MADE)
    double_fail_call(cases[i].call, 1, ncclSystemError);
  DMUON_TRY(connect_ranks(p));
  DMUON_TRY(reduce_and_wait(p)); /* once in peace */
  if (is_faulty && cases[i].when == SILENT) return DMUON_SUCCESS;
  if (is_faulty && cases[i].when == WHILE_ISSUED)
    double_fail_call(cases[i].call, 1, ncclSystemError);
  dmuon_cuda_module.set_timeout(p->device, cases[i].when == SILENT ? 0.5 : 20);
  DMUON_TRY(reduce(p));
  if (is_faulty && cases[i].when == WHILE_WAITED_FOR)
    double_fail_call(cases[i].call, 1, ncclSystemError);
  DMUON_TRY(p->device->ops->queue_sync(p->queue));
  return DMUON_SUCCESS;
}

static void run(int i) {
  party p = {0};
  char message[600] = "";
  const char *what = cases[i].what;
  const int is_faulty = tap_rank == 2, is_met_here = is_faulty == (cases[i].when != SILENT);
  dmuon_context_init(&p.context);
  DMuonErrorCode code = open_device(&p);
  if (!tap_ok(!code, "%s: set up", what)) return;
  const double start = seconds();
  code = play(&p, i);
  if (code) snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
  if (DMuonErrorIsFatal(code)) dmuon_bootstrap_break(p.bootstrap, code);
  /* Those who saw nothing of it hear. */
  while (!code && seconds() - start < 20) {
    code = dmuon_bootstrap_listen(p.bootstrap);
    if (code) snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
    sched_yield();
  }
  const int hears = code == DMUON_ERR_REVOKED;
  const int good = is_met_here ? code == cases[i].code || (hears && cases[i].when == SILENT)
                               : hears || code == cases[i].code;
  if (!good) tap_diag("%s, rank %d: code %d, %s", what, tap_rank, (int)code, message);
  tap_ok(good, "%s: all ranks give up", what);
  const char *words = code == cases[i].code && is_met_here ? cases[i].words : "";
  if (!strstr(message, words)) tap_diag("%s", message);
  tap_ok(strstr(message, words) != NULL, "%s: the message says in what", what);
  tap_ok(seconds() - start < 15, "%s: in time", what);
  tap_ok(!p.comm || reduce(&p) >= 200, "%s: later operations fail at once", what);
  tap_ok(p.device->ops->queue_sync(p.queue) >= 200, "%s: so do waits", what);
  close_party(&p);
  tap_ok(1, "%s: everything was taken down", what);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) run(i);
  return tap_mpi_done();
}
