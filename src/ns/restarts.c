/* Where the Gram form starts anew. Decides, for any coefficient table, at which steps Q is applied
 * and the Gram matrix formed again from the matrix itself.
 *
 * The Gram form carries R = XX^T and Q along, both functions of the first R. Rounding makes small
 * eigenvalues of R negative, and the longer a segment, the further Q's eigenvalues are driven apart
 * by that. The criterion is that of the Gram Newton-Schulz of Dao and others
 * (https://github.com/Dao-AILab/gram-newton-schulz): run the scalar recursion from r = x^2 - 4e-4
 * for x from 1 to 1e-10, and take the worst ratio max|q|/min|q| over x of any step as the condition
 * number of the choice. The fewest restarts that keep it under 1e3 are taken; single ones and pairs
 * are searched exhaustively, further ones are added one by one. When nothing gets there, the best
 * of what was seen, with the fewest restarts that come within a factor of two of it. 1e8 and above
 * is no use: such a table is left to the direct form.
 *
 * The perturbation is that of 16-bit storage. The same positions serve fp32 and fp64: without any,
 * fp32 loses a digit on badly conditioned matrices, and one rule for all is easier to reason about.
 */
#include "ns/ns.h"

#include <math.h>
#include <string.h>

enum { POINTS = 10000, DECADES = 10 };
static const double PERTURBATION = -4e-4;

/* grid: 4 * POINTS, the first POINTS of them the singular values. */
static double condition(double *grid, int steps, const double *abc, int count, const int *at) {
  const double *x0 = grid;
  double *x = grid + POINTS, *r = x + POINTS, *q = r + POINTS;
  double worst = 1.0;
  int fresh = 1, next = 0;
  for (int k = 0; k < POINTS; k++) x[k] = x0[k], r[k] = x0[k] * x0[k] + PERTURBATION;
  for (int i = 0; i < steps; i++) {
    double a = abc[3 * i], b = abc[3 * i + 1], c = abc[3 * i + 2];
    double low = HUGE_VAL, high = 0.0;
    if (next < count && at[next] == i) {
      for (int k = 0; k < POINTS; k++) x[k] *= q[k], r[k] = x[k] * x[k] + PERTURBATION;
      fresh = 1;
      next++;
    }
    for (int k = 0; k < POINTS; k++) {
      double factor = a + r[k] * (b + c * r[k]);
      q[k] = fresh ? factor : factor * q[k];
      r[k] *= factor * factor;
      double size = fabs(q[k]);
      low = size < low ? size : low;
      high = size > high ? size : high;
    }
    fresh = 0;
    if (!(high <= worst * low)) worst = high / low; /* NaN, infinite: kept */
  }
  return isnan(worst) ? HUGE_VAL : worst;
}

static DMuonErrorCode make_grid(dmuon_memory *memory, double **grid) {
  DMUON_TRY(dmuon_memory_alloc(memory, 4 * POINTS, sizeof(double), grid));
  for (int k = 0; k < POINTS; k++) (*grid)[k] = pow(10.0, -(double)DECADES * k / (POINTS - 1));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_condition(dmuon_memory *memory, int steps, const double *abc, int count,
                                  const int *at, double *value) {
  double *grid = NULL;
  DMUON_TRY(make_grid(memory, &grid));
  *value = condition(grid, steps, abc, count, at);
  dmuon_memory_free(grid);
  return DMUON_SUCCESS;
}

/* Adds position p to an ascending list of n. */
static void insert(int n, const int *from, int p, int *to) {
  int k = 0;
  while (k < n && from[k] < p) to[k] = from[k], k++;
  to[k] = p;
  for (; k < n; k++) to[k + 1] = from[k];
}

static int contains(int n, const int *at, int p) {
  for (int k = 0; k < n; k++)
    if (at[k] == p) return 1;
  return 0;
}

DMuonErrorCode dmuon_ns_restarts_find(dmuon_memory *memory, int steps, const double *abc,
                                      dmuon_ns_restarts *found) {
  double *grid = NULL;
  dmuon_ns_restarts best[DMUON_NS_RESTARTS_MAX + 1]; /* by count */
  int most = steps - 1 < DMUON_NS_RESTARTS_MAX ? steps - 1 : DMUON_NS_RESTARTS_MAX;
  int tried = 0;
  DMUON_TRY(make_grid(memory, &grid));
  memset(best, 0, sizeof best);
  best[0].condition = condition(grid, steps, abc, 0, NULL);
  while ((tried == 0 || best[tried].condition > DMUON_NS_CONDITION_GOOD) && tried < most) {
    dmuon_ns_restarts *next = &best[tried + 1];
    next->condition = HUGE_VAL;
    next->count = tried + 1;
    /* Pairs are searched anew, so that the first need not be the best single one. */
    for (int p = 1; p < steps; p++) {
      for (int first = tried == 1 ? 1 : p; first <= p; first++) {
        int at[DMUON_NS_RESTARTS_MAX];
        if (tried == 1) {
          if (first == p) continue;
          at[0] = first, at[1] = p;
        } else {
          if (contains(tried, best[tried].at, p)) continue;
          insert(tried, best[tried].at, p, at);
        }
        double value = condition(grid, steps, abc, tried + 1, at);
        if (value < next->condition) {
          next->condition = value;
          memcpy(next->at, at, (size_t)(tried + 1) * sizeof *at);
        }
      }
    }
    tried++;
  }
  dmuon_memory_free(grid);
  int chosen = tried;
  if (best[tried].condition > DMUON_NS_CONDITION_GOOD) {
    double least = HUGE_VAL;
    for (int k = tried > 0; k <= tried; k++) least = fmin(least, best[k].condition);
    chosen = tried > 0;
    while (chosen < tried && best[chosen].condition > 2.0 * least) chosen++;
  }
  *found = best[chosen];
  return DMUON_SUCCESS;
}
