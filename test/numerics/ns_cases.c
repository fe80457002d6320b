/* Newton-Schulz on inputs with known results: golden numbers, scales from 1e-30 to 1e30, degenerate
 * shapes, transposes, leading dimensions, strips, batches, and what is refused. Each with both
 * forms. */
#include "ns/ns.h"

#include "tap.h"

enum { LARGEST = 256 * 256 };

static double gaussian(uint64_t *state) {
  double u[2];
  for (int i = 0; i < 2; i++) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    u[i] = ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
  }
  return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

static void fill(int64_t n, double *x, uint64_t seed) {
  uint64_t state = seed * 977 + 12345;
  for (int64_t i = 0; i < n; i++) x[i] = gaussian(&state);
}

static double frobenius(int64_t n, const double *x) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

static double distance(int64_t n, const double *x, const double *y) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum) / fmax(frobenius(n, y), 1e-300);
}

static DMuonNewtonSchulz make(const char *table, const char *variant, const char *dtype) {
  DMuonNewtonSchulz ns = NULL;
  DMuonDType iterate;
  if (DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetCoefficients(ns, table) ||
      DMuonNewtonSchulzSetVariant(ns, variant) ||
      (dtype && (dmuon_dtype_parse(dtype, &iterate) || DMuonNewtonSchulzSetDType(ns, iterate))) ||
      DMuonNewtonSchulzSetUp(ns)) {
    tap_diag("%s", DMuonErrorGetMessage());
    exit(99);
  }
  return ns;
}

/* Applies in dtype, from and to doubles. */
static DMuonErrorCode apply(DMuonNewtonSchulz ns, int64_t rows, int64_t cols, DMuonDType dtype,
                            const double *in, double *out) {
  static double a[LARGEST], b[LARGEST];
  for (int64_t i = 0; i < rows * cols; i++) dmuon_dtype_set(dtype, a, i, in[i]);
  DMuonErrorCode code = DMuonNewtonSchulzApply(ns, rows, cols, dtype, a, cols, b, cols);
  for (int64_t i = 0; i < rows * cols; i++) out[i] = dmuon_dtype_get(dtype, b, i);
  return code;
}

static double x[LARGEST], y[LARGEST], z[LARGEST];

/* The golden numbers come from a system that divides by the norm plus 1e-7, this one by the norm: a
 * relative difference of up to 1e-7 in each singular value, times the polynomial's slope there. So
 * matrices are held to 1e-6 of the golden numbers, and the polynomial, given the other system's
 * singular value, to their last digit. */
static void test_golden(const char *variant) {
  static const double u[] = {1.95, 0, -1.95, .975, 3.9, 1.95};
  static const double o[] = {0.7145113812589892, 0.06743424438467766, -0.6639356979704818,
                             0.272962885148648,  0.9569830518252382,  0.4447744037202807};
  DMuonNewtonSchulz ns = make("polar_express", variant, NULL);
  apply(ns, 2, 3, DMUON_FLOAT64, u, y);
  tap_is_near(distance(6, y, o), 0, 1e-6, "%s: first step of the worked example", variant);
  DMuonNewtonSchulzDestroy(&ns);
}

static void test_identities(const char *table, const char *variant, double of_three, int count,
                            const int *sizes, const double *diagonal) {
  DMuonNewtonSchulz ns = make(table, variant, NULL);
  double three = 3.0, exact = 0, theirs = 0;
  apply(ns, 1, 1, DMUON_FLOAT64, &three, y);
  DMuonNewtonSchulzEvaluate(ns, 1.0, &exact);
  DMuonNewtonSchulzEvaluate(ns, 3 / (3 + 1e-7), &theirs);
  tap_is_near(theirs, of_three, 1e-10, "%s: the polynomial at 3/(3 + 1e-7)", table);
  tap_is_near(y[0], exact, 1e-12, "%s %s: 1x1 [3]", table, variant);
  for (int k = 0; k < count; k++) {
    int m = sizes[k];
    memset(x, 0, sizeof x);
    for (int i = 0; i < m; i++) x[i * m + i] = 1;
    apply(ns, m, m, DMUON_FLOAT64, x, y);
    DMuonNewtonSchulzEvaluate(ns, 1 / sqrt(m), &exact);
    DMuonNewtonSchulzEvaluate(ns, 1 / (sqrt(m) + 1e-7), &theirs);
    double worst = 0;
    for (int i = 0; i < m * m; i++) worst = fmax(worst, fabs(y[i] - exact * x[i]));
    tap_is_near(worst, 0, 1e-12, "%s %s: identity of size %d", table, variant, m);
    tap_is_near(theirs, diagonal[k], 1e-10, "%s: its golden diagonal", table);
  }
  DMuonNewtonSchulzDestroy(&ns);
}

