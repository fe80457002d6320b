/* The reference of reference.h. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 10 };

typedef struct {
  const char *name;
  int steps;
  double abc[MAX_STEPS][3];
} table;

/* polar_express: arXiv:2505.16932 with a, b, c divided by 1.05, 1.05^3, 1.05^5. */
static const table tables[] = {
    {"polar_express",
     5,
     {{7.892582874424408, -20.38301394587957, 13.555306149406924},
      {3.911484868135431, -2.5464635929060884, 0.4268988319673074},
      {3.760657955697423, -2.512819018216563, 0.4323647349070073},
      {3.160399673686287, -2.149649518898498, 0.3996366907664389},
      {2.1910971618617303, -1.441662010214663, 0.328146487623155}}},
    {"you",
     5,
     {{4.0848, -6.8946, 2.9270},
      {3.9505, -6.3029, 2.6377},
      {3.7418, -5.5913, 2.3037},
      {2.8769, -3.1427, 1.2046},
      {2.8366, -3.0525, 1.2012}}},
    {"jordan",
     5,
     {{3.4445, -4.7750, 2.0315},
      {3.4445, -4.7750, 2.0315},
      {3.4445, -4.7750, 2.0315},
      {3.4445, -4.7750, 2.0315},
      {3.4445, -4.7750, 2.0315}}},
    {"dion",
     5,
     {{8.156554524902461, -22.48329292557795, 15.878769915207462},
      {4.042929935166739, -2.808917465908714, .5000178451051316},
      {3.8916678022926607, -2.772484153217685, .5060648178503393},
      {3.285753657755655, -2.3681294933425376, .46449024233003106},
      {2.3465413258596377, -1.7097828382687081, .42323551169305323}}},
    {"cans",
     5,
     {{8.4703, -25.1081, 18.6293},
      {4.1828, -3.1087, .5806},
      {3.9619, -2.9541, .5630},
      {3.2866, -2.4647, .5074},
      {2.2737, -1.6447, .4162}}},
};

int ref_recipe(const char *name, ref_rule *rule) {
  const ref_rule dmuon = {.lr = .02,
                          .momentum = .95,
                          .adamw_lr = 1e-3,
                          .beta1 = .9,
                          .beta2 = .999,
                          .eps = 1e-8,
                          .adamw_weight_decay = .01,
                          .nesterov = 1,
                          .scale_factor = 1,
                          .coefficients = "polar_express"};
  *rule = dmuon;
  if (!strcmp(name, "dmuon")) return 1;
  if (!strcmp(name, "jordan")) {
    rule->adamw_lr = 3e-4;
    rule->beta2 = .95;
    rule->eps = 1e-10;
    rule->adamw_weight_decay = 0;
    rule->ema = rule->missing_is_zero = 1;
    rule->scale = REF_JORDAN;
    rule->coefficients = "jordan";
    return 1;
  }
  if (!strcmp(name, "moonlight")) {
    rule->lr = rule->adamw_lr = 1e-3;
    rule->beta2 = .95;
    rule->weight_decay = rule->adamw_weight_decay = .1;
    rule->coefficients = "jordan";
    return 1;
  }
  if (!strcmp(name, "dion")) {
    rule->lr = rule->adamw_lr = .01;
    rule->beta2 = .95;
    rule->weight_decay = .01;
    rule->nesterov = 0;
    rule->scale = REF_UNIT_RMS;
    rule->coefficients = "dion";
    return 1;
  }
  if (!strcmp(name, "emerging")) {
    rule->lr = rule->adamw_lr = 3e-4;
    rule->weight_decay = .01;
    rule->ema = 1;
    rule->nesterov = 0;
    rule->scale = REF_SPECTRAL;
    rule->coefficients = "you";
    return 1;
  }
  return 0;
}

static double *numbers(int64_t n) {
  return calloc((size_t)(n > 0 ? n : 1), sizeof(double));
}

/* c (m x n) = a (m x k) b (k x n) */
static void multiply(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
      c[i * n + j] = sum;
    }
}

static void transpose(int64_t rows, int64_t cols, const double *x, double *y) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) y[j * rows + i] = x[i * cols + j];
}

static double sum_of_squares(int64_t n, const double *x) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

