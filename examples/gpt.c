/* The network of gpt.h: its memory, its forward and its backward pass, by hand, on CBLAS.
 * Shapes stand beside the buffers. N = n T rows, one for every byte of the n sequences. Sums are
 * taken in a fixed order, so equal inputs give equal bits. */
#include "gpt.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------- */

/* The next count floats of a block, on a cache line; in the first round only their place. */
static float *take(float *block, int64_t *used, int64_t count) {
  float *place = block ? block + *used : NULL;
  *used += (count + 15) / 16 * 16;
  return place;
}

static float *reserve(int64_t count) {
  float *block = aligned_alloc(64, (size_t)count * sizeof *block);
  if (block) memset(block, 0, (size_t)count * sizeof *block);
  return block;
}

static void describe(Gpt *g) {
  const int64_t L = g->config.layers, D = g->config.width, V = GPT_VOCABULARY;
  const GptTensor table[GPT_TENSORS] = {
      [GPT_WTE] = {.name = "wte.weight", .ndim = 2, .dims = {V, D}},
      [GPT_WPE] = {.name = "wpe.weight", .ndim = 2, .dims = {g->config.context, D}},
      [GPT_LN1_W] = {.name = "h.%d.ln_1.weight", .layers = (int)L, .ndim = 1, .dims = {D}},
      [GPT_LN1_B] = {.name = "h.%d.ln_1.bias", .layers = (int)L, .ndim = 1, .dims = {D}},
      [GPT_QKV_W] = {.name = "h.%d.attn.qkv.weight", .layers = (int)L, .ndim = 2, {3 * D, D}},
      [GPT_QKV_B] = {.name = "h.%d.attn.qkv.bias", .layers = (int)L, .ndim = 1, {3 * D}},
      [GPT_PROJ_W] = {.name = "h.%d.attn.proj.weight", .layers = (int)L, .ndim = 2, {D, D}},
      [GPT_PROJ_B] = {.name = "h.%d.attn.proj.bias", .layers = (int)L, .ndim = 1, {D}},
      [GPT_LN2_W] = {.name = "h.%d.ln_2.weight", .layers = (int)L, .ndim = 1, .dims = {D}},
      [GPT_LN2_B] = {.name = "h.%d.ln_2.bias", .layers = (int)L, .ndim = 1, .dims = {D}},
      [GPT_FC_W] = {.name = "h.%d.mlp.fc.weight", .layers = (int)L, .ndim = 2, {4 * D, D}},
      [GPT_FC_B] = {.name = "h.%d.mlp.fc.bias", .layers = (int)L, .ndim = 1, {4 * D}},
      [GPT_FCPROJ_W] = {.name = "h.%d.mlp.proj.weight", .layers = (int)L, .ndim = 2, {D, 4 * D}},
      [GPT_FCPROJ_B] = {.name = "h.%d.mlp.proj.bias", .layers = (int)L, .ndim = 1, .dims = {D}},
      [GPT_LNF_W] = {.name = "ln_f.weight", .ndim = 1, .dims = {D}},
      [GPT_LNF_B] = {.name = "ln_f.bias", .ndim = 1, .dims = {D}},
      [GPT_HEAD_W] = {.name = "head.weight", .ndim = 2, .dims = {V, D}},
  };
  memcpy(g->tensor, table, sizeof table);
  for (int i = 0; i < GPT_TENSORS; i++) {
    GptTensor *t = &g->tensor[i];
    t->numel = t->dims[0] * (t->ndim > 1 ? t->dims[1] : 1);
  }
}

static int64_t stacked(const GptTensor *t) {
  return t->numel * (t->layers ? t->layers : 1);
}

static int64_t place_parameters(Gpt *g) {
  int64_t used = 0;
  for (int i = 0; i < GPT_TENSORS; i++) {
    int64_t at = used;
    g->tensor[i].weights = take(g->parameters, &used, stacked(&g->tensor[i]));
    g->tensor[i].gradients = take(g->gradients, &at, stacked(&g->tensor[i]));
  }
  return used;
}

