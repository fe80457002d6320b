/* dmuon_bench accuracy: how far Newton-Schulz is from the exact polynomial of each singular value,
 * for all spectra, forms and dtypes of the iteration; beside it the distance to the polar factor,
 * which measures the polynomial. Matrices larger than the tests use: up to 1024 rows take about a
 * minute. */
#include "bench.h"

#include <stdio.h>

#include "spectra.h"

typedef struct {
  const char *variant, *name;
  DMuonDType dtype;
} config;

static const config configs[] = {
    {"direct", "fp64", DMUON_FLOAT64},  {"gram", "fp64", DMUON_FLOAT64},
    {"direct", "fp32", DMUON_FLOAT32},  {"gram", "fp32", DMUON_FLOAT32},
    {"direct", "fp16", DMUON_FLOAT16},  {"gram", "fp16", DMUON_FLOAT16},
    {"direct", "bf16", DMUON_BFLOAT16}, {"gram", "bf16", DMUON_BFLOAT16},
};
enum { CONFIGS = sizeof configs / sizeof *configs };

typedef struct {
  int m, n;
  double *ut, *vt, *s, *p, *ones, *a, *truth, *polar, *result;
} sample;

static double distance(int64_t n, const double *x, const double *y) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum / dot(n, y, y));
}

static int apply(const bench_arguments *a, const config *c, sample *x) {
  DMuonNewtonSchulz ns = NULL;
  int64_t count = (int64_t)x->m * x->n;
  int wide = c->dtype == DMUON_FLOAT64;
  float *narrow = (float *)x->result; /* in place: read before written, from the front */
  if (wide)
    memcpy(x->result, x->a, (size_t)count * sizeof *x->a);
  else
    for (int64_t i = 0; i < count; i++) narrow[i] = (float)x->a[i];
  int failed = DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetVariant(ns, c->variant) ||
               DMuonNewtonSchulzSetCoefficients(ns, a->coefficients) ||
               DMuonNewtonSchulzSetDType(ns, c->dtype) || DMuonNewtonSchulzSetUp(ns) ||
               DMuonNewtonSchulzApply(ns, x->m, x->n, wide ? DMUON_FLOAT64 : DMUON_FLOAT32,
                                      x->result, x->n, x->result, x->n);
  for (int i = 0; i < x->m && !failed; i++)
    failed = DMuonNewtonSchulzEvaluate(ns, x->s[i], &x->p[i]);
  DMuonNewtonSchulzDestroy(&ns);
  if (failed) return bench_fail();
  if (!wide) /* from the back, so that nothing is overwritten before it is read */
    for (int64_t i = count; i-- > 0;) {
      float value;
      memcpy(&value, (char *)x->result + (size_t)i * sizeof value, sizeof value);
      x->result[i] = value;
    }
  return 0;
}

static int run(const bench_arguments *a, sample *x, FILE *json) {
  spectra_random r = {1};
  int64_t count = (int64_t)x->m * x->n;
  orthonormal_rows(x->m, x->m, x->ut, &r);
  orthonormal_rows(x->m, x->n, x->vt, &r);
  for (int i = 0; i < x->m; i++) x->ones[i] = 1;
  compose(x->m, x->n, x->ut, x->ones, x->vt, x->polar);
  printf("%d x %d, %s: distance to the exact polynomial, to the polar factor\n", x->m, x->n,
         a->coefficients);
  for (int kind = 0; kind < SPECTRUM_COUNT; kind++) {
    make_spectrum(kind, x->m, x->s, &r);
    double norm = sqrt(dot(x->m, x->s, x->s));
    for (int i = 0; i < x->m; i++) x->s[i] /= norm;
    compose(x->m, x->n, x->ut, x->s, x->vt, x->a);
    for (int c = 0; c < CONFIGS; c++) {
      if (apply(a, &configs[c], x)) return 1;
      if (c == 0) compose(x->m, x->n, x->ut, x->p, x->vt, x->truth);
      double error = distance(count, x->result, x->truth),
             polar = distance(count, x->result, x->polar);
      printf("  %-11s %-6s %s  %.1e  %.1e\n", spectrum_names[kind], configs[c].variant,
             configs[c].name, error, polar);
      fflush(stdout);
      if (json) {
        fprintf(json, "%s  {\"spectrum\": \"%s\", \"variant\": \"%s\", \"dtype\": \"%s\", ",
                kind || c ? ",\n" : "", spectrum_names[kind], configs[c].variant, configs[c].name);
        fprintf(json, "\"error\": %.3e, \"polar\": %.3e}", error, polar);
      }
    }
  }
  return 0;
}

static double *room(int64_t count) {
  return malloc((size_t)count * sizeof(double));
}

int bench_accuracy(const bench_arguments *a) {
  int m = a->rows ? a->rows : 512, n = a->rows ? a->cols : 2048;
  if (m > n) {
    fprintf(stderr, "dmuon_bench accuracy: rows <= cols, not %d x %d\n", m, n);
    return 2;
  }
  int64_t big = (int64_t)m * n;
  sample x = {.m = m,
              .n = n,
              .ut = room((int64_t)m * m),
              .vt = room(big),
              .s = room(m),
              .p = room(m),
              .ones = room(m),
              .a = room(big),
              .truth = room(big),
              .polar = room(big),
              .result = room(big)};
  FILE *json = a->json ? fopen(a->json, "w") : NULL;
  int failed =
      !x.ut || !x.vt || !x.s || !x.p || !x.ones || !x.a || !x.truth || !x.polar || !x.result;
  if (failed) fprintf(stderr, "dmuon_bench: no memory for %d x %d\n", m, n);
  if (a->json && !json) perror(a->json), failed = 1;
  if (json)
    fprintf(json, "{\"benchmark\": \"accuracy\", \"shape\": [%d, %d], \"results\": [\n", m, n);
  if (!failed) failed = run(a, &x, json);
  if (json) {
    fprintf(json, "\n]}\n");
    if (fclose(json)) failed = 1;
  }
  free(x.ut), free(x.vt), free(x.s), free(x.p), free(x.ones), free(x.a), free(x.truth),
      free(x.polar);
  free(x.result);
  return failed;
}
