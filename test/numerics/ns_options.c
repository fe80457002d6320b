/* Newton-Schulz on a mesh: its options, their order of force, errors that name the value, the
 * mesh's device, lifetimes in any order, and that its results are those of an object without a
 * mesh. */
#include "mesh/mesh.h"
#include "ns/ns.h"

#include <dmuon.h>

#include "tap_mpi.h"

enum { ROWS = 12, COLS = 40 };

static void fill(float *x) {
  unsigned state = 7;
  for (int i = 0; i < ROWS * COLS; i++) {
    state = state * 1664525u + 1013904223u;
    x[i] = (float)((state >> 8) / 16777216.0 - 0.5);
  }
}

/* The value in force and its source, "jordan (command line)". */
static const char *in_force(DMuonMesh mesh, const char *name) {
  static char text[128];
  const char *value = NULL, *source = NULL;
  if (DMuonMeshGetOption(mesh, name, &value, &source)) return DMuonErrorGetMessage();
  snprintf(text, sizeof text, "%s (%s)", value, source);
  return text;
}

static DMuonMesh new_mesh(void) {
  DMuonMesh mesh = NULL;
  if (DMuonMeshCreate(MPI_COMM_WORLD, &mesh)) {
    fprintf(stderr, "%s\n", DMuonErrorGetMessage());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return mesh;
}

static void test_options(void) {
  static float in[ROWS * COLS], on_mesh[ROWS * COLS], alone[ROWS * COLS];
  DMuonMesh mesh = new_mesh();
  DMuonNewtonSchulz ns = NULL, other = NULL;
  tap_ok(!DMuonMeshSetOption(mesh, "ns_coefficients", "jordan") &&
             !DMuonMeshSetOption(mesh, "ns_restarts", "1,3"),
         "options are said");
  tap_ok(!DMuonNewtonSchulzCreate(mesh, &ns) && !DMuonNewtonSchulzSetCoefficients(ns, "you") &&
             !DMuonNewtonSchulzSetVariant(ns, "gram") && !DMuonNewtonSchulzSetUp(ns),
         "the program says others; SetUp sets the mesh up too");
  tap_is_string(in_force(mesh, "ns_coefficients"), "jordan (command line)", "the option wins");
  tap_is_string(in_force(mesh, "ns_restarts"), "1,3 (command line)", "restarts from an option");
  tap_is_string(in_force(mesh, "ns_variant"), "gram (program)", "the program's variant stays");
  tap_is_string(in_force(mesh, "ns_dtype"), "auto (default)", "a default stays");
  tap_ok(ns->recipe.steps == 5 && ns->recipe.abc[0] == 3.4445 && ns->recipe.restart_count == 2 &&
             ns->recipe.restarts[1] == 3,
         "the recipe follows");

  fill(in);
  static const int at[] = {1, 3};
  tap_ok(!DMuonNewtonSchulzCreate(NULL, &other) && !DMuonNewtonSchulzSetVariant(other, "gram") &&
             !DMuonNewtonSchulzSetCoefficients(other, "jordan") &&
             !DMuonNewtonSchulzSetRestarts(other, 2, at) && !DMuonNewtonSchulzSetUp(other),
         "the same without a mesh");
  /* The mesh lives as long as somebody holds it. */
  DMuonMeshDestroy(&mesh);
  tap_ok(!DMuonNewtonSchulzApply(ns, ROWS, COLS, DMUON_FLOAT32, in, COLS, on_mesh, COLS) &&
             !DMuonNewtonSchulzApply(other, ROWS, COLS, DMUON_FLOAT32, in, COLS, alone, COLS) &&
             !memcmp(on_mesh, alone, sizeof alone),
         "the same bits on a mesh whose handle is gone");
  DMuonNewtonSchulzDestroy(&ns);
  DMuonNewtonSchulzDestroy(&other);
}

/* Tasks put off and run in another legal order: the same bits. */
static void test_deferred(const char *variant, const char *batch) {
  static float in[2 * ROWS * COLS], out[2][2 * ROWS * COLS];
  static const char *const devices[] = {"host", "host:deferred,seed=5"};
  int good = 1;
  fill(in);
  fill(in + ROWS * COLS);
  in[ROWS * COLS] = 3;
  for (int k = 0; k < 2; k++) {
    DMuonMesh mesh = new_mesh();
    DMuonNewtonSchulz ns = NULL;
    good = good && !DMuonMeshSetOption(mesh, "device", devices[k]) &&
           !DMuonMeshSetOption(mesh, "ns_batch", batch) && !DMuonNewtonSchulzCreate(mesh, &ns) &&
           !DMuonNewtonSchulzSetVariant(ns, variant) && !DMuonNewtonSchulzSetUp(ns) &&
           !DMuonNewtonSchulzApplyBatch(ns, 2, ROWS, COLS, DMUON_FLOAT32, in, COLS, ROWS * COLS,
                                        out[k], COLS, ROWS * COLS);
    DMuonNewtonSchulzDestroy(&ns);
    DMuonMeshDestroy(&mesh);
  }
  tap_ok(good && !memcmp(out[0], out[1], sizeof out[0]),
         "%s, ns_batch %s: deferred = eager, bit for bit", variant, batch);
}

/* One wrong value: SetUp fails, says what is wrong, and can be called again once it is put right.
 */
static void test_wrong(const char *name, const char *value, const char *phrase, const char *right) {
  DMuonMesh mesh = new_mesh();
  DMuonNewtonSchulz ns = NULL;
  DMuonErrorCode code = DMuonMeshSetOption(mesh, name, value);
  if (!code) code = DMuonNewtonSchulzCreate(mesh, &ns);
  if (!code) code = DMuonNewtonSchulzSetUp(ns);
  tap_ok(code == DMUON_ERR_ARGUMENT, "%s %s is refused", name, value);
  tap_contains(DMuonErrorGetMessage(), phrase, "the message names it");
  code = DMuonMeshSetOption(mesh, name, right);
  tap_ok(!code && !DMuonNewtonSchulzSetUp(ns), "%s %s instead", name, right);
  DMuonNewtonSchulzDestroy(&ns);
  DMuonMeshDestroy(&mesh);
}

static void test_given_table(void) {
  static const double abc[] = {1.5, -.5, 0, 2, -1.5, .5};
  DMuonMesh mesh = new_mesh();
  DMuonNewtonSchulz ns = NULL;
  double value = 0;
  tap_ok(!DMuonNewtonSchulzCreate(mesh, &ns) && !DMuonNewtonSchulzSetTable(ns, 2, abc) &&
             !DMuonNewtonSchulzSetUp(ns) && !DMuonNewtonSchulzEvaluate(ns, 1.0, &value) &&
             value == 1,
         "the program's own table, where no option says another");
  DMuonNewtonSchulzDestroy(&ns);
  tap_ok(!DMuonMeshSetOption(mesh, "ns_coefficients", "you") &&
             !DMuonNewtonSchulzCreate(mesh, &ns) && !DMuonNewtonSchulzSetTable(ns, 2, abc) &&
             !DMuonNewtonSchulzSetUp(ns) && ns->recipe.steps == 5,
         "an option wins over it");
  DMuonNewtonSchulzDestroy(&ns);
  DMuonMeshDestroy(&mesh);
}

/* The k-th allocation of the first Apply fails, for k = 1, 2, ... until none does: each time Apply
 * says so, and works when called again. Half precision needs the most kinds of memory. */
static void test_no_memory(void) {
  enum { COUNT = ROWS * COLS, LIMIT = 50 };
  static uint16_t in[COUNT], out[COUNT], right[COUNT];
  int tries = 0, honest = 1, recovers = 1;
  DMuonErrorCode code = DMUON_ERR_MEMORY;
  for (int i = 0; i < COUNT; i++) in[i] = (uint16_t)(0x3f00 + i * 37 % 128); /* 0.5 to 1 */
  for (int k = 0; (k < 2 || code) && k < LIMIT; k++) {
    DMuonMesh mesh = new_mesh();
    DMuonNewtonSchulz ns = NULL;
    dmuon_memory *memory = &mesh->context.memory;
    if (DMuonNewtonSchulzCreate(mesh, &ns) || DMuonNewtonSchulzSetVariant(ns, "direct") ||
        DMuonNewtonSchulzSetDType(ns, DMUON_BFLOAT16) || DMuonNewtonSchulzSetUp(ns))
      honest = 0;
    memory->fail_at = k ? memory->allocations + k : 0;
    code = DMuonNewtonSchulzApply(ns, ROWS, COLS, DMUON_BFLOAT16, in, COLS, out, COLS);
    memory->fail_at = 0;
    if (code) {
      tries++;
      if (code != DMUON_ERR_MEMORY) {
        tap_diag("k = %d: %s", k, DMuonErrorGetMessage());
        honest = 0;
      }
      code = DMuonNewtonSchulzApply(ns, ROWS, COLS, DMUON_BFLOAT16, in, COLS, out, COLS);
      if (code || memcmp(out, right, sizeof right)) recovers = 0;
      code = DMUON_ERR_MEMORY;
    } else if (k == 0) {
      memcpy(right, out, sizeof right);
    }
    DMuonNewtonSchulzDestroy(&ns);
    DMuonMeshDestroy(&mesh);
  }
  tap_ok(tries > 3 && !code, "%d allocations of Apply, each failed once", tries);
  tap_ok(honest, "it says that memory is short");
  tap_ok(recovers, "and gives the same bits when called again");
}

static void test_plan_mesh(void) {
  DMuonMesh mesh = NULL;
  DMuonNewtonSchulz ns = NULL;
  float a = 1;
  tap_ok(!DMuonMeshCreatePlan(2, 2, 1, &mesh) && !DMuonNewtonSchulzCreate(mesh, &ns) &&
             !DMuonNewtonSchulzSetUp(ns),
         "on a mesh without ranks");
  tap_ok(DMuonNewtonSchulzApply(ns, 1, 1, DMUON_FLOAT32, &a, 1, &a, 1) == DMUON_ERR_UNSUPPORTED,
         "nothing can be applied");
  DMuonNewtonSchulzDestroy(&ns);
  DMuonMeshDestroy(&mesh);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  test_options();
  test_wrong("ns_coefficients", "jordam", "jordan", "jordan");
  test_wrong("ns_coefficients", "given", "given", "you");
  test_wrong("ns_restarts", "7", "7", "2");
  test_wrong("ns_restarts", "two", "two", "auto");
  test_wrong("ns_variant", "grim", "gram", "direct");
  test_wrong("ns_dtype", "fp8", "fp8", "fp64");
  test_wrong("ns_batch", "65", "64", "8");
  test_given_table();
  test_no_memory();
  test_plan_mesh();
  test_deferred("gram", "1");
  test_deferred("gram", "2");
  test_deferred("direct", "1");
  test_deferred("direct", "2");
  return tap_mpi_done();
}