static void test_special(const char *variant) {
  static const int sizes[] = {2, 4, 16, 256}, you_sizes[] = {2, 16, 256};
  static const double diagonal[] = {0.8784042454, 0.8849242541, 0.9754071345, 1.0911208250};
  static const double you_diagonal[] = {1.0256120651, 0.9872180488, 1.0317422049};
  test_identities("polar_express", variant, 1.0190269326, 4, sizes, diagonal);
  test_identities("you", variant, 0.9783456024, 3, you_sizes, you_diagonal);
}

/* The second worked step. */
static void test_second_step(const char *variant) {
  static const double b[] = {1.15, -.3, -.55, -.525, 2.4, 1.2}, g2[] = {.2, -.3, .4, -1, .5, .25};
  static const double o[] = {0.8681087493504798,   0.07864774932980849, 0.19773560658780964,
                             -0.21680257343565157, 0.8088120023552432,  0.44255023878948085};
  double u[6];
  for (int i = 0; i < 6; i++) u[i] = g2[i] + .95 * b[i];
  DMuonNewtonSchulz ns = make("polar_express", variant, NULL);
  apply(ns, 2, 3, DMUON_FLOAT64, u, y);
  tap_is_near(distance(6, y, o), 0, 1e-6, "%s: second step of the worked example", variant);
  DMuonNewtonSchulzDestroy(&ns);
}

static void test_scale(const char *variant) {
  static const double scales[] = {1, 1e-8, 1e-10, 1e-20, 1e-30, 1e18, 1e30};
  DMuonNewtonSchulz ns = make("jordan", variant, NULL);
  double first = 0;
  fill(32 * 32, z, 5);
  for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
    for (int i = 0; i < 32 * 32; i++) x[i] = z[i] * scales[k];
    apply(ns, 32, 32, DMUON_FLOAT32, x, y);
    double norm = frobenius(32 * 32, y);
    if (k == 0) first = norm;
    tap_is_near(norm / first, 1, 1e-5, "%s: Gaussian times %g", variant, scales[k]);
  }
  static const double diagonals[] = {3e19, 1e-23};
  for (int k = 0; k < 2; k++) {
    double d[] = {diagonals[k], 0, 0, diagonals[k]};
    apply(ns, 2, 2, DMUON_FLOAT32, d, y);
    tap_ok(fabs(y[0] - 1.108111) < 2e-6 && fabs(y[3] - 1.108111) < 2e-6 && y[1] == 0 && y[2] == 0,
           "%s: diag(%g, %g)", variant, diagonals[k], diagonals[k]);
  }
  DMuonNewtonSchulzDestroy(&ns);
}

