/* Every operation of a DMuonDeviceOps against a naive reference in double, for any backend: the
 * including program makes a device and calls conformance_run(device, "host"). Buffers are filled
 * and read back through the device's own copies. */
#ifndef TEST_BACKEND_DEVICE_CONFORMANCE_H
#define TEST_BACKEND_DEVICE_CONFORMANCE_H

#include <float.h>

#include "tap.h"

#include "base/random.h"
#include "device/device.h"

static struct {
  dmuon_device *device;
  const DMuonDeviceOps *ops;
  dmuon_queue *queue;
  uint64_t key;     /* of the next random array */
  double worst;     /* error over bound since the last report */
  const char *name; /* of the backend, for messages */
  struct {
    dmuon_norm norm;
    int64_t index;
  } * told; /* of alloc_host: what operations tell */
} suite;

static const DMuonDType all_dtypes[] = {DMUON_FLOAT32, DMUON_FLOAT64, DMUON_BFLOAT16,
                                        DMUON_FLOAT16};

static void must(DMuonErrorCode code) {
  if (!code) return;
  tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(0, "an operation failed");
  exit(1);
}

/* Half a unit in the last place of 1. */
static double unit(DMuonDType dtype) {
  switch (dtype) {
    case DMUON_FLOAT32:
      return 0x1p-24;
    case DMUON_FLOAT64:
      return 0x1p-53;
    case DMUON_BFLOAT16:
      return 0x1p-8;
    case DMUON_FLOAT16:
      return 0x1p-11;
  }
  return 0;
}
static double accumulation_unit(DMuonDType dtype) {
  return dtype == DMUON_FLOAT64 ? 0x1p-53 : 0x1p-24;
}
/* Rounding near zero: half of the smallest subnormal of fp16 and above. */
static double floor_of(DMuonDType dtype) {
  return dtype == DMUON_FLOAT16 ? 0x1p-25 : dtype == DMUON_FLOAT64 ? 0x1p-1074 : 0x1p-134;
}

/* An array on the device, its bytes here, and its values as double. */
typedef struct {
  DMuonDType dtype;
  int64_t n;
  void *device, *host;
  double *value;
} array;

static void array_push(array *a) {
  for (int64_t i = 0; i < a->n; i++) dmuon_dtype_set(a->dtype, a->host, i, a->value[i]);
  for (int64_t i = 0; i < a->n; i++) a->value[i] = dmuon_dtype_get(a->dtype, a->host, i);
  must(suite.ops->copy(suite.queue, a->device, a->host,
                       a->n * (int64_t)dmuon_dtype_bytes(a->dtype)));
}

static void array_pull(array *a) {
  must(suite.ops->copy(suite.queue, a->host, a->device,
                       a->n * (int64_t)dmuon_dtype_bytes(a->dtype)));
  must(suite.ops->queue_sync(suite.queue));
  for (int64_t i = 0; i < a->n; i++) a->value[i] = dmuon_dtype_get(a->dtype, a->host, i);
}

static array array_new(DMuonDType dtype, int64_t n, double fill) {
  array a = {dtype, n, NULL, NULL, NULL};
  size_t bytes = (size_t)n * dmuon_dtype_bytes(dtype);
  a.host = malloc(bytes + 1);
  a.value = malloc((size_t)n * sizeof *a.value + 1);
  must(suite.ops->alloc(suite.device, (int64_t)bytes, &a.device));
  for (int64_t i = 0; i < n; i++) a.value[i] = fill;
  array_push(&a);
  return a;
}

/* Uniform in [-scale, scale). */
static array array_random(DMuonDType dtype, int64_t n, double scale) {
  array a = array_new(dtype, n, 0);
  uint64_t key = suite.key++;
  for (int64_t i = 0; i < n; i++)
    a.value[i] = scale * (2 * dmuon_random_uniform(11, key, (uint64_t)i) - 1);
  must(suite.ops->queue_sync(suite.queue));
  array_push(&a);
  return a;
}

static void array_free(array *a) {
  must(suite.ops->queue_sync(suite.queue));
  suite.ops->free(suite.device, a->device);
  free(a->host);
  free(a->value);
}

/* Notes |got - expected| against bound; both not finite in the same way is fine. */
static void near(double got, double expected, double bound) {
  if (isnan(expected) ? isnan(got) : got == expected) return;
  double error = fabs(got - expected) / bound;
  if (!(error <= suite.worst)) suite.worst = isnan(error) ? INFINITY : error;
}

static void report(const char *what, DMuonDType dtype) {
  tap_ok(suite.worst <= 1, "%s: %s in %s (error/bound %.3g)", suite.name, what,
         dmuon_dtype_name(dtype), suite.worst);
  suite.worst = 0;
}

/* Products. */

static void check_gemm(DMuonDType dtype, int ta, int tb, int64_t m, int64_t n, int64_t k,
                       double alpha, double beta) {
  int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
  array a = array_random(dtype, (ta ? k : m) * lda, 1);
  array b = array_random(dtype, (tb ? n : k) * ldb, 1);
  array c = beta != 0 ? array_random(dtype, m * ldc, 1) : array_new(dtype, m * ldc, NAN);
  double *before = malloc((size_t)(m * ldc) * sizeof *before);
  memcpy(before, c.value, (size_t)(m * ldc) * sizeof *before);
  must(suite.ops->gemm(suite.queue, dtype, ta, tb, m, n, k, alpha, a.device, lda, b.device, ldb,
                       beta, c.device, ldc, NULL));
  array_pull(&c);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < k; l++) {
        double t =
            a.value[ta ? l * lda + i : i * lda + l] * b.value[tb ? j * ldb + l : l * ldb + j];
        sum += t;
        size += fabs(t);
      }
      double old = beta != 0 ? beta * before[i * ldc + j] : 0, expected = alpha * sum + old;
      near(c.value[i * ldc + j], expected,
           (double)(k + 4) * accumulation_unit(dtype) * (fabs(alpha) * size + fabs(old)) +
               1.01 * unit(dtype) * fabs(expected) + floor_of(dtype));
    }
    for (int64_t j = n; j < ldc; j++) near(c.value[i * ldc + j], before[i * ldc + j], 0);
  }
  free(before);
  array_free(&a), array_free(&b), array_free(&c);
}

