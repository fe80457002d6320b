/* Newton-Schulz on a mesh whose device is CUDA: accuracy against the scalar polynomial in every
 * dtype and form, fp16 where nothing is said, batches, choices, and what is refused. On the test
 * double the products are loops of its own with the rounding that cuBLAS documents. */
#include <dmuon.h>

#include "backend/cuda/cuda.h"
#include "mesh/mesh.h"
#include "ns/ns.h"

#include "double/double.h"
#include "spectra.h"
#include "tap_mpi.h"

enum { LARGEST = 40 * 130, BATCH = 3 };

static DMuonMesh mesh;

static void must(DMuonErrorCode code) {
  if (!code) return;
  fprintf(stderr, "%s\n", DMuonErrorGetMessage());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static DMuonNewtonSchulz make(const char *variant, int dtype, int64_t batch) {
  DMuonNewtonSchulz ns = NULL;
  must(DMuonNewtonSchulzCreate(mesh, &ns));
  must(DMuonNewtonSchulzSetVariant(ns, variant));
  must(DMuonNewtonSchulzSetBatch(ns, batch));
  if (dtype >= 0) must(DMuonNewtonSchulzSetDType(ns, (DMuonDType)dtype));
  must(DMuonNewtonSchulzSetUp(ns));
  return ns;
}

/* There, orthogonalised in place, and back. */
static void apply(DMuonNewtonSchulz ns, int64_t batch, int64_t rows, int64_t cols, DMuonDType dtype,
                  void *data) {
  const int64_t bytes = batch * rows * cols * (int64_t)dmuon_dtype_bytes(dtype);
  void *device = NULL;
  must(DMuonMeshAlloc(mesh, bytes, &device));
  must(DMuonMeshCopy(mesh, device, data, bytes));
  must(DMuonNewtonSchulzApplyBatch(ns, batch, rows, cols, dtype, device, cols, rows * cols, device,
                                   cols, rows * cols));
  must(DMuonMeshCopy(mesh, data, device, bytes));
  must(DMuonMeshFree(mesh, &device));
}

static const struct {
  const char *variant;
  int dtype; /* of the iteration; -1: not said */
  DMuonDType matrix;
  double bound;
} configs[] = {
    {"direct", DMUON_FLOAT64, DMUON_FLOAT64, 1e-12},
    {"gram", DMUON_FLOAT64, DMUON_FLOAT64, 1e-12},
    {"direct", DMUON_FLOAT32, DMUON_FLOAT32, 2e-5},
    {"gram", DMUON_FLOAT32, DMUON_FLOAT32, 5e-5},
    {"direct", DMUON_FLOAT16, DMUON_FLOAT32, 1.5e-2},
    {"gram", DMUON_FLOAT16, DMUON_FLOAT32, 1.5e-2},
    {"direct", -1, DMUON_FLOAT32, 1.5e-2},
    {"gram", -1, DMUON_FLOAT32, 1.5e-2},
    {"auto", -1, DMUON_FLOAT16, 1.5e-2},
    {"auto", -1, DMUON_FLOAT64, 1e-12},
    {"direct", DMUON_BFLOAT16, DMUON_FLOAT32, 1e-1},
    {"gram", DMUON_BFLOAT16, DMUON_FLOAT32, 1.5e-1},
};

static void test_accuracy(int m, int n, int kind, int tall) {
  static double a[LARGEST], truth[LARGEST], data[LARGEST], ut[LARGEST], vt[LARGEST], s[LARGEST],
      p[LARGEST];
  spectra_random r = {(uint64_t)(m * n + kind)};
  orthonormal_rows(m, m, ut, &r);
  orthonormal_rows(m, n, vt, &r);
  make_spectrum(kind, m, s, &r);
  compose(m, n, ut, s, vt, a);
  const double norm = sqrt(dot(m, s, s));
  for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
    const DMuonDType dtype = configs[c].matrix;
    DMuonNewtonSchulz ns = make(configs[c].variant, configs[c].dtype, 0);
    for (int i = 0; i < m; i++) must(DMuonNewtonSchulzEvaluate(ns, s[i] / norm, &p[i]));
    compose(m, n, ut, p, vt, truth);
    for (int i = 0; i < m; i++)
      for (int j = 0; j < n; j++)
        dmuon_dtype_set(dtype, data, tall ? j * m + i : i * n + j, a[i * n + j] / norm);
    apply(ns, 1, tall ? n : m, tall ? m : n, dtype, data);
    double off = 0;
    for (int i = 0; i < m; i++)
      for (int j = 0; j < n; j++) {
        const double d =
            dmuon_dtype_get(dtype, data, tall ? j * m + i : i * n + j) - truth[i * n + j];
        off += d * d;
      }
    const double error = sqrt(off / dot((int64_t)m * n, truth, truth));
    tap_ok(error <= configs[c].bound, "%dx%d %s: %s in %s, matrix in %s: %.1e <= %.1e",
           tall ? n : m, tall ? m : n, spectrum_names[kind], configs[c].variant,
           configs[c].dtype < 0 ? "what the device likes"
                                : dmuon_dtype_name((DMuonDType)configs[c].dtype),
           dmuon_dtype_name(dtype), error, configs[c].bound);
    DMuonNewtonSchulzDestroy(&ns);
  }
}

