/* The arithmetic of reductions, in loops that the compiler vectorises. Contributions of another
 * type pass through a small block on the stack. */
#include "backend/host/sum.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

static void scale(int64_t n, DMuonDType dtype, void *x, int prescale) {
  if (prescale == 0) return;
  if (dtype == DMUON_FLOAT64) {
    double *a = x, factor = ldexp(1.0, prescale);
    for (int64_t i = 0; i < n; i++) a[i] *= factor;
  } else {
    float *a = x, factor = ldexpf(1.0f, prescale);
    for (int64_t i = 0; i < n; i++) a[i] *= factor;
  }
}

void dmuon_sum_widen(int64_t n, DMuonDType sum_dtype, void *dst, DMuonDType src_dtype,
                     const void *src, int prescale) {
  dmuon_dtype_cast(n, sum_dtype, dst, src_dtype, src);
  scale(n, sum_dtype, dst, prescale);
}

void dmuon_sum_add(int64_t n, DMuonDType sum_dtype, void *total, const void *other) {
  if (sum_dtype == DMUON_FLOAT64) {
    double *restrict a = total;
    const double *restrict b = other;
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
  } else {
    float *restrict a = total;
    const float *restrict b = other;
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
  }
}

void dmuon_sum_add_widened(int64_t n, DMuonDType sum_dtype, void *total, DMuonDType src_dtype,
                           const void *src, int prescale) {
  if (src_dtype == sum_dtype && prescale == 0) {
    dmuon_sum_add(n, sum_dtype, total, src);
    return;
  }
  double block[BLOCK];
  size_t wide = dmuon_dtype_bytes(sum_dtype), narrow = dmuon_dtype_bytes(src_dtype);
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t count = n - at < BLOCK ? n - at : BLOCK;
    dmuon_sum_widen(count, sum_dtype, block, src_dtype, (const char *)src + at * (int64_t)narrow,
                    prescale);
    dmuon_sum_add(count, sum_dtype, (char *)total + at * (int64_t)wide, block);
  }
}

void dmuon_sum_finish(int64_t n, DMuonDType sum_dtype, void *out, const void *total,
                      double divisor) {
  if (divisor == 1) {
    if (out != total) memcpy(out, total, (size_t)n * dmuon_dtype_bytes(sum_dtype));
  } else if (sum_dtype == DMUON_FLOAT64) {
    double *y = out;
    const double *x = total;
    for (int64_t i = 0; i < n; i++) {
      double quotient = x[i] / divisor;
      int overflow = isinf(quotient) && !isinf(x[i]);
      y[i] = overflow ? copysign(DBL_MAX, quotient) : quotient;
    }
  } else {
    /* The quotient of a float by a float in double, rounded to float, is the quotient rounded once.
     */
    float *y = out;
    const float *x = total;
    for (int64_t i = 0; i < n; i++) {
      float quotient = (float)(x[i] / divisor);
      int overflow = isinf(quotient) && !isinf(x[i]);
      y[i] = overflow ? copysignf(FLT_MAX, quotient) : quotient;
    }
  }
}
