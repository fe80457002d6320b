/* What the training example shows: progress while it runs, a summary, and the same as JSON. Plain
 * numbers in, text out: no MPI, no libdmuon. */
#ifndef REPORT_H
#define REPORT_H

#include <stdint.h>
#include <stdio.h>

typedef enum {
  PHASE_FORWARD = 0,
  PHASE_BACKWARD,
  PHASE_REDUCE,        /* gradients to their owners */
  PHASE_NEWTON_SCHULZ, /* by the owners */
  PHASE_UPDATE,        /* the rest of the owners' step */
  PHASE_PUBLISH,       /* new weights to everyone */
  PHASE_OTHER,
  PHASES
} Phase;

typedef struct {
  const char *optimizer, *form; /* form: replicated or sharded */
  int ranks, mesh[3];           /* replicate, shard, tp */
  int64_t steps, step_tokens;   /* of all ranks together */
  int64_t passes;               /* through the network, in a step */
  int64_t done, skipped;        /* steps made, and those of them without an update */
  double *loss;                 /* (steps)  mean over the tokens of the step, before its update */
  double seconds[PHASES];       /* mean over the ranks */
  double total, in_step;        /* all of it, and inside the optimizer's calls */
  int64_t newton_schulz_calls;  /* of all ranks together */
  int64_t bytes[3], operations[3]; /* sent, by axis of the mesh, all ranks together */
  int64_t bytes_steps[3];          /* the same, initial values not counted */
  int64_t bytes_planned[2];        /* what the library's plan says of one step */
  /* The library's memory at its highest: of the rank that has most, and of all together. */
  int64_t memory_most, memory_total, memory_planned_most, memory_planned_total;
  uint64_t parameter_hash;
} Report;

/* After every step: on a terminal one line that is drawn again, else a line now and then. */
void report_progress(const Report *report, double elapsed, int terminal);
/* At the end, for people. */
void report_summary(const Report *report);
/* At the end, for programs. 0, or -1 when it could not be written. */
int report_json(const Report *report, FILE *file);

#endif