static void test_gemm(void) {
  static const int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},       {17, 33, 65},
                                     {130, 70, 90}, {20, 300, 1030}, {5, 4, 0}};
  for (int d = 0; d < 4; d++) {
    for (int s = 0; s < 6; s++)
      for (int t = 0; t < 4; t++)
        check_gemm(all_dtypes[d], t & 1, t >> 1, sizes[s][0], sizes[s][1], sizes[s][2], t ? 0.7 : 1,
                   s & 1 ? -0.5 : 0);
    report("gemm", all_dtypes[d]);
  }
  /* Large enough for several calls in each direction. */
  check_gemm(DMUON_FLOAT32, 0, 1, 700, 530, 2100, 1, 0.25);
  report("gemm in panels", DMUON_FLOAT32);
}

static int bits_equal(const array *a, int64_t i, int64_t j) {
  size_t bytes = dmuon_dtype_bytes(a->dtype);
  return !memcmp((char *)a->host + i * (int64_t)bytes, (char *)a->host + j * (int64_t)bytes, bytes);
}

static int is_symmetric(const array *c, int64_t m, int64_t ld) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < i; j++)
      if (!bits_equal(c, i * ld + j, j * ld + i)) return 0;
  return 1;
}

/* A symmetric matrix of eighths, exact in every type. */
static array symmetric_eighths(DMuonDType dtype, int64_t m, int64_t ld) {
  array a = array_random(dtype, m * ld, 1);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j <= i; j++)
      a.value[i * ld + j] = a.value[j * ld + i] = floor(8 * a.value[i * ld + j]) / 8;
  must(suite.ops->queue_sync(suite.queue));
  array_push(&a);
  return a;
}

static int check_syrk(DMuonDType dtype, int64_t m, int64_t k, double beta) {
  int64_t lda = k + 2, ldc = m + 1;
  array a = array_random(dtype, m * lda, 1);
  array c = beta != 0 ? symmetric_eighths(dtype, m, ldc) : array_new(dtype, m * ldc, NAN);
  double *before = malloc((size_t)(m * ldc) * sizeof *before);
  memcpy(before, c.value, (size_t)(m * ldc) * sizeof *before);
  must(suite.ops->syrk(suite.queue, dtype, m, k, 0.75, a.device, lda, beta, c.device, ldc, NULL));
  array_pull(&c);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < m; j++) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < k; l++) {
        double t = a.value[i * lda + l] * a.value[j * lda + l];
        sum += t;
        size += fabs(t);
      }
      double old = beta != 0 ? beta * before[i * ldc + j] : 0, expected = 0.75 * sum + old;
      near(c.value[i * ldc + j], expected,
           (double)(k + 4) * accumulation_unit(dtype) * (size + fabs(old)) +
               1.01 * unit(dtype) * fabs(expected) + floor_of(dtype));
    }
    near(c.value[i * ldc + m], before[i * ldc + m], 0);
  }
  int symmetric = is_symmetric(&c, m, ldc);
  free(before);
  array_free(&a), array_free(&c);
  return symmetric;
}

static int check_gemm_symmetric(DMuonDType dtype, int64_t m, double beta) {
  int64_t lda = m + 1, ldb = m, ldc = m + 2;
  array a = symmetric_eighths(dtype, m, lda), b = array_new(dtype, m * ldb, 0);
  array c = beta != 0 ? symmetric_eighths(dtype, m, ldc) : array_new(dtype, m * ldc, NAN);
  must(suite.ops->queue_sync(suite.queue));
  for (int64_t i = 0; i < m; i++) /* b = 2 a + 3, so that a b is symmetric */
    for (int64_t j = 0; j < m; j++) b.value[i * ldb + j] = 2 * a.value[i * lda + j] + 3 * (i == j);
  array_push(&b);
  double *before = malloc((size_t)(m * ldc) * sizeof *before);
  memcpy(before, c.value, (size_t)(m * ldc) * sizeof *before);
  must(suite.ops->gemm_symmetric(suite.queue, dtype, m, 0.5, a.device, lda, b.device, ldb, beta,
                                 c.device, ldc, NULL));
  array_pull(&c);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < m; l++) {
        double t = a.value[i * lda + l] * b.value[l * ldb + j];
        sum += t;
        size += fabs(t);
      }
      double old = beta != 0 ? beta * before[i * ldc + j] : 0, expected = 0.5 * sum + old;
      near(c.value[i * ldc + j], expected,
           (double)(m + 4) * accumulation_unit(dtype) * (size + fabs(old)) +
               1.01 * unit(dtype) * fabs(expected) + floor_of(dtype));
    }
  int symmetric = is_symmetric(&c, m, ldc);
  free(before);
  array_free(&a), array_free(&b), array_free(&c);
  return symmetric;
}

