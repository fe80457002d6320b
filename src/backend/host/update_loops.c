/* The element loops of Muon and AdamW on the host, as device.h defines them. Whatever the storage
 * types, arithmetic and hyper-parameters are in double, on chunks that stay in cache, and a stored
 * value is rounded once: what one formula hands to the next has not been rounded. A published value
 * is cast from the stored weight, so that it is the rounded master exactly. */
#include "backend/host/tasks.h"

#include <math.h>

static int64_t chunk_of(int64_t n, int64_t first) {
  return n - first < DMUON_HOST_CHUNK ? n - first : DMUON_HOST_CHUNK;
}

static void load(double *x, int64_t count, const void *data, DMuonDType dtype, int64_t first) {
  dmuon_dtype_cast(count, DMUON_FLOAT64, x, dtype, dmuon_host_at(data, dtype, first));
}

static void store(const double *x, int64_t count, void *data, DMuonDType dtype, int64_t first) {
  dmuon_dtype_cast(count, dtype, dmuon_host_at_out(data, dtype, first), DMUON_FLOAT64, x);
}

static void store_value(int64_t count, void *value, DMuonDType value_dtype, const void *weight,
                        DMuonDType weight_dtype, int64_t first) {
  if (!value || value == weight) return;
  dmuon_dtype_cast(count, value_dtype, dmuon_host_at_out(value, value_dtype, first), weight_dtype,
                   dmuon_host_at(weight, weight_dtype, first));
}

/* Polls once in so many elements. */
static DMuonErrorCode poll_after(dmuon_host_engine *engine, int64_t count, int64_t *since_poll) {
  *since_poll += count;
  if (*since_poll < DMUON_HOST_POLL_ELEMENTS) return DMUON_SUCCESS;
  *since_poll = 0;
  DMUON_TRY(dmuon_host_engine_poll(engine));
  return DMUON_SUCCESS;
}

static void heavy_ball(int64_t count, double mu, int first, int nesterov, const double *g,
                       double *b, double *u) {
  if (first)
    for (int64_t j = 0; j < count; j++) b[j] = g[j];
  else
    for (int64_t j = 0; j < count; j++) b[j] = mu * b[j] + g[j];
  if (nesterov)
    for (int64_t j = 0; j < count; j++) u[j] = g[j] + mu * b[j];
  else
    for (int64_t j = 0; j < count; j++) u[j] = b[j];
}

static void ema(int64_t count, double mu, int first, int nesterov, const double *g, double *b,
                double *u) {
  if (first)
    for (int64_t j = 0; j < count; j++) b[j] = (1 - mu) * g[j];
  else
    for (int64_t j = 0; j < count; j++) b[j] = b[j] + (1 - mu) * (g[j] - b[j]);
  if (nesterov)
    for (int64_t j = 0; j < count; j++) u[j] = g[j] + mu * (b[j] - g[j]);
  else
    for (int64_t j = 0; j < count; j++) u[j] = b[j];
}

static DMuonErrorCode momentum_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_muon_momentum *a = args;
  double grad_scale = a->grad_scale, l2 = a->l2;
  int64_t since_poll = 0;
  *done = 1;
  for (int64_t i = 0; i < a->n; i += DMUON_HOST_CHUNK) {
    double g[DMUON_HOST_CHUNK], b[DMUON_HOST_CHUNK], u[DMUON_HOST_CHUNK];
    int64_t count = chunk_of(a->n, i);
    load(g, count, a->grad, a->grad_dtype, i);
    for (int64_t j = 0; j < count; j++) g[j] *= grad_scale;
    if (l2 != 0) {
      load(u, count, a->weight, a->weight_dtype, i);
      for (int64_t j = 0; j < count; j++) g[j] += l2 * u[j];
    }
    if (!a->first) load(b, count, a->momentum, a->momentum_dtype, i);
    if (a->form == DMUON_MOMENTUM_EMA)
      ema(count, a->mu, a->first, a->nesterov, g, b, u);
    else
      heavy_ball(count, a->mu, a->first, a->nesterov, g, b, u);
    store(b, count, a->momentum, a->momentum_dtype, i);
    store(u, count, a->update, a->momentum_dtype, i);
    DMUON_TRY(poll_after(engine, count, &since_poll));
  }
  return DMUON_SUCCESS;
}

