/* Benchmarks of the library on this machine. One verb each:
 *
 *   dmuon_bench ns [-shape 1024x4096] [-dtype fp32] [-ns_dtype DTYPE] [-repeat N] [-json FILE]
 *     times Newton-Schulz against the plain direct form with general products of the same BLAS, in
 *     turn, and compares medians; -ns_dtype bf16 iterates in another dtype than the default, which
 *     is that of the matrix, at least fp32
 *   dmuon_bench ns -choices FILE [-shape 1024x4096] [-dtype fp32] [-ns_dtype DTYPE] [-repeat N]
 *     measures which form of Newton-Schulz is faster for the shape, and how many matrices together
 *     pay, on the device of -dmuon_device, and adds that to FILE, for the option ns_choices
 *   dmuon_bench accuracy [-shape 512x2048]
 *     error against the exact polynomial for all spectra, forms and dtypes
 *   mpirun -n N dmuon_bench memory [-shape 4096x4096] [-newton_schulz_steps N] [-json FILE]
 *     peak memory of the rank that owns one fp32 matrix; takes any -dmuon option
 *   mpirun -n N dmuon_bench overlap [-delay SECONDS] [-compute SECONDS] [-json FILE]
 *     what prefetch and asynchronous publishing hide when every message takes that long; takes any
 *     -dmuon option
 *
 * The first three take -variant and -coefficients; -threads N gives the BLAS N threads (1). */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, setenv */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double bench_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_median(int count, double *values) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

int bench_fail(void) {
  fprintf(stderr, "%s\n", DMuonErrorGetMessage());
  return 1;
}

static const struct {
  const char *name;
  DMuonDType dtype;
} dtypes[] = {{"fp32", DMUON_FLOAT32},
              {"fp64", DMUON_FLOAT64},
              {"bf16", DMUON_BFLOAT16},
              {"fp16", DMUON_FLOAT16}};

static const struct {
  const char *name;
  int (*run)(const bench_arguments *arguments);
} verbs[] = {{"ns", bench_ns},
             {"accuracy", bench_accuracy},
             {"memory", bench_memory},
             {"overlap", bench_overlap}};

static int usage(const char *wrong) {
  if (wrong) fprintf(stderr, "dmuon_bench: '%s' is not understood\n", wrong);
  fprintf(stderr,
          "usage: dmuon_bench ns|accuracy|memory|overlap [-shape ROWSxCOLS] [-dtype "
          "fp32|fp64|bf16|fp16]\n"
          "         [-variant auto|gram|direct] [-coefficients TABLE] [-repeat N] [-threads N]\n"
          "         [-ns_dtype DTYPE] [-newton_schulz_steps N] [-json FILE] [-dmuon_OPTION VALUE]\n"
          "         [-choices FILE] [-delay SECONDS] [-compute SECONDS]\n"
          "         -dmuon_OPTION: of memory, overlap, and ns with -choices\n");
  return wrong ? 2 : 0;
}

static int find_dtype(const char *value, DMuonDType *dtype, const char **name) {
  for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
    if (strcmp(dtypes[k].name, value)) continue;
    *dtype = dtypes[k].dtype, *name = dtypes[k].name;
    return 1;
  }
  return 0;
}

static int parse(int argc, char **argv, bench_arguments *a) {
  char rest;
  int takes_choices = 0;
  a->argc = argc, a->argv = argv;
  for (int i = 2; i + 1 < argc; i += 2) takes_choices |= !strcmp(argv[i], "-choices");
  for (int i = 2; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    int good = 1;
    if (!strcmp(name, "-shape")) {
      good = sscanf(value, "%dx%d%c", &a->rows, &a->cols, &rest) == 2 && a->rows > 0 && a->cols > 0;
    } else if (!strcmp(name, "-dtype")) {
      good = find_dtype(value, &a->dtype, &a->dtype_name);
    } else if (!strcmp(name, "-ns_dtype")) {
      good = find_dtype(value, &a->ns_dtype, &a->ns_dtype_name);
    } else if (!strcmp(name, "-variant")) {
      a->variant = value;
    } else if (!strcmp(name, "-coefficients")) {
      a->coefficients = value;
    } else if (!strcmp(name, "-repeat")) {
      good = sscanf(value, "%d%c", &a->repeat, &rest) == 1 && a->repeat > 0;
    } else if (!strcmp(name, "-threads")) {
      good = sscanf(value, "%d%c", &a->threads, &rest) == 1 && a->threads > 0;
    } else if (!strcmp(name, "-newton_schulz_steps")) {
      good = sscanf(value, "%d%c", &a->steps, &rest) == 1 && a->steps > 0 &&
             a->steps <= BENCH_MAX_STEPS;
    } else if (!strcmp(name, "-delay")) {
      a->delay = value;
    } else if (!strcmp(name, "-compute")) {
      good = sscanf(value, "%lf%c", &a->compute, &rest) == 1 && a->compute > 0;
    } else if (!strcmp(name, "-choices")) {
      a->choices = value;
    } else if (!strcmp(name, "-json")) {
      a->json = value;
    } else if (!strncmp(name, "-dmuon_", 7) &&
               (!strcmp(argv[1], "memory") || !strcmp(argv[1], "overlap") || takes_choices)) {
      continue;
    } else {
      return usage(name);
    }
    if (!good) return usage(value);
  }
  return argc % 2 ? usage(argv[argc - 1]) : 0;
}

/* BLAS libraries read their number of threads when they are loaded: set it and start anew, once. */
static void fix_threads(char **argv, int threads) {
  static const char *const names[] = {"OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS",
                                      "MKL_NUM_THREADS"};
  char text[16];
  int changed = 0;
  snprintf(text, sizeof text, "%d", threads);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *now = getenv(names[i]);
    if (now && !strcmp(now, text)) continue;
    setenv(names[i], text, 1);
    changed = 1;
  }
  if (changed) execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
  bench_arguments arguments = {.dtype = DMUON_FLOAT32,
                               .dtype_name = "fp32",
                               .variant = "auto",
                               .coefficients = "polar_express",
                               .threads = 1};
  if (argc < 2) return usage("no verb");
  if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")) return usage(NULL);
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    if (strcmp(verbs[i].name, argv[1])) continue;
    int wrong = parse(argc, argv, &arguments);
    if (wrong) return wrong;
    fix_threads(argv, arguments.threads);
    return verbs[i].run(&arguments);
  }
  return usage(argv[1]);
}