static void test_symmetric_products(void) {
  static const int64_t sizes[][2] = {{1, 1}, {5, 9}, {24, 3}, {31, 64}, {97, 40}, {300, 30}};
  for (int d = 0; d < 4; d++) {
    int symmetric = 1;
    for (int s = 0; s < 6; s++)
      symmetric &= check_syrk(all_dtypes[d], sizes[s][0], sizes[s][1], s & 1 ? 0.5 : 0);
    symmetric &= check_syrk(all_dtypes[d], 40, 1100, 0.5);
    report("syrk", all_dtypes[d]);
    tap_ok(symmetric, "%s: syrk gives two equal triangles in %s", suite.name,
           dmuon_dtype_name(all_dtypes[d]));
    symmetric = 1;
    for (int s = 0; s < 6; s++)
      symmetric &= check_gemm_symmetric(all_dtypes[d], sizes[s][0], s & 1 ? -0.5 : 0);
    report("gemm_symmetric", all_dtypes[d]);
    tap_ok(symmetric, "%s: gemm_symmetric gives two equal triangles in %s", suite.name,
           dmuon_dtype_name(all_dtypes[d]));
  }
}

/* Vectors. */

static void test_vectors(void) {
  const int64_t n = 1531;
  for (int d = 0; d < 4; d++) {
    DMuonDType dtype = all_dtypes[d];
    array x = array_random(dtype, n, 2), y = array_random(dtype, n, 2);
    double *old = malloc((size_t)n * sizeof *old);
    memcpy(old, y.value, (size_t)n * sizeof *old);
    must(suite.ops->axpby(suite.queue, n, dtype, 0.3, x.device, -1.7, y.device));
    array_pull(&y);
    for (int64_t i = 0; i < n; i++) {
      double e = 0.3 * x.value[i] - 1.7 * old[i];
      near(y.value[i], e,
           1.01 * unit(dtype) * fabs(e) + 4 * accumulation_unit(dtype) * 4 + floor_of(dtype));
    }
    must(suite.ops->axpby(suite.queue, n, dtype, 2, y.device, 0, y.device)); /* x is y */
    memcpy(old, y.value, (size_t)n * sizeof *old);
    array_pull(&y);
    for (int64_t i = 0; i < n; i++) near(y.value[i], 2 * old[i], 0x1p-1074);
    report("axpby", dtype);

    const int64_t m = 37, ld = 41;
    must(suite.ops->add_diagonal(suite.queue, dtype, m, 0.375, x.device, ld));
    memcpy(old, x.value, (size_t)n * sizeof *old);
    array_pull(&x);
    for (int64_t i = 0; i < n; i++) {
      int diagonal = i % (ld + 1) == 0 && i / (ld + 1) < m;
      double e = old[i] + (diagonal ? 0.375 : 0);
      near(x.value[i], e, diagonal ? 1.01 * unit(dtype) * fabs(e) : 0);
    }
    report("add_diagonal", dtype);

    must(suite.ops->zero(suite.queue, y.device, 100 * (int64_t)dmuon_dtype_bytes(dtype)));
    memcpy(old, y.value, (size_t)n * sizeof *old);
    array_pull(&y);
    for (int64_t i = 0; i < n; i++) near(y.value[i], i < 100 ? 0 : old[i], 0);
    report("zero", dtype);

    for (int s = 0; s < 4; s++) {
      array from = array_random(all_dtypes[s], n, 70000); /* fp16 overflows now and then */
      must(suite.ops->cast(suite.queue, n, y.device, dtype, from.device, all_dtypes[s]));
      array_pull(&y);
      array expected = array_new(dtype, 1, 0);
      for (int64_t i = 0; i < n; i++) {
        dmuon_dtype_set(dtype, expected.host, 0, from.value[i]);
        near(y.value[i], dmuon_dtype_get(dtype, expected.host, 0), 0);
      }
      array_free(&from), array_free(&expected);
    }
    report("cast from each type", dtype);
    free(old);
    array_free(&x), array_free(&y);
  }
}

static void test_pack(void) {
  const int64_t n = 1100;
  for (int d = 0; d < 4; d++) {
    array dst = array_new(all_dtypes[d], n, NAN), one = array_new(all_dtypes[d], 1, 0);
    for (int k = 0; k < 25; k++) {
      int has_addend = k / 5 < 4, has_src = k % 5 < 4;
      DMuonDType addend_dtype = all_dtypes[k / 5 % 4], src_dtype = all_dtypes[k % 5 % 4];
      array addend = array_random(addend_dtype, n, 3), src = array_random(src_dtype, n, 1e-2);
      dmuon_pack args = {n,
                         dst.device,
                         dst.dtype,
                         has_addend ? addend.device : NULL,
                         addend_dtype,
                         has_src ? src.device : NULL,
                         src_dtype};
      must(suite.ops->pack(suite.queue, &args));
      array_pull(&dst);
      for (int64_t i = 0; i < n; i++) {
        double e = (has_addend ? addend.value[i] : 0) + (has_src ? src.value[i] : 0);
        /* The sum in double, rounded once: exactly, since every backend can. */
        dmuon_dtype_set(dst.dtype, one.host, 0, e);
        near(dst.value[i], dmuon_dtype_get(dst.dtype, one.host, 0), 0);
      }
      array_free(&addend), array_free(&src);
    }
    array src = array_random(dst.dtype, n, 1);
    dmuon_pack in_place = {n, dst.device, dst.dtype, dst.device, dst.dtype, src.device, src.dtype};
    double *old = malloc((size_t)n * sizeof *old);
    memcpy(old, dst.value, (size_t)n * sizeof *old);
    must(suite.ops->pack(suite.queue, &in_place));
    array_pull(&dst);
    for (int64_t i = 0; i < n; i++) {
      dmuon_dtype_set(dst.dtype, one.host, 0, old[i] + src.value[i]);
      near(dst.value[i], dmuon_dtype_get(dst.dtype, one.host, 0), 0);
    }
    free(old);
    report("pack from each pair of types, and in place", dst.dtype);
    array_free(&src), array_free(&dst), array_free(&one);
  }
}

