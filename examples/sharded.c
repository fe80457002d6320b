/* The sharded form: the library has the memory of the parameters, each with its owner, and lends
 * them between brackets, part of the network by part. A rank holds what it owns, and the one or two
 * parts that are open.
 *
 * A part of the network is a group of the model. Forward and backward of a part stand between Begin
 * and End of its group; inside, GetArrays tells where its tensors and gradients are. Lent gradients
 * come zeroed, as the network adds to them. With bf16, and where the library computes on a GPU, the
 * network works on (widened) copies of what is lent. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train.h"

static int half(const Training *run) {
  return run->dtype == DMUON_BFLOAT16;
}

/* The network works on copies. */
static int copies(const Training *run) {
  return half(run) || run->remote;
}

static int allocate(Training *run) {
  Gpt *gpt = run->gpt;
  int64_t room = 0, largest = 0;
  for (int part = 0; part < gpt_parts(gpt); part++) {
    int first;
    const int count = gpt_part_tensors(gpt, part, &first);
    int64_t numel = 0;
    for (int i = first; i < first + count; i++) {
      const int64_t one = gpt->tensor[i].numel;
      numel += one;
      if (one > largest) largest = one;
    }
    if (numel > room) room = numel;
  }
  run->group = calloc((size_t)gpt_parts(gpt), sizeof *run->group);
  run->weights = calloc((size_t)room, sizeof *run->weights);
  run->gradients = malloc((size_t)room * sizeof *run->gradients);
  run->weights16 = malloc((size_t)largest * sizeof *run->weights16);
  return run->group && run->weights && run->gradients && run->weights16 ? 0 : -1;
}

static DMuonErrorCode add(Training *run) {
  const Settings *s = run->settings;
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &run->gpt->tensor[i];
    if (t->layers) {
      DMUON_CALL(DMuonModelAddStack(run->model, t->name, 0, t->layers, run->dtype, t->ndim, t->dims,
                                    &run->id[i]));
    } else {
      DMUON_CALL(
          DMuonModelAddParam(run->model, t->name, run->dtype, t->ndim, t->dims, &run->id[i]));
    }
  }
  /* The blocks are groups by themselves, called h.0, h.1, ...; what is before and behind them: */
  DMUON_CALL(DMuonModelSetGroup(run->model, "wte.*|wpe.*", "embedding"));
  DMUON_CALL(DMuonModelSetGroup(run->model, "ln_f.*|head.*", "head"));
  if (s->z2) DMUON_CALL(DMuonModelSetReshard(run->model, "*", DMUON_Z2));
  return DMUON_SUCCESS;
}

