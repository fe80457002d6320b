/* Orthogonalises one matrix, without MPI: how far from orthogonal its rows are before and after.
 *
 *   cc ex03_newton_schulz.c $(pkg-config --cflags --libs libdmuon) -lm -o ex03_newton_schulz
 *   ./ex03_newton_schulz [rows [cols [table]]]          e.g. 64 256 you
 *
 * Muon replaces the momentum of each weight matrix by its nearest (semi-)orthogonal matrix, all of
 * whose singular values are 1. Newton-Schulz gets there with matrix products alone: five steps
 * bring every singular value that is not tiny to about 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <dmuon/newton_schulz.h> /* this part of dmuon.h needs no mpi.h */

/* The range of the diagonal, and the largest other element, of M M^T. For orthonormal rows: 1, 1,
 * 0. */
static void measure(const char *when, int rows, int cols, const float *matrix) {
  double low = HUGE_VAL, high = 0, off = 0;
  for (int i = 0; i < rows; i++) {
    for (int k = 0; k <= i; k++) {
      double sum = 0;
      for (int j = 0; j < cols; j++) sum += (double)matrix[i * cols + j] * matrix[k * cols + j];
      if (i == k) {
        low = fmin(low, sum);
        high = fmax(high, sum);
      } else {
        off = fmax(off, fabs(sum));
      }
    }
  }
  printf("%-6s  squared row norms %10.4g to %10.4g   largest product of two rows %10.4g\n", when,
         low, high, off);
}

static int run(int rows, int cols, const char *table, float *matrix, DMuonNewtonSchulz *ns) {
  DMUON_CALL(DMuonNewtonSchulzCreate(NULL, ns)); /* NULL: no mesh, no MPI */
  DMUON_CALL(DMuonNewtonSchulzSetCoefficients(*ns, table));
  DMUON_CALL(DMuonNewtonSchulzSetUp(*ns));
  DMUON_CALL(DMuonNewtonSchulzView(*ns, NULL));

  printf("\na matrix of %d x %d\n", rows, cols);
  measure("before", rows, cols, matrix);
  DMUON_CALL(DMuonNewtonSchulzApply(*ns, rows, cols, DMUON_FLOAT32, matrix, cols, matrix, cols));
  measure("after", rows, cols, matrix);

  printf("\na singular value of the normalised matrix, and what becomes of it\n");
  for (double sigma = 1; sigma > 5e-5; sigma /= 10) {
    double value;
    DMUON_CALL(DMuonNewtonSchulzEvaluate(*ns, sigma, &value));
    printf("  %8.4f  %8.4f\n", sigma, value);
  }
  return 0;
}

int main(int argc, char **argv) {
  int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 4 * rows;
  const char *table = argc > 3 ? argv[3] : "polar_express";
  if (rows < 1 || cols < rows || rows > 4096 || cols > 65536) {
    fprintf(stderr, "usage: %s [rows [cols [table]]], 1 <= rows <= cols\n", argv[0]);
    return 2;
  }

  /* Something like a gradient: a little noise on a few strong directions. */
  float *matrix = malloc(sizeof *matrix * (size_t)rows * (size_t)cols);
  if (!matrix) return 1;
  unsigned state = 1;
  for (int i = 0; i < rows * cols; i++) {
    state = state * 1664525u + 1013904223u;
    double noise = (state >> 8) / 16777216.0 - 0.5;
    matrix[i] = (float)(noise + 3 * sin(0.1 * (i / cols)) * cos(0.2 * (i % cols)));
  }

  DMuonNewtonSchulz ns = NULL;
  int failed = run(rows, cols, table, matrix, &ns);
  if (failed) fprintf(stderr, "%s\n", DMuonErrorGetMessage());
  DMuonNewtonSchulzDestroy(&ns);
  free(matrix);
  return failed ? 1 : 0;
}