static int64_t place_activations(Gpt *g) {
  const int64_t L = g->config.layers, D = g->config.width, H = g->config.heads;
  const int64_t T = g->config.context, n = g->capacity, N = n * T;
  float *block = g->activations;
  int64_t used = 0;
  g->x = take(block, &used, (L + 1) * N * D);
  g->middle = take(block, &used, L * N * D);
  g->norm1 = take(block, &used, L * N * D);
  g->norm2 = take(block, &used, L * N * D);
  g->mixed = take(block, &used, L * N * D);
  g->stats = take(block, &used, (2 * L + 1) * N * 2);
  g->qkv = take(block, &used, L * N * 3 * D);
  g->attention = take(block, &used, L * n * H * T * T);
  g->hidden = take(block, &used, L * N * 4 * D);
  g->slope = take(block, &used, L * N * 4 * D);
  g->normf = take(block, &used, N * D);
  g->logits = take(block, &used, N * GPT_VOCABULARY);
  g->dx = take(block, &used, N * D);
  g->dnorm = take(block, &used, N * D);
  g->dqkv = take(block, &used, N * 3 * D);
  g->dhidden = take(block, &used, N * 4 * D);
  g->dscores = take(block, &used, T * T);
  return used;
}

/* Uniform in (-1, 1), a function of its arguments alone (the mixing of splitmix64). */
static float noise(uint64_t seed, uint64_t tensor, uint64_t element) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + (tensor << 48) + element + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  z ^= z >> 29;
  return (float)((int64_t)(z >> 40) - (1 << 23)) / (float)(1 << 23);
}

/* Deviation 0.02 as in GPT-2, the projections back into the stream smaller by sqrt(2L). */
static void initialise(Gpt *g, uint64_t seed) {
  for (int i = 0; i < GPT_TENSORS; i++) {
    GptTensor *t = &g->tensor[i];
    float deviation = t->ndim == 2 ? 0.02f : 0;
    if (i == GPT_PROJ_W || i == GPT_FCPROJ_W) deviation /= sqrtf(2.f * (float)t->layers);
    const int gain = i == GPT_LN1_W || i == GPT_LN2_W || i == GPT_LNF_W;
    for (int64_t k = 0; k < stacked(t); k++) {
      const float u = deviation > 0 ? noise(seed, (uint64_t)i, (uint64_t)k) : 0;
      t->weights[k] = gain ? 1 : deviation * 1.7320508f * u;
    }
  }
}

Gpt *gpt_create(GptConfig config, int capacity, uint64_t seed) {
  if (config.layers < 1 || config.width < 1 || config.heads < 1 || config.context < 1) return NULL;
  if (config.width % config.heads || capacity < 1) return NULL;
  Gpt *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->config = config;
  g->capacity = capacity;
  describe(g);
  g->parameters = reserve(place_parameters(g));
  g->gradients = reserve(place_parameters(g));
  g->activations = reserve(place_activations(g));
  if (!g->parameters || !g->gradients || !g->activations) {
    gpt_destroy(g);
    return NULL;
  }
  place_parameters(g);
  place_activations(g);
  initialise(g, seed);
  return g;
}

void gpt_destroy(Gpt *g) {
  if (!g) return;
  free(g->parameters);
  free(g->gradients);
  free(g->activations);
  free(g);
}

void gpt_zero_gradients(Gpt *g) {
  for (int i = 0; i < GPT_TENSORS; i++) {
    memset(g->tensor[i].gradients, 0, (size_t)stacked(&g->tensor[i]) * sizeof(float));
  }
}

void gpt_tensor_name(const GptTensor *tensor, int l, char name[GPT_NAME]) {
  const char *hole = strstr(tensor->name, "%d");
  if (hole) {
    snprintf(name, GPT_NAME, "%.*s%d%s", (int)(hole - tensor->name), tensor->name, l, hole + 2);
  } else {
    snprintf(name, GPT_NAME, "%s", tensor->name);
  }
}

int64_t gpt_parameter_count(const Gpt *g) {
  int64_t count = 0;
  for (int i = 0; i < GPT_TENSORS; i++) count += stacked(&g->tensor[i]);
  return count;
}

/* The weights, or gradients, of layer l of a stack. */
static float *weight(const Gpt *g, int tensor, int l) {
  return g->tensor[tensor].weights + l * g->tensor[tensor].numel;
}
static float *gradient(const Gpt *g, int tensor, int l) {
  return g->tensor[tensor].gradients + l * g->tensor[tensor].numel;
}

/* ---- layers: forward ----------------------------------------------------------------------- */