static int64_t first_nonfinite(DMuonDType dst, const array *addend, const array *src) {
  suite.told->index = -2;
  dmuon_pack args = {src->n,        NULL,        dst,       addend ? addend->device : NULL,
                     DMUON_FLOAT32, src->device, src->dtype};
  must(suite.ops->find_nonfinite(suite.queue, &args, &suite.told->index, NULL));
  must(suite.ops->queue_sync(suite.queue));
  return suite.told->index;
}

static void test_find_nonfinite(void) {
  for (int d = 0; d < 4; d++) {
    DMuonDType dtype = all_dtypes[d];
    const char *name = dmuon_dtype_name(dtype);
    array x = array_random(dtype, 2000, 1), addend = array_new(DMUON_FLOAT32, 2000, 1);
    tap_is_int(first_nonfinite(dtype, NULL, &x), -1, "%s: all finite in %s", suite.name, name);
    x.value[1999] = INFINITY;
    array_push(&x);
    tap_is_int(first_nonfinite(dtype, &addend, &x), 1999, "%s: infinity at the end in %s",
               suite.name, name);
    x.value[700] = NAN;
    array_push(&x);
    tap_is_int(first_nonfinite(dtype, NULL, &x), 700, "%s: the first NaN in %s", suite.name, name);
    addend.value[3] = -INFINITY;
    array_push(&addend);
    tap_is_int(first_nonfinite(dtype, &addend, &x), 3, "%s: in the addend, %s", suite.name, name);
    array_free(&x), array_free(&addend);
  }
  array x = array_new(DMUON_FLOAT32, 10, 1);
  x.value[6] = 1e5;
  array_push(&x);
  tap_is_int(first_nonfinite(DMUON_FLOAT16, NULL, &x), 6,
             "%s: overflow on the way to fp16 is found", suite.name);
  tap_is_int(first_nonfinite(DMUON_BFLOAT16, NULL, &x), -1, "%s: none on the way to bf16",
             suite.name);
  array_free(&x);
}

/* Norms. */

static dmuon_norm norm_of(const array *x, int64_t rows, int64_t cols, int64_t ld) {
  must(suite.ops->norm(suite.queue, x->dtype, rows, cols, x->device, ld, &suite.told->norm));
  must(suite.ops->queue_sync(suite.queue));
  return suite.told->norm;
}

static void test_norm(void) {
  static const int64_t sizes[][2] = {{1, 1}, {3, 700}, {129, 37}, {1, 5000}, {2000, 1}};
  for (int d = 0; d < 4; d++) {
    DMuonDType dtype = all_dtypes[d];
    int same = 1;
    for (int s = 0; s < 5; s++) {
      int64_t rows = sizes[s][0], cols = sizes[s][1], ld = cols + 5;
      array x = array_random(dtype, rows * ld, 3), tight = array_new(dtype, rows * cols, 0);
      long double sum = 0;
      must(suite.ops->queue_sync(suite.queue));
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
          double v = x.value[i * ld + j];
          tight.value[i * cols + j] = v;
          sum += (long double)v * v;
        }
      array_push(&tight);
      dmuon_norm norm = norm_of(&x, rows, cols, ld), again = norm_of(&tight, rows, cols, cols);
      same &= norm.sum == again.sum && norm.exponent == again.exponent;
      near(dmuon_norm_value(&norm), sqrt((double)sum), 1e-14 * sqrt((double)sum));
      array_free(&x), array_free(&tight);
    }
    report("norm", dtype);
    tap_ok(same, "%s: the norm does not depend on the leading dimension in %s", suite.name,
           dmuon_dtype_name(dtype));
    /* All elements at the ends of the range: 35 equal elements x have the norm sqrt(35) x. */
    const double ends[4][2] = {
        {FLT_MAX, 0x1p-149}, {DBL_MAX, 0x1p-1074}, {0x1.fep127, 0x1p-133}, {65504, 0x1p-24}};
    for (int e = 0; e < 2; e++) {
      array x = array_new(dtype, 35, ends[d][e]);
      dmuon_norm norm = norm_of(&x, 5, 7, 7);
      int exponent;
      double fraction = frexp(ends[d][e], &exponent);
      double scaled = ldexp(sqrt(norm.sum), (int)norm.exponent - exponent);
      tap_is_near(scaled, sqrt(35) * fraction, 1e-14, "%s: norm of the %s numbers of %s",
                  suite.name, e ? "smallest" : "largest", dmuon_dtype_name(dtype));
      /* and dividing by it gives 1/sqrt(35) everywhere */
      array y = array_new(dtype, 35, NAN);
      suite.told->norm = norm;
      dmuon_copy_matrix args = {5, 7, x.device,         7, dtype, y.device, 7, dtype,
                                0, 1, &suite.told->norm};
      must(suite.ops->copy_matrix(suite.queue, &args));
      array_pull(&y);
      for (int64_t i = 0; i < 35; i++)
        near(y.value[i], 1 / sqrt(35), 1.01 * unit(dtype) / sqrt(35) + 1e-15);
      report(e ? "division by a tiny norm" : "division by a huge norm", dtype);
      array_free(&x), array_free(&y);
    }
    array x = array_new(dtype, 6, 0);
    dmuon_norm zero = norm_of(&x, 2, 3, 3);
    tap_ok(zero.sum == 0, "%s: the norm of zeros is 0 in %s", suite.name, dmuon_dtype_name(dtype));
    x.value[4] = -INFINITY;
    array_push(&x);
    dmuon_norm infinite = norm_of(&x, 2, 3, 3);
    x.value[2] = NAN;
    array_push(&x);
    dmuon_norm nan = norm_of(&x, 2, 3, 3);
    tap_ok(!isfinite(infinite.sum) && !isfinite(nan.sum),
           "%s: a norm over infinity or NaN is not finite in %s", suite.name,
           dmuon_dtype_name(dtype));
    array y = array_new(dtype, 6, 5), one = array_new(dtype, 6, 1);
    suite.told->norm = zero;
    dmuon_copy_matrix by_zero = {2, 3, one.device,       3, dtype, y.device, 3, dtype,
                                 0, 1, &suite.told->norm};
    must(suite.ops->copy_matrix(suite.queue, &by_zero));
    array_pull(&y);
    for (int64_t i = 0; i < 6; i++) near(y.value[i], 0, 0);
    report("division by a zero norm gives zeros", dtype);
    suite.told->norm = nan;
    must(suite.ops->copy_matrix(suite.queue, &by_zero));
    array_pull(&y);
    for (int64_t i = 0; i < 6; i++) near(y.value[i], NAN, 0);
    report("division by a norm that is NaN gives NaN", dtype);
    array_free(&x), array_free(&y), array_free(&one);
  }
  dmuon_norm three = {9, 400}, four = {16 * 0x1p40, 380}, none = {0, 900};
  dmuon_norm five = dmuon_norm_combine(&three, &four), same = dmuon_norm_combine(&none, &five);
  tap_is_near(ldexp(dmuon_norm_value(&five), -400), 5, 1e-15, "norms of pieces combine");
  tap_ok(same.sum == five.sum && same.exponent == five.exponent, "zeros add nothing to a norm");
}

