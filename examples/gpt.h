/* A small byte-level GPT in plain C: what the training example trains.
 *
 * This file and gpt.c are the application. They know nothing of MPI and nothing of libdmuon: the
 * parameters and their gradients are ordinary arrays, the matrices of all layers stacked in one
 * array each, as codes of this kind keep them. All that an optimizer has to know of them is the
 * list of tensors below.
 *
 * The network: learned positions, pre-norm blocks of causal attention and a GELU perceptron four
 * times as wide, a separate head. L layers, D width, H heads, T context, V = 256 bytes. */
#ifndef GPT_H
#define GPT_H

#include <stdint.h>

enum {
  GPT_VOCABULARY = 256,
  GPT_NAME = 64, /* room for a parameter's name */
  GPT_WTE = 0,   /* (V, D)  what a byte means */
  GPT_WPE,       /* (T, D)  what a position means */
  GPT_LN1_W,     /* (L, D) */
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
  GPT_LNF_W,     /* (D) */
  GPT_LNF_B,     /* (D) */
  GPT_HEAD_W,    /* (V, D) */
  GPT_TENSORS
};

typedef struct {
  int layers, width, heads, context;
} GptConfig;

typedef struct {
  const char *name; /* "wte.weight", or with a %d for the layer: "h.%d.attn.qkv.weight" */
  int layers;       /* how many are stacked in the array; 0: one tensor, no stack */
  int ndim;
  int64_t dims[2];            /* of one, slowest first */
  int64_t numel;              /* of one */
  float *weights, *gradients; /* (layers, dims...) */
} GptTensor;

typedef struct {
  GptConfig config;
  GptTensor tensor[GPT_TENSORS];
  int capacity;                                 /* sequences a pass can take */
  int sequences;                                /* of the last forward */
  const unsigned char *input;                   /* of the last forward, the caller's */
  float *parameters, *gradients, *activations;  /* the three blocks everything points into */
  float *x, *middle;                            /* (L+1, N, D), (L, N, D)  the residual stream */
  float *norm1, *norm2, *mixed;                 /* (L, N, D)  norms' outputs, attention's output */
  float *stats;                                 /* (2L+1, N, 2)  mean, 1/deviation of each norm */
  float *qkv, *attention;                       /* (L, N, 3D), (L, n, H, T, T) */
  float *hidden, *slope;                        /* (L, N, 4D)  GELU and its derivative */
  float *normf, *logits;                        /* (N, D), (N, V)  logits; then their gradient */
  float *dx, *dnorm, *dqkv, *dhidden, *dscores; /* (N, D) (N, D) (N, 3D) (N, 4D) (T, T) */
} Gpt;

/* A model with weights that are a function of the seed alone, able to take up to capacity
 * sequences in a pass. NULL when memory is short; heads must divide width. */
Gpt *gpt_create(GptConfig config, int capacity, uint64_t seed);
void gpt_destroy(Gpt *gpt);

/* Sum, over the n * T predicted bytes, of -log(probability). sequences: (n, T + 1) bytes, each
 * predicts the next; they must stay until gpt_backward is done. n <= capacity. */
double gpt_forward(Gpt *gpt, const unsigned char *sequences, int n);

/* Adds the gradient of what the last gpt_forward returned to the tensors' gradients. */
void gpt_backward(Gpt *gpt);

void gpt_zero_gradients(Gpt *gpt);

/* The full name of layer l of a tensor. */
void gpt_tensor_name(const GptTensor *tensor, int l, char name[GPT_NAME]);

int64_t gpt_parameter_count(const Gpt *gpt);

#endif
