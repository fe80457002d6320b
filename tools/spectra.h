/* Matrices with known singular values: five kinds of spectra, and A = U diag(s) V^T with U and V
 * from Gaussians by Gram-Schmidt, all in fp64 and with loops of its own. Used by one test source at
 * a time, so everything is static. */
#ifndef TOOLS_SPECTRA_H
#define TOOLS_SPECTRA_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
  SPECTRUM_UNIFORM,
  SPECTRUM_GAUSSIAN,
  SPECTRUM_POWER_LAW,
  SPECTRUM_EXPONENTIAL,
  SPECTRUM_HEAVY_TAIL,
  SPECTRUM_COUNT
};
static const char *const spectrum_names[] = {"uniform", "gaussian", "power_law", "exponential",
                                             "heavy_tail"};

typedef struct {
  uint64_t state;
} spectra_random;

static double random_uniform(spectra_random *r) {
  r->state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
  uint64_t z = r->state;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return ((double)((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

static double random_gaussian(spectra_random *r) {
  double u = random_uniform(r);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * random_uniform(r));
}

static int descending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Eigenvalues below x of the symmetric tridiagonal matrix (d, e), by Sturm's sequence. */
static int eigenvalues_below(int m, const double *d, const double *e, double x) {
  int count = 0;
  double q = 1;
  for (int i = 0; i < m; i++) {
    q = d[i] - x - (i ? e[i - 1] * e[i - 1] / q : 0);
    if (q == 0) q = 1e-300;
    count += q < 0;
  }
  return count;
}

static double chi(spectra_random *r, int freedom) {
  double sum = 0;
  for (int i = 0; i < freedom; i++) {
    double g = random_gaussian(r);
    sum += g * g;
  }
  return sqrt(sum);
}

/* Singular values of an m x 2m Gaussian: those of a bidiagonal matrix of chi variables (Dumitriu
 * and Edelman, Matrix models for beta ensembles, 2002), whose square is tridiagonal. */
static void gaussian_spectrum(int m, double *s, spectra_random *r) {
  double *d = calloc((size_t)m, sizeof *d), *e = calloc((size_t)m, sizeof *e);
  double below = 0; /* the subdiagonal element of this row */
  double top = 1;
  for (int i = 0; i < m; i++) {
    double diagonal = chi(r, 2 * m - i);
    d[i] = diagonal * diagonal + below * below;
    below = chi(r, m - 1 - i);
    e[i] = diagonal * below;
    top = fmax(top, 2 * (d[i] + e[i]));
  }
  for (int k = 0; k < m; k++) {
    double low = 0, high = 4 * top;
    for (int step = 0; step < 100; step++) {
      double middle = 0.5 * (low + high);
      if (eigenvalues_below(m, d, e, middle) > m - 1 - k)
        high = middle;
      else
        low = middle;
    }
    s[k] = sqrt(0.5 * (low + high));
  }
  free(d);
  free(e);
}

static void make_spectrum(int kind, int m, double *s, spectra_random *r) {
  double u = random_uniform(r), v = random_uniform(r);
  double low = .25 + .1 * u, high = .9 + .1 * v, largest = 0;
  if (kind == SPECTRUM_GAUSSIAN) gaussian_spectrum(m, s, r);
  for (int i = 0; i < m; i++) {
    switch (kind) {
      case SPECTRUM_UNIFORM:
        s[i] = m > 1 ? high + (low - high) * i / (m - 1) : high;
        s[i] = fmax(.05, s[i] + .1 * (high - low) * (random_uniform(r) - .5));
        break;
      case SPECTRUM_POWER_LAW:
        s[i] = pow(i + 1, -(.3 + .4 * u));
        break;
      case SPECTRUM_EXPONENTIAL:
        s[i] = exp(-(2 + 6 * u) * i / m);
        break;
      case SPECTRUM_HEAVY_TAIL:
        s[i] = random_uniform(r) * (m > 1 && i >= m - (m >= 20 ? m / 10 : 1) ? 1e-3 : 1);
        break;
      default:
        break;
    }
    largest = fmax(largest, s[i]);
  }
  if (kind != SPECTRUM_UNIFORM)
    for (int i = 0; i < m; i++) s[i] /= largest;
  qsort(s, (size_t)m, sizeof *s, descending);
}

static double dot(int64_t n, const double *x, const double *y) {
  double sum[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) sum[k] += x[i + k] * y[i + k];
  for (; i < n; i++) sum[0] += x[i] * y[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void add_multiple(int64_t n, double alpha, const double *x, double *y) {
  for (int64_t i = 0; i < n; i++) y[i] += alpha * x[i];
}

/* m orthonormal rows of length n >= m. */
static void orthonormal_rows(int m, int n, double *q, spectra_random *r) {
  for (int i = 0; i < m; i++) {
    double *row = q + (int64_t)i * n;
    for (int j = 0; j < n; j++) row[j] = random_gaussian(r);
    for (int pass = 0; pass < 2; pass++) {
      for (int k = 0; k < i; k++) {
        const double *other = q + (int64_t)k * n;
        add_multiple(n, -dot(n, row, other), other, row);
      }
      double scale = 1 / sqrt(dot(n, row, row));
      for (int j = 0; j < n; j++) row[j] *= scale;
    }
  }
}

/* a (m x n) = U diag(s) V^T, with rows of ut and vt the columns of U and V. */
static void compose(int m, int n, const double *ut, const double *s, const double *vt, double *a) {
  memset(a, 0, (size_t)m * (size_t)n * sizeof *a);
  for (int i = 0; i < m; i++)
    for (int k = 0; k < m; k++)
      add_multiple(n, ut[(int64_t)k * m + i] * s[k], vt + (int64_t)k * n, a + (int64_t)i * n);
}

#endif
