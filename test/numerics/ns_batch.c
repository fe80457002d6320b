/* Matrices together: a batch gives the bits of its matrices one by one, whatever its size, form and
 * dtype, and what the iteration runs in where the device prefers fp16. */
#include "ns/ns.h"

#include <string.h>

#include "base/random.h"
#include "tap.h"

enum { COUNT = 5, LARGEST = 13 * 29 };

static DMuonNewtonSchulz make(const char *table, const char *variant, int64_t batch, int half,
                              int dtype) {
  DMuonNewtonSchulz ns = NULL;
  int bad = DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetCoefficients(ns, table) ||
            DMuonNewtonSchulzSetVariant(ns, variant) || DMuonNewtonSchulzSetBatch(ns, batch) ||
            (dtype >= 0 && DMuonNewtonSchulzSetDType(ns, (DMuonDType)dtype));
  ns->device->prefers_half = half;
  if (bad || DMuonNewtonSchulzSetUp(ns)) {
    tap_diag("%s", DMuonErrorGetMessage());
    exit(99);
  }
  return ns;
}

static void fill(DMuonDType dtype, int64_t n, void *x, uint64_t key) {
  for (int64_t i = 0; i < n; i++)
    dmuon_dtype_set(dtype, x, i, 2 * dmuon_random_uniform(5, key, (uint64_t)i) - 1);
}

/* Five matrices with room between them, in batches of one, two, three and all. */
static void test_batches(const char *variant, DMuonDType dtype, int iterate, int64_t rows,
                         int64_t cols) {
  static const int64_t batches[] = {2, 3, COUNT, DMUON_NS_BATCH_MAX};
  static double in[COUNT * (LARGEST + 64)], one[COUNT * (LARGEST + 64)],
      out[COUNT * (LARGEST + 64)];
  const int64_t ld = cols + 1, stride = rows * ld + 3, all = COUNT * stride;
  const size_t bytes = (size_t)all * dmuon_dtype_bytes(dtype);
  int same = 1;
  fill(dtype, all, in, 1);
  memcpy(one, in, bytes);
  DMuonNewtonSchulz alone = make("polar_express", variant, 1, 0, iterate);
  for (int64_t k = 0; k < COUNT; k++) {
    void *matrix = dmuon_dtype_at(one, k * stride, dtype);
    same = same && !DMuonNewtonSchulzApply(alone, rows, cols, dtype, matrix, ld, matrix, ld);
  }
  for (int b = 0; b < 4; b++) {
    DMuonNewtonSchulz ns = make("polar_express", variant, batches[b], 0, iterate);
    memcpy(out, in, bytes);
    same = same &&
           !DMuonNewtonSchulzApplyBatch(ns, COUNT, rows, cols, dtype, out, ld, stride, out, ld,
                                        stride) &&
           !memcmp(out, one, bytes);
    DMuonNewtonSchulzDestroy(&ns);
  }
  tap_ok(same && memcmp(in, one, bytes), "%s %s %s %lldx%lld: batches give the bits of one by one",
         variant, dmuon_dtype_name(dtype), iterate < 0 ? "" : dmuon_dtype_name((DMuonDType)iterate),
         (long long)rows, (long long)cols);
  DMuonNewtonSchulzDestroy(&alone);
}

/* How many run together: asked for, by rule, and what that takes. */
static void test_plans(void) {
  dmuon_ns_plan one, plan;
  DMuonNewtonSchulz ns = make("polar_express", "gram", 0, 0, -1);
  int bad = dmuon_ns_plan_make(&ns->recipe, 64, 128, DMUON_FLOAT32, &one);
  plan = one;
  dmuon_ns_plan_batch(&plan, 10);
  tap_ok(!bad && plan.batch == 1 && plan.workspace_bytes == one.workspace_bytes,
         "on the host one at a time, with the workspace of one");
  dmuon_ns_recipe recipe = ns->recipe;
  recipe.batch = 4;
  plan.recipe = &recipe;
  dmuon_ns_plan_batch(&plan, 10);
  tap_ok(plan.batch == 4 && plan.workspace_bytes <= 4 * one.workspace_bytes &&
             plan.workspace_bytes > 3 * one.workspace_bytes &&
             plan.operations == one.operations + 3 * (4 + 2),
         "four as asked for: the workspace of four");
  plan = one, plan.recipe = &recipe;
  dmuon_ns_plan_batch(&plan, 3);
  tap_is_int(plan.batch, 3, "no more than there are");
  recipe.batch = 0, recipe.prefers_half = recipe.prefers_batches = 1;
  bad = dmuon_ns_plan_make(&recipe, 64, 128, DMUON_FLOAT32, &plan);
  dmuon_ns_plan_batch(&plan, 1000);
  tap_ok(!bad && plan.batch == DMUON_NS_BATCH_MAX,
         "small ones on a device that gains by it: all that may");
  bad = dmuon_ns_plan_make(&recipe, 1024, 4096, DMUON_FLOAT32, &plan);
  dmuon_ns_plan_batch(&plan, 1000);
  tap_ok(!bad && plan.batch > 1 && plan.batch < DMUON_NS_BATCH_MAX &&
             plan.workspace_bytes <= DMUON_NS_BATCH_BYTES,
         "larger ones: as many as the bound holds (%lld)", (long long)plan.batch);
  bad = dmuon_ns_plan_make(&recipe, 8192, 32768, DMUON_FLOAT32, &plan);
  dmuon_ns_plan_batch(&plan, 1000);
  tap_is_int(bad ? -1 : plan.batch, 1, "one that is larger than the bound runs alone");
  DMuonNewtonSchulzDestroy(&ns);
}