/* y (N, out) = x (N, in) w^T + b; with add, y += that. b may be NULL. */
static void linear(float *y, const float *x, const float *w, const float *b, int N, int in, int out,
                   int add) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, out, in, 1, x, in, w, in, add ? 1.f : 0.f,
              y, out);
  for (int i = 0; b && i < N; i++) {
    for (int o = 0; o < out; o++) y[(int64_t)i * out + o] += b[o];
  }
}

/* y = (x - mean) / deviation * w + b, row by row; stats: mean and 1/deviation of each row. */
static void layer_norm(float *y, float *stats, const float *x, const float *w, const float *b,
                       int N, int D) {
  for (int i = 0; i < N; i++, x += D, y += D, stats += 2) {
    float mean = 0, variance = 0;
    for (int d = 0; d < D; d++) mean += x[d];
    mean /= (float)D;
    for (int d = 0; d < D; d++) variance += (x[d] - mean) * (x[d] - mean);
    const float inverse = 1 / sqrtf(variance / (float)D + 1e-5f);
    for (int d = 0; d < D; d++) y[d] = (x[d] - mean) * inverse * w[d] + b[d];
    stats[0] = mean;
    stats[1] = inverse;
  }
}

/* hidden = GELU(hidden), slope = its derivative. The tanh form, 0.5 (1 + tanh u) = sigmoid(2u). */
static void gelu(float *hidden, float *slope, int64_t count) {
  const float a = 1.5957691216f, c = 0.044715f; /* 2 sqrt(2/pi) */
  for (int64_t i = 0; i < count; i++) {
    const float x = hidden[i];
    const float s = 1 / (1 + expf(-a * (x + c * x * x * x)));
    hidden[i] = x * s;
    slope[i] = s + x * s * (1 - s) * a * (1 + 3 * c * x * x);
  }
}

/* y (n, T, D) from qkv (n, T, 3D), head by head; p (n, H, T, T): the attention weights. */
static void attend(float *y, float *p, const float *qkv, int n, GptConfig c) {
  const int T = c.context, D = c.width, d = D / c.heads;
  const float scale = 1 / sqrtf((float)d);
  for (int64_t i = 0; i < (int64_t)n * c.heads; i++, p += (int64_t)T * T) {
    const int64_t sequence = i / c.heads, head = i % c.heads;
    const float *q = qkv + sequence * T * 3 * D + head * d, *k = q + D, *v = k + D;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, T, d, scale, q, 3 * D, k, 3 * D, 0, p,
                T);
    for (int t = 0; t < T; t++) { /* each byte looks at itself and what came before */
      float *row = p + (int64_t)t * T, top = row[0], sum = 0;
      for (int s = 1; s <= t; s++) top = row[s] > top ? row[s] : top;
      for (int s = 0; s <= t; s++) sum += row[s] = expf(row[s] - top);
      for (int s = 0; s <= t; s++) row[s] /= sum;
      for (int s = t + 1; s < T; s++) row[s] = 0;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, T, d, T, 1, p, T, v, 3 * D, 0,
                y + sequence * T * D + head * d, D);
  }
}

/* Loss of all rows; logits become their own gradient: probability, less one at the target. */
static double cross_entropy(float *logits, const unsigned char *sequences, int n, int T) {
  double loss = 0;
  for (int64_t i = 0; i < (int64_t)n * T; i++, logits += GPT_VOCABULARY) {
    const int target = sequences[i / T * (T + 1) + i % T + 1];
    float top = logits[0], sum = 0;
    for (int v = 1; v < GPT_VOCABULARY; v++) top = logits[v] > top ? logits[v] : top;
    const float shifted = logits[target] - top;
    for (int v = 0; v < GPT_VOCABULARY; v++) sum += logits[v] = expf(logits[v] - top);
    for (int v = 0; v < GPT_VOCABULARY; v++) logits[v] /= sum;
    loss += log((double)sum) - (double)shifted;
    logits[target] -= 1;
  }
  return loss;
}