/* The values, a tensor at a time, from rank 0; and where the groups are. */
static DMuonErrorCode start(Training *run) {
  Gpt *gpt = run->gpt;
  const int last = gpt_parts(gpt) - 1;
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &gpt->tensor[i];
    for (int l = 0; l < (t->layers ? t->layers : 1); l++) {
      if (run->rank == 0) gpt_initial(gpt, (uint64_t)run->settings->seed, i, l, run->weights);
      if (half(run)) train_narrow(run->weights16, run->weights, t->numel);
      const void *values = half(run) ? (void *)run->weights16 : run->weights;
      DMUON_CALL(DMuonOptimizerSetParam(run->opt, run->id[i] + l, values, 0));
    }
  }
  for (int part = 0; part <= last; part++) {
    char block[GPT_NAME];
    snprintf(block, sizeof block, "h.%d", part - 1);
    const char *key = part == 0 ? "embedding" : part == last ? "head" : block;
    DMUON_CALL(DMuonOptimizerFindGroup(run->opt, key, &run->group[part]));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode copy_values(Training *run, float *to, const void *lent, int64_t numel) {
  if (!half(run)) return DMuonMeshCopy(run->mesh, to, lent, numel * (int64_t)sizeof *to);
  DMUON_CALL(DMuonMeshCopy(run->mesh, run->weights16, lent, numel * (int64_t)sizeof(uint16_t)));
  train_widen(to, run->weights16, numel);
  return DMUON_SUCCESS;
}

static DMuonErrorCode copy_gradient(Training *run, void *lent, const float *from, int64_t numel) {
  if (!half(run)) return DMuonMeshCopy(run->mesh, lent, from, numel * (int64_t)sizeof *from);
  train_narrow(run->weights16, from, numel);
  return DMuonMeshCopy(run->mesh, lent, run->weights16, numel * (int64_t)sizeof(uint16_t));
}

/* Where the network finds the tensors of an open part, and with lent_dw where its gradients go;
 * these are kept for give_gradients. */
static DMuonErrorCode take_arrays(Training *run, int part, const void *w[], void *dw[],
                                  void *lent_dw[]) {
  int first;
  const int count = gpt_part_tensors(run->gpt, part, &first);
  DMUON_CALL(DMuonGroupGetArrays(run->group[part], w + first, lent_dw ? lent_dw + first : NULL));
  int64_t at = 0;
  for (int i = first; i < first + count; i++) {
    const int64_t numel = run->gpt->tensor[i].numel;
    if (copies(run)) {
      DMUON_CALL(copy_values(run, run->weights + at, w[i], numel));
      w[i] = run->weights + at;
      if (lent_dw) dw[i] = memset(run->gradients + at, 0, (size_t)numel * sizeof(float));
    } else if (lent_dw) {
      dw[i] = lent_dw[i];
    }
    at += numel;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode give_gradients(Training *run, int part, void *const dw[],
                                     void *const lent_dw[]) {
  int first;
  const int count = gpt_part_tensors(run->gpt, part, &first);
  for (int i = first; copies(run) && i < first + count; i++) {
    DMUON_CALL(copy_gradient(run, lent_dw[i], dw[i], run->gpt->tensor[i].numel));
  }
  return DMUON_SUCCESS;
}

/* With no sequences the brackets are opened and closed on nothing: in PROGRAM order all ranks open
 * the same ones. */
static DMuonErrorCode forward(Training *run, int n, double *loss) {
  const void *w[GPT_TENSORS];
  for (int part = 0; part < gpt_parts(run->gpt); part++) {
    DMUON_CALL(DMuonGroupForwardBegin(run->group[part]));
    if (n > 0) {
      DMUON_CALL(take_arrays(run, part, w, NULL, NULL));
      *loss += gpt_part_forward(run->gpt, part, w);
    }
    DMUON_CALL(DMuonGroupForwardEnd(run->group[part]));
  }
  return DMUON_SUCCESS;
}

/* The block once more, inside the bracket of its backward: the brackets nest, and nothing is sent.
 */
static DMuonErrorCode recompute(Training *run, int part) {
  const void *w[GPT_TENSORS];
  DMUON_CALL(DMuonGroupForwardBegin(run->group[part]));
  DMUON_CALL(take_arrays(run, part, w, NULL, NULL));
  gpt_part_forward(run->gpt, part, w);
  return DMuonGroupForwardEnd(run->group[part]);
}

static DMuonErrorCode backward(Training *run, int n) {
  const void *w[GPT_TENSORS];
  void *dw[GPT_TENSORS], *lent_dw[GPT_TENSORS];
  const int last = gpt_parts(run->gpt) - 1;
  for (int part = last; part >= 0; part--) {
    DMUON_CALL(DMuonGroupBackwardBegin(run->group[part]));
    if (n > 0) {
      const int block = part > 0 && part < last;
      if (block && run->settings->recompute) DMUON_CALL(recompute(run, part));
      DMUON_CALL(take_arrays(run, part, w, dw, lent_dw));
      gpt_part_backward(run->gpt, part, w, dw);
      DMUON_CALL(give_gradients(run, part, dw, lent_dw));
    }
    DMUON_CALL(DMuonGroupBackwardEnd(run->group[part]));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode pass(Training *run, int n, int last, double *loss) {
  const Settings *s = run->settings;
  const int reduce = last || s->reduce_each;
  DMUON_CALL(DMuonOptimizerBeginPass(run->opt, reduce ? DMUON_PASS_TRAIN : DMUON_PASS_ACCUMULATE));
  DMUON_CALL(train_count(run, n));
  if (n == 0 && settings_is(s->order, "registered")) return DMUON_SUCCESS; /* may be left out */
  gpt_input(run->gpt, run->sequences, n);
  const double t0 = MPI_Wtime();
  DMUON_CALL(forward(run, n, loss));
  const double t1 = MPI_Wtime();
  DMUON_CALL(backward(run, n));
  run->report.seconds[PHASE_FORWARD] += t1 - t0;
  run->report.seconds[PHASE_BACKWARD] += MPI_Wtime() - t1;
  return DMUON_SUCCESS;
}

static DMuonErrorCode get(Training *run, int tensor, int l, void *data) {
  return DMuonOptimizerGetParam(run->opt, run->id[tensor] + l, data, DMUON_ALL);
}

static void leave(Training *run) {
  (void)run;
}

const Form SHARDED = {allocate, add, start, pass, get, leave};