void ref_newton_schulz(const char *coefficients, int64_t rows, int64_t cols, double *x) {
  const int64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
  const double norm = sqrt(sum_of_squares(rows * cols, x));
  const table *t = NULL;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    if (!strcmp(tables[i].name, coefficients)) t = &tables[i];
  if (!t) abort();
  if (norm == 0) return;
  double *y = numbers(m * n), *yt = numbers(m * n), *next = numbers(m * n);
  double *a = numbers(m * m), *a2 = numbers(m * m);
  if (rows > cols)
    transpose(rows, cols, x, y);
  else
    memcpy(y, x, (size_t)(m * n) * sizeof *y);
  for (int64_t i = 0; i < m * n; i++) y[i] /= norm;
  for (int s = 0; s < t->steps; s++) {
    transpose(m, n, y, yt);
    multiply(m, m, n, y, yt, a);
    multiply(m, m, m, a, a, a2);
    for (int64_t i = 0; i < m * m; i++) a[i] = t->abc[s][1] * a[i] + t->abc[s][2] * a2[i];
    multiply(m, n, m, a, y, next);
    for (int64_t i = 0; i < m * n; i++) y[i] = t->abc[s][0] * y[i] + next[i];
  }
  if (rows > cols)
    transpose(m, n, y, x);
  else
    memcpy(x, y, (size_t)(m * n) * sizeof *y);
  free(y), free(yt), free(next), free(a), free(a2);
}

static double scale_of(const ref_rule *rule, double out, double in) {
  const double longer = out > in ? out : in;
  switch (rule->scale) {
    case REF_MOONLIGHT:
      return rule->scale_factor * .2 * sqrt(longer);
    case REF_JORDAN:
      return rule->scale_factor * sqrt(out > in ? out / in : 1);
    case REF_SPECTRAL:
      return rule->scale_factor * sqrt(longer);
    case REF_UNIT_RMS:
      return rule->scale_factor * sqrt(out / in);
    case REF_NO_SCALE:
      break;
  }
  return rule->scale_factor;
}

/* Which block position i of the output side is in; *at: its place within that block's matrix. */
static int block_of(const ref_param *p, int64_t i, int64_t *at) {
  int64_t period = 0;
  if (p->nblocks == 0) return *at = i, 0;
  for (int j = 0; j < p->nblocks; j++) period += p->blocks[j];
  const int64_t turn = i / period;
  int64_t rest = i % period;
  for (int j = 0; j < p->nblocks; j++) {
    if (rest < p->blocks[j]) return *at = turn * p->blocks[j] + rest, j;
    rest -= p->blocks[j];
  }
  abort();
}

/* u (a whole parameter) becomes the scaled orthogonal update. */
static int64_t orthogonalise(const ref_rule *rule, const ref_param *p, double *u) {
  const int64_t side = p->output_is_cols ? p->cols : p->rows;
  const int64_t other = p->output_is_cols ? p->rows : p->cols;
  const int nblocks = p->nblocks > 0 ? p->nblocks : 1;
  int64_t matrices = 0;
  for (int64_t b = 0; b < p->batch; b++) {
    double *matrix = u + b * p->rows * p->cols;
    for (int block = 0; block < nblocks; block++) {
      int64_t length = 0, at;
      for (int64_t i = 0; i < side; i++) length += block_of(p, i, &at) == block;
      double *piece = numbers(length * other);
      /* The piece with its output side as rows: orthogonalising commutes with transposing. */
      for (int64_t i = 0; i < side; i++) {
        if (block_of(p, i, &at) != block) continue;
        for (int64_t j = 0; j < other; j++)
          piece[at * other + j] =
              p->output_is_cols ? matrix[j * p->cols + i] : matrix[i * p->cols + j];
      }
      ref_newton_schulz(rule->coefficients, length, other, piece);
      const double scale = length * other > 0 ? scale_of(rule, (double)length, (double)other) : 0;
      for (int64_t i = 0; i < side; i++) {
        if (block_of(p, i, &at) != block) continue;
        for (int64_t j = 0; j < other; j++)
          *(p->output_is_cols ? &matrix[j * p->cols + i] : &matrix[i * p->cols + j]) =
              scale * piece[at * other + j];
      }
      free(piece);
      matrices++;
    }
  }
  return matrices;
}