static void test_degenerate(const char *variant, DMuonDType dtype) {
  const char *name = dmuon_dtype_name(dtype);
  /* The right values have seven digits; fp32 iterations are held to 5e-5; 16-bit results (from fp32
   * iterations) are rounded to 8 or 11 bits. */
  double bound = dtype == DMUON_FLOAT64 ? 1e-6 : dtype == DMUON_FLOAT32 ? 5e-5 : 4e-3;
  DMuonNewtonSchulz ns = make("jordan", variant, NULL);
  double seven = -7;
  apply(ns, 1, 1, dtype, &seven, y);
  tap_is_near(y[0], -0.696436, bound, "%s %s: 1x1 [-7]", variant, name);
  static const double row[] = {1, 2, 3, 4, 5};
  static const double result[] = {.0939075, .1878149, .2817224, .3756299, .4695373};
  apply(ns, 1, 5, dtype, row, y);
  tap_is_near(distance(5, y, result), 0, bound, "%s %s: 1x5", variant, name);
  apply(ns, 5, 1, dtype, row, y);
  tap_is_near(distance(5, y, result), 0, bound, "%s %s: 5x1", variant, name);
  tap_ok(!DMuonNewtonSchulzApply(ns, 0, 8, dtype, NULL, 8, NULL, 8) &&
             !DMuonNewtonSchulzApply(ns, 8, 0, dtype, NULL, 0, NULL, 0),
         "%s %s: 0x8 and 8x0", variant, name);
  memset(x, 0, sizeof x);
  for (int i = 0; i < 16; i++) y[i] = 1;
  apply(ns, 4, 4, dtype, x, y);
  int zeros = 1;
  for (int i = 0; i < 16; i++) zeros = zeros && y[i] == 0;
  tap_ok(zeros, "%s %s: zeros give zeros", variant, name);
  for (int i = 0; i < 4; i++) x[5 * i] = 1;
  apply(ns, 4, 4, dtype, x, y);
  for (int i = 0; i < 16; i++) x[i] *= 0.765439;
  tap_is_near(distance(16, y, x), 0, bound, "%s %s: I4", variant, name);
  for (int i = 0; i < 40; i++) x[i] = 1, z[i] = 0.1101163;
  apply(ns, 8, 5, dtype, x, y);
  tap_is_near(distance(40, y, z), 0, bound, "%s %s: ones 8x5", variant, name);
  x[7] = NAN;
  apply(ns, 8, 5, dtype, x, y);
  int nans = 1;
  for (int i = 0; i < 40; i++) nans = nans && isnan(y[i]);
  tap_ok(nans, "%s %s: a NaN in, NaN out", variant, name);
  x[7] = INFINITY;
  apply(ns, 8, 5, dtype, x, y);
  int finite = 0;
  for (int i = 0; i < 40; i++) finite = finite || isfinite(y[i]);
  tap_ok(!finite, "%s %s: an infinity in, nothing finite out", variant, name);
  DMuonNewtonSchulzDestroy(&ns);
}

/* Both forms are one polynomial, for every table and restart list. */
static void test_equal_forms(void) {
  fill(24 * 60, x, 3);
  for (int t = 0; t < dmuon_ns_table_count(); t++) {
    const char *table = dmuon_ns_table_at(t)->name;
    DMuonNewtonSchulz gram = make(table, "gram", NULL), direct = make(table, "direct", NULL);
    apply(gram, 24, 60, DMUON_FLOAT64, x, y);
    apply(direct, 24, 60, DMUON_FLOAT64, x, z);
    double d = distance(24 * 60, y, z);
    tap_ok(d <= 1e-12, "%s: gram = direct in fp64 (%.1e)", table, d);
    DMuonNewtonSchulzDestroy(&gram);
    DMuonNewtonSchulzDestroy(&direct);
  }
  static const int lists[][4] = {{1}, {2}, {3}, {4}, {1, 2}, {1, 3}, {1, 2, 3, 4}};
  static const int counts[] = {1, 1, 1, 1, 2, 2, 4};
  DMuonNewtonSchulz direct = make("polar_express", "direct", NULL);
  apply(direct, 24, 60, DMUON_FLOAT64, x, z);
  for (int k = 0; k < 7; k++) {
    DMuonNewtonSchulz ns = NULL;
    int bad = DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetVariant(ns, "gram") ||
              DMuonNewtonSchulzSetRestarts(ns, counts[k], lists[k]) || DMuonNewtonSchulzSetUp(ns);
    if (!bad) apply(ns, 24, 60, DMUON_FLOAT64, x, y);
    double d = distance(24 * 60, y, z);
    tap_ok(!bad && d <= 1e-12, "%d restarts from %d: gram = direct in fp64 (%.1e)", counts[k],
           lists[k][0], d);
    DMuonNewtonSchulzDestroy(&ns);
  }
  DMuonNewtonSchulzDestroy(&direct);
}

/* The transpose of the result is the result of the transpose, bit for bit off the square. */
static void test_transpose(const char *variant) {
  DMuonNewtonSchulz ns = make("polar_express", variant, NULL);
  fill(13 * 40, x, 8);
  for (int i = 0; i < 13; i++)
    for (int j = 0; j < 40; j++) z[j * 13 + i] = x[i * 40 + j];
  static double wide[13 * 40], tall[13 * 40];
  apply(ns, 13, 40, DMUON_FLOAT32, x, wide);
  apply(ns, 40, 13, DMUON_FLOAT32, z, tall);
  double worst = 0;
  for (int i = 0; i < 13; i++)
    for (int j = 0; j < 40; j++) worst = fmax(worst, fabs(wide[i * 40 + j] - tall[j * 13 + i]));
  tap_ok(worst < 1e-5, "%s: tall is wide transposed (%.1e)", variant, worst);
  DMuonNewtonSchulzDestroy(&ns);
}

