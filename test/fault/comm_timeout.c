/* A rank that does not come: one of the others waits too long and says so, all hear of it within
 * bounded time, with the one that is missing named, a late one is told, and everything can be
 * destroyed and MPI finalised, also with large messages half way. On 3 ranks, of which the last is
 * the one that stays away. */
#include "backend/host/host.h"
#include "comm/agree.h"
#include "tap_mpi.h"

#include <time.h>

/* What MPI may still write into is left to leak on purpose. Read by the leak sanitizer alone, which
 * must see it. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:dmuon_link_open\nleak:ensure_buffers\nleak:dmuon_cache_duplicate\nleak:dmuon_bell_"
         "open\n";
}

static dmuon_context context;
static const int order[3] = {0, 1, 2};

enum { AWAY = 2 };

static void max_int(void *into, const void *from, int64_t bytes, void *unused) {
  (void)bytes, (void)unused;
  if (*(const int64_t *)from > *(int64_t *)into) *(int64_t *)into = *(const int64_t *)from;
}

static int names_the_absent(void) {
  return strstr(DMuonErrorGetMessage(), "rank 2") != NULL;
}

/* Who gave up first, and who heard of it. */
static int is_given_up(DMuonErrorCode code) {
  return code == DMUON_ERR_TIMEOUT ||
         (code == DMUON_ERR_REVOKED && strstr(DMuonErrorGetMessage(), "gave up: "));
}

static int somebody(int yes) {
  int any = 0;
  MPI_Request request;
  MPI_Iallreduce(&yes, &any, 1, MPI_INT, MPI_MAX, tap_comm, &request);
  tap_mpi_wait(&request);
  return any;
}

static void test_agreement(MPI_Comm user) {
  dmuon_bootstrap *b = NULL;
  int64_t x = tap_rank;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, user, 60, &b);
  tap_ok(!code, "a mesh");
  dmuon_bootstrap_set_timeout(b, 1);
  double begin = MPI_Wtime();
  if (tap_rank != AWAY) {
    code = dmuon_agree_reduce(b, "agreement of Step", &x, 8, max_int, NULL);
    if (!names_the_absent()) tap_diag("%s", DMuonErrorGetMessage());
  }
  double seconds = MPI_Wtime() - begin;
  const DMuonErrorCode first = code;
  int right = tap_rank == AWAY || (is_given_up(code) && names_the_absent() &&
                                   strstr(DMuonErrorGetMessage(), "agreement of Step"));
  tap_ok(right, "an agreement is given up, and the silent rank named");
  tap_ok(tap_rank == AWAY || (seconds >= 0.9 && seconds < 10), "within bounded time");
  tap_ok(somebody(code == DMUON_ERR_TIMEOUT), "somebody waited too long");
  begin = MPI_Wtime();
  code = dmuon_agree_reduce(b, "agreement of Step", &x, 8, max_int, NULL);
  if (tap_rank == AWAY) {
    right = code == DMUON_ERR_REVOKED && is_given_up(code) && names_the_absent();
    if (!right) fprintf(stderr, "# %s\n", DMuonErrorGetMessage());
  } else {
    right = code == first && names_the_absent();
  }
  tap_ok(right && MPI_Wtime() - begin < 0.9, "later calls say so at once, on the late rank too");
  dmuon_bootstrap_destroy(&b);
}

