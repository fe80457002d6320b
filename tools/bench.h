/* What the verbs of dmuon_bench share. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include <dmuon/newton_schulz.h>

typedef struct {
  int rows, cols; /* -shape 1024x4096 */
  DMuonDType dtype;
  DMuonDType ns_dtype; /* of the iteration, if ns_dtype_name is given */
  const char *dtype_name, *ns_dtype_name, *variant, *coefficients;
  int repeat;          /* 0: the verb's default */
  int threads;         /* of the BLAS */
  int steps;           /* of Newton-Schulz; 0: those of the table */
  const char *json;    /* file, or NULL */
  const char *choices; /* table of choices that measurements go to, or NULL */
  const char *delay;   /* seconds a message, as text; NULL: the verb's default */
  double compute;      /* seconds a bracket; 0: the verb's default */
  int argc;            /* all arguments, for the library's own */
  char **argv;
} bench_arguments;
enum { BENCH_MAX_STEPS = 16 };

double bench_seconds(void);
double bench_cpu_seconds(void); /* of this process */
/* Sorts values and returns the middle one. */
double bench_median(int count, double *values);
/* Prints the library's message and returns 1. */
int bench_fail(void);

int bench_ns(const bench_arguments *arguments);
int bench_choices(const bench_arguments *arguments); /* ns with -choices */
int bench_accuracy(const bench_arguments *arguments);
int bench_memory(const bench_arguments *arguments);
int bench_overlap(const bench_arguments *arguments);

#endif