static double decay_factor(dmuon_decay decay, double lr, double weight_decay) {
  switch (decay) {
    case DMUON_DECAY_DECOUPLED:
    case DMUON_DECAY_CAUTIOUS:
      return 1 - lr * weight_decay;
    case DMUON_DECAY_INDEPENDENT:
      return 1 - weight_decay;
    case DMUON_DECAY_PALM:
      return 1 - lr * lr * weight_decay;
    case DMUON_DECAY_L2:
    case DMUON_DECAY_NONE:
      break;
  }
  return 1;
}

static DMuonErrorCode apply_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_muon_apply *a = args;
  double factor = decay_factor(a->decay, a->lr, a->weight_decay), lr = a->lr;
  int64_t since_poll = 0;
  *done = 1;
  for (int64_t i = 0; i < a->n; i += DMUON_HOST_CHUNK) {
    double w[DMUON_HOST_CHUNK], u[DMUON_HOST_CHUNK];
    int64_t count = chunk_of(a->n, i);
    load(w, count, a->weight, a->weight_dtype, i);
    load(u, count, a->update, a->update_dtype, i);
    if (a->decay == DMUON_DECAY_CAUTIOUS) {
      /* w * u >= 0 without the product, which may underflow. */
      for (int64_t j = 0; j < count; j++) {
        int decays = (w[j] >= 0 && u[j] >= 0) || (w[j] <= 0 && u[j] <= 0);
        w[j] = (decays ? factor * w[j] : w[j]) - lr * u[j];
      }
    } else {
      for (int64_t j = 0; j < count; j++) w[j] = factor * w[j] - lr * u[j];
    }
    store(w, count, a->weight, a->weight_dtype, i);
    store_value(count, a->value, a->value_dtype, a->weight, a->weight_dtype, i);
    DMUON_TRY(poll_after(engine, count, &since_poll));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode adamw_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_adamw *a = args;
  double b1 = a->beta1, b2 = a->beta2, eps = a->eps, grad_scale = a->grad_scale;
  double step_size = a->lr / (1 - pow(b1, (double)a->step));
  double root_factor = 1 / sqrt(1 - pow(b2, (double)a->step));
  double factor = 1 - a->lr * a->weight_decay;
  int64_t since_poll = 0;
  *done = 1;
  for (int64_t i = 0; i < a->n; i += DMUON_HOST_CHUNK) {
    double g[DMUON_HOST_CHUNK], m[DMUON_HOST_CHUNK], v[DMUON_HOST_CHUNK], p[DMUON_HOST_CHUNK];
    int64_t count = chunk_of(a->n, i);
    load(g, count, a->grad, a->grad_dtype, i);
    load(m, count, a->exp_avg, a->state_dtype, i);
    load(v, count, a->exp_avg_sq, a->state_dtype, i);
    load(p, count, a->weight, a->weight_dtype, i);
    for (int64_t j = 0; j < count; j++) {
      double gradient = grad_scale * g[j];
      m[j] = b1 * m[j] + (1 - b1) * gradient;
      v[j] = b2 * v[j] + (1 - b2) * gradient * gradient;
    }
    for (int64_t j = 0; j < count; j++)
      p[j] = factor * p[j] - step_size * m[j] / (sqrt(v[j]) * root_factor + eps);
    store(m, count, a->exp_avg, a->state_dtype, i);
    store(v, count, a->exp_avg_sq, a->state_dtype, i);
    store(p, count, a->weight, a->weight_dtype, i);
    store_value(count, a->value, a->value_dtype, a->weight, a->weight_dtype, i);
    DMUON_TRY(poll_after(engine, count, &since_poll));
  }
  return DMUON_SUCCESS;
}

const dmuon_host_task_class dmuon_host_momentum_task = {"muon_momentum", momentum_advance, NULL};
const dmuon_host_task_class dmuon_host_apply_task = {"muon_apply", apply_advance, NULL};
const dmuon_host_task_class dmuon_host_adamw_task = {"adamw", adamw_advance, NULL};
