/* What the kernel of reductions does, rounding as the host's sums do. See bodies.h. */
#ifndef DMUON_BACKEND_CUDA_BODIES_COMM_H
#define DMUON_BACKEND_CUDA_BODIES_COMM_H

#include "backend/cuda/bodies.h"
#include "backend/cuda/kernels_comm.h"

/* x = the sum of contributions [LOW, LOW + WIDTH) at i; 0: there are none. */
template <typename T, int LOW, int WIDTH>
DMUON_BODY int dmuon_sum_node(T x[DMUON_VECTOR], const dmuon_sum_args *a, int64_t i, int count) {
  if constexpr (WIDTH == 1) {
    const T factor = (T)a->factor;
    if (!a->source[LOW]) return 0;
    dmuon_load8<T>(x, a->source[LOW], i, count, a->in_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = x[j] * factor;
    return 1;
  } else {
    T y[DMUON_VECTOR];
    const int left = dmuon_sum_node<T, LOW, WIDTH / 2>(x, a, i, count);
    const int right = dmuon_sum_node<T, LOW + WIDTH / 2, WIDTH / 2>(y, a, i, count);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR && right; j++) x[j] = left ? x[j] + y[j] : y[j];
    return left || right;
  }
}

template <typename T>
DMUON_BODY void dmuon_sum_all(const dmuon_sum_args *a, int64_t thread, int64_t threads) {
  DMUON_EACH_VECTOR(i, a->n) {
    T x[DMUON_VECTOR], y[DMUON_VECTOR];
    const int count = dmuon_count_at(i, a->n);
    int some = dmuon_sum_node<T, 0, DMUON_SUM_WIDTH>(x, a, i, count);
    for (int k = 0; k < a->merge_count; k++, some = 1) {
      dmuon_load8<T>(y, a->merge[k], i, count, a->sum_dtype);
      DMUON_UNROLL
      for (int j = 0; j < DMUON_VECTOR; j++) x[j] = some ? x[j] + y[j] : y[j];
    }
    if (a->divisor != 1) {
      DMUON_UNROLL
      for (int j = 0; j < DMUON_VECTOR; j++)
        x[j] = (T)dmuon_divided((double)x[j], a->divisor, a->sum_dtype);
    }
    dmuon_store8<T>(x, a->out, i, count, a->sum_dtype);
  }
}

DMUON_BODY void dmuon_body_sum(const dmuon_sum_args *a, int64_t thread, int64_t threads) {
  if (a->sum_dtype == DMUON_FLOAT64)
    dmuon_sum_all<double>(a, thread, threads);
  else
    dmuon_sum_all<float>(a, thread, threads);
}

#endif