double gpt_forward(Gpt *g, const unsigned char *sequences, int n) {
  const int T = g->config.context, D = g->config.width, L = g->config.layers, N = n * T;
  const int64_t ND = (int64_t)g->capacity * T * D, S = (int64_t)g->capacity * T * 2;
  const int64_t P = (int64_t)g->capacity * g->config.heads * T * T;
  g->sequences = n;
  g->input = sequences;
  for (int i = 0; i < N; i++) {
    const float *e = weight(g, GPT_WTE, 0) + (int64_t)sequences[i / T * (T + 1) + i % T] * D;
    const float *p = weight(g, GPT_WPE, 0) + (int64_t)(i % T) * D;
    for (int d = 0; d < D; d++) g->x[(int64_t)i * D + d] = e[d] + p[d];
  }
  for (int l = 0; l < L; l++) {
    float *x = g->x + l * ND, *middle = g->middle + l * ND, *next = x + ND;
    float *norm1 = g->norm1 + l * ND, *norm2 = g->norm2 + l * ND, *mixed = g->mixed + l * ND;
    float *qkv = g->qkv + l * 3 * ND, *hidden = g->hidden + l * 4 * ND;
    layer_norm(norm1, g->stats + 2 * l * S, x, weight(g, GPT_LN1_W, l), weight(g, GPT_LN1_B, l), N,
               D);
    linear(qkv, norm1, weight(g, GPT_QKV_W, l), weight(g, GPT_QKV_B, l), N, D, 3 * D, 0);
    attend(mixed, g->attention + l * P, qkv, n, g->config);
    memcpy(middle, x, (size_t)N * (size_t)D * sizeof *x);
    linear(middle, mixed, weight(g, GPT_PROJ_W, l), weight(g, GPT_PROJ_B, l), N, D, D, 1);
    layer_norm(norm2, g->stats + (2 * l + 1) * S, middle, weight(g, GPT_LN2_W, l),
               weight(g, GPT_LN2_B, l), N, D);
    linear(hidden, norm2, weight(g, GPT_FC_W, l), weight(g, GPT_FC_B, l), N, D, 4 * D, 0);
    gelu(hidden, g->slope + l * 4 * ND, (int64_t)N * 4 * D);
    memcpy(next, middle, (size_t)N * (size_t)D * sizeof *x);
    linear(next, hidden, weight(g, GPT_FCPROJ_W, l), weight(g, GPT_FCPROJ_B, l), N, 4 * D, D, 1);
  }
  layer_norm(g->normf, g->stats + 2 * L * S, g->x + L * ND, weight(g, GPT_LNF_W, 0),
             weight(g, GPT_LNF_B, 0), N, D);
  linear(g->logits, g->normf, weight(g, GPT_HEAD_W, 0), NULL, N, D, GPT_VOCABULARY, 0);
  return cross_entropy(g->logits, sequences, n, T);
}

/* ---- layers: backward ---------------------------------------------------------------------- */

/* dx (N, in) = dy w, dw += dy^T x, db += column sums of dy (N, out). db may be NULL. */
static void linear_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                            const float *w, int N, int in, int out) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, in, out, 1, dy, out, w, in, 0, dx, in);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, N, 1, dy, out, x, in, 1, dw, in);
  for (int i = 0; db && i < N; i++) {
    for (int o = 0; o < out; o++) db[o] += dy[(int64_t)i * out + o];
  }
}

/* Adds to dx what comes back through the norm; adds to dw and db. */
static void layer_norm_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                                const float *stats, const float *w, int N, int D) {
  for (int i = 0; i < N; i++, x += D, dx += D, dy += D, stats += 2) {
    const float mean = stats[0], inverse = stats[1];
    float sum = 0, dot = 0;
    for (int d = 0; d < D; d++) {
      const float unit = (x[d] - mean) * inverse;
      sum += dy[d] * w[d];
      dot += dy[d] * w[d] * unit;
      dw[d] += dy[d] * unit;
      db[d] += dy[d];
    }
    sum /= (float)D;
    dot /= (float)D;
    for (int d = 0; d < D; d++) {
      dx[d] += inverse * (dy[d] * w[d] - sum - (x[d] - mean) * inverse * dot);
    }
  }
}

