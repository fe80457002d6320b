/* A small byte-level GPT in plain C: what the training example trains.
 *
 * This file and gpt.c are the application. They know nothing of MPI and nothing of libdmuon. The
 * network is a chain of parts: part 0 embeds, parts 1..L are the blocks, part L + 1 predicts. Each
 * part is run by itself, on tensors whose places are handed in, so that they may live anywhere: in
 * arrays of the network's own, the matrices of all layers stacked in one array each, as codes of
 * this kind keep them (gpt_own, gpt_forward, gpt_backward); or in memory that somebody lends for as
 * long as a part needs it. All that an optimizer has to know is the list of tensors below.
 *
 * The network: learned positions, pre-norm blocks of causal attention and a GELU perceptron four
 * times as wide, a separate head. L layers, D width, H heads, T context, V = 256 bytes. */
#ifndef GPT_H
#define GPT_H

#include <stdint.h>

enum {
  GPT_VOCABULARY = 256,
  GPT_NAME = 64, /* room for a parameter's name */
  GPT_WTE = 0,   /* (V, D)  what a byte means; from here part 0 */
  GPT_WPE,       /* (T, D)  what a position means */
  GPT_LN1_W,     /* (L, D)  from here parts 1..L, one layer each */
  GPT_LN1_B,     /* (L, D) */
  GPT_QKV_W,     /* (L, 3D, D)  rows: queries, keys, values */
  GPT_QKV_B,     /* (L, 3D) */
  GPT_PROJ_W,    /* (L, D, D) */
  GPT_PROJ_B,    /* (L, D) */
  GPT_LN2_W,     /* (L, D) */
  GPT_LN2_B,     /* (L, D) */
  GPT_FC_W,      /* (L, 4D, D) */
  GPT_FC_B,      /* (L, 4D) */
  GPT_FCPROJ_W,  /* (L, D, 4D) */
  GPT_FCPROJ_B,  /* (L, D) */
  GPT_LNF_W,     /* (D)  from here part L + 1 */
  GPT_LNF_B,     /* (D) */
  GPT_HEAD_W,    /* (V, D) */
  GPT_TENSORS
};

typedef struct {
  int layers, width, heads, context;
  int recompute; /* 1: of a block only the input is kept; it runs forward again before backward */
} GptConfig;

typedef struct {
  const char *name; /* "wte.weight", or with a %d for the layer: "h.%d.attn.qkv.weight" */
  int layers;       /* how many are stacked in the array; 0: one tensor, no stack */
  int ndim;
  int64_t dims[2];            /* of one, slowest first */
  int64_t numel;              /* of one */
  float *weights, *gradients; /* (layers, dims...)  after gpt_own, else NULL */
} GptTensor;

typedef struct {
  GptConfig config;
  GptTensor tensor[GPT_TENSORS];
  int capacity;                  /* sequences a pass can take */
  int sequences;                 /* of this pass */
  const unsigned char *input;    /* of this pass, the caller's */
  int64_t room;                  /* floats in each of the next two, 0 before gpt_own */
  float *parameters, *gradients; /* the blocks that tensors' weights and gradients point into */
  float *activations;            /* the block that everything below points into */
  float *x;                      /* (L+1, N, D)  the residual stream between the parts */
  float *middle;                 /* (K, N, D)  and inside the blocks; K = L, recomputing 1 */
  float *norm1, *norm2, *mixed;  /* (K, N, D)  norms' outputs, attention's output */
  float *stats;                  /* (2K+1, N, 2)  mean, 1/deviation of each norm */
  float *qkv, *attention;        /* (K, N, 3D), (K, n, H, T, T) */
  float *hidden, *slope;         /* (K, N, 4D)  GELU and its derivative */
  float *normf, *logits;         /* (N, D), (N, V)  logits; then their gradient */
  float *dx, *dnorm, *dqkv, *dhidden, *dscores; /* (N, D) (N, D) (N, 3D) (N, 4D) (T, T) */
} Gpt;

/* A network without tensors, able to take up to capacity sequences in a pass. NULL when memory is
 * short; heads must divide width. */
Gpt *gpt_create(GptConfig config, int capacity);
void gpt_destroy(Gpt *gpt);

/* The initial values of layer l of a tensor, (numel) floats: a function of seed, tensor, l alone.
 */
void gpt_initial(const Gpt *gpt, uint64_t seed, int tensor, int l, float *values);

/* The full name of layer l of a tensor. */
void gpt_tensor_name(const GptTensor *tensor, int l, char name[GPT_NAME]);

int64_t gpt_parameter_count(const Gpt *gpt);

/* ---- part by part ---- */

/* Parts of the network: L + 2. */
int gpt_parts(const Gpt *gpt);

/* The tensors of a part are those from first to first + the result - 1 of the list. */
int gpt_part_tensors(const Gpt *gpt, int part, int *first);

/* What the pass is about: (n, T + 1) bytes, each predicts the next; they must stay until the pass
 * is over. 1 <= n <= capacity. */
void gpt_input(Gpt *gpt, const unsigned char *sequences, int n);

/* Runs a part on the tensors w[first...] (floats), after those before it. The last one returns the
 * sum, over the n * T predicted bytes, of -log(probability); the others 0. */
double gpt_part_forward(Gpt *gpt, int part, const void *const w[GPT_TENSORS]);

/* Adds the gradient of that sum to dw[first...], after the parts behind it. Recomputing, a block's
 * must follow its own gpt_part_forward. */
void gpt_part_backward(Gpt *gpt, int part, const void *const w[GPT_TENSORS],
                       void *const dw[GPT_TENSORS]);

/* ---- the whole, on arrays of its own ---- */

/* Gives the network arrays of its own, with initial values. 0, or -1 when memory is short. */
int gpt_own(Gpt *gpt, uint64_t seed);

/* gpt_input and all parts. */
double gpt_forward(Gpt *gpt, const unsigned char *sequences, int n);

/* Adds the gradient of what the last gpt_forward returned to the tensors' gradients. */
void gpt_backward(Gpt *gpt);

void gpt_zero_gradients(Gpt *gpt);

#endif
