/* Meshes on real ranks: sizes, places, communicators by axis, several at once, many one after
 * another, on communicators of every kind. */
#include <dmuon.h>

#include "mesh/mesh.h"
#include "tap_mpi.h"

static int sizes_are(DMuonMesh mesh, int r, int g, int t) {
  int a = 0, b = 0, c = 0;
  DMuonErrorCode code = DMuonMeshGetSizes(mesh, &a, &b, &c);
  if (code || a != r || b != g || c != t)
    fprintf(stderr, "# %dx%dx%d, expected %dx%dx%d (%s)\n", a, b, c, r, g, t,
            code ? DMuonErrorGetMessage() : "");
  return !code && a == r && b == g && c == t;
}

static int coords_are(DMuonMesh mesh, int r, int s, int t) {
  int a = -1, b = -1, c = -1;
  return !DMuonMeshGetCoords(mesh, &a, &b, &c) && a == r && b == s && c == t;
}

/* Over each axis: the first rank's number arrives at all; ranks and sizes are the coordinates'. */
static DMuonErrorCode check_axes(DMuonMesh mesh, int *good) {
  static const DMuonAxis axes[2] = {DMUON_AXIS_REPLICATE, DMUON_AXIS_SHARD};
  const int strides[2] = {mesh->sizes[1] * mesh->sizes[2], mesh->sizes[2]};
  const DMuonDeviceOps *ops = mesh->device->ops;
  int position = dmuon_mesh_position(mesh);
  for (int k = 0; k < 2; k++)
    for (int role = 0; role < 2; role++) {
      dmuon_comm *comm = dmuon_mesh_comm(mesh, axes[k], (dmuon_role)role);
      int coordinate = mesh->coords[axes[k]];
      if (!comm || comm->rank != coordinate || comm->size != mesh->sizes[axes[k]]) {
        *good = 0;
        continue;
      }
      float value = coordinate == 0 ? (float)mesh->rank : -1;
      dmuon_queue *queue = NULL;
      DMUON_CALL(ops->queue_create(mesh->device, 1, &queue));
      DMUON_CALL(comm->ops->broadcast(queue, comm, 0, 1, DMUON_FLOAT32, &value));
      DMUON_CALL(ops->queue_sync(queue));
      ops->queue_destroy(queue);
      if ((int)value != mesh->rank_at[position - coordinate * strides[k]]) *good = 0;
    }
  return DMUON_SUCCESS;
}

static int axes_work(DMuonMesh mesh) {
  int good = 1;
  DMuonErrorCode code = check_axes(mesh, &good);
  if (code) fprintf(stderr, "# %s\n", DMuonErrorGetMessage());
  return !code && good;
}

static void test_default(void) {
  DMuonMesh mesh = NULL;
  int rank = -1, size = -1;
  tap_ok(!DMuonMeshCreate(MPI_COMM_WORLD, &mesh), "create");
  tap_is_int(DMuonMeshGetSizes(mesh, NULL, NULL, NULL), DMUON_ERR_STATE, "no sizes before SetUp");
  tap_ok(!DMuonMeshSetUp(mesh), "SetUp with nothing said");
  tap_ok(sizes_are(mesh, 1, tap_size, 1), "one node: one shard group");
  tap_ok(coords_are(mesh, 0, tap_rank, 0), "ranks in order");
  tap_ok(!DMuonMeshGetDataRank(mesh, &rank, &size) && rank == tap_rank && size == tap_size,
         "each rank reads its part");
  tap_ok(axes_work(mesh), "the communicators join the right ranks");
  tap_ok(!DMuonMeshSetUp(mesh), "a second SetUp does nothing");
  tap_ok(!DMuonMeshProgress(mesh), "progress");
  DMuonCommInfo info = {.struct_size = sizeof info};
  tap_ok(!DMuonMeshGetCommInfo(mesh, DMUON_AXIS_ALL, &info) && info.operations == 4,
         "four operations counted");
  tap_ok(!DMuonMeshGetCommInfo(mesh, DMUON_AXIS_SHARD, &info) && info.operations == 2 &&
             info.bytes_sent == (tap_rank ? 8 : 0),
         "two of them over shard, received by all but the first");
  tap_ok(!DMuonMeshDestroy(&mesh) && mesh == NULL, "destroy");
}