static int64_t muon(const ref_rule *rule, double lr, double clip, ref_param *p,
                    const double *grad) {
  const int64_t n = p->batch * p->rows * p->cols;
  const double mu = p->momentum, wd = p->weight_decay;
  double *u = numbers(n), *b = p->momentum_buffer, *w = p->weight;
  for (int64_t i = 0; i < n; i++) {
    const double g = clip * grad[i] + (rule->decay == REF_L2 ? wd * w[i] : 0);
    b[i] = rule->ema ? mu * b[i] + (1 - mu) * g : mu * b[i] + g;
    u[i] = b[i];
    if (rule->nesterov) u[i] = rule->ema ? (1 - mu) * g + mu * b[i] : g + mu * b[i];
  }
  const int64_t matrices = orthogonalise(rule, p, u);
  for (int64_t i = 0; i < n; i++) {
    double kept = 1;
    if (rule->decay == REF_DECOUPLED) kept = 1 - lr * wd;
    if (rule->decay == REF_INDEPENDENT) kept = 1 - wd;
    if (rule->decay == REF_PALM) kept = 1 - lr * lr * wd;
    if (rule->decay == REF_CAUTIOUS && w[i] * u[i] >= 0) kept = 1 - lr * wd;
    w[i] = kept * w[i] - lr * u[i];
  }
  free(u);
  p->step++;
  return matrices;
}

static void adamw(double lr, double clip, ref_param *p, const double *grad) {
  const int64_t n = p->batch * p->rows * p->cols, t = ++p->step;
  for (int64_t i = 0; i < n; i++) {
    const double g = clip * grad[i];
    p->weight[i] *= 1 - lr * p->weight_decay;
    p->exp_avg[i] = p->beta1 * p->exp_avg[i] + (1 - p->beta1) * g;
    p->exp_avg_sq[i] = p->beta2 * p->exp_avg_sq[i] + (1 - p->beta2) * g * g;
    const double m = p->exp_avg[i] / (1 - pow(p->beta1, (double)t));
    const double v = p->exp_avg_sq[i] / (1 - pow(p->beta2, (double)t));
    p->weight[i] -= lr * m / (sqrt(v) + p->eps);
  }
}

void ref_start(const ref_rule *rule, int count, ref_param *params) {
  for (int i = 0; i < count; i++) {
    ref_param *p = &params[i];
    const size_t bytes = (size_t)(p->batch * p->rows * p->cols) * sizeof(double);
    p->lr = p->route == REF_MUON ? rule->lr : rule->adamw_lr;
    p->weight_decay = p->route == REF_MUON ? rule->weight_decay : rule->adamw_weight_decay;
    p->momentum = rule->momentum;
    p->beta1 = rule->beta1;
    p->beta2 = rule->beta2;
    p->eps = rule->eps;
    p->step = 0;
    memset(p->momentum_buffer, 0, bytes);
    memset(p->exp_avg, 0, bytes);
    memset(p->exp_avg_sq, 0, bytes);
  }
}

static double factor_of(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

void ref_step(const ref_rule *rule, double lr_factor, int count, ref_param *params,
              double *const *gradients, ref_info *info) {
  double squares[2] = {0, 0}, clip[2] = {1, 1};
  for (int i = 0; i < count; i++)
    if (gradients[i] && params[i].route != REF_FROZEN)
      squares[params[i].route] +=
          sum_of_squares(params[i].batch * params[i].rows * params[i].cols, gradients[i]);
  info->grad_norm = sqrt(squares[REF_MUON] + squares[REF_ADAMW]);
  info->muon_norm = sqrt(squares[REF_MUON]);
  info->adamw_norm = sqrt(squares[REF_ADAMW]);
  if (rule->clip == REF_CLIP_GLOBAL) clip[0] = clip[1] = factor_of(info->grad_norm, rule->max_norm);
  if (rule->clip == REF_CLIP_BY_ROUTE) {
    clip[REF_MUON] = factor_of(info->muon_norm, rule->max_norm);
    clip[REF_ADAMW] = factor_of(info->adamw_norm, rule->max_norm);
  }
  info->factor = clip[0] < clip[1] ? clip[0] : clip[1];
  info->matrices = 0;
  for (int i = 0; i < count; i++) {
    ref_param *p = &params[i];
    if (p->route == REF_FROZEN || (!gradients[i] && !rule->missing_is_zero)) continue;
    double *zeros = gradients[i] ? NULL : numbers(p->batch * p->rows * p->cols);
    const double *g = zeros ? zeros : gradients[i];
    if (p->route == REF_MUON)
      info->matrices += muon(rule, lr_factor * p->lr, clip[REF_MUON], p, g);
    else
      adamw(lr_factor * p->lr, clip[REF_ADAMW], p, g);
    free(zeros);
  }
}

double ref_distance(int64_t n, const double *a, const double *b) {
  double difference = 0;
  for (int64_t i = 0; i < n; i++) difference += (a[i] - b[i]) * (a[i] - b[i]);
  const double size = sum_of_squares(n, b);
  if (difference == 0) return 0;
  return size > 0 ? sqrt(difference / size) : INFINITY;
}
