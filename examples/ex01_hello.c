/* ex01_hello: the mesh. Which ranks are there, how they are arranged, which place this one has.
 *
 * Build and run it:
 *   mpicc ex01_hello.c -o ex01_hello $(pkg-config --cflags --libs libdmuon)
 *   mpirun -n 4 ./ex01_hello
 *   mpirun -n 8 ./ex01_hello -dmuon_node_size 4       # as if on two nodes of four ranks
 *   mpirun -n 4 ./ex01_hello -dmuon_topology detect   # and what the machine is
 *   srun -n 8 ./ex01_hello -dmuon_replicate 4 -dmuon_shard 2
 *
 * A mesh is replicate x shard x tp ranks. Left to decide, the library makes the ranks that the
 * fastest links join (NVLink, else the node) a shard group, and those groups replicas of each
 * other, so that most traffic stays on fast links.
 *
 * How ranks would be arranged on a machine that is not here: described in words, or by an hwloc XML
 * file (lstopo node.xml writes one), for the ranks that run, or with -ranks N for so many.
 *   ./ex01_hello -ranks 128 -dmuon_topology "node:16 gpu:8 nvlink:all ib:8@400Gb"
 *   ./ex01_hello -ranks 16 -dmuon_topology node.xml */
#include <dmuon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DMuonErrorCode hello(DMuonMesh mesh, int rank) {
  int r, s, t, part, parts;
  DMUON_CALL(DMuonMeshSetUp(mesh));      /* collective: the machine is looked at here */
  DMUON_CALL(DMuonMeshView(mesh, NULL)); /* collective: one text, on standard output */
  DMUON_CALL(DMuonMeshGetCoords(mesh, &r, &s, &t));
  DMUON_CALL(DMuonMeshGetDataRank(mesh, &part, &parts));
  printf("MPI rank %d is (%d,%d,%d) of the mesh and reads part %d of %d of the data\n", rank, r, s,
         t, part, parts);
  return DMUON_SUCCESS;
}

/* A mesh without ranks, for so many of them: sizes are asked of the machine described. */
static DMuonErrorCode plan(int ranks, int *argc, char **argv) {
  DMuonMesh mesh;
  DMUON_CALL(DMuonMeshCreatePlan(ranks, 1, 1, &mesh));
  DMUON_CALL(DMuonMeshSetSizes(mesh, DMUON_DECIDE, DMUON_DECIDE, 1));
  DMUON_CALL(DMuonMeshSetFromOptions(mesh, argc, argv));
  DMUON_CALL(DMuonMeshSetUp(mesh));
  DMUON_CALL(DMuonMeshView(mesh, NULL));
  DMUON_CALL(DMuonMeshDestroy(&mesh));
  return DMUON_SUCCESS;
}

static DMuonErrorCode run(int rank, int *argc, char **argv) {
  DMuonMesh mesh;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonMeshSetSizes(mesh, DMUON_DECIDE, DMUON_DECIDE, 1));
  DMUON_CALL(DMuonMeshSetFromOptions(mesh, argc, argv));
  DMUON_CALL(hello(mesh, rank));
  DMUON_CALL(DMuonMeshDestroy(&mesh));
  return DMUON_SUCCESS;
}

/* N of "-ranks N"; 0: not given, -1: no number of ranks. */
static int planned_ranks(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-ranks") != 0) continue;
    char *end = NULL;
    const long ranks = i + 1 < argc ? strtol(argv[i + 1], &end, 10) : 0;
    return end && *end == 0 && ranks >= 1 && ranks <= 10000000 ? (int)ranks : -1;
  }
  return 0;
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int ranks = planned_ranks(argc, argv);
  if (ranks < 0 && rank == 0)
    fprintf(stderr, "ex01_hello: -ranks wants a number from 1 to 10000000\n");
  if (ranks == 0)
    DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, run(rank, &argc, argv));
  else if (ranks > 0 && rank == 0)
    DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, plan(ranks, &argc, argv));
  MPI_Finalize();
  return ranks < 0 ? 2 : 0;
}