/* kind 0: reduce, 1: gather, 2: a queue of small ones. */
static void test_operation(MPI_Comm user, int kind, int fanin, const char *what) {
  enum { LARGE = 3 << 20 };
  static float in[LARGE], out[LARGE];
  dmuon_bootstrap *b = NULL;
  dmuon_device *device = NULL;
  dmuon_queue *queue = NULL;
  dmuon_comm *comm = NULL;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, user, 60, &b);
  if (!code) code = dmuon_bootstrap_split(b, 1, 3, 1, order);
  if (!code) code = dmuon_host_device_create(&context, 0, 0, &device);
  if (!code) code = dmuon_host_device_join_process(device);
  if (!code) dmuon_host_device_set_timeout(device, 1);
  if (!code)
    code = dmuon_host_comm_ops.create(device, b, DMUON_AXIS_SHARD, DMUON_ROLE_REDUCE, &comm);
  if (!code) code = device->ops->queue_create(device, 0, &queue);
  if (!tap_ok(!code, "%s: set up", what)) return;
  dmuon_segment segments[3] = {
      {0, 0, 1 << 20, 1 << 20}, {1, 1 << 20, 1 << 20, 1 << 20}, {2, 2 << 20, 1 << 20, 1 << 20}};
  dmuon_reduce args = {.segment_count = 3,
                       .segments = segments,
                       .in = in,
                       .in_dtype = DMUON_FLOAT32,
                       .out = out,
                       .sum_dtype = DMUON_FLOAT32,
                       .divisor = 3};
  comm->fanin = fanin;
  comm->chunk_bytes = 1 << 20;
  double begin = MPI_Wtime();
  if (tap_rank != AWAY) {
    if (kind == 0) code = comm->ops->reduce_segments(queue, comm, &args);
    if (kind == 1) code = comm->ops->gather_segments(queue, comm, 3, segments, DMUON_FLOAT32, in);
    for (int i = 0; kind == 2 && i < 20 && !code; i++)
      code = comm->ops->all_reduce(queue, comm, 100, DMUON_FLOAT32, in + 100 * i);
    if (!code) code = device->ops->queue_sync(queue);
    if (!names_the_absent()) tap_diag("%s", DMuonErrorGetMessage());
  }
  double seconds = MPI_Wtime() - begin;
  tap_ok(tap_rank == AWAY || (is_given_up(code) && seconds < 10),
         "%s: given up within bounded time", what);
  tap_ok(tap_rank == AWAY || kind == 2 ||
             (strstr(DMuonErrorGetMessage(), "2 of 3") && strstr(DMuonErrorGetMessage(), "shard")),
         "%s: axis and silent rank are named", what);
  if (tap_rank != AWAY) dmuon_bootstrap_break(b, code);
  device->ops->queue_destroy(queue);
  comm->ops->free(comm);
  device->ops->destroy(device);
  dmuon_bootstrap_destroy(&b);
}

static void test_create(MPI_Comm user) {
  dmuon_bootstrap *b = NULL;
  DMuonErrorCode code = DMUON_SUCCESS;
  double begin = MPI_Wtime();
  if (tap_rank != AWAY) code = dmuon_bootstrap_create(&context, user, 1, &b);
  tap_ok(tap_rank == AWAY ||
             (code == DMUON_ERR_TIMEOUT && names_the_absent() && !b && MPI_Wtime() - begin < 10),
         "creating a mesh is given up, and the silent rank named");
}

/* The MPI that duplicates for us wants every rank to come in the end. */
static void test_first_create(void) {
  dmuon_bootstrap *b = NULL;
  MPI_Comm fresh;
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
  DMuonErrorCode code = DMUON_SUCCESS;
  if (tap_rank != AWAY) code = dmuon_bootstrap_create(&context, fresh, 1, &b);
  tap_ok(tap_rank == AWAY || (code == DMUON_ERR_TIMEOUT && !b),
         "so is the first of a communicator");
  if (tap_rank == AWAY) code = dmuon_bootstrap_create(&context, fresh, 1, &b);
  tap_ok(tap_rank != AWAY || (code == DMUON_ERR_TIMEOUT && !b), "also on the rank that comes late");
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  if (tap_size != 3) {
    tap_ok(0, "this test runs on 3 ranks");
    return tap_mpi_done();
  }
  dmuon_context_init(&context);
  test_agreement(MPI_COMM_WORLD);
  test_operation(MPI_COMM_WORLD, 0, 32, "large reduction");
  test_operation(MPI_COMM_WORLD, 0, 1, "large reduction as a tree");
  test_operation(MPI_COMM_WORLD, 1, 32, "large gather");
  test_operation(MPI_COMM_WORLD, 2, 32, "small operations");
  test_create(MPI_COMM_WORLD);
  test_first_create();
  tap_ok(1, "everything is destroyed; MPI_Finalize is next");
  return tap_mpi_done();
}
