/* Norms that keep their exponent apart: what one says, and two of them together. */
#include "device/device.h"

#include <math.h>

static int clamp_exponent(int64_t exponent) {
  return exponent > 100000 ? 100000 : exponent < -100000 ? -100000 : (int)exponent;
}

double dmuon_norm_value(const dmuon_norm *norm) {
  return ldexp(sqrt(norm->sum), clamp_exponent(norm->exponent));
}

dmuon_norm dmuon_norm_combine(const dmuon_norm *a, const dmuon_norm *b) {
  if (a->sum == 0) return *b;
  if (b->sum == 0) return *a;
  dmuon_norm both;
  both.exponent = a->exponent > b->exponent ? a->exponent : b->exponent;
  both.sum = ldexp(a->sum, clamp_exponent(2 * (a->exponent - both.exponent))) +
             ldexp(b->sum, clamp_exponent(2 * (b->exponent - both.exponent)));
  return both;
}