static void test_nodes(void) {
  for (int node_size = 1; node_size <= 4; node_size++) {
    DMuonMesh mesh = NULL;
    char value[16];
    snprintf(value, sizeof value, "%d", node_size);
    DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
    DMuonMeshSetOption(mesh, "node_size", value);
    int last = tap_size % node_size, shard = node_size;
    if (tap_size < node_size)
      shard = tap_size;
    else
      while (last) {
        int rest = shard % last;
        shard = last, last = rest;
      }
    tap_ok(!DMuonMeshSetUp(mesh) && sizes_are(mesh, tap_size / shard, shard, 1),
           "nodes of %d: shard %d", node_size, shard);
    tap_ok(coords_are(mesh, tap_rank / shard, tap_rank % shard, 0) && axes_work(mesh),
           "places and communicators");
    DMuonMeshDestroy(&mesh);
  }
}

static void test_coords(void) {
  for (int replicate = 1; replicate <= tap_size; replicate++) {
    if (tap_size % replicate) continue;
    DMuonMesh mesh = NULL;
    int shard = tap_size / replicate, rank = -1, r = tap_rank % replicate, s = tap_rank / replicate;
    DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
    DMuonMeshSetCoords(mesh, r, s, 0);
    tap_ok(
        !DMuonMeshSetUp(mesh) && sizes_are(mesh, replicate, shard, 1) && coords_are(mesh, r, s, 0),
        "own coordinates, replicate %d innermost", replicate);
    tap_ok(axes_work(mesh), "the communicators follow");
    tap_ok(!DMuonMeshGetDataRank(mesh, &rank, NULL) && rank == r * shard + s, "and the data rank");
    DMuonMeshDestroy(&mesh);
  }
  if (tap_size % 2) return;
  DMuonMesh mesh = NULL;
  int rank = -1, size = -1;
  DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  DMuonMeshSetSizes(mesh, DMUON_DECIDE, DMUON_DECIDE, 2);
  tap_ok(!DMuonMeshSetUp(mesh) && sizes_are(mesh, 1, tap_size / 2, 2), "tp 2");
  tap_ok(!DMuonMeshGetDataRank(mesh, &rank, &size) && rank == tap_rank / 2 && size == tap_size / 2,
         "ranks of one tp group read the same");
  tap_ok(axes_work(mesh), "communicators beside a tp axis");
  DMuonMeshDestroy(&mesh);
}

/* Operations of two meshes, issued in another order on every second rank, none waited for between.
 */
static DMuonErrorCode interleave(DMuonMesh meshes[2], float values[2][2]) {
  dmuon_queue *queues[2][2];
  for (int k = 0; k < 4; k++) {
    int m = tap_rank % 2 ? 1 - k / 2 : k / 2, role = k % 2;
    DMuonMesh mesh = meshes[m];
    dmuon_comm *comm = dmuon_mesh_comm(mesh, DMUON_AXIS_SHARD, (dmuon_role)role);
    values[m][role] = comm->rank == 0 ? (float)(10 * m + role + 1) : 0;
    DMUON_CALL(mesh->device->ops->queue_create(mesh->device, 0, &queues[m][role]));
    DMUON_CALL(comm->ops->broadcast(queues[m][role], comm, 0, 1, DMUON_FLOAT32, &values[m][role]));
  }
  for (int k = 0; k < 4; k++) {
    DMuonMesh mesh = meshes[k / 2];
    DMUON_CALL(mesh->device->ops->queue_sync(queues[k / 2][k % 2]));
    mesh->device->ops->queue_destroy(queues[k / 2][k % 2]);
  }
  return DMUON_SUCCESS;
}

