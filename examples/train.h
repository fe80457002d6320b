/* What the files of the training example share: the state of a run, and the two forms in which it
 * keeps its parameters. Each form is the same six functions:
 *
 *   replicated.c  in arrays of the network's own, whole on every rank: the way in for older codes
 *   sharded.c     in the library's memory, each with its owner, lent block by block
 */
#ifndef TRAIN_H
#define TRAIN_H

#include <dmuon.h>
#include <stdio.h>

#include "gpt.h"
#include "report.h"
#include "settings.h"

typedef struct Training Training;

typedef struct {
  /* Memory of the parameters outside the library. 0, or -1 when it is short. */
  int (*allocate)(Training *run);
  /* Tells the model which parameters there are. */
  DMuonErrorCode (*add)(Training *run);
  /* After the optimizer's SetUp: the initial values are in place when it returns. */
  DMuonErrorCode (*start)(Training *run);
  /* Forward and backward of n sequences, 0 on a rank that has none left; last: of this step. Adds
   * the sequences' loss to *loss. Collective. */
  DMuonErrorCode (*pass)(Training *run, int n, int last, double *loss);
  /* Layer l of a tensor in the parameters' dtype. Collective. */
  DMuonErrorCode (*get)(Training *run, int tensor, int l, void *data);
  /* Gives memory of the mesh's back, before the mesh goes and after the optimizer. */
  void (*leave)(Training *run);
} Form;

struct Training {
  const Settings *settings;
  const Form *form;
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  DMuonDType dtype; /* of parameters and gradients: fp32 or bf16 */
  int rank;
  Gpt *gpt;
  unsigned char *text, *sequences; /* (text_size), (CHUNK, T + 1) */
  size_t text_size;
  int remote;                 /* the library computes where the host cannot read: on a GPU */
  int id[GPT_TENSORS];        /* sharded: the library's name of a tensor, of layer 0 of a stack */
  DMuonGroup *group;          /* sharded: (parts), borrowed */
  float *weights, *gradients; /* sharded: room for one tensor; for the copies of one part, where the
                                 network works on copies */
  uint16_t *weights16, *gradients16; /* with bf16: all tensors (replicated), one tensor (sharded) */
  void *lent_weights, *lent_gradients; /* replicated: what the library sees, whole */
  Report report;
};

extern const Form REPLICATED, SHARDED;

/* Ends all ranks: this one is short of memory. */
void train_abort(const Training *run);

/* What the library is told of the sequences whose gradients it gets: these are sums over bytes. */
DMuonErrorCode train_count(Training *run, int n);

/* bf16 is the upper half of an fp32; rounding is to nearest, ties to even. */
void train_widen(float *wide, const uint16_t *half, int64_t count);
void train_narrow(uint16_t *half, const float *wide, int64_t count);

/* ---- results.c ---- */

/* Prints a line for each place of the mesh: how many tensors and elements it owns. */
DMuonErrorCode results_show_owners(const Training *run);
/* What this rank sent since the mesh's SetUp, by axis. */
DMuonErrorCode results_traffic(const Training *run, int64_t bytes[3], int64_t operations[3]);
/* Makes the report one of all ranks: times become means, bytes sums. save, if not NULL, gets the
 * parameters. *differ: not all ranks hold the same. Collective. */
DMuonErrorCode results_gather(Training *run, FILE *save, int *differ);

#endif
