/* The arithmetic of reductions: contributions are widened, scaled by a power of two and added; the
 * total is divided once. In fp32 or fp64 (sum_dtype). Elementwise, so chunks change no bits. */
#ifndef DMUON_BACKEND_HOST_SUM_H
#define DMUON_BACKEND_HOST_SUM_H

#include "base/dtype.h"

/* dst = widened src * 2^prescale */
void dmuon_sum_widen(int64_t n, DMuonDType sum_dtype, void *dst, DMuonDType src_dtype,
                     const void *src, int prescale);
/* total = total + widened src * 2^prescale */
void dmuon_sum_add_widened(int64_t n, DMuonDType sum_dtype, void *total, DMuonDType src_dtype,
                           const void *src, int prescale);
/* total = total + other, both of sum_dtype. */
void dmuon_sum_add(int64_t n, DMuonDType sum_dtype, void *total, const void *other);
/* out = total / divisor; a finite total whose quotient overflows gives the largest finite value of
 * its sign. */
void dmuon_sum_finish(int64_t n, DMuonDType sum_dtype, void *out, const void *total,
                      double divisor);

#endif