static void test_two(void) {
  DMuonMesh meshes[2] = {NULL, NULL};
  float values[2][2];
  for (int m = 0; m < 2; m++) {
    DMuonMeshCreate(MPI_COMM_WORLD, &meshes[m]);
    DMuonMeshSetName(meshes[m], m ? "second one" : "first");
  }
  tap_ok(!DMuonMeshSetUp(meshes[0]) && !DMuonMeshSetUp(meshes[1]), "two live meshes");
  DMuonErrorCode code = interleave(meshes, values);
  tap_ok(
      !code && values[0][0] == 1 && values[0][1] == 2 && values[1][0] == 11 && values[1][1] == 12,
      "their traffic is kept apart, whatever the order");
  if (code) fprintf(stderr, "# %s\n", DMuonErrorGetMessage());
  DMuonMeshDestroy(&meshes[0]);
  tap_ok(axes_work(meshes[1]), "the second works on after the first is gone");
  DMuonMeshDestroy(&meshes[1]);
}

static void test_communicators(void) {
  MPI_Comm half, reversed;
  DMuonMesh mesh = NULL;
  int rank, size;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank % 2, tap_rank, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -tap_rank, &reversed);
  MPI_Comm_size(half, &size);
  MPI_Comm_rank(half, &rank);
  tap_ok(!DMuonMeshCreate(half, &mesh), "on a split communicator");
  MPI_Comm_free(&half);
  tap_ok(!DMuonMeshSetUp(mesh) && sizes_are(mesh, 1, size, 1) && coords_are(mesh, 0, rank, 0) &&
             axes_work(mesh),
         "which was freed at once");
  DMuonMeshDestroy(&mesh);
  tap_ok(!DMuonMeshCreate(reversed, &mesh) && !DMuonMeshSetUp(mesh) &&
             coords_are(mesh, 0, tap_size - 1 - tap_rank, 0) && axes_work(mesh),
         "on a reordered one");
  DMuonMeshDestroy(&mesh);
  MPI_Comm_free(&reversed);
  tap_ok(!DMuonMeshCreate(MPI_COMM_SELF, &mesh) && !DMuonMeshSetUp(mesh) &&
             sizes_are(mesh, 1, 1, 1) && axes_work(mesh),
         "on a communicator of one");
  DMuonMeshDestroy(&mesh);
  tap_ok(!DMuonMeshCreateFortran(MPI_Comm_c2f(MPI_COMM_WORLD), &mesh) && !DMuonMeshSetUp(mesh) &&
             sizes_are(mesh, 1, tap_size, 1),
         "from a Fortran handle");
  DMuonMeshDestroy(&mesh);
}

static void test_many(void) {
  int count = tap_size <= 2 ? 2000 : tap_size <= 4 ? 100 : 40, failed = 0;
  int64_t calls_early = 0, calls_late = 0;
  for (int i = 0; i < count && !failed; i++) {
    DMuonMesh mesh = NULL;
    failed = DMuonMeshCreate(MPI_COMM_WORLD, &mesh) || DMuonMeshSetUp(mesh);
    if (failed) {
      fprintf(stderr, "# mesh %d: %s\n", i, DMuonErrorGetMessage());
    } else {
      int64_t calls = dmuon_bootstrap_mpi_calls(mesh->bootstrap);
      if (i == 10) calls_early = calls;
      calls_late = calls;
    }
    DMuonMeshDestroy(&mesh);
  }
  tap_ok(!failed, "%d meshes one after another", count);
  tap_ok(calls_early == calls_late, "each costs the same number of MPI calls");
  tap_diag("%lld calls on rank 0", (long long)calls_late);
  /* Sizes that change from mesh to mesh need other communicators each time; MPICH has 2,048. */
  count = tap_size == 2 ? 2500 : 10;
  for (int i = 0; i < count && !failed; i++) {
    DMuonMesh mesh = NULL;
    failed = DMuonMeshCreate(MPI_COMM_WORLD, &mesh) ||
             DMuonMeshSetSizes(mesh, i % 2 ? tap_size : 1, i % 2 ? 1 : tap_size, 1) ||
             DMuonMeshSetUp(mesh);
    if (failed) fprintf(stderr, "# mesh %d: %s\n", i, DMuonErrorGetMessage());
    DMuonMeshDestroy(&mesh);
  }
  tap_ok(!failed, "%d of changing sizes", count);
}

