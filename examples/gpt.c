/* The network of gpt.h: its memory, its forward and its backward pass, by hand, on CBLAS. Shapes
 * stand beside the buffers. N = n T rows, one for every byte of the n sequences. Sums are taken in
 * a fixed order, so equal inputs give equal bits. */
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

/* count: a multiple of 16. */
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
  const int64_t K = g->config.recompute ? 1 : L;
  float *block = g->activations;
  int64_t used = 0;
  g->x = take(block, &used, (L + 1) * N * D);
  g->middle = take(block, &used, K * N * D);
  g->norm1 = take(block, &used, K * N * D);
  g->norm2 = take(block, &used, K * N * D);
  g->mixed = take(block, &used, K * N * D);
  g->stats = take(block, &used, (2 * K + 1) * N * 2);
  g->qkv = take(block, &used, K * N * 3 * D);
  g->attention = take(block, &used, K * n * H * T * T);
  g->hidden = take(block, &used, K * N * 4 * D);
  g->slope = take(block, &used, K * N * 4 * D);
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
void gpt_initial(const Gpt *g, uint64_t seed, int tensor, int l, float *values) {
  const GptTensor *t = &g->tensor[tensor];
  float deviation = t->ndim == 2 ? 0.02f : 0;
  if (tensor == GPT_PROJ_W || tensor == GPT_FCPROJ_W) deviation /= sqrtf(2.f * (float)t->layers);
  const int gain = tensor == GPT_LN1_W || tensor == GPT_LN2_W || tensor == GPT_LNF_W;
  for (int64_t k = 0; k < t->numel; k++) {
    const uint64_t element = (uint64_t)(l * t->numel + k);
    const float u = deviation > 0 ? noise(seed, (uint64_t)tensor, element) : 0;
    values[k] = gain ? 1 : deviation * 1.7320508f * u;
  }
}

Gpt *gpt_create(GptConfig config, int capacity) {
  if (config.layers < 1 || config.width < 1 || config.heads < 1 || config.context < 1) return NULL;
  if (config.width % config.heads || capacity < 1) return NULL;
  Gpt *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->config = config;
  g->capacity = capacity;
  describe(g);
  g->activations = reserve(place_activations(g));
  if (!g->activations) {
    gpt_destroy(g);
    return NULL;
  }
  place_activations(g);
  return g;
}

int gpt_own(Gpt *g, uint64_t seed) {
  g->room = place_parameters(g);
  g->parameters = reserve(g->room);
  g->gradients = reserve(g->room);
  if (!g->parameters || !g->gradients) return -1;
  place_parameters(g);
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &g->tensor[i];
    for (int l = 0; l < (t->layers ? t->layers : 1); l++) {
      gpt_initial(g, seed, i, l, t->weights + l * t->numel);
    }
  }
  return 0;
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

int gpt_parts(const Gpt *g) {
  return g->config.layers + 2;
}

int gpt_part_tensors(const Gpt *g, int part, int *first) {
  const int last = part == g->config.layers + 1;
  *first = part == 0 ? GPT_WTE : last ? GPT_LNF_W : GPT_LN1_W;
  return (part == 0 ? GPT_LN1_W : last ? GPT_TENSORS : GPT_LNF_W) - *first;
}