static void test_copy_matrix(void) {
  static const int64_t sizes[][2] = {{1, 1}, {3, 50}, {70, 33}, {33, 1200}};
  suite.told->norm = (dmuon_norm){2.5, 3}; /* 8 sqrt(2.5) */
  for (int d = 0; d < 16; d++) {
    DMuonDType from = all_dtypes[d % 4], to = all_dtypes[d / 4];
    for (int s = 0; s < 16; s++) {
      int64_t rows = sizes[s / 4][0], cols = sizes[s / 4][1];
      int transpose = s & 1, divide = s >> 1 & 1;
      int64_t src_ld = cols + 2, out_cols = transpose ? rows : cols, dst_ld = out_cols + 3;
      int64_t out_rows = transpose ? cols : rows;
      double alpha = divide ? 1.5 : transpose ? 1 : -0.3;
      array x = array_random(from, rows * src_ld, 2), y = array_new(to, out_rows * dst_ld, NAN);
      dmuon_copy_matrix args = {rows,
                                cols,
                                x.device,
                                src_ld,
                                from,
                                y.device,
                                dst_ld,
                                to,
                                transpose,
                                alpha,
                                divide ? &suite.told->norm : NULL};
      must(suite.ops->copy_matrix(suite.queue, &args));
      array_pull(&y);
      for (int64_t i = 0; i < out_rows; i++)
        for (int64_t j = 0; j < dst_ld; j++) {
          double e = NAN;
          if (j < out_cols)
            e = alpha * x.value[transpose ? j * src_ld + i : i * src_ld + j] /
                (divide ? 8 * sqrt(2.5) : 1);
          near(y.value[i * dst_ld + j], e,
               1.01 * unit(to) * fabs(e) + 4e-16 * fabs(e) + floor_of(to));
        }
      array_free(&x), array_free(&y);
    }
    if (d % 4 == 3) report("copy_matrix from each type", to);
  }
}

/* Update rules. */

static double rounded(DMuonDType dtype, double x) {
  double room;
  dmuon_dtype_set(dtype, &room, 0, x);
  return dmuon_dtype_get(dtype, &room, 0);
}

static void near_rounded(DMuonDType dtype, double got, double expected, double size) {
  near(got, expected,
       1.01 * unit(dtype) * fabs(expected) + 8 * accumulation_unit(DMUON_FLOAT32) * size +
           floor_of(dtype));
}

/* Storage types that occur: gradient, state, master, value. */
static const DMuonDType mixes[][4] = {
    {DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32},
    {DMUON_FLOAT64, DMUON_FLOAT64, DMUON_FLOAT64, DMUON_FLOAT64},
    {DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32, DMUON_BFLOAT16},
    {DMUON_BFLOAT16, DMUON_BFLOAT16, DMUON_FLOAT32, DMUON_FLOAT16}};