/* Leading dimensions, in place and batches change no bit, and nothing outside the matrix. */
static void test_memory(const char *variant, DMuonDType dtype) {
  enum {
    ROWS = 9,
    COLS = 21,
    LDIN = 25,
    LDOUT = 30,
    BATCH = 3,
    STRIDEIN = 9 * 25 + 4,
    STRIDEOUT = 9 * 30 + 1
  };
  static double in[BATCH * STRIDEIN], out[BATCH * STRIDEOUT], tight[ROWS * COLS], one[ROWS * COLS];
  const char *name = dmuon_dtype_name(dtype);
  size_t bytes = dmuon_dtype_bytes(dtype);
  DMuonNewtonSchulz ns = make("polar_express", variant, NULL);
  fill(BATCH * STRIDEIN, x, 17);
  for (int i = 0; i < BATCH * STRIDEIN; i++) dmuon_dtype_set(dtype, in, i, x[i]);
  for (int i = 0; i < BATCH * STRIDEOUT; i++) dmuon_dtype_set(dtype, out, i, 77);
  DMuonErrorCode code = DMuonNewtonSchulzApplyBatch(ns, BATCH, ROWS, COLS, dtype, in, LDIN,
                                                    STRIDEIN, out, LDOUT, STRIDEOUT);
  int same = !code, kept = 1;
  for (int k = 0; k < BATCH; k++) {
    for (int i = 0; i < ROWS; i++) {
      memcpy((char *)tight + i * COLS * bytes, (char *)in + (k * STRIDEIN + i * LDIN) * bytes,
             COLS * bytes);
    }
    code = DMuonNewtonSchulzApply(ns, ROWS, COLS, dtype, tight, COLS, one, COLS);
    for (int i = 0; i < ROWS; i++) {
      same = same && !code &&
             !memcmp((char *)one + i * COLS * bytes,
                     (char *)out + (k * STRIDEOUT + i * LDOUT) * bytes, COLS * bytes);
      for (int j = COLS; j < LDOUT && k * STRIDEOUT + i * LDOUT + j < BATCH * STRIDEOUT; j++) {
        if (i * LDOUT + j >= STRIDEOUT) break;
        kept = kept && dmuon_dtype_get(dtype, out, k * STRIDEOUT + i * LDOUT + j) == 77;
      }
    }
    code = DMuonNewtonSchulzApply(ns, ROWS, COLS, dtype, tight, COLS, tight, COLS);
    same = same && !code && !memcmp(tight, one, ROWS * COLS * bytes);
  }
  tap_ok(same, "%s %s: a batch with leading dimensions equals its matrices, also in place", variant,
         name);
  tap_ok(kept, "%s %s: what lies between rows is left alone", variant, name);
  DMuonNewtonSchulzDestroy(&ns);
}