/* A device that prefers fp16: the bits of asking for fp16, but for fp64. */
static void test_half(const char *variant, DMuonDType dtype, int expected, int64_t rows,
                      int64_t cols) {
  static double in[LARGEST], half[LARGEST], asked[LARGEST], plain[LARGEST];
  const size_t bytes = (size_t)(rows * cols) * dmuon_dtype_bytes(dtype);
  DMuonNewtonSchulz a = make("polar_express", variant, 0, 1, -1),
                    b = make("polar_express", variant, 0, 0, expected),
                    c = make("polar_express", variant, 0, 0, -1);
  fill(dtype, rows * cols, in, 2);
  int good = !DMuonNewtonSchulzApply(a, rows, cols, dtype, in, cols, half, cols) &&
             !DMuonNewtonSchulzApply(b, rows, cols, dtype, in, cols, asked, cols) &&
             !DMuonNewtonSchulzApply(c, rows, cols, dtype, in, cols, plain, cols);
  tap_ok(good && !memcmp(half, asked, bytes) &&
             (memcmp(half, plain, bytes) != 0) == (expected == DMUON_FLOAT16),
         "%s %s %lldx%lld: a device that prefers fp16 iterates in %s", variant,
         dmuon_dtype_name(dtype), (long long)rows, (long long)cols,
         dmuon_dtype_name((DMuonDType)expected));
  DMuonNewtonSchulzDestroy(&a);
  DMuonNewtonSchulzDestroy(&b);
  DMuonNewtonSchulzDestroy(&c);
}

/* Tables that 16 bits do not carry in the Gram form. */
static void test_exceptions(void) {
  static const struct {
    const char *table, *variant;
    int dtype; /* asked for, or -1 */
    DMuonDType iterate;
    dmuon_ns_variant runs;
  } cases[] = {
      {"polar_express_raw", "auto", -1, DMUON_FLOAT16, DMUON_NS_DIRECT},
      {"polar_express_raw", "gram", -1, DMUON_FLOAT32, DMUON_NS_GRAM},
      {"polar_express_raw", "gram", DMUON_FLOAT16, DMUON_FLOAT16, DMUON_NS_GRAM},
      {"polar_express", "auto", -1, DMUON_FLOAT16, DMUON_NS_GRAM},
      {"polar_express", "auto", DMUON_FLOAT32, DMUON_FLOAT32, DMUON_NS_GRAM},
      {"polar_express", "auto", DMUON_BFLOAT16, DMUON_BFLOAT16, DMUON_NS_GRAM},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dmuon_ns_plan plan;
    DMuonNewtonSchulz ns = make(cases[i].table, cases[i].variant, 0, 1, cases[i].dtype);
    const int bad = dmuon_ns_plan_make(&ns->recipe, 64, 256, DMUON_FLOAT32, &plan);
    tap_ok(!bad && plan.iterate == cases[i].iterate && plan.variant == cases[i].runs,
           "%s, %s, %s asked for: %s in %s", cases[i].table, cases[i].variant,
           cases[i].dtype < 0 ? "no dtype" : dmuon_dtype_name((DMuonDType)cases[i].dtype),
           dmuon_ns_variant_name(plan.variant), dmuon_dtype_name(plan.iterate));
    DMuonNewtonSchulzDestroy(&ns);
  }
}

int main(void) {
  static const char *const variants[] = {"gram", "direct"};
  static const DMuonDType dtypes[] = {DMUON_FLOAT64, DMUON_FLOAT32, DMUON_BFLOAT16, DMUON_FLOAT16};
  for (int v = 0; v < 2; v++) {
    for (int d = 0; d < 4; d++) {
      test_batches(variants[v], dtypes[d], -1, 13, 29);
      test_batches(variants[v], dtypes[d], DMUON_FLOAT16, 29, 13);
      test_half(variants[v], dtypes[d], dtypes[d] == DMUON_FLOAT64 ? DMUON_FLOAT64 : DMUON_FLOAT16,
                d % 2 ? 12 : 30, d % 2 ? 30 : 12);
    }
  }
  test_plans();
  test_exceptions();
  return tap_done();
}