/* A batch gives the bits of its matrices one by one; fp16 is what runs, and does asked for too. */
static void test_batch(const char *variant, int64_t rows, int64_t cols) {
  static float in[BATCH * LARGEST], one[BATCH * LARGEST], together[BATCH * LARGEST],
      half[BATCH * LARGEST];
  const int64_t each = rows * cols;
  spectra_random r = {3};
  for (int64_t i = 0; i < BATCH * each; i++) in[i] = (float)random_gaussian(&r);
  const size_t bytes = (size_t)(BATCH * each) * sizeof *in;
  memcpy(one, in, bytes), memcpy(together, in, bytes), memcpy(half, in, bytes);
  DMuonNewtonSchulz a = make(variant, -1, 1), b = make(variant, -1, 2),
                    c = make(variant, DMUON_FLOAT16, 3);
  for (int64_t k = 0; k < BATCH; k++) apply(a, 1, rows, cols, DMUON_FLOAT32, one + k * each);
  apply(b, BATCH, rows, cols, DMUON_FLOAT32, together);
  apply(c, BATCH, rows, cols, DMUON_FLOAT32, half);
  tap_ok(!memcmp(one, together, bytes) && memcmp(one, in, bytes),
         "%s %lldx%lld: a batch gives the bits of one by one", variant, (long long)rows,
         (long long)cols);
  tap_ok(!memcmp(one, half, bytes), "%s %lldx%lld: fp16 is what runs when nothing is said", variant,
         (long long)rows, (long long)cols);
  DMuonNewtonSchulzDestroy(&a);
  DMuonNewtonSchulzDestroy(&b);
  DMuonNewtonSchulzDestroy(&c);
}

/* Where the device multiplies a batch at once: nearly what one by one gives. */
static void test_together(void) {
  enum { ROWS = 20, COLS = 44, EACH = ROWS * COLS };
  static float together[BATCH * EACH], one[BATCH * EACH];
  spectra_random r = {9};
  dmuon_ns_plan plan;
  double off = 0, size = 0;
  for (int i = 0; i < BATCH * EACH; i++) together[i] = one[i] = (float)random_gaussian(&r);
  DMuonNewtonSchulz ns = make("auto", DMUON_FLOAT32, 0);
  must(dmuon_ns_plan_make(&ns->recipe, ROWS, COLS, DMUON_FLOAT32, &plan));
  dmuon_ns_plan_batch(&plan, BATCH);
  apply(ns, BATCH, ROWS, COLS, DMUON_FLOAT32, together);
  for (int k = 0; k < BATCH; k++) apply(ns, 1, ROWS, COLS, DMUON_FLOAT32, one + k * EACH);
  for (int i = 0; i < BATCH * EACH; i++) {
    off += (together[i] - one[i]) * (double)(together[i] - one[i]);
    size += one[i] * (double)one[i];
  }
  tap_ok(plan.batch == BATCH && sqrt(off / size) <= 5e-5, "%lld together: as one by one (%.1e)",
         (long long)plan.batch, sqrt(off / size));
  DMuonNewtonSchulzDestroy(&ns);
}

