/* A program outside the source tree that trains one matrix with its own arrays. Valid in C and in
 * C++. Every rank's gradient differs, so equal weights afterwards are the library's doing. Prints
 * "consumer: N ranks agree", or what went wrong. */
#include <dmuon.h>
#include <mpi.h>
#include <stdio.h>

#define CALL(call) DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, call)

int main(int argc, char **argv) {
  static float weights[8 * 4], gradients[8 * 4], bias[4], bias_gradients[4];
  const int64_t dims[2] = {8, 4};
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer optimizer = NULL;
  int rank, size, i, step, major = -1;
  double mine[2] = {0.0, 0.0}, lowest[2], highest[2];

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  DMuonGetVersion(&major, NULL, NULL);

  CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  CALL(DMuonMeshSetFromOptions(mesh, &argc, argv));
  CALL(DMuonModelCreate(mesh, &model));
  CALL(DMuonModelAddParamArray(model, "layers.0.w", DMUON_FLOAT32, 2, dims, weights, gradients,
                               NULL));
  CALL(DMuonModelAddParamArray(model, "layers.0.bias", DMUON_FLOAT32, 1, dims + 1, bias,
                               bias_gradients, NULL));
  CALL(DMuonOptimizerCreate(model, &optimizer));
  CALL(DMuonOptimizerSetUp(optimizer));
  for (step = 0; step < 3; step++) {
    for (i = 0; i < 32; i++) gradients[i] = (float)((i * 7 + rank * 3 + step) % 11 - 5);
    for (i = 0; i < 4; i++) bias_gradients[i] = (float)(i + rank + 1);
    CALL(DMuonOptimizerStep(optimizer));
  }
  CALL(DMuonOptimizerWait(optimizer));
  for (i = 0; i < 32; i++) mine[0] += (i + 1) * (double)weights[i];
  for (i = 0; i < 4; i++) mine[1] += (i + 1) * (double)bias[i];
  MPI_Allreduce(mine, lowest, 2, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(mine, highest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  CALL(DMuonOptimizerDestroy(&optimizer));
  CALL(DMuonModelDestroy(&model));
  CALL(DMuonMeshDestroy(&mesh));
  if (rank == 0) {
    if (major < 0 || lowest[0] != highest[0] || lowest[1] != highest[1])
      printf("consumer: ranks differ: %.17g to %.17g, %.17g to %.17g\n", lowest[0], highest[0],
             lowest[1], highest[1]);
    else if (lowest[0] == 0.0 || lowest[1] == 0.0)
      printf("consumer: nothing was trained\n");
    else
      printf("consumer: %d ranks agree\n", size);
  }
  MPI_Finalize();
  return 0;
}
