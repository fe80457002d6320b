/* dmuon_bench ns -choices FILE: measures both forms of Newton-Schulz for a shape, how symmetric
 * products are best cut and how many matrices together pay, on the device that -dmuon_device says,
 * and adds what was fastest to FILE: a table that the option ns_choices reads. A file that is not
 * there is made. */
#include "bench.h"

#include <dmuon.h>
#include <mpi.h>
#include <stdio.h>

static int exists(const char *path) {
  FILE *file = fopen(path, "r");
  if (file) fclose(file);
  return file != NULL;
}

static DMuonErrorCode measure(const bench_arguments *a, DMuonMesh mesh) {
  const int rows = a->rows ? a->rows : 1024, cols = a->rows ? a->cols : 4096;
  int argc = a->argc;
  DMuonNewtonSchulz ns = NULL;
  DMUON_CALL(DMuonMeshSetFromOptions(mesh, &argc, a->argv));
  DMUON_CALL(DMuonNewtonSchulzCreate(mesh, &ns));
  DMUON_CALL(DMuonNewtonSchulzSetCoefficients(ns, a->coefficients));
  if (a->ns_dtype_name) DMUON_CALL(DMuonNewtonSchulzSetDType(ns, a->ns_dtype));
  if (exists(a->choices)) DMUON_CALL(DMuonNewtonSchulzSetChoices(ns, a->choices));
  DMUON_CALL(DMuonNewtonSchulzSetUp(ns));
  DMUON_CALL(DMuonNewtonSchulzMeasure(ns, rows, cols, a->dtype, a->repeat ? a->repeat : 5));
  DMUON_CALL(DMuonNewtonSchulzSaveChoices(ns, a->choices));
  DMUON_CALL(DMuonNewtonSchulzView(ns, NULL));
  return DMuonNewtonSchulzDestroy(&ns);
}

int bench_choices(const bench_arguments *arguments) {
  DMuonMesh mesh = NULL;
  MPI_Init(NULL, NULL);
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_SELF, &mesh);
  if (!code) code = measure(arguments, mesh);
  if (code) bench_fail();
  DMuonMeshDestroy(&mesh);
  MPI_Finalize();
  return code != 0;
}
