/* The element loops of Muon and AdamW on the host, as device.h defines them. Whatever the storage
 * types, arithmetic and hyper-parameters are in double, on chunks that stay in cache, and a stored
 * value is rounded once: what one formula hands to the next has not been rounded. A published value
 * is cast from the stored weight, so that it is the rounded master exactly, in a step that is
 * skipped too. */
#include "backend/host/tasks.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void load(double *x, int64_t count, const void *data, DMuonDType dtype, int64_t first) {
  dmuon_dtype_cast(count, DMUON_FLOAT64, x, dtype, dmuon_dtype_at(data, first, dtype));
}

static void store(const double *x, int64_t count, void *data, DMuonDType dtype, int64_t first) {
  dmuon_dtype_cast(count, dtype, dmuon_dtype_at(data, first, dtype), DMUON_FLOAT64, x);
}

static void store_value(int64_t count, void *value, DMuonDType value_dtype, const void *weight,
                        DMuonDType weight_dtype, int64_t first) {
  if (!value || value == weight) return;
  dmuon_dtype_cast(count, value_dtype, dmuon_dtype_at(value, first, value_dtype), weight_dtype,
                   dmuon_dtype_at(weight, first, weight_dtype));
}

static int is_skipped(const float *skip) {
  return skip && *skip != 0;
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

/* Overflow. Chunks are computed as if there were none, and looked through before they are stored;
 * one in which something is too large, or not finite, is computed again, element by element. */

/* Whether an |x| is above largest, or NaN. As integers magnitudes are ordered alike, NaN on top;
 * the difference has its first bit set where it is negative: all vectors, and no compare. */
static int any_beyond(int64_t count, const double *x, double largest) {
  const uint64_t magnitude = UINT64_MAX >> 1;
  uint64_t most, bits, negative = 0;
  memcpy(&most, &largest, sizeof most);
  for (int64_t j = 0; j < count; j++) {
    memcpy(&bits, &x[j], sizeof bits);
    negative |= most - (bits & magnitude);
  }
  return negative > magnitude;
}

static double within(double x, double limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

/* The formulas of heavy_ball and ema, each result kept to what can be stored, provided that all
 * that is read is finite. Differences are kept to what a double holds. */
static void momentum_careful(const dmuon_muon_momentum *a, int64_t first, int64_t count, double *b,
                             double *u) {
  double w[DMUON_HOST_CHUNK] = {0}, g[DMUON_HOST_CHUNK], largest, mu = a->mu;
  largest = dmuon_dtype_largest(a->momentum_dtype);
  load(g, count, a->grad, a->grad_dtype, first);
  if (a->l2 != 0) load(w, count, a->weight, a->weight_dtype, first);
  if (a->first)
    memset(b, 0, (size_t)count * sizeof *b);
  else
    load(b, count, a->momentum, a->momentum_dtype, first);
  for (int64_t j = 0; j < count; j++) {
    int finite = isfinite(g[j]) && isfinite(w[j]) && isfinite(b[j]);
    double most = finite ? DBL_MAX : INFINITY, limit = finite ? largest : INFINITY;
    double gradient = within(a->grad_scale * g[j], most);
    if (a->l2 != 0) gradient = within(gradient + within(a->l2 * w[j], most), most);
    if (a->form == DMUON_MOMENTUM_EMA) {
      b[j] = within(
          a->first ? (1 - mu) * gradient : b[j] + (1 - mu) * within(gradient - b[j], most), limit);
      u[j] = a->nesterov ? within(gradient + mu * within(b[j] - gradient, most), limit) : b[j];
    } else {
      b[j] = within(a->first ? gradient : mu * b[j] + gradient, limit);
      u[j] = a->nesterov ? within(gradient + mu * b[j], limit) : b[j];
    }
  }
}

static DMuonErrorCode momentum_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_muon_momentum *a = args;
  double grad_scale = a->grad_scale, l2 = a->l2, largest = dmuon_dtype_largest(a->momentum_dtype);
  int64_t since_poll = 0;
  *done = 1;
  if (is_skipped(a->skip)) {
    memset(a->update, 0, (size_t)a->n * dmuon_dtype_bytes(a->momentum_dtype));
    return DMUON_SUCCESS;
  }
  for (int64_t i = 0; i < a->n; i += DMUON_HOST_CHUNK) {
    double g[DMUON_HOST_CHUNK], b[DMUON_HOST_CHUNK], u[DMUON_HOST_CHUNK];
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, a->n - i);
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
    if (any_beyond(count, b, largest) || any_beyond(count, u, largest))
      momentum_careful(a, i, count, b, u);
    store(b, count, a->momentum, a->momentum_dtype, i);
    store(u, count, a->update, a->momentum_dtype, i);
    DMUON_TRY(poll_after(engine, count, &since_poll));
  }
  return DMUON_SUCCESS;
}

