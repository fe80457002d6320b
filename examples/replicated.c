/* The replicated form: parameters and gradients are the network's own arrays, whole on every rank,
 * and the library is told where they are. Everything that a code which has such arrays adds for the
 * library's sake is here: a call a tensor at set-up, one more where a step has several passes.
 *
 * With bf16 the library sees arrays of half the width, which the network's own are widened from.
 * With a GPU it sees arrays there; this network computes on the host, so values and gradients are
 * copied. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "train.h"

static int half(const Training *run) {
  return run->dtype == DMUON_BFLOAT16;
}

static int allocate(Training *run) {
  if (gpt_own(run->gpt, (uint64_t)run->settings->seed)) return -1;
  if (!half(run)) return 0;
  const size_t room = (size_t)run->gpt->room;
  run->weights16 = malloc(room * sizeof *run->weights16);
  run->gradients16 = malloc(room * sizeof *run->gradients16);
  if (!run->weights16 || !run->gradients16) return -1;
  train_narrow(run->weights16, run->gpt->parameters, run->gpt->room);
  return 0;
}

static size_t element(const Training *run) {
  return half(run) ? sizeof(uint16_t) : sizeof(float);
}

/* The arrays of a tensor as the library sees them: each block is laid out as that of floats. */
static void *weights_of(const Training *run, const GptTensor *t) {
  return (char *)run->lent_weights + (size_t)(t->weights - run->gpt->parameters) * element(run);
}
static void *gradients_of(const Training *run, const GptTensor *t) {
  return (char *)run->lent_gradients + (size_t)(t->gradients - run->gpt->gradients) * element(run);
}

/* On a host the arrays are there already; a GPU gets a copy of them. */
static DMuonErrorCode make_lent(Training *run) {
  void *weights = half(run) ? (void *)run->weights16 : run->gpt->parameters;
  const int64_t bytes = run->gpt->room * (int64_t)element(run);
  if (!run->remote) {
    run->lent_weights = weights;
    run->lent_gradients = half(run) ? (void *)run->gradients16 : run->gpt->gradients;
    return DMUON_SUCCESS;
  }
  DMUON_CALL(DMuonMeshAlloc(run->mesh, bytes, &run->lent_weights));
  DMUON_CALL(DMuonMeshAlloc(run->mesh, bytes, &run->lent_gradients));
  return DMuonMeshCopy(run->mesh, run->lent_weights, weights, bytes);
}

static DMuonErrorCode add(Training *run) {
  DMUON_CALL(make_lent(run));
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &run->gpt->tensor[i];
    void *weights = weights_of(run, t), *gradients = gradients_of(run, t);
    if (t->layers) {
      DMUON_CALL(DMuonModelAddStackArray(run->model, t->name, 0, t->layers, run->dtype, t->ndim,
                                         t->dims, weights, gradients, NULL));
    } else {
      DMUON_CALL(DMuonModelAddParamArray(run->model, t->name, run->dtype, t->ndim, t->dims, weights,
                                         gradients, NULL));
    }
  }
  return DMUON_SUCCESS;
}

/* SetUp has given everyone rank 0's arrays. */
static DMuonErrorCode start(Training *run) {
  (void)run;
  return DMUON_SUCCESS;
}

static DMuonErrorCode pass(Training *run, int n, int last, double *loss) {
  Gpt *gpt = run->gpt;
  const int64_t bytes = gpt->room * (int64_t)element(run);
  gpt_zero_gradients(gpt);
  if (run->remote) {
    void *weights = half(run) ? (void *)run->weights16 : gpt->parameters;
    DMUON_CALL(DMuonMeshCopy(run->mesh, weights, run->lent_weights, bytes));
  }
  if (half(run)) train_widen(gpt->parameters, run->weights16, gpt->room);
  if (n > 0) {
    const double t0 = MPI_Wtime();
    *loss += gpt_forward(gpt, run->sequences, n);
    const double t1 = MPI_Wtime();
    gpt_backward(gpt);
    run->report.seconds[PHASE_FORWARD] += t1 - t0;
    run->report.seconds[PHASE_BACKWARD] += MPI_Wtime() - t1;
  }
  if (half(run)) train_narrow(run->gradients16, gpt->gradients, gpt->room);
  if (run->remote) {
    const void *gradients = half(run) ? (void *)run->gradients16 : gpt->gradients;
    DMUON_CALL(DMuonMeshCopy(run->mesh, run->lent_gradients, gradients, bytes));
  }
  DMUON_CALL(train_count(run, n));
  if (!last) DMUON_CALL(DMuonOptimizerAccumulate(run->opt)); /* the last one's are taken by Step */
  return DMUON_SUCCESS;
}

static DMuonErrorCode get(Training *run, int tensor, int l, void *data) {
  const GptTensor *t = &run->gpt->tensor[tensor];
  const size_t bytes = (size_t)t->numel * element(run);
  const char *weights = (const char *)weights_of(run, t) + (size_t)l * bytes;
  return DMuonMeshCopy(run->mesh, data, weights, (int64_t)bytes);
}

static void leave(Training *run) {
  if (!run->remote) return;
  DMuonMeshFree(run->mesh, &run->lent_weights);
  DMuonMeshFree(run->mesh, &run->lent_gradients);
}

const Form REPLICATED = {allocate, add, start, pass, get, leave};
