/* Meshes and partitions used wrongly, with ranks that differ, and with allocations that fail: the
 * same code on every rank, what is wrong named, nothing hangs, and one can go on. */
#include "config.h"

#include <dmuon.h>

#include "mesh/mesh.h"
#include "tap_mpi.h"

static DMuonMesh fresh(void) {
  DMuonMesh mesh = NULL;
  if (DMuonMeshCreate(MPI_COMM_WORLD, &mesh)) fprintf(stderr, "# %s\n", DMuonErrorGetMessage());
  return mesh;
}

/* SetUp fails with code, naming phrase, on every rank; then the mesh goes. */
static void refused(DMuonMesh mesh, DMuonErrorCode code, const char *phrase, const char *what) {
  tap_is_int(DMuonMeshSetUp(mesh), code, "%s", what);
  tap_contains(DMuonErrorGetMessage(), phrase, "names \"%s\"", phrase);
  DMuonMeshDestroy(&mesh);
}

static void test_before_init(int codes[3]) {
  DMuonMesh mesh = NULL, plan = NULL;
  codes[0] = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  codes[1] = DMuonMeshCreatePlan(2, 3, 1, &plan) || DMuonMeshSetUp(plan);
  codes[2] = DMuonMeshDestroy(&mesh) || DMuonMeshDestroy(&plan) || DMuonMeshDestroy(NULL);
}

static void test_arguments(void) {
  DMuonMesh mesh = NULL;
  MPI_Comm half, inter;
  tap_is_int(DMuonMeshCreate(MPI_COMM_WORLD, NULL), DMUON_ERR_ARGUMENT, "no place for the handle");
  tap_is_int(DMuonMeshCreate(MPI_COMM_NULL, &mesh), DMUON_ERR_ARGUMENT, "MPI_COMM_NULL");
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank % 2, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - tap_rank % 2, 5, &inter);
  tap_is_int(DMuonMeshCreate(inter, &mesh), DMUON_ERR_ARGUMENT, "an intercommunicator");
  tap_ok(mesh == NULL, "no handle came out");
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  tap_is_int(DMuonMeshSetUp(NULL), DMUON_ERR_ARGUMENT, "NULL handle");
  mesh = fresh();
  DMuonModel model = NULL;
  DMuonModelCreate(mesh, &model);
  tap_is_int(DMuonMeshSetUp((DMuonMesh)model), DMUON_ERR_ARGUMENT, "a model is no mesh");
  DMuonModelDestroy(&model);
  tap_is_int(DMuonMeshSetSizes(mesh, 0, 1, 1), DMUON_ERR_ARGUMENT, "a size of 0");
  tap_is_int(DMuonMeshSetCoords(mesh, 0, -1, 0), DMUON_ERR_ARGUMENT, "a coordinate of -1");
  static const char *const bad_names[] = {"", "a=b", "a#b", "a\nb", "a\tb", "a\177b"};
  for (int i = 0; i < 6; i++)
    tap_is_int(DMuonMeshSetName(mesh, bad_names[i]), DMUON_ERR_ARGUMENT, "name %d is none", i);
  tap_is_int(DMuonMeshSetName(mesh, NULL), DMUON_ERR_ARGUMENT, "no name");
  tap_ok(!DMuonMeshSetName(mesh, "expert copies"), "a name of two words");
#if !HAVE_CUDA
  tap_is_int(DMuonMeshSetDevice(mesh, DMUON_DEVICE_CUDA, 0), DMUON_ERR_UNSUPPORTED,
             "a device that is not compiled in");
#endif
  tap_is_int(DMuonMeshSetDevice(mesh, (DMuonDevice)9, 0), DMUON_ERR_ARGUMENT, "no device at all");
  tap_ok(!DMuonMeshSetDevice(mesh, DMUON_DEVICE_HOST, DMUON_DECIDE), "the host");
  tap_ok(!DMuonMeshSetUp(mesh), "all of that changed nothing");
  tap_is_int(DMuonMeshSetSizes(mesh, 1, 1, 1), DMUON_ERR_STATE, "sizes after SetUp");
  tap_is_int(DMuonMeshSetOption(mesh, "shard", "2"), DMUON_ERR_STATE,
             "the mesh's option after SetUp");
  tap_ok(!DMuonMeshSetOption(mesh, "owner_strategy", "lpt"), "another object's");
  DMuonCommInfo info = {0};
  tap_is_int(DMuonMeshGetCommInfo(mesh, DMUON_AXIS_ALL, &info), DMUON_ERR_ARGUMENT,
             "info without a size");
  DMuonMeshDestroy(&mesh);
}

