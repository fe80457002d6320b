/* dmuon_bench ns: Newton-Schulz of the library against the plain direct form, written here with
 * general products of the same BLAS: A = X X^T; B = bA + cA A; X <- aX + BX. The two run in turn on
 * the same matrix, so that what the machine does meanwhile hits both; medians are compared. */
#include "bench.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The default table of the library: Polar Express, safety 1.05. What is timed does not depend on
 * it. */
static const double table[5][3] = {{7.892582874424408, -20.38301394587957, 13.555306149406924},
                                   {3.911484868135431, -2.5464635929060884, 0.4268988319673074},
                                   {3.760657955697423, -2.512819018216563, 0.4323647349070073},
                                   {3.160399673686287, -2.149649518898498, 0.3996366907664389},
                                   {2.1910971618617303, -1.441662010214663, 0.328146487623155}};

/* An m x n matrix, m <= n, in fp32 or fp64, and room for the plain form. */
typedef struct {
  int m, n, wide;
  double *in, *x, *y, *a, *b; /* of float unless wide */
} plain;

static void product(const plain *p, enum CBLAS_TRANSPOSE tb, int n, int k, double alpha,
                    const void *a, const void *b, double beta, void *c) {
  int ldb = tb == CblasTrans ? k : n;
  if (p->wide)
    cblas_dgemm(CblasRowMajor, CblasNoTrans, tb, p->m, n, k, alpha, a, k, b, ldb, beta, c, n);
  else
    cblas_sgemm(CblasRowMajor, CblasNoTrans, tb, p->m, n, k, (float)alpha, a, k, b, ldb,
                (float)beta, c, n);
}

static void *plain_direct(plain *p) {
  size_t bytes = p->wide ? sizeof(double) : sizeof(float);
  size_t big = (size_t)p->m * (size_t)p->n;
  double *x = p->x, *y = p->y;
  if (p->wide) {
    double norm = cblas_dnrm2((int)big, p->in, 1);
    for (size_t i = 0; i < big; i++) x[i] = p->in[i] / norm;
  } else {
    const float *in = (const float *)p->in;
    float norm = cblas_snrm2((int)big, in, 1);
    for (size_t i = 0; i < big; i++) ((float *)x)[i] = in[i] / norm;
  }
  for (int s = 0; s < 5; s++) {
    product(p, CblasTrans, p->m, p->n, 1.0, x, x, 0.0, p->a);
    memcpy(p->b, p->a, (size_t)p->m * (size_t)p->m * bytes);
    product(p, CblasNoTrans, p->m, p->m, table[s][2], p->a, p->a, table[s][1], p->b);
    memcpy(y, x, big * bytes);
    product(p, CblasNoTrans, p->n, p->m, 1.0, p->b, x, table[s][0], y);
    double *t = x;
    x = y;
    y = t;
  }
  return x;
}

