/* Meshes, models and optimizers, 2,000 of each one after the other, and broken ones among them:
 * memory and open files stay where they are. That communicators do, too, shows where MPI has 2,048
 * of them. */
#include "config.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <dmuon.h>

#include "left_to_mpi.h"
#include "tap_mpi.h"

enum { LIVES = 2000, WARM = 200, N = 6 };

static float w[2][N * N], g[2][N * N];

/* Memory in use, in kB; 0 where nobody can tell: another allocator than the C library's (that of a
 * sanitizer, which keeps what is freed for a while) says nothing. */
static long kilobytes_in_use(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 info = mallinfo2();
  return (long)((info.uordblks + info.hblkhd) / 1024);
#else
  return 0;
#endif
}

static int open_files(void) {
  DIR *directory = opendir("/proc/self/fd");
  int count = 0;
  if (!directory) return -1;
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

static DMuonErrorCode live(int number) {
  static const int64_t dims[] = {N, N};
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  DMuonErrorCode code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  if (!code)
    code = DMuonMeshSetSizes(mesh, number % 2 ? tap_size : 1, number % 2 ? 1 : tap_size, 1);
  if (!code) code = DMuonModelCreate(mesh, &model);
  for (int k = 0; k < 2 && !code; k++) {
    char name[32];
    snprintf(name, sizeof name, "layers.%d.weight", k);
    for (int i = 0; i < N * N; i++) g[k][i] = (float)(1 + (i + k + number + tap_rank) % 7);
    code = DMuonModelAddParamArray(model, name, DMUON_FLOAT32, 2, dims, w[k], g[k], NULL);
  }
  if (!code) code = DMuonOptimizerCreate(model, &opt);
  if (!code) code = DMuonOptimizerSetAsync(opt, number % 3 == 0);
  if (!code) code = DMuonOptimizerSetUp(opt);
  if (!code) code = DMuonOptimizerStep(opt);
  DMuonMeshDestroy(&mesh);
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  return code;
}

/* Its communicators are left, by design; nothing else is. */
static DMuonErrorCode break_one(void) {
  DMuonMesh mesh = NULL;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonMeshSetUp(mesh));
  tap_mpi_barrier();
  const DMuonErrorCode code = DMuonMeshRevoke(mesh, "enough");
  DMuonMeshDestroy(&mesh);
  return code == DMUON_ERR_REVOKED ? DMUON_SUCCESS : DMUON_ERR_INTERNAL;
}

int main(int argc, char **argv) {
  DMuonErrorCode code = DMUON_SUCCESS;
  long memory = 0;
  int files = 0, number = 0;
  tap_mpi_init(&argc, &argv);
  for (; number < LIVES && !code; number++) {
    if (number == WARM) memory = kilobytes_in_use(), files = open_files();
    code = live(number);
  }
  if (!tap_ok(!code, "%d lives", LIVES)) tap_diag("%d: %s", number, DMuonErrorGetMessage());
  const long more = kilobytes_in_use() - memory;
  tap_diag("%ld kB more after %d lives", more, LIVES - WARM);
  tap_ok(open_files() == files, "no file stays open");
  tap_ok(more < 512, "memory stays flat"); /* a leak of 300 bytes a life would show */
  for (int i = 0; i < 20 && !code; i++) {
    code = break_one();
    if (!code) code = live(i);
  }
  if (!tap_ok(!code, "also between meshes that break")) tap_diag("%s", DMuonErrorGetMessage());
  return tap_mpi_done();
}
