/* One step of one owned parameter, as operations on a queue: Muon or AdamW. Decides the order of
 * operations and where each piece is orthogonalised; the arithmetic is the device's. */
#ifndef DMUON_UPDATE_UPDATE_H
#define DMUON_UPDATE_UPDATE_H

#include "update/pieces.h"
#include "update/rule.h"

/* Hyper-parameters of one parameter, by DMuonHyper. */
typedef struct {
  double value[DMUON_HYPER_EPS + 1];
} dmuon_hyper;

/* What the owner keeps. The step count is that of this parameter: updates it has seen. */
typedef struct {
  int64_t step;
  void *momentum;             /* Muon: state_dtype, param->numel */
  void *exp_avg, *exp_avg_sq; /* AdamW */
  void *master;               /* master_dtype; may be the caller's own array */
} dmuon_param_state;

/* Plans of a Muon parameter's pieces, made at set-up. Pieces of one shape share a plan. */
typedef struct {
  int64_t piece_count;
  dmuon_ns_plan *plans;    /* [piece_count] */
  int64_t together;        /* so many alike parameters run together at most; see below */
  int64_t update_bytes;    /* workspace for the update of one itself */
  int64_t workspace_bytes; /* the updates and the largest Newton-Schulz after them */
  int64_t operations;
} dmuon_update_plan;

DMuonErrorCode dmuon_update_plan_make(dmuon_memory *memory, const dmuon_param *param,
                                      const dmuon_ns_recipe *recipe, dmuon_update_plan *plan);
void dmuon_update_plan_free(dmuon_update_plan *plan);

/* Two Muon parameters of one matrix each, of one shape and state dtype: what may run together. */
int dmuon_update_is_alike(const dmuon_param *a, const dmuon_param *b);
/* Makes it a plan for as many of count alike parameters as run together. */
void dmuon_update_plan_together(dmuon_update_plan *plan, int64_t count);

typedef struct {
  const dmuon_param *param;
  int64_t count; /* elements: all of the parameter's, or (AdamW) of the part that is updated here */
  const dmuon_rule *rule;
  const dmuon_hyper *hyper; /* learning rate with its factor in it */
  const void *grad;         /* averaged; grad_dtype */
  DMuonDType grad_dtype;
  double grad_scale; /* clipping */
  void *value;       /* new value in the parameter's dtype goes here */
  void *workspace;
  const float *skip; /* NULL, or device memory: not zero when the step is skipped after all */
  int64_t *skipped;  /* with skip: a count of such steps in device memory; state->step counts all */
  double *stamps;    /* [2]: time before and after Newton-Schulz; NULL: not wanted */
} dmuon_update;

/* Issues the step on queue; state->step counts up. */
DMuonErrorCode dmuon_update_muon(dmuon_queue *queue, dmuon_device *device,
                                 const dmuon_update_plan *plan, const dmuon_update *update,
                                 dmuon_param_state *state);
/* The same of count alike parameters, at most plan->together, with one workspace: the bits of one
 * by one. updates and states are read at once. */
DMuonErrorCode dmuon_update_muon_together(dmuon_queue *queue, dmuon_device *device,
                                          const dmuon_update_plan *plan, int64_t count,
                                          const dmuon_update *updates, dmuon_param_state **states);
DMuonErrorCode dmuon_update_adamw(dmuon_queue *queue, dmuon_device *device,
                                  const dmuon_update *update, dmuon_param_state *state);

#endif