static void test_rest(void) {
  float host[4] = {1, 2, 3, 4};
  DMuonNewtonSchulz ns = make("auto", -1, 0);
  tap_ok(DMuonNewtonSchulzApply(ns, 2, 2, DMUON_FLOAT32, host, 2, host, 2) == DMUON_ERR_ARGUMENT &&
             host[3] == 4,
         "memory of the host is refused");
  tap_ok(!DMuonNewtonSchulzMeasure(ns, 20, 30, DMUON_FLOAT32, 1) && ns->recipe.choices.count == 1 &&
             ns->recipe.choices.entries[0].dtype == DMUON_FLOAT16,
         "forms are measured here, in fp16");
  DMuonNewtonSchulzDestroy(&ns);
}

/* Products are cut as the table of choices says: without it not at all at this size. A call for the
 * tiles fails, where there is one. */
static void test_told_tiles(void) {
  static float in[48 * 80], out[48 * 80], cut[48 * 80];
  static const int64_t tiles[] = {0, 16, -1};
  spectra_random r = {11};
  for (int i = 0; i < 48 * 80; i++) in[i] = (float)random_gaussian(&r);
  for (int t = 0; t < 3; t++) {
    const dmuon_ns_choice choice = {48, 80, DMUON_FLOAT16, DMUON_NS_GRAM, 1, tiles[t], {0, 0, 0}};
    DMuonNewtonSchulz ns = make("auto", -1, 0);
    must(dmuon_ns_choices_add(&mesh->context.memory, &ns->recipe.choices, &choice));
    memcpy(cut, in, sizeof cut);
    apply(ns, 1, 48, 80, DMUON_FLOAT32, cut);
    if (t == 0) memcpy(out, cut, sizeof out);
    void *device = NULL;
    must(DMuonMeshAlloc(mesh, sizeof in, &device));
    must(DMuonMeshCopy(mesh, device, in, sizeof in));
    double_fail_call("cublasGemmBatchedEx", 1, CUBLAS_STATUS_ALLOC_FAILED);
    const DMuonErrorCode code =
        DMuonNewtonSchulzApply(ns, 48, 80, DMUON_FLOAT32, device, 80, device, 80);
    double_fail_call("cublasGemmBatchedEx", 0, 0);
    tap_ok(
        code == (tiles[t] > 0 ? DMUON_ERR_MEMORY : DMUON_SUCCESS) && !memcmp(out, cut, sizeof out),
        "tile %d in the table: %s, and the same bits from the double", (int)tiles[t],
        tiles[t] > 0 ? "in tiles" : "not cut");
    must(DMuonMeshFree(mesh, &device));
    DMuonNewtonSchulzDestroy(&ns);
  }
}

static void open_mesh(const char *device, int64_t tile) {
  must(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  must(DMuonMeshSetOption(mesh, "device", device));
  must(DMuonMeshSetUp(mesh));
  if (tile) dmuon_cuda_device_set_tile(mesh->device, tile);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  open_mesh("cuda", 0);
  test_accuracy(40, 130, SPECTRUM_GAUSSIAN, 0);
  test_accuracy(64, 64, SPECTRUM_UNIFORM, 0);
  test_batch("gram", 24, 70);
  test_batch("direct", 70, 24);
  test_rest();
  test_told_tiles();
  DMuonMeshDestroy(&mesh);
  /* Triangles of tiles, as of matrices too large for this test. */
  open_mesh("cuda", 16);
  test_accuracy(50, 70, SPECTRUM_POWER_LAW, 1);
  test_batch("gram", 70, 40);
  DMuonMeshDestroy(&mesh);
  open_mesh("cuda:batched", 0);
  test_together();
  DMuonMeshDestroy(&mesh);
  return tap_mpi_done();
}