static void test_sizes(void) {
  DMuonMesh mesh = fresh();
  DMuonMeshSetSizes(mesh, 3, 2, 1);
  tap_is_int(DMuonMeshSetUp(mesh), DMUON_ERR_SETUP, "sizes that do not fit");
  tap_contains(DMuonErrorGetMessage(),
               "replicate 3 x shard 2 x tp 1 = 6 ranks, the communicator has 4", "with the values");
  tap_ok(!DMuonMeshSetSizes(mesh, 2, 2, 1) && !DMuonMeshSetUp(mesh), "put right, the mesh works");
  DMuonMeshDestroy(&mesh);
  mesh = fresh();
  DMuonMeshSetSizes(mesh, tap_rank == 2 ? 4 : 2, tap_rank == 2 ? 1 : 2, 1);
  refused(mesh, DMUON_ERR_DISAGREE, "replicate is 2 on rank 0, 4 on rank 2", "sizes that differ");
  mesh = fresh();
  DMuonMeshSetCoords(mesh, 0, tap_rank == 3 ? 1 : tap_rank, 0);
  refused(mesh, DMUON_ERR_SETUP, "do not form a full grid", "coordinates with a hole");
  mesh = fresh();
  DMuonMeshSetCoords(mesh, tap_rank == 3 ? 0 : tap_rank / 2, tap_rank % 2, 0);
  refused(mesh, DMUON_ERR_SETUP, "ranks 1 and 3 both say coordinates (0, 1, 0)",
          "a place taken twice");
  mesh = fresh();
  if (tap_rank != 1) DMuonMeshSetCoords(mesh, 0, tap_rank, 0);
  refused(mesh, DMUON_ERR_SETUP, "rank 0 gave coordinates, rank 1 did not", "a rank without any");
}

static void test_options(void) {
  DMuonMesh mesh = fresh();
  DMuonMeshSetOption(mesh, "prefetch_depth", tap_rank == 3 ? "2" : "1");
  refused(mesh, DMUON_ERR_DISAGREE, "prefetch_depth is 1 on rank 0, 2 on rank 3",
          "an option of a later object that differs");
  mesh = fresh();
  if (tap_rank == 1) DMuonMeshSetOption(mesh, "lr", "1");
  refused(mesh, DMUON_ERR_DISAGREE, "rank 1 says lr=1, rank 0 does not", "said by one rank only");
  mesh = fresh();
  DMuonMeshSetOption(mesh, "timeout", tap_rank == 2 ? "soon" : "20");
  refused(mesh, DMUON_ERR_SETUP, "soon", "a value that is none, on one rank");
  static const struct {
    const char *device, *phrase;
  } devices[] = {{"cuda", "backend cuda"}, /* not compiled in, or not installed, or no driver */
                 {"trace", "plan meshes alone"},
                 {"hots", "did you mean host"},
                 {"host:deffered", "eager, deferred, seed=N"},
                 {"host:seed=4", "host:deferred,seed=N"},
                 {"host:deferred,seed=x", "must be a number"}};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    mesh = fresh();
    DMuonMeshSetOption(mesh, "device", devices[i].device);
    refused(mesh, DMUON_ERR_SETUP, devices[i].phrase, devices[i].device);
  }
  mesh = fresh();
  DMuonMeshSetOption(mesh, "device", "host:deferred,seed=7");
  tap_ok(!DMuonMeshSetUp(mesh), "host:deferred,seed=7");
  DMuonMeshDestroy(&mesh);
}

/* The k-th allocation fails on rank 1 alone. */
static void test_allocations(void) {
  int failures = 0, wrong = 0, last = 0;
  for (int k = 1; k < 400 && !last; k++) {
    DMuonMesh mesh = fresh();
    char number[16];
    snprintf(number, sizeof number, "%d", k);
    if (tap_rank == 1) DMuonMeshSetOption(mesh, "fail_allocation", number);
    DMuonErrorCode code = DMuonMeshSetUp(mesh);
    if (code) {
      failures++;
      if (code != DMUON_ERR_MEMORY)
        wrong++, fprintf(stderr, "# k %d: %s\n", k, DMuonErrorGetMessage());
      DMuonMeshSetOption(mesh, "fail_allocation", "0");
      code = DMuonMeshSetUp(mesh);
      if (code) wrong++, fprintf(stderr, "# k %d again: %s\n", k, DMuonErrorGetMessage());
    } else {
      last = 1;
    }
    DMuonMeshDestroy(&mesh);
  }
  tap_ok(last && failures > 3, "each allocation of SetUp fails in turn on one rank");
  tap_ok(!wrong, "all ranks say MEMORY, and a second SetUp works");
  tap_diag("%d allocations", failures);
}

static double cost_by_rank(void *ctx, const DMuonParamInfo *param) {
  (void)ctx;
  return !strcmp(param->name, "h.1.w") && tap_rank == 2 ? 5 : 1;
}

enum { NO_MATCH, OUTSIDE, ONE_RANK, COST, OPTION, CASES };

