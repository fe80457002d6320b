/* Bodies of the kernels of Muon and AdamW. See bodies.h. */
#ifndef DMUON_BACKEND_CUDA_BODIES_UPDATE_H
#define DMUON_BACKEND_CUDA_BODIES_UPDATE_H

#include "backend/cuda/bodies_loops.h"

DMUON_BODY int dmuon_is_skipped(const float *skip) {
  return skip && *skip != 0;
}

DMUON_BODY double dmuon_within(double x, double limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

/* Each result is kept to what can be stored, provided that all that is read is finite; differences
 * are kept to what a double holds. */
DMUON_BODY void dmuon_momentum_of(const dmuon_muon_momentum *a, double largest, double g, double w,
                                  double *b, double *u) {
  const double mu = a->mu;
  const int finite = isfinite(g) && isfinite(w) && isfinite(*b);
  const double most = finite ? DBL_MAX : (double)INFINITY;
  const double limit = finite ? largest : (double)INFINITY;
  double gradient = dmuon_within(a->grad_scale * g, most);
  if (a->l2 != 0) gradient = dmuon_within(gradient + dmuon_within(a->l2 * w, most), most);
  if (a->form == DMUON_MOMENTUM_EMA) {
    *b = dmuon_within(
        a->first ? (1 - mu) * gradient : *b + (1 - mu) * dmuon_within(gradient - *b, most), limit);
    *u = a->nesterov ? dmuon_within(gradient + mu * dmuon_within(*b - gradient, most), limit) : *b;
  } else {
    *b = dmuon_within(a->first ? gradient : mu * *b + gradient, limit);
    *u = a->nesterov ? dmuon_within(gradient + mu * *b, limit) : *b;
  }
}

DMUON_BODY void dmuon_body_muon_momentum(const dmuon_muon_momentum *a, int64_t thread,
                                         int64_t threads) {
  if (dmuon_is_skipped(a->skip)) {
    const double zeros[DMUON_VECTOR] = {0};
    DMUON_EACH_VECTOR(i, a->n) {
      dmuon_store8<double>(zeros, a->update, i, dmuon_count_at(i, a->n), a->momentum_dtype);
    }
    return;
  }
  const double largest = dmuon_largest_of(a->momentum_dtype);
  DMUON_EACH_VECTOR(i, a->n) {
    double g[DMUON_VECTOR], w[DMUON_VECTOR] = {0}, b[DMUON_VECTOR] = {0}, u[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(g, a->grad, i, count, a->grad_dtype);
    if (a->l2 != 0) dmuon_load8<double>(w, a->weight, i, count, a->weight_dtype);
    if (!a->first) dmuon_load8<double>(b, a->momentum, i, count, a->momentum_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) dmuon_momentum_of(a, largest, g[j], w[j], &b[j], &u[j]);
    dmuon_store8<double>(b, a->momentum, i, count, a->momentum_dtype);
    dmuon_store8<double>(u, a->update, i, count, a->momentum_dtype);
  }
}

/* A weight as it is stored, from double: and the value, cast from that. */
DMUON_BODY void dmuon_store_weight(const double w[DMUON_VECTOR], int64_t i, int count, void *weight,
                                   DMuonDType weight_dtype, void *value, DMuonDType value_dtype) {
  const int publish = value && value != weight;
  if (weight_dtype == DMUON_FLOAT64) {
    dmuon_store8<double>(w, weight, i, count, weight_dtype);
    if (publish) dmuon_store8<double>(w, value, i, count, value_dtype);
    return;
  }
  float stored[DMUON_VECTOR];
  DMUON_UNROLL
  for (int j = 0; j < DMUON_VECTOR; j++)
    stored[j] = weight_dtype == DMUON_FLOAT32    ? (float)w[j]
                : weight_dtype == DMUON_BFLOAT16 ? dmuon_widen_bf16(dmuon_to_bf16(w[j]))
                                                 : dmuon_widen_fp16(dmuon_to_fp16(w[j]));
  dmuon_store8<float>(stored, weight, i, count, weight_dtype);
  if (publish) dmuon_store8<float>(stored, value, i, count, value_dtype);
}

/* A step that is skipped: the values of the weights as they are, and one more on the count. */
DMUON_BODY void dmuon_skip_step(int64_t n, const void *weight, DMuonDType weight_dtype, void *value,
                                DMuonDType value_dtype, int64_t *skipped, int64_t thread,
                                int64_t threads) {
  const dmuon_cast_args cast = {n, value, weight, value_dtype, weight_dtype};
  if (value && value != weight) dmuon_body_cast(&cast, thread, threads);
  if (skipped && thread == 0) *skipped = *skipped + 1;
}

DMUON_BODY double dmuon_decay_factor(const dmuon_muon_apply *a) {
  switch (a->decay) {
    case DMUON_DECAY_DECOUPLED:
    case DMUON_DECAY_CAUTIOUS:
      return 1 - a->lr * a->weight_decay;
    case DMUON_DECAY_INDEPENDENT:
      return 1 - a->weight_decay;
    case DMUON_DECAY_PALM:
      return 1 - a->lr * a->lr * a->weight_decay;
    case DMUON_DECAY_L2:
    case DMUON_DECAY_NONE:
      break;
  }
  return 1;
}

DMUON_BODY void dmuon_body_muon_apply(const dmuon_muon_apply *a, int64_t thread, int64_t threads) {
  if (dmuon_is_skipped(a->skip)) {
    dmuon_skip_step(a->n, a->weight, a->weight_dtype, a->value, a->value_dtype, a->skipped, thread,
                    threads);
    return;
  }
  const double factor = dmuon_decay_factor(a), lr = a->lr;
  const int cautious = a->decay == DMUON_DECAY_CAUTIOUS;
  DMUON_EACH_VECTOR(i, a->n) {
    double w[DMUON_VECTOR], u[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(w, a->weight, i, count, a->weight_dtype);
    dmuon_load8<double>(u, a->update, i, count, a->update_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) {
      /* w * u >= 0 without the product, which may underflow. */
      int decays = !cautious || (w[j] >= 0 && u[j] >= 0) || (w[j] <= 0 && u[j] <= 0);
      w[j] = (decays ? factor * w[j] : w[j]) - lr * u[j];
    }
    dmuon_store_weight(w, i, count, a->weight, a->weight_dtype, a->value, a->value_dtype);
  }
}

DMUON_BODY void dmuon_body_adamw(const dmuon_adamw_args *args, int64_t thread, int64_t threads) {
  const dmuon_adamw *a = &args->adamw;
  if (dmuon_is_skipped(a->skip)) {
    dmuon_skip_step(a->n, a->weight, a->weight_dtype, a->value, a->value_dtype, a->skipped, thread,
                    threads);
    return;
  }
  double step_size = args->step_size, root_factor = args->root_factor;
  if (a->skipped && *a->skipped != 0) {
    const double t = (double)(a->step - *a->skipped);
    step_size = a->lr / (1 - pow(a->beta1, t));
    root_factor = 1 / sqrt(1 - pow(a->beta2, t));
  }
  const double factor = 1 - a->lr * a->weight_decay, largest = dmuon_largest_of(a->state_dtype);
  const double root_of_largest = sqrt(largest), b1 = a->beta1, b2 = a->beta2, eps = a->eps;
  DMUON_EACH_VECTOR(i, a->n) {
    double g[DMUON_VECTOR], m[DMUON_VECTOR], v[DMUON_VECTOR], p[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(g, a->grad, i, count, a->grad_dtype);
    dmuon_load8<double>(m, a->exp_avg, i, count, a->state_dtype);
    dmuon_load8<double>(v, a->exp_avg_sq, i, count, a->state_dtype);
    dmuon_load8<double>(p, a->weight, i, count, a->weight_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) {
      const int finite = isfinite(g[j]) && isfinite(v[j]);
      const double gradient =
          dmuon_within(a->grad_scale * g[j], finite ? root_of_largest : (double)INFINITY);
      m[j] = b1 * m[j] + (1 - b1) * gradient;
      v[j] = dmuon_within(b2 * v[j] + (1 - b2) * gradient * gradient,
                          finite ? largest : (double)INFINITY);
      const double divisor = sqrt(v[j]) * root_factor + eps;
      p[j] = factor * p[j] - (divisor == 0 ? 0 : step_size * m[j] / divisor);
    }
    dmuon_store8<double>(m, a->exp_avg, i, count, a->state_dtype);
    dmuon_store8<double>(v, a->exp_avg_sq, i, count, a->state_dtype);
    dmuon_store_weight(p, i, count, a->weight, a->weight_dtype, a->value, a->value_dtype);
  }
}

#endif