static void test_momentum(void) {
  const int64_t n = 1111;
  for (int x = 0; x < 4; x++) {
    for (int k = 0; k < 16; k++) {
      dmuon_muon_momentum args = {.n = n,
                                  .form = k & 1 ? DMUON_MOMENTUM_EMA : DMUON_MOMENTUM_HEAVY_BALL,
                                  .nesterov = k >> 1 & 1,
                                  .first = k >> 2 & 1,
                                  .mu = 0.9,
                                  .grad_scale = 0.5,
                                  .l2 = k >> 3 ? 0.1 : 0};
      array g = array_random(mixes[x][0], n, 1), w = array_random(mixes[x][2], n, 1);
      array b = args.first ? array_new(mixes[x][1], n, NAN) : array_random(mixes[x][1], n, 1);
      array u = array_new(mixes[x][1], n, NAN);
      double *old = malloc((size_t)n * sizeof *old);
      memcpy(old, b.value, (size_t)n * sizeof *old);
      args.grad = g.device, args.grad_dtype = g.dtype;
      args.momentum = b.device, args.momentum_dtype = b.dtype;
      args.weight = w.device, args.weight_dtype = w.dtype;
      args.update = u.device;
      must(suite.ops->muon_momentum(suite.queue, &args));
      array_pull(&b), array_pull(&u);
      for (int64_t i = 0; i < n; i++) {
        double gradient = 0.5 * g.value[i] + args.l2 * w.value[i], eb, eu;
        if (k & 1) {
          eb = args.first ? 0.1 * gradient : old[i] + 0.1 * (gradient - old[i]);
          eu = args.nesterov ? gradient + 0.9 * (eb - gradient) : eb;
        } else {
          eb = args.first ? gradient : 0.9 * old[i] + gradient;
          eu = args.nesterov ? gradient + 0.9 * eb : eb;
        }
        near_rounded(b.dtype, b.value[i], eb, 1);
        near_rounded(u.dtype, u.value[i], eu, 1);
      }
      free(old);
      array_free(&g), array_free(&w), array_free(&b), array_free(&u);
    }
    report("muon_momentum, every form", mixes[x][2]);
  }
}

static void test_apply(void) {
  const int64_t n = 777;
  const double lr = 0.25, wd = 0.5;
  for (int x = 0; x < 4; x++) {
    int exact_value = 1;
    for (int decay = DMUON_DECAY_DECOUPLED; decay <= DMUON_DECAY_NONE; decay++) {
      array u = array_random(mixes[x][1], n, 1), w = array_random(mixes[x][2], n, 1);
      array value = array_new(mixes[x][3], n, NAN);
      double *old = malloc((size_t)n * sizeof *old);
      w.value[5] = 0, u.value[6] = 0;
      array_push(&w), array_push(&u);
      memcpy(old, w.value, (size_t)n * sizeof *old);
      dmuon_muon_apply args = {.n = n,
                               .decay = (dmuon_decay)decay,
                               .lr = lr,
                               .weight_decay = wd,
                               .update = u.device,
                               .update_dtype = u.dtype,
                               .weight = w.device,
                               .weight_dtype = w.dtype,
                               .value = value.device,
                               .value_dtype = value.dtype};
      must(suite.ops->muon_apply(suite.queue, &args));
      array_pull(&w), array_pull(&value);
      for (int64_t i = 0; i < n; i++) {
        double factor = 1;
        if (decay == DMUON_DECAY_DECOUPLED) factor = 1 - lr * wd;
        if (decay == DMUON_DECAY_INDEPENDENT) factor = 1 - wd;
        if (decay == DMUON_DECAY_PALM) factor = 1 - lr * lr * wd;
        if (decay == DMUON_DECAY_CAUTIOUS && old[i] * u.value[i] >= 0) factor = 1 - lr * wd;
        near_rounded(w.dtype, w.value[i], factor * old[i] - lr * u.value[i], 1);
        exact_value &= value.value[i] == rounded(value.dtype, w.value[i]);
      }
      /* without a value, and with the weight as its own value */
      args.value = NULL;
      must(suite.ops->muon_apply(suite.queue, &args));
      args.value = w.device, args.value_dtype = w.dtype;
      must(suite.ops->muon_apply(suite.queue, &args));
      free(old);
      array_free(&u), array_free(&w), array_free(&value);
    }
    report("muon_apply, every decay", mixes[x][2]);
    tap_ok(exact_value, "%s: the value is the rounded master (%s to %s)", suite.name,
           dmuon_dtype_name(mixes[x][2]), dmuon_dtype_name(mixes[x][3]));
  }
}

