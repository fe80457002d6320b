/* The scalar polynomial: what Newton-Schulz does to one singular value, in fp64. This is the truth
 * that results are held to; nothing here knows of matrices. */
#include "ns/ns.h"

double dmuon_ns_evaluate(int steps, const double *abc, double sigma) {
  for (int i = 0; i < steps; i++) {
    double a = abc[3 * i], b = abc[3 * i + 1], c = abc[3 * i + 2], s2 = sigma * sigma;
    sigma = sigma * (a + s2 * (b + s2 * c));
  }
  return sigma;
}

double dmuon_ns_slope(int steps, const double *abc) {
  double slope = 1.0;
  for (int i = 0; i < steps; i++) slope *= abc[3 * i];
  return slope;
}