/* A step that is skipped: the values of the weights as they are. */
static void store_values(int64_t n, void *value, DMuonDType value_dtype, const void *weight,
                         DMuonDType weight_dtype) {
  for (int64_t i = 0; i < n; i += DMUON_HOST_CHUNK)
    store_value(dmuon_host_min(DMUON_HOST_CHUNK, n - i), value, value_dtype, weight, weight_dtype,
                i);
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
  if (is_skipped(a->skip)) {
    if (a->skipped) ++*a->skipped;
    store_values(a->n, a->value, a->value_dtype, a->weight, a->weight_dtype);
    return DMUON_SUCCESS;
  }
  for (int64_t i = 0; i < a->n; i += DMUON_HOST_CHUNK) {
    double w[DMUON_HOST_CHUNK], u[DMUON_HOST_CHUNK];
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, a->n - i);
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

typedef struct {
  double factor;      /* of the weight */
  double step_size;   /* lr / (1 - b1^t) */
  double root_factor; /* 1 / sqrt(1 - b2^t) */
  double most;        /* a gradient: its square can still be stored */
  double largest;     /* a second moment */
} adamw_numbers;

/* The formulas of adamw_chunk for whatever numbers. */
static void adamw_careful(const dmuon_adamw *a, const adamw_numbers *c, int64_t first,
                          int64_t count, double *m, double *v, double *p) {
  double g[DMUON_HOST_CHUNK];
  load(g, count, a->grad, a->grad_dtype, first);
  load(m, count, a->exp_avg, a->state_dtype, first);
  load(v, count, a->exp_avg_sq, a->state_dtype, first);
  load(p, count, a->weight, a->weight_dtype, first);
  for (int64_t j = 0; j < count; j++) {
    int finite = isfinite(g[j]) && isfinite(v[j]);
    double gradient = within(a->grad_scale * g[j], finite ? c->most : INFINITY);
    m[j] = a->beta1 * m[j] + (1 - a->beta1) * gradient;
    v[j] = within(a->beta2 * v[j] + (1 - a->beta2) * gradient * gradient,
                  finite ? c->largest : INFINITY);
    double divisor = sqrt(v[j]) * c->root_factor + a->eps;
    p[j] = c->factor * p[j] - (divisor == 0 ? 0 : c->step_size * m[j] / divisor);
  }
}

/* Whether all is well: no gradient too large to be squared, no second moment to be stored, no
 * divisor zero. */
static int adamw_chunk(const dmuon_adamw *a, const adamw_numbers *c, int64_t first, int64_t count,
                       double *m, double *v, double *p) {
  double g[DMUON_HOST_CHUNK], b1 = a->beta1, b2 = a->beta2, eps = a->eps;
  double grad_scale = a->grad_scale, factor = c->factor, step_size = c->step_size;
  double root_factor = c->root_factor, least = INFINITY;
  load(g, count, a->grad, a->grad_dtype, first);
  load(m, count, a->exp_avg, a->state_dtype, first);
  load(v, count, a->exp_avg_sq, a->state_dtype, first);
  load(p, count, a->weight, a->weight_dtype, first);
  for (int64_t j = 0; j < count; j++) {
    g[j] *= grad_scale;
    m[j] = b1 * m[j] + (1 - b1) * g[j];
    v[j] = b2 * v[j] + (1 - b2) * g[j] * g[j];
  }
  if (any_beyond(count, g, c->most) || any_beyond(count, v, c->largest)) return 0;
  for (int64_t j = 0; j < count; j++) g[j] = sqrt(v[j]) * root_factor + eps;
  for (int64_t j = 0; j < count; j++) p[j] = factor * p[j] - step_size * m[j] / g[j];
  if (eps == 0)
    for (int64_t j = 0; j < count; j++) least = g[j] < least ? g[j] : least;
  return least > 0;
}

static DMuonErrorCode adamw_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_adamw *a = args;
  const double t = (double)(a->step - (a->skipped ? *a->skipped : 0));
  adamw_numbers c = {.factor = 1 - a->lr * a->weight_decay,
                     .step_size = a->lr / (1 - pow(a->beta1, t)),
                     .root_factor = 1 / sqrt(1 - pow(a->beta2, t)),
                     .largest = dmuon_dtype_largest(a->state_dtype)};
  int64_t since_poll = 0;
  c.most = sqrt(c.largest);
  *done = 1;
  if (is_skipped(a->skip)) {
    if (a->skipped) ++*a->skipped;
    store_values(a->n, a->value, a->value_dtype, a->weight, a->weight_dtype);
    return DMUON_SUCCESS;
  }
  for (int64_t i = 0; i < a->n; i += DMUON_HOST_CHUNK) {
    double m[DMUON_HOST_CHUNK], v[DMUON_HOST_CHUNK], p[DMUON_HOST_CHUNK];
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, a->n - i);
    if (!adamw_chunk(a, &c, i, count, m, v, p)) adamw_careful(a, &c, i, count, m, v, p);
    store(m, count, a->exp_avg, a->state_dtype, i);
    store(v, count, a->exp_avg_sq, a->state_dtype, i);
    store(p, count, a->weight, a->weight_dtype, i);
    store_value(count, a->value, a->value_dtype, a->weight, a->weight_dtype, i);
    DMUON_TRY(poll_after(engine, count, &since_poll));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode decide_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_decide *a = args;
  (void)engine;
  *done = 1;
  *a->any = 0;
  for (int64_t i = 0; i < a->count; i++)
    if (a->flags[i] != 0) *a->any = 1;
  if (a->skipped && *a->any != 0) ++*a->skipped;
  return DMUON_SUCCESS;
}

const dmuon_host_task_class dmuon_host_decide_task = {.name = "decide", .advance = decide_advance};
const dmuon_host_task_class dmuon_host_momentum_task = {.name = "muon_momentum",
                                                        .advance = momentum_advance};
const dmuon_host_task_class dmuon_host_apply_task = {.name = "muon_apply",
                                                     .advance = apply_advance};
const dmuon_host_task_class dmuon_host_adamw_task = {.name = "adamw", .advance = adamw_advance};
