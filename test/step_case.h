/* A small model with a parameter of every kind, for tests of the optimizer's step: its arrays, and
 * gradients that are a pure function of who, when and where. */
#ifndef TEST_STEP_CASE_H
#define TEST_STEP_CASE_H

#include <dmuon.h>
#include <stdint.h>

#include "reference.h"

enum { CASE_PARAMS = 19 };

typedef struct {
  const char *name;
  DMuonDType dtype;
  int ndim;
  int64_t dims[4];
  DMuonRoute route;
  int nbatch, nrow;
  DMuonSide output;
  int nblocks;
  int64_t blocks[4];
  int repeat;
} case_param;

extern const case_param case_params[CASE_PARAMS];
/* Places in it that tests speak of. */
enum {
  CASE_BIAS = 2,
  CASE_QKV = 3,
  CASE_SQUARE = 4,
  CASE_GATED = 7,
  CASE_DOUBLE = 11,
  CASE_BRAIN = 12,
  CASE_FROZEN = 14,
  CASE_EMBED = 15,
  CASE_BRAIN_BIAS = 17,
};

typedef struct {
  int rank, size; /* data rank and how many */
  DMuonModel model;
  DMuonOptimizer opt;
  int id[CASE_PARAMS];
  int64_t numel[CASE_PARAMS];
  void *weight[CASE_PARAMS], *gradient[CASE_PARAMS];
} step_case;

/* Arrays with the weights of step 0, model and optimizer on mesh, nothing set up. On failure what
 * was made can still be destroyed. */
DMuonErrorCode case_create(DMuonMesh mesh, step_case *c);
/* is_lent: parameters in the library's memory; the arrays are there all the same. */
DMuonErrorCode case_create_as(DMuonMesh mesh, int is_lent, step_case *c);
/* Also asks the mesh for the data rank. */
DMuonErrorCode case_set_up(DMuonMesh mesh, step_case *c);
void case_destroy(step_case *c);
/* A mesh of two rows on comm, and the case on it, nothing set up. */
DMuonErrorCode case_open(MPI_Comm comm, const char *device, int async, DMuonMesh *mesh,
                         step_case *c);
/* The gradients of a step, and the step. */
DMuonErrorCode case_step(step_case *c, int step);
/* A whole life on MPI_COMM_WORLD without accidents: what the weights come to after so many
 * steps. */
DMuonErrorCode case_good_run(int steps, uint64_t *hash);

int64_t case_numel(int param);
/* Values that the parameter's dtype, and for gradients sums of 8 of them, hold exactly. */
double case_weight(int param, int64_t index);
double case_gradient(int param, int64_t index, int rank, int step, int micro);
void case_fill_weights(step_case *c);
void case_fill_gradients(step_case *c, int step, int micro);

/* Element of an array of dtype, widened, and set (rounded to nearest even). */
double case_load(DMuonDType dtype, const void *data, int64_t index);
void case_store(DMuonDType dtype, void *data, int64_t index, double value);
int64_t case_bytes(DMuonDType dtype);

/* A hash of the bytes of all weights. */
uint64_t case_hash(const step_case *c);
/* A hash of momentum, exp_avg, exp_avg_sq, master and step of all parameters, on every rank.
 * Collective. */
DMuonErrorCode case_state_hash(step_case *c, uint64_t *hash);

/* The reference's parameters with the weights of step 0. */
void case_reference(ref_param *params);
void case_reference_free(ref_param *params);

#endif
