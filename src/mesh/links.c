/* Measures what an axis costs, on the communicators that the engine will use: how long a broadcast
 * of nothing much takes, how long one of a large buffer. It decides what is measured and how the
 * ranks' figures become one; what is estimated instead is cost.c's. */
#include "mesh/links.h"

#include <string.h>

#include "comm/agree.h"
#include "mesh/mesh.h"

enum { LARGE = 1 << 20 /* elements of 4 bytes */, SMALL_OPERATIONS = 32, LARGE_OPERATIONS = 6 };

static const char measuring[] = "measuring the links";

typedef struct {
  const DMuonDeviceOps *ops;
  dmuon_device *device;
  dmuon_queue *queue;
  void *buffer;
  double *stamps; /* four: before and after, small and large */
} bench;

static DMuonErrorCode bench_open(DMuonMesh mesh, bench *b) {
  b->device = mesh->device;
  b->ops = mesh->device->ops;
  DMUON_TRY(b->ops->queue_create(b->device, 0, &b->queue));
  DMUON_TRY(b->ops->alloc(b->device, LARGE * 4, &b->buffer));
  void *stamps = NULL;
  DMUON_TRY(b->ops->alloc_host(b->device, 4 * sizeof *b->stamps, &stamps));
  b->stamps = stamps;
  DMUON_TRY(b->ops->zero(b->queue, b->buffer, LARGE * 4));
  DMUON_TRY(b->ops->queue_sync(b->queue));
  return DMUON_SUCCESS;
}

static void bench_close(bench *b, DMuonErrorCode code) {
  if (!b->ops) return;
  b->ops->queue_destroy(b->queue);
  b->ops->free(b->device, b->buffer);
  /* A stamp that was given up may still be written. */
  if (code < 200) b->ops->free_host(b->device, b->stamps);
}

/* Roots alternate, so that each broadcast waits for the one before it. */
static DMuonErrorCode broadcasts(bench *b, dmuon_comm *comm, int operations, int64_t count,
                                 double stamps[2]) {
  DMUON_TRY(b->ops->stamp(b->queue, &stamps[0]));
  for (int i = 0; i < operations; i++)
    DMUON_TRY(comm->ops->broadcast(b->queue, comm, i % 2, count, DMUON_FLOAT32, b->buffer));
  DMUON_TRY(b->ops->stamp(b->queue, &stamps[1]));
  DMUON_TRY(b->ops->queue_sync(b->queue));
  return DMUON_SUCCESS;
}

/* Seconds of one small and of one large broadcast along an axis. */
static DMuonErrorCode time_axis(bench *b, dmuon_comm *comm, double seconds[2]) {
  DMUON_TRY(broadcasts(b, comm, 2, LARGE, b->stamps)); /* buffers and routes come into being */
  DMUON_TRY(broadcasts(b, comm, SMALL_OPERATIONS, 1, b->stamps));
  DMUON_TRY(broadcasts(b, comm, LARGE_OPERATIONS, LARGE, b->stamps + 2));
  seconds[0] = (b->stamps[1] - b->stamps[0]) / SMALL_OPERATIONS;
  seconds[1] = (b->stamps[3] - b->stamps[2]) / LARGE_OPERATIONS;
  return DMUON_SUCCESS;
}

static void keep_longer(void *into, const void *from, int64_t bytes, void *context) {
  double *a = into;
  const double *b = from;
  (void)context;
  for (int64_t i = 0; i < bytes / (int64_t)sizeof *a; i++)
    if (b[i] > a[i]) a[i] = b[i];
}

static void store(dmuon_link *link, const double seconds[2]) {
  if (!(seconds[0] > 0) || !(seconds[1] > seconds[0]))
    return; /* a clock too coarse: as estimated */
  link->latency = seconds[0];
  link->bandwidth = LARGE * 4 / (seconds[1] - seconds[0]);
  link->is_measured = 1;
}

DMuonErrorCode dmuon_links_measure(DMuonMesh mesh, dmuon_link links[3]) {
  bench b = {0};
  double seconds[3][2] = {{0}};
  DMuonErrorCode code = dmuon_mesh_agree_error(mesh, measuring, bench_open(mesh, &b));
  for (int axis = 0; axis < 3 && !code; axis++) {
    dmuon_comm *comm = mesh->comms[axis][DMUON_ROLE_FIRST];
    if (mesh->sizes[axis] == 1) continue;
    code = time_axis(&b, comm, seconds[axis]);
    memset(&comm->counters, 0, sizeof comm->counters); /* what the user asks for begins later */
    dmuon_mesh_break(mesh, code);
    code = dmuon_mesh_agree_error(mesh, measuring, code);
  }
  if (!code)
    code =
        dmuon_agree_reduce(mesh->bootstrap, measuring, seconds, sizeof seconds, keep_longer, NULL);
  bench_close(&b, code);
  DMUON_TRY(code);
  for (int axis = 0; axis < 3; axis++) store(&links[axis], seconds[axis]);
  return DMUON_SUCCESS;
}