/* Strips: the same matrix cut along either side, in and out; alpha; the same bits as whole. */
static void test_strips(const char *variant, DMuonDType dtype, int64_t rows, int64_t cols) {
  static double whole[LARGEST], cut[LARGEST], back[LARGEST], result[LARGEST];
  const char *name = dmuon_dtype_name(dtype);
  size_t bytes = dmuon_dtype_bytes(dtype);
  DMuonNewtonSchulz ns = make("polar_express", variant, NULL);
  const DMuonDeviceOps *ops = ns->device->ops;
  dmuon_ns_plan plan;
  dmuon_queue *queue = NULL;
  void *workspace = NULL;
  fill(rows * cols, x, 29);
  for (int64_t i = 0; i < rows * cols; i++) dmuon_dtype_set(dtype, whole, i, x[i]);
  int bad = dmuon_ns_plan_make(&ns->recipe, rows, cols, dtype, &plan) ||
            ops->queue_create(ns->device, 0, &queue) ||
            ops->alloc(ns->device, plan.workspace_bytes, &workspace) ||
            DMuonNewtonSchulzApply(ns, rows, cols, dtype, whole, cols, result, cols);
  for (int side = 0; side < 2 && !bad; side++) {
    int64_t strips = 3, strip = (side == DMUON_ROWS ? rows : cols) / strips;
    int64_t height = side == DMUON_ROWS ? strip : rows, width = side == DMUON_ROWS ? cols : strip;
    dmuon_ns_view view = {.rows = rows,
                          .cols = cols,
                          .ld = width + 2,
                          .side = (DMuonSide)side,
                          .strips = strips,
                          .strip = strip,
                          .stride = height * (width + 2) + 5};
    for (int64_t s = 0; s < strips; s++)
      for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++) {
          int64_t at = side == DMUON_ROWS ? (s * strip + i) * cols + j : i * cols + s * strip + j;
          dmuon_dtype_set(dtype, cut, s * view.stride + i * view.ld + j,
                          dmuon_dtype_get(dtype, whole, at));
        }
    bad = dmuon_ns_issue(queue, ns->device, &plan, &view, dtype, cut, &view, dtype, cut, -2.0,
                         workspace) ||
          ops->queue_sync(queue);
    for (int64_t s = 0; s < strips && !bad; s++)
      for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++) {
          int64_t at = side == DMUON_ROWS ? (s * strip + i) * cols + j : i * cols + s * strip + j;
          double value = dmuon_dtype_get(dtype, cut, s * view.stride + i * view.ld + j);
          dmuon_dtype_set(dtype, back, at, value / -2.0);
        }
    tap_ok(!bad && !memcmp(back, result, (size_t)(rows * cols) * bytes),
           "%s %s %lldx%lld: strips of %s, in place, times -2: the same bits", variant, name,
           (long long)rows, (long long)cols, side == DMUON_ROWS ? "rows" : "columns");
  }
  dmuon_ns_view wrong = {.rows = rows, .cols = cols, .ld = cols, .strips = 2, .strip = rows};
  tap_ok(!bad && dmuon_ns_issue(queue, ns->device, &plan, &wrong, dtype, cut, &wrong, dtype, cut, 1,
                                workspace) == DMUON_ERR_INTERNAL,
         "strips that do not make the matrix are refused");
  if (queue) ops->queue_destroy(queue);
  if (workspace) ops->free(ns->device, workspace);
  DMuonNewtonSchulzDestroy(&ns);
}

static void test_user_table(void) {
  static const double abc[] = {1.5, -.5, 0, 1.5, -.5, 0, 1.5, -.5, 0};
  static const double bad[] = {1.5, NAN, 0};
  DMuonNewtonSchulz ns = NULL;
  double value = 0, sigma = 0.3;
  int failed = DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetTable(ns, 3, abc);
  tap_ok(DMuonNewtonSchulzSetTable(ns, 1, bad) == DMUON_ERR_ARGUMENT,
         "a NaN coefficient is refused");
  tap_ok(!failed && !DMuonNewtonSchulzSetUp(ns) && !DMuonNewtonSchulzEvaluate(ns, 0.3, &value) &&
             DMuonNewtonSchulzEvaluate(ns, 2, &value) == DMUON_ERR_ARGUMENT &&
             DMuonNewtonSchulzEvaluate(ns, NAN, &value) == DMUON_ERR_ARGUMENT,
         "a table of one's own");
  for (int i = 0; i < 3; i++) sigma = 1.5 * sigma - .5 * sigma * sigma * sigma;
  tap_is_near(value, sigma, 1e-15, "its polynomial");
  static const double d[] = {3, 0, 0, 0, 4, 0};
  apply(ns, 2, 3, DMUON_FLOAT64, d, y);
  double expected[6] = {0};
  DMuonNewtonSchulzEvaluate(ns, .6, &expected[0]);
  DMuonNewtonSchulzEvaluate(ns, .8, &expected[4]);
  tap_is_near(distance(6, y, expected), 0, 1e-14, "its result on a diagonal matrix");
  DMuonNewtonSchulzDestroy(&ns);
  DMuonNewtonSchulzDestroy(&ns);
  tap_ok(ns == NULL, "destroyed, twice");
}