/* dqkv (n, T, 3D) from dy (n, T, D); ds: room for one head's scores. */
static void attend_backward(float *dqkv, float *ds, const float *dy, const float *p,
                            const float *qkv, int n, GptConfig c) {
  const int T = c.context, D = c.width, d = D / c.heads;
  const float scale = 1 / sqrtf((float)d);
  for (int64_t i = 0; i < (int64_t)n * c.heads; i++, p += (int64_t)T * T) {
    const int64_t at = i / c.heads * T, head = i % c.heads * d;
    const float *q = qkv + at * 3 * D + head, *k = q + D, *v = k + D, *dout = dy + at * D + head;
    float *dq = dqkv + at * 3 * D + head, *dk = dq + D, *dv = dk + D;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, T, d, T, 1, p, T, dout, D, 0, dv, 3 * D);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, T, d, 1, dout, D, v, 3 * D, 0, ds, T);
    for (int t = 0; t < T; t++) { /* softmax: ds = p (dp - sum of p dp) */
      const float *row = p + (int64_t)t * T;
      float *drow = ds + (int64_t)t * T, dot = 0;
      for (int s = 0; s <= t; s++) dot += row[s] * drow[s];
      for (int s = 0; s <= t; s++) drow[s] = row[s] * (drow[s] - dot);
      for (int s = t + 1; s < T; s++) drow[s] = 0;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, T, d, T, scale, ds, T, k, 3 * D, 0, dq,
                3 * D);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, T, d, T, scale, ds, T, q, 3 * D, 0, dk,
                3 * D);
  }
}

void gpt_backward(Gpt *g) {
  const int T = g->config.context, D = g->config.width, L = g->config.layers;
  const int n = g->sequences, N = n * T;
  const int64_t ND = (int64_t)g->capacity * T * D, S = (int64_t)g->capacity * T * 2;
  const int64_t P = (int64_t)g->capacity * g->config.heads * T * T;
  linear_backward(g->dnorm, gradient(g, GPT_HEAD_W, 0), NULL, g->logits, g->normf,
                  weight(g, GPT_HEAD_W, 0), N, D, GPT_VOCABULARY);
  memset(g->dx, 0, (size_t)N * (size_t)D * sizeof *g->dx);
  layer_norm_backward(g->dx, gradient(g, GPT_LNF_W, 0), gradient(g, GPT_LNF_B, 0), g->dnorm,
                      g->x + L * ND, g->stats + 2 * L * S, weight(g, GPT_LNF_W, 0), N, D);
  for (int l = L; l-- > 0;) {
    const float *slope = g->slope + l * 4 * ND;
    linear_backward(g->dhidden, gradient(g, GPT_FCPROJ_W, l), gradient(g, GPT_FCPROJ_B, l), g->dx,
                    g->hidden + l * 4 * ND, weight(g, GPT_FCPROJ_W, l), N, 4 * D, D);
    for (int64_t i = 0; i < (int64_t)N * 4 * D; i++) g->dhidden[i] *= slope[i];
    linear_backward(g->dnorm, gradient(g, GPT_FC_W, l), gradient(g, GPT_FC_B, l), g->dhidden,
                    g->norm2 + l * ND, weight(g, GPT_FC_W, l), N, D, 4 * D);
    layer_norm_backward(g->dx, gradient(g, GPT_LN2_W, l), gradient(g, GPT_LN2_B, l), g->dnorm,
                        g->middle + l * ND, g->stats + (2 * l + 1) * S, weight(g, GPT_LN2_W, l), N,
                        D);
    linear_backward(g->dnorm, gradient(g, GPT_PROJ_W, l), gradient(g, GPT_PROJ_B, l), g->dx,
                    g->mixed + l * ND, weight(g, GPT_PROJ_W, l), N, D, D);
    attend_backward(g->dqkv, g->dscores, g->dnorm, g->attention + l * P, g->qkv + l * 3 * ND, n,
                    g->config);
    linear_backward(g->dnorm, gradient(g, GPT_QKV_W, l), gradient(g, GPT_QKV_B, l), g->dqkv,
                    g->norm1 + l * ND, weight(g, GPT_QKV_W, l), N, D, 3 * D);
    layer_norm_backward(g->dx, gradient(g, GPT_LN1_W, l), gradient(g, GPT_LN1_B, l), g->dnorm,
                        g->x + l * ND, g->stats + 2 * l * S, weight(g, GPT_LN1_W, l), N, D);
  }
  for (int i = 0; i < N; i++) {
    float *e = gradient(g, GPT_WTE, 0) + (int64_t)g->input[i / T * (T + 1) + i % T] * D;
    float *p = gradient(g, GPT_WPE, 0) + (int64_t)(i % T) * D;
    for (int d = 0; d < D; d++) {
      e[d] += g->dx[(int64_t)i * D + d];
      p[d] += g->dx[(int64_t)i * D + d];
    }
  }
}