static void test_adamw(void) {
  const int64_t n = 900;
  for (int x = 0; x < 4; x++) {
    int exact_value = 1;
    for (int64_t step = 1; step < 40; step += 19) {
      array g = array_random(mixes[x][0], n, 1), p = array_random(mixes[x][2], n, 1);
      array m = array_random(mixes[x][1], n, 1), v = array_random(mixes[x][1], n, 1);
      array value = array_new(mixes[x][3], n, NAN);
      for (int64_t i = 0; i < n; i++) v.value[i] = fabs(v.value[i]);
      must(suite.ops->queue_sync(suite.queue));
      array_push(&v);
      array old_m = m, old_v = v, old_p = p;
      old_m.value = malloc((size_t)n * sizeof(double));
      old_v.value = malloc((size_t)n * sizeof(double));
      old_p.value = malloc((size_t)n * sizeof(double));
      memcpy(old_m.value, m.value, (size_t)n * sizeof(double));
      memcpy(old_v.value, v.value, (size_t)n * sizeof(double));
      memcpy(old_p.value, p.value, (size_t)n * sizeof(double));
      dmuon_adamw args = {.n = n,
                          .step = step,
                          .lr = 0.01,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .grad_scale = 0.5,
                          .grad = g.device,
                          .grad_dtype = g.dtype,
                          .exp_avg = m.device,
                          .exp_avg_sq = v.device,
                          .state_dtype = m.dtype,
                          .weight = p.device,
                          .weight_dtype = p.dtype,
                          .value = value.device,
                          .value_dtype = value.dtype};
      must(suite.ops->adamw(suite.queue, &args));
      array_pull(&m), array_pull(&v), array_pull(&p), array_pull(&value);
      for (int64_t i = 0; i < n; i++) {
        double gradient = 0.5 * g.value[i];
        double em = 0.9 * old_m.value[i] + 0.1 * gradient;
        double ev = 0.99 * old_v.value[i] + 0.01 * gradient * gradient;
        double c1 = 1 - pow(0.9, (double)step), c2 = 1 - pow(0.99, (double)step);
        double move = 0.01 / c1 * em / (sqrt(ev) / sqrt(c2) + 1e-8);
        near_rounded(m.dtype, m.value[i], em, 1);
        near_rounded(v.dtype, v.value[i], ev, 1);
        near_rounded(p.dtype, p.value[i], (1 - 0.001) * old_p.value[i] - move, 1 + fabs(move));
        exact_value &= value.value[i] == rounded(value.dtype, p.value[i]);
      }
      free(old_m.value), free(old_v.value), free(old_p.value);
      array_free(&g), array_free(&p), array_free(&m), array_free(&v), array_free(&value);
    }
    report("adamw", mixes[x][2]);
    tap_ok(exact_value, "%s: adamw's value is the rounded master (%s to %s)", suite.name,
           dmuon_dtype_name(mixes[x][2]), dmuon_dtype_name(mixes[x][3]));
  }
  /* Three steps of one weight, worked out by hand to sixteen digits. */
  array g = array_new(DMUON_FLOAT64, 1, 0.5), p = array_new(DMUON_FLOAT64, 1, 1);
  array m = array_new(DMUON_FLOAT64, 1, 0), v = array_new(DMUON_FLOAT64, 1, 0);
  const double gradients[] = {0.5, -0.25, 0.1};
  const double weights[] = {0.99899000002, 0.9987136730870784, 0.9983884423935262};
  for (int64_t t = 1; t <= 3; t++) {
    must(suite.ops->queue_sync(suite.queue));
    g.value[0] = gradients[t - 1];
    array_push(&g);
    dmuon_adamw args = {.n = 1, .step = t, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    args.weight_decay = 0.01, args.grad_scale = 1;
    args.grad = g.device, args.exp_avg = m.device, args.exp_avg_sq = v.device;
    args.weight = p.device;
    args.grad_dtype = args.state_dtype = args.weight_dtype = DMUON_FLOAT64;
    must(suite.ops->adamw(suite.queue, &args));
    array_pull(&p);
    tap_is_near(p.value[0], weights[t - 1], 1e-14, "%s: adamw, step %d by hand", suite.name,
                (int)t);
  }
  array_free(&g), array_free(&p), array_free(&m), array_free(&v);
}

/* ---- steps that are skipped ---- */

/* Counts in device memory. */
static int64_t count_at(const array *counts, int64_t i) {
  int64_t count;
  memcpy(&count, (char *)counts->host + i * (int64_t)sizeof count, sizeof count);
  return count;
}

static void test_decide(void) {
  static const int where[] = {-1, 0, 699, 350};
  array flags = array_new(DMUON_FLOAT32, 700, 0), any = array_new(DMUON_FLOAT32, 1, NAN);
  array counts = array_new(DMUON_FLOAT64, 1, 0); /* eight zero bytes */
  for (int i = 0; i < 4; i++) {
    for (int64_t j = 0; j < flags.n; j++) flags.value[j] = j == where[i] ? 3 : 0;
    array_push(&flags);
    must(suite.ops->decide(suite.queue, flags.n, flags.device, any.device, counts.device));
    array_pull(&any), array_pull(&counts);
    tap_ok(any.value[0] == (i > 0), "%s: decide, flag %d set", suite.name, where[i]);
    tap_is_int(count_at(&counts, 0), i, "%s: decide counts", suite.name);
  }
  must(suite.ops->decide(suite.queue, flags.n, flags.device, any.device, NULL));
  array_pull(&counts);
  tap_is_int(count_at(&counts, 0), 3, "%s: decide without a count", suite.name);
  array_free(&flags), array_free(&any), array_free(&counts);
}

static void test_flag(void) {
  array x = array_new(DMUON_FLOAT32, 5000, 1), flag = array_new(DMUON_FLOAT32, 1, 0);
  const dmuon_pack args = {
      .n = x.n, .dst_dtype = DMUON_FLOAT32, .src = x.device, .src_dtype = DMUON_FLOAT32};
  must(suite.ops->find_nonfinite(suite.queue, &args, &suite.told->index, flag.device));
  array_pull(&flag);
  tap_ok(flag.value[0] == 0, "%s: nothing is found, the flag stays", suite.name);
  x.value[4321] = NAN;
  array_push(&x);
  must(suite.ops->find_nonfinite(suite.queue, &args, &suite.told->index, flag.device));
  array_pull(&flag);
  tap_ok(flag.value[0] == 1, "%s: a NaN sets the flag", suite.name);
  x.value[4321] = 1;
  array_push(&x);
  must(suite.ops->find_nonfinite(suite.queue, &args, &suite.told->index, flag.device));
  array_pull(&flag);
  tap_ok(flag.value[0] == 1 && suite.told->index == -1,
         "%s: a later look that finds nothing leaves it", suite.name);
  array_free(&x), array_free(&flag);
}

static int unchanged(array *a, const array *before) {
  array_pull(a);
  return memcmp(a->value, before->value, (size_t)a->n * sizeof *a->value) == 0;
}

/* With skip set nothing changes but the value, which is the weight, and the count; with it clear
 * all is as without. */
static void test_skip(void) {
  const int64_t n = 1300;
  const int key = 900;
  for (int x = 0; x < 4; x++) {
    array skip = array_new(DMUON_FLOAT32, 1, 1), counts = array_new(DMUON_FLOAT64, 1, 0);
    array g = array_random(mixes[x][0], n, 1), value = array_new(mixes[x][3], n, NAN);
    array state[2][3]; /* what is touched, and the same for comparison: weight, two of state */
    for (int copy = 0; copy < 2; copy++)
      for (int k = 0; k < 3; k++) {
        suite.key = (uint64_t)(key + k);
        state[copy][k] = array_random(mixes[x][k ? 1 : 2], n, 0.25);
        for (int64_t i = 0; i < n; i++) state[copy][k].value[i] = fabs(state[copy][k].value[i]);
        array_push(&state[copy][k]);
      }
    array *w = &state[0][0], *m = &state[0][1], *v = &state[0][2];
    g.value[7] = NAN;
    array_push(&g);
    dmuon_muon_momentum momentum = {.n = n, .mu = 0.9, .grad_scale = 1, .skip = skip.device};
    momentum.grad = g.device, momentum.grad_dtype = g.dtype;
    momentum.momentum = m->device, momentum.momentum_dtype = m->dtype;
    momentum.update = v->device;
    must(suite.ops->muon_momentum(suite.queue, &momentum));
    array_pull(v);
    int zeros = 1;
    for (int64_t i = 0; i < n; i++) zeros &= v->value[i] == 0;
    tap_ok(unchanged(m, &state[1][1]) && zeros, "%s: a skipped momentum stays, and moves nothing",
           suite.name);
    for (int64_t i = 0; i < n; i++) v->value[i] = state[1][2].value[i];
    array_push(v);

    dmuon_muon_apply apply = {.n = n, .lr = 0.1, .skip = skip.device, .skipped = counts.device};
    apply.update = g.device, apply.update_dtype = g.dtype;
    apply.weight = w->device, apply.weight_dtype = w->dtype;
    apply.value = value.device, apply.value_dtype = value.dtype;
    must(suite.ops->muon_apply(suite.queue, &apply));
    array_pull(&value), array_pull(&counts);
    int follows = 1;
    for (int64_t i = 0; i < n; i++) follows &= value.value[i] == rounded(value.dtype, w->value[i]);
    tap_ok(unchanged(w, &state[1][0]) && follows,
           "%s: a skipped weight stays, its value follows it", suite.name);
    tap_is_int(count_at(&counts, 0), 1, "%s: muon_apply counts", suite.name);

    dmuon_adamw adamw = {.n = n, .step = 3, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    adamw.grad_scale = 1, adamw.skip = skip.device, adamw.skipped = counts.device;
    adamw.grad = g.device, adamw.grad_dtype = g.dtype;
    adamw.exp_avg = m->device, adamw.exp_avg_sq = v->device, adamw.state_dtype = m->dtype;
    adamw.weight = w->device, adamw.weight_dtype = w->dtype;
    adamw.value = value.device, adamw.value_dtype = value.dtype;
    must(suite.ops->adamw(suite.queue, &adamw));
    array_pull(&counts);
    tap_ok(unchanged(w, &state[1][0]) && unchanged(m, &state[1][1]) && unchanged(v, &state[1][2]),
           "%s: a skipped adamw changes nothing", suite.name);
    tap_is_int(count_at(&counts, 0), 2, "%s: adamw counts", suite.name);

    skip.value[0] = 0, g.value[7] = 0.5;
    array_push(&skip), array_push(&g);
    must(suite.ops->adamw(suite.queue, &adamw)); /* step 3, two of them skipped: the first */
    adamw.step = 1, adamw.skip = NULL, adamw.skipped = NULL, adamw.value = NULL;
    adamw.exp_avg = state[1][1].device, adamw.exp_avg_sq = state[1][2].device;
    adamw.weight = state[1][0].device;
    must(suite.ops->adamw(suite.queue, &adamw));
    array_pull(&state[1][0]), array_pull(&state[1][1]), array_pull(&state[1][2]);
    tap_ok(unchanged(w, &state[1][0]) && unchanged(m, &state[1][1]) && unchanged(v, &state[1][2]),
           "%s: adamw takes skipped steps off its count", suite.name);
    array_pull(&counts);
    tap_is_int(count_at(&counts, 0), 2, "%s: and does not count a step that takes place",
               suite.name);
    for (int copy = 0; copy < 2; copy++)
      for (int k = 0; k < 3; k++) array_free(&state[copy][k]);
    array_free(&skip), array_free(&counts), array_free(&g), array_free(&value);
  }
}

#include "device_extremes.h"

static void conformance_run(dmuon_device *device, const char *name) {
  suite.device = device;
  suite.ops = device->ops;
  suite.name = name;
  suite.key = 0;
  void *told = NULL;
  must(suite.ops->alloc_host(device, sizeof *suite.told, &told));
  suite.told = told;
  must(suite.ops->queue_create(device, 0, &suite.queue));
  test_gemm();
  test_symmetric_products();
  test_vectors();
  test_pack();
  test_find_nonfinite();
  test_norm();
  test_copy_matrix();
  test_momentum();
  test_apply();
  test_adamw();
  test_momentum_overflow();
  test_adamw_overflow();
  test_decide();
  test_flag();
  test_skip();
  suite.ops->queue_destroy(suite.queue);
  suite.ops->free_host(device, told);
}

#endif