static double get(DMuonDType dtype, const void *data, size_t i) {
  return dtype == DMUON_FLOAT64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* How far the two results are apart, where both are in one dtype and the table is the same. */
static double difference(DMuonDType dtype, size_t n, const void *x, const void *y) {
  double off = 0, norm = 0;
  for (size_t i = 0; i < n; i++) {
    double a = get(dtype, x, i), b = get(dtype, y, i);
    off += (a - b) * (a - b), norm += b * b;
  }
  return sqrt(off / norm);
}

/* Medians of one form: by the clock on the wall, and of the processor's time, which other programs
 * on the machine disturb less. */
typedef struct {
  double *wall, *cpu;
} timing;

static int write_json(const bench_arguments *a, const timing *library, const timing *general,
                      double flops) {
  double ours = *library->wall, theirs = *general->wall;
  FILE *file = fopen(a->json, "w");
  if (!file) {
    perror(a->json);
    return 1;
  }
  fprintf(file,
          "{\"benchmark\": \"ns\", \"shape\": [%d, %d], \"dtype\": \"%s\", \"ns_dtype\": \"%s\",\n"
          " \"variant\": \"%s\",\n"
          " \"coefficients\": \"%s\", \"threads\": %d, \"repeat\": %d, \"seconds\": %.6g,\n"
          " \"seconds_plain\": %.6g, \"gflops_plain\": %.4g, \"speedup\": %.4g,\n"
          " \"cpu_seconds\": %.6g, \"cpu_seconds_plain\": %.6g, \"cpu_speedup\": %.4g}\n",
          a->rows, a->cols, a->dtype_name, a->ns_dtype_name ? a->ns_dtype_name : "default",
          a->variant, a->coefficients, a->threads, a->repeat, ours, theirs, 1e-9 * flops / theirs,
          theirs / ours, *library->cpu, *general->cpu, *general->cpu / *library->cpu);
  return fclose(file) != 0;
}

static int run(const bench_arguments *a, plain *p, void *in, void *out, timing *library,
               timing *general) {
  DMuonNewtonSchulz ns = NULL;
  int failed = DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetVariant(ns, a->variant) ||
               DMuonNewtonSchulzSetCoefficients(ns, a->coefficients) ||
               (a->ns_dtype_name && DMuonNewtonSchulzSetDType(ns, a->ns_dtype)) ||
               DMuonNewtonSchulzSetUp(ns);
  void *last = NULL;
  for (int i = -1; i < a->repeat && !failed; i++) { /* once to warm up */
    double start = bench_seconds(), cpu_start = bench_cpu_seconds();
    failed = DMuonNewtonSchulzApply(ns, a->rows, a->cols, a->dtype, in, a->cols, out, a->cols);
    double middle = bench_seconds(), cpu_middle = bench_cpu_seconds();
    last = plain_direct(p);
    double end = bench_seconds(), cpu_end = bench_cpu_seconds();
    if (i < 0) continue;
    library->wall[i] = middle - start, library->cpu[i] = cpu_middle - cpu_start;
    general->wall[i] = end - middle, general->cpu[i] = cpu_end - cpu_middle;
  }
  DMuonNewtonSchulzDestroy(&ns);
  if (failed) return bench_fail();
  int comparable = a->rows <= a->cols && a->dtype <= DMUON_FLOAT64 && !a->ns_dtype_name;
  if (comparable && !strcmp(a->coefficients, "polar_express")) {
    printf("results differ by %.1e (relative)\n",
           difference(a->dtype, (size_t)a->rows * (size_t)a->cols, out, last));
  }
  return 0;
}

int bench_ns(const bench_arguments *given) {
  bench_arguments a = *given;
  if (a.choices) return bench_choices(given);
  if (!a.rows) a.rows = 1024, a.cols = 4096;
  if (!a.repeat) a.repeat = 7;
  plain p = {.m = a.rows < a.cols ? a.rows : a.cols, .n = a.rows < a.cols ? a.cols : a.rows};
  p.wide = a.dtype == DMUON_FLOAT64;
  size_t big = (size_t)p.m * (size_t)p.n, square = (size_t)p.m * (size_t)p.m;
  p.in = malloc(big * sizeof(double)), p.x = malloc(big * sizeof(double));
  p.y = malloc(big * sizeof(double)), p.a = malloc(square * sizeof(double));
  p.b = malloc(square * sizeof(double));
  void *in = malloc(big * sizeof(double)), *out = malloc(big * sizeof(double));
  double *times = malloc(4 * (size_t)a.repeat * sizeof *times);
  int failed = !p.in || !p.x || !p.y || !p.a || !p.b || !in || !out || !times;
  if (failed) fprintf(stderr, "dmuon_bench: no memory for %d x %d\n", a.rows, a.cols);

  unsigned state = 1;
  for (size_t i = 0; i < big && !failed; i++) {
    state = state * 1664525u + 1013904223u;
    double value = (state >> 8) / 16777216.0 - 0.5;
    if (p.wide)
      p.in[i] = ((double *)in)[i] = value;
    else
      ((float *)p.in)[i] = (float)value;
    if (a.dtype == DMUON_FLOAT32) ((float *)in)[i] = (float)value;
    /* 16 bits: any pattern of moderate size will do. */
    if (a.dtype == DMUON_BFLOAT16 || a.dtype == DMUON_FLOAT16)
      ((unsigned short *)in)[i] = (unsigned short)(0x3000u + (state >> 22) + ((state & 64) << 9));
  }
  timing library = {times, times + a.repeat};
  timing general = {times + 2 * a.repeat, times + 3 * a.repeat};
  if (!failed) failed = run(&a, &p, in, out, &library, &general);
  if (!failed) {
    double m = p.m, n = p.n, flops = 5 * 2 * (2 * m * m * n + m * m * m);
    double *all[] = {library.wall, library.cpu, general.wall, general.cpu};
    for (int k = 0; k < 4; k++) all[k][0] = bench_median(a.repeat, all[k]);
    printf("%d x %d %s, %s%s%s, %d thread%s, median of %d; GF/s of the plain form's operations\n",
           a.rows, a.cols, a.dtype_name, a.variant, a.ns_dtype_name ? " in " : "",
           a.ns_dtype_name ? a.ns_dtype_name : "", a.threads, a.threads > 1 ? "s" : "", a.repeat);
    printf("           wall seconds   GF/s    cpu seconds   GF/s\n");
    printf("  library  %12.4f %6.1f   %12.4f %6.1f\n", *library.wall, 1e-9 * flops / *library.wall,
           *library.cpu, 1e-9 * flops / *library.cpu);
    printf("  plain    %12.4f %6.1f   %12.4f %6.1f\n", *general.wall, 1e-9 * flops / *general.wall,
           *general.cpu, 1e-9 * flops / *general.cpu);
    printf("  speedup  %12.2f          %12.2f\n", *general.wall / *library.wall,
           *general.cpu / *library.cpu);
    if (a.json) failed = write_json(&a, &library, &general, flops);
  }
  free(p.in), free(p.x), free(p.y), free(p.a), free(p.b), free(in), free(out), free(times);
  return failed;
}