void gpt_input(Gpt *g, const unsigned char *sequences, int n) {
  g->sequences = n;
  g->input = sequences;
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

/* ---- parts --------------------------------------------------------------------------------- */

/* Where the activations of a block are. */
typedef struct {
  float *x, *middle, *next; /* the stream: before, between attention and perceptron, behind */
  float *norm1, *norm2, *mixed, *stats1, *stats2, *qkv, *attention, *hidden, *slope;
} Block;

static Block block_at(const Gpt *g, int l) {
  const int64_t N = (int64_t)g->capacity * g->config.context, ND = N * g->config.width;
  const int64_t P = N * g->config.heads * g->config.context, k = g->config.recompute ? 0 : l;
  return (Block){.x = g->x + l * ND,
                 .next = g->x + (l + 1) * ND,
                 .middle = g->middle + k * ND,
                 .norm1 = g->norm1 + k * ND,
                 .norm2 = g->norm2 + k * ND,
                 .mixed = g->mixed + k * ND,
                 .stats1 = g->stats + 2 * k * 2 * N,
                 .stats2 = g->stats + (2 * k + 1) * 2 * N,
                 .qkv = g->qkv + k * 3 * ND,
                 .attention = g->attention + k * P,
                 .hidden = g->hidden + k * 4 * ND,
                 .slope = g->slope + k * 4 * ND};
}

/* The last norm has its statistics behind those of the blocks, and the stream's end as input. */
static float *last_stats(const Gpt *g) {
  const int64_t N = (int64_t)g->capacity * g->config.context;
  return g->stats + (g->config.recompute ? 1 : g->config.layers) * 4 * N;
}
static float *last_x(const Gpt *g) {
  return g->x + (int64_t)g->config.layers * g->capacity * g->config.context * g->config.width;
}

/* Row i of the embeddings: byte i % T of sequence i / T. */
static int64_t byte_at(const Gpt *g, int i) {
  const int T = g->config.context;
  return g->input[i / T * (T + 1) + i % T];
}

static void embed(Gpt *g, const float *wte, const float *wpe) {
  const int T = g->config.context, D = g->config.width;
  for (int i = 0; i < g->sequences * T; i++) {
    const float *e = wte + byte_at(g, i) * D, *p = wpe + (int64_t)(i % T) * D;
    for (int d = 0; d < D; d++) g->x[(int64_t)i * D + d] = e[d] + p[d];
  }
}

static void block_forward(Gpt *g, int l, const void *const w[]) {
  const int D = g->config.width, n = g->sequences, N = n * g->config.context;
  const size_t stream = (size_t)N * (size_t)D * sizeof(float);
  const Block b = block_at(g, l);
  layer_norm(b.norm1, b.stats1, b.x, w[GPT_LN1_W], w[GPT_LN1_B], N, D);
  linear(b.qkv, b.norm1, w[GPT_QKV_W], w[GPT_QKV_B], N, D, 3 * D, 0);
  attend(b.mixed, b.attention, b.qkv, n, g->config);
  memcpy(b.middle, b.x, stream);
  linear(b.middle, b.mixed, w[GPT_PROJ_W], w[GPT_PROJ_B], N, D, D, 1);
  layer_norm(b.norm2, b.stats2, b.middle, w[GPT_LN2_W], w[GPT_LN2_B], N, D);
  linear(b.hidden, b.norm2, w[GPT_FC_W], w[GPT_FC_B], N, D, 4 * D, 0);
  gelu(b.hidden, b.slope, (int64_t)N * 4 * D);
  memcpy(b.next, b.middle, stream);
  linear(b.next, b.hidden, w[GPT_FCPROJ_W], w[GPT_FCPROJ_B], N, 4 * D, D, 1);
}

static double predict(Gpt *g, const void *const w[]) {
  const int T = g->config.context, D = g->config.width, N = g->sequences * T;
  layer_norm(g->normf, last_stats(g), last_x(g), w[GPT_LNF_W], w[GPT_LNF_B], N, D);
  linear(g->logits, g->normf, w[GPT_HEAD_W], NULL, N, D, GPT_VOCABULARY, 0);
  return cross_entropy(g->logits, g->input, g->sequences, T);
}

double gpt_part_forward(Gpt *g, int part, const void *const w[GPT_TENSORS]) {
  if (part == g->config.layers + 1) return predict(g, w);
  if (part == 0) {
    embed(g, w[GPT_WTE], w[GPT_WPE]);
  } else {
    block_forward(g, part - 1, w);
  }
  return 0;
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

/* ---- parts: backward ----------------------------------------------------------------------- */

static void predict_backward(Gpt *g, const void *const w[], void *const dw[]) {
  const int D = g->config.width, N = g->sequences * g->config.context;
  linear_backward(g->dnorm, dw[GPT_HEAD_W], NULL, g->logits, g->normf, w[GPT_HEAD_W], N, D,
                  GPT_VOCABULARY);
  memset(g->dx, 0, (size_t)N * (size_t)D * sizeof *g->dx);
  layer_norm_backward(g->dx, dw[GPT_LNF_W], dw[GPT_LNF_B], g->dnorm, last_x(g), last_stats(g),
                      w[GPT_LNF_W], N, D);
}

static void block_backward(Gpt *g, int l, const void *const w[], void *const dw[]) {
  const int D = g->config.width, n = g->sequences, N = n * g->config.context;
  const Block b = block_at(g, l);
  linear_backward(g->dhidden, dw[GPT_FCPROJ_W], dw[GPT_FCPROJ_B], g->dx, b.hidden, w[GPT_FCPROJ_W],
                  N, 4 * D, D);
  for (int64_t i = 0; i < (int64_t)N * 4 * D; i++) g->dhidden[i] *= b.slope[i];
  linear_backward(g->dnorm, dw[GPT_FC_W], dw[GPT_FC_B], g->dhidden, b.norm2, w[GPT_FC_W], N, D,
                  4 * D);
  layer_norm_backward(g->dx, dw[GPT_LN2_W], dw[GPT_LN2_B], g->dnorm, b.middle, b.stats2,
                      w[GPT_LN2_W], N, D);
  linear_backward(g->dnorm, dw[GPT_PROJ_W], dw[GPT_PROJ_B], g->dx, b.mixed, w[GPT_PROJ_W], N, D, D);
  attend_backward(g->dqkv, g->dscores, g->dnorm, b.attention, b.qkv, n, g->config);
  linear_backward(g->dnorm, dw[GPT_QKV_W], dw[GPT_QKV_B], g->dqkv, b.norm1, w[GPT_QKV_W], N, D,
                  3 * D);
  layer_norm_backward(g->dx, dw[GPT_LN1_W], dw[GPT_LN1_B], g->dnorm, b.x, b.stats1, w[GPT_LN1_W], N,
                      D);
}

static void embed_backward(Gpt *g, float *dwte, float *dwpe) {
  const int T = g->config.context, D = g->config.width;
  for (int i = 0; i < g->sequences * T; i++) {
    float *e = dwte + byte_at(g, i) * D, *p = dwpe + (int64_t)(i % T) * D;
    for (int d = 0; d < D; d++) {
      e[d] += g->dx[(int64_t)i * D + d];
      p[d] += g->dx[(int64_t)i * D + d];
    }
  }
}

void gpt_part_backward(Gpt *g, int part, const void *const w[GPT_TENSORS],
                       void *const dw[GPT_TENSORS]) {
  if (part == 0) {
    embed_backward(g, dw[GPT_WTE], dw[GPT_WPE]);
  } else if (part <= g->config.layers) {
    block_backward(g, part - 1, w, dw);
  } else {
    predict_backward(g, w, dw);
  }
}

/* ---- the whole, on arrays of its own ------------------------------------------------------- */

static void own_tensors(const Gpt *g, int part, const void *w[], void *dw[]) {
  int first;
  const int count = gpt_part_tensors(g, part, &first);
  for (int i = first; i < first + count; i++) {
    const GptTensor *t = &g->tensor[i];
    const int64_t at = t->layers ? (part - 1) * t->numel : 0;
    w[i] = t->weights + at;
    dw[i] = t->gradients + at;
  }
}

double gpt_forward(Gpt *g, const unsigned char *sequences, int n) {
  const void *w[GPT_TENSORS];
  void *dw[GPT_TENSORS];
  double loss = 0;
  gpt_input(g, sequences, n);
  for (int part = 0; part < gpt_parts(g); part++) {
    own_tensors(g, part, w, dw);
    loss += gpt_part_forward(g, part, w);
  }
  return loss;
}

void gpt_backward(Gpt *g) {
  const void *w[GPT_TENSORS];
  void *dw[GPT_TENSORS];
  for (int part = gpt_parts(g); part-- > 0;) {
    const int block = part > 0 && part <= g->config.layers;
    own_tensors(g, part, w, dw);
    if (block && g->config.recompute) gpt_part_forward(g, part, w);
    gpt_part_backward(g, part, w, dw);
  }
}