static void count_lines(void *ctx, int level, const char *line) {
  if (level == 2 && strstr(line, "replicate")) ++*(int *)ctx;
}

static void test_options(void) {
  char a0[] = "program", a1[] = "-dmuon_timeout", a2[] = "45", a3[] = "-x", a4[] = "-dmuon_shrad",
       a5[] = "3";
  char *argv[] = {a0, a1, a2, a3, a4, a5, NULL};
  int argc = 6, lines = 0;
  const char *value = NULL, *source = NULL;
  DMuonMesh mesh = NULL;
  DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  tap_ok(!DMuonMeshSetLogger(mesh, count_lines, &lines), "a logger");
  tap_ok(!DMuonMeshSetTimeout(mesh, 100) && !DMuonMeshSetFromOptions(mesh, &argc, argv),
         "options from the command line");
  tap_ok(argc == 2 && argv[1] == a3, "ours are taken out");
  tap_ok(!DMuonMeshSetUp(mesh) && !DMuonMeshGetOption(mesh, "timeout", &value, &source) &&
             !strcmp(value, "45") && !strcmp(source, "command line"),
         "the command line overrides the program");
  tap_is_int(lines, 1, "one line for the logger");
  tap_ok(dmuon_bootstrap_timeout(mesh->bootstrap) == 45, "and is in force");
  tap_ok(!DMuonMeshSetTimeout(mesh, 60) && !DMuonMeshGetOption(mesh, "timeout", &value, &source) &&
             !strcmp(value, "60") && !strcmp(source, "live"),
         "a live call wins");
  tap_is_int(DMuonMeshSetTimeout(mesh, -1), DMUON_ERR_ARGUMENT, "a timeout of -1 is refused");
  char path[64], text[16384] = "";
  snprintf(path, sizeof path, "mesh_basic_%d.txt", tap_size);
  tap_ok(!DMuonMeshViewOptions(mesh, path), "view of the options");
  FILE *file = tap_rank ? NULL : fopen(path, "r");
  if (file) text[fread(text, 1, sizeof text - 1, file)] = 0, fclose(file);
  tap_ok(tap_rank || (strstr(text, "shrad") && strstr(text, "did you mean shard")),
         "the unused one is reported with the nearest name");
  tap_ok(!DMuonMeshView(mesh, path), "view");
  file = tap_rank ? NULL : fopen(path, "r");
  if (file) text[fread(text, 1, sizeof text - 1, file)] = 0, fclose(file);
  tap_ok(tap_rank || (strstr(text, "replicate 1 x shard ") && strstr(text, "ranks as launched") &&
                      strstr(text, "the ranks of a node") && strstr(text, "all inside nodes")),
         "says sizes, reasons and places");
  if (!tap_rank) remove(path);
  char *json = NULL, expected[32];
  tap_ok(!DMuonMeshSummary(mesh, &json), "summary");
  snprintf(expected, sizeof expected, "\"rank\": %d", tap_rank);
  tap_ok(json && strstr(json, expected), "has this rank's facts");
  DMuonFree(json);
  tap_is_int(DMuonMeshView(mesh, "/nowhere/at/all"), DMUON_ERR_FILE,
             "a path that is none: everywhere");
  DMuonMeshDestroy(&mesh);
}

static void test_counting(void) {
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  DMuonModelCreate(mesh, &model);
  DMuonMesh kept = mesh;
  DMuonMeshDestroy(&mesh);
  int64_t dims[2] = {4, 4};
  tap_ok(!DMuonModelAddParam(model, "h.0.w", DMUON_FLOAT32, 2, dims, NULL) &&
             !DMuonModelSetUp(model) && sizes_are(kept, 1, tap_size, 1),
         "a model keeps its mesh");
  DMuonModelDestroy(&model);
  DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  tap_ok(!DMuonMeshDestroy(&mesh), "a mesh that was never set up");
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  test_default();
  test_nodes();
  test_coords();
  test_two();
  test_communicators();
  test_many();
  test_options();
  test_counting();
  return tap_mpi_done();
}
