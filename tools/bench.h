/* What the verbs of dmuon_bench share. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include <dmuon/newton_schulz.h>

typedef struct {
  int rows, cols; /* -shape 1024x4096 */
  DMuonDType dtype;
  const char *dtype_name, *variant, *coefficients;
  int repeat;       /* 0: the verb's default */
  int threads;      /* of the BLAS */
  const char *json; /* file, or NULL */
} bench_arguments;

double bench_seconds(void);
double bench_cpu_seconds(void); /* of this process */
/* Sorts values and returns the middle one. */
double bench_median(int count, double *values);
/* Prints the library's message and returns 1. */
int bench_fail(void);

int bench_ns(const bench_arguments *arguments);
int bench_accuracy(const bench_arguments *arguments);

#endif
