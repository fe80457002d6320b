/* ex01_hello: the mesh. Which ranks are there, how they are arranged, which place this one has.
 *
 * Build and run it:
 *   mpicc ex01_hello.c -o ex01_hello $(pkg-config --cflags --libs libdmuon)
 *   mpirun -n 4 ./ex01_hello
 *   mpirun -n 8 ./ex01_hello -dmuon_node_size 4       # as if on two nodes of four ranks
 *   srun -n 8 ./ex01_hello -dmuon_replicate 4 -dmuon_shard 2
 *
 * A mesh is replicate x shard x tp ranks. Left to decide, the library makes the ranks of a node a
 * shard group and the nodes replicas of each other, so that most traffic stays inside nodes. */
#include <dmuon.h>
#include <stdio.h>

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

int main(int argc, char **argv) {
  DMuonMesh mesh;
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetSizes(mesh, DMUON_DECIDE, DMUON_DECIDE, 1));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetFromOptions(mesh, &argc, argv));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, hello(mesh, rank));
  DMuonMeshDestroy(&mesh);
  MPI_Finalize();
  return 0;
}
