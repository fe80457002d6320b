/* Plans a mesh in one process: plays one rank of each kind, records what it issues, and lets the
 * verifier judge all of them together. For tests. */
#ifndef TEST_SCHEDULE_REHEARSAL_H
#define TEST_SCHEDULE_REHEARSAL_H

#include <dmuon.h>

#include "backend/trace/verify.h"

typedef struct {
  int replicate, shard;
  const char *shapes;         /* a file: a line a tensor, "name dtype dims"; or NULL */
  int layers, width;          /* without shapes: so many layers with two matrices and a norm */
  const char *options[12];    /* "name=value", up to a NULL */
  int is_lent;                /* parameters in the library's memory, run through brackets */
  int has_odd_rank, odd_rank; /* the drive does something else on this rank */
  /* Before the model is set up, and before the optimizer is; may be NULL. */
  DMuonErrorCode (*adapt_model)(DMuonModel model);
  DMuonErrorCode (*adapt_optimizer)(DMuonOptimizer opt);
  /* NULL, or: each rank that is played is judged at once, and only its collectives are kept. */
  dmuon_trace_report *judged;
  /* What is recorded, after SetUp. */
  DMuonErrorCode (*drive)(DMuonOptimizer opt, int rank);
} rehearsal_plan;

typedef struct {
  dmuon_memory memory;
  int sizes[3], ranks;
  int class_count;
  int *class_of; /* [ranks] */
  int *stand_in; /* [class_count]: the rank that was played */
  dmuon_trace *traces;
  const dmuon_trace **list; /* of traces */
  int64_t (*bytes)[3]; /* [class_count] communicated by the rank that was played, by DMuonAxis */
  int64_t peak_bytes;  /* of the library's own memory */
  int64_t operations;  /* recorded, of all that were played */
} rehearsal;

DMuonErrorCode rehearsal_run(const rehearsal_plan *plan, rehearsal *made);
/* The parameters of a plan, for a model of the caller's. */
DMuonErrorCode rehearsal_add_params(const rehearsal_plan *plan, DMuonModel model);
void rehearsal_free(rehearsal *made);
/* The record behind a note, from record `from` on; record_count: there is none. */
int64_t rehearsal_behind(const dmuon_trace *trace, int64_t from, const char *note);
/* Notes that stand behind SetUp and before Destroy. */
#define REHEARSAL_START "set up"
#define REHEARSAL_END "destroy"
dmuon_trace_set rehearsal_set(const rehearsal *made);

/* A plain drive: steps of the replicated form, the caller filling gradients and reading weights
 * between them. */
DMuonErrorCode rehearsal_step_arrays(DMuonOptimizer opt, int rank);
/* Of the sharded form: two steps, each with forward and backward of all groups in order. */
DMuonErrorCode rehearsal_train(DMuonOptimizer opt, int rank);
/* Brackets of one group, by its index; backward asks for all gradients. */
DMuonErrorCode rehearsal_begin(DMuonOptimizer opt, int group, int is_backward);
DMuonErrorCode rehearsal_end(DMuonOptimizer opt, int group, int is_backward);
/* Its parts: one bracket of all groups, forward from the first or backward from the last. */
DMuonErrorCode rehearsal_forward(DMuonOptimizer opt);
DMuonErrorCode rehearsal_backward(DMuonOptimizer opt);

#endif