static void test_misuse(void) {
  DMuonNewtonSchulz ns = NULL;
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {0};
  static const int descending[] = {3, 1}, late[] = {5};
  tap_ok(DMuonNewtonSchulzCreate(NULL, NULL) == DMUON_ERR_ARGUMENT, "Create into NULL");
  if (DMuonNewtonSchulzCreate(NULL, &ns)) exit(99);
  tap_ok(DMuonNewtonSchulzApply(ns, 2, 3, DMUON_FLOAT32, a, 3, b, 3) == DMUON_ERR_STATE,
         "Apply before SetUp");
  tap_ok(DMuonNewtonSchulzSetVariant(ns, "grim") == DMUON_ERR_ARGUMENT, "no such variant");
  tap_ok(DMuonNewtonSchulzSetCoefficients(ns, "jordam") == DMUON_ERR_ARGUMENT, "no such table");
  tap_contains(DMuonErrorGetMessage(), "did you mean 'jordan'", "the nearest is named");
  tap_ok(DMuonNewtonSchulzSetCoefficients(ns, "given") == DMUON_ERR_ARGUMENT, "no table given");
  tap_ok(DMuonNewtonSchulzSetRestarts(ns, 2, descending) == DMUON_ERR_ARGUMENT,
         "descending restarts");
  tap_ok(DMuonNewtonSchulzSetDType(ns, (DMuonDType)9) == DMUON_ERR_ARGUMENT, "no such dtype");
  tap_ok(!DMuonNewtonSchulzSetRestarts(ns, 1, late) &&
             DMuonNewtonSchulzSetUp(ns) == DMUON_ERR_ARGUMENT,
         "a restart beyond the table is found at SetUp");
  tap_ok(!DMuonNewtonSchulzSetRestarts(ns, 0, NULL) && !DMuonNewtonSchulzSetVariant(ns, "gram") &&
             !DMuonNewtonSchulzSetDType(ns, DMUON_BFLOAT16) &&
             DMuonNewtonSchulzSetUp(ns) == DMUON_ERR_ARGUMENT,
         "bf16 gram without restart is refused at SetUp");
  tap_ok(!DMuonNewtonSchulzSetVariant(ns, "auto") && !DMuonNewtonSchulzSetUp(ns),
         "and can be put right");
  tap_ok(DMuonNewtonSchulzSetVariant(ns, "auto") == DMUON_ERR_STATE, "a setter after SetUp");
  tap_ok(DMuonNewtonSchulzApply(ns, 2, 3, DMUON_FLOAT32, a, 2, b, 3) == DMUON_ERR_ARGUMENT,
         "ldin < cols");
  tap_ok(DMuonNewtonSchulzApply(ns, 2, 3, DMUON_FLOAT32, a, 3, b, 2) == DMUON_ERR_ARGUMENT,
         "ldout < cols");
  tap_ok(DMuonNewtonSchulzApply(ns, -2, 3, DMUON_FLOAT32, a, 3, b, 3) == DMUON_ERR_ARGUMENT,
         "rows < 0");
  tap_ok(DMuonNewtonSchulzApply(ns, 2, 3, DMUON_FLOAT32, NULL, 3, b, 3) == DMUON_ERR_ARGUMENT,
         "in NULL");
  tap_ok(DMuonNewtonSchulzApply(ns, 2, 3, DMUON_FLOAT32, a, 3, a, 4) == DMUON_ERR_ARGUMENT,
         "in place with another ld");
  tap_ok(DMuonNewtonSchulzApplyBatch(ns, 2, 1, 3, DMUON_FLOAT32, a, 3, 3, b, 3, 2) ==
             DMUON_ERR_ARGUMENT,
         "results that overlap");
  tap_ok(b[0] == 0 && b[5] == 0, "nothing was written");
  DMuonNewtonSchulzDestroy(&ns);
  tap_ok(DMuonNewtonSchulzApply(NULL, 1, 1, DMUON_FLOAT32, a, 1, b, 1) == DMUON_ERR_ARGUMENT,
         "a NULL handle");
}

int main(void) {
  static const char *const variants[] = {"gram", "direct"};
  static const DMuonDType dtypes[] = {DMUON_FLOAT64, DMUON_FLOAT32, DMUON_BFLOAT16, DMUON_FLOAT16};
  for (int v = 0; v < 2; v++) {
    test_golden(variants[v]);
    test_special(variants[v]);
    test_second_step(variants[v]);
    test_scale(variants[v]);
    test_transpose(variants[v]);
    for (int d = 0; d < 4; d++) {
      test_degenerate(variants[v], dtypes[d]);
      test_memory(variants[v], dtypes[d]);
      test_strips(variants[v], dtypes[d], 12, 30);
      test_strips(variants[v], dtypes[d], 30, 12);
    }
  }
  test_equal_forms();
  test_user_table();
  test_misuse();
  return tap_done();
}