static void test_partition(void) {
  static const struct {
    DMuonErrorCode code;
    const char *phrase;
  } expected[CASES] = {
      [NO_MATCH] = {DMUON_ERR_SETUP, "nothing"},
      [OUTSIDE] = {DMUON_ERR_SETUP, "shard owner 7 out of range [0,4) for h.0.w; mesh is 1x4x1"},
      [ONE_RANK] = {DMUON_ERR_DISAGREE, "fixed owner of h.0.w"},
      [COST] = {DMUON_ERR_DISAGREE, "cost of h.1.w is 1 on rank 0, 5 on rank 2"},
      [OPTION] = {DMUON_ERR_DISAGREE, "owner_strategy is lpt on rank 0, rank0 on rank 3"},
  };
  for (int i = 0; i < CASES; i++) {
    DMuonMesh mesh = fresh();
    DMuonModel model = NULL;
    DMuonPartition part = NULL;
    int64_t dims[2] = {8, 8};
    DMuonModelCreate(mesh, &model);
    DMuonModelAddParam(model, "h.0.w", DMUON_FLOAT32, 2, dims, NULL);
    DMuonModelAddParam(model, "h.1.w", DMUON_FLOAT32, 2, dims, NULL);
    DMuonPartitionCreate(model, &part);
    if (i == NO_MATCH && tap_rank == 1) DMuonPartitionSetOwner(part, "nothing", 0, 0, 0);
    if (i == OUTSIDE) DMuonPartitionSetOwner(part, "h.0.w", 0, 7, 0);
    if (i == ONE_RANK && tap_rank == 1) DMuonPartitionSetOwner(part, "h.0.w", 0, 2, 0);
    if (i == COST) DMuonPartitionSetCostFunction(part, cost_by_rank, NULL);
    if (i == OPTION && tap_rank == 3) DMuonPartitionSetStrategy(part, "rank0");
    tap_is_int(DMuonPartitionSetUp(part), expected[i].code, "partition, case %d", i);
    tap_contains(DMuonErrorGetMessage(), expected[i].phrase, "names \"%s\"", expected[i].phrase);
    DMuonMeshDestroy(&mesh);
    DMuonModelDestroy(&model);
    DMuonPartitionDestroy(&part);
  }
  DMuonMesh mesh = fresh();
  DMuonModel model = NULL;
  DMuonPartition part = NULL;
  int64_t dims[2] = {8, 8};
  uint64_t hash = 0, low = 0, high = 0;
  DMuonModelCreate(mesh, &model);
  DMuonModelAddParam(model, "h.0.w", DMUON_FLOAT32, 2, dims, NULL);
  DMuonPartitionCreate(model, &part);
  DMuonPartitionSetOwner(part, "h.*", DMUON_DECIDE, 2, DMUON_DECIDE);
  int s = -1;
  tap_ok(!DMuonPartitionSetUp(part) && !DMuonPartitionGetOwner(part, 0, NULL, &s, NULL) && s == 2,
         "a fixed owner on real ranks");
  DMuonPartitionGetHash(part, &hash);
  MPI_Allreduce(&hash, &low, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&hash, &high, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  tap_ok(low == high, "the plan has one hash on all ranks");
  DMuonMeshDestroy(&mesh);
  DMuonModelDestroy(&model);
  DMuonPartitionDestroy(&part);
}

static void test_broken(void) {
  DMuonMesh mesh = fresh();
  DMuonMeshSetUp(mesh);
  tap_mpi_barrier(); /* who breaks it first stops the others' SetUp */
  dmuon_mesh_break(mesh, DMUON_ERROR(DMUON_ERR_COMM, "broken by the test"));
  tap_is_int(DMuonMeshProgress(mesh), DMUON_ERR_COMM, "a broken mesh says so at once");
  tap_contains(DMuonErrorGetMessage(), "broken by the test", "and why");
  int g = 0;
  tap_ok(!DMuonMeshGetSizes(mesh, NULL, &g, NULL) && g == 4, "it can still be asked");
  tap_ok(!DMuonMeshView(mesh, "/dev/null"), "and viewed");
  tap_ok(!DMuonMeshDestroy(&mesh), "and destroyed");
  mesh = fresh();
  tap_ok(!DMuonMeshSetUp(mesh), "another one works");
  DMuonMeshDestroy(&mesh);
}

int main(int argc, char **argv) {
  int before[3];
  test_before_init(before);
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  tap_is_int(before[0], DMUON_ERR_STATE, "a mesh before MPI_Init is refused");
  tap_is_int(before[1], DMUON_SUCCESS, "a plan mesh is not");
  tap_is_int(before[2], DMUON_SUCCESS, "destroying either is fine");
  test_arguments();
  test_sizes();
  test_options();
  test_allocations();
  test_partition();
  test_broken();
  DMuonMesh left = fresh();
  DMuonMeshSetUp(left);
  int status = tap_done(), bad = 0;
  MPI_Comm_free(&tap_comm);
  MPI_Finalize();
  DMuonMesh late = NULL;
  bad |= DMuonMeshCreate(MPI_COMM_WORLD, &late) != DMUON_ERR_STATE;
  bad |= DMuonMeshProgress(left) != DMUON_ERR_STATE;
  bad |= DMuonMeshGetSizes(left, NULL, NULL, NULL) != DMUON_SUCCESS;
  bad |= DMuonMeshDestroy(&left) != DMUON_SUCCESS || left;
  if (bad) fprintf(stderr, "# after MPI_Finalize something was wrong\n");
  return status || bad;
}
