/* What ranks agree on: the settings once at SetUp, the live values at every Step. */
#ifndef DMUON_OPTIM_VOTE_H
#define DMUON_OPTIM_VOTE_H

#include "optim/optimizer.h"

/* Every rank comes with its own code so far; all return the same. All have the same settings and
 * Newton-Schulz, or DMUON_ERR_DISAGREE names the first that differs. */
DMuonErrorCode dmuon_vote_settings(DMuonOptimizer opt, DMuonErrorCode code);

/* Combines all ranks' ballots into opt->ballot. trouble: what this rank brings along (its own
 * error, its gradients' finiteness and presence, its samples); NULL at SetUp, when only the live
 * values are compared. Errors: a rank in trouble, or live values that differ, named; nothing
 * changed. */
typedef struct {
  DMuonErrorCode code;
  int with_gradients; /* opt->nonfinite is filled */
  double samples;     /* negative: means */
} dmuon_vote_input;
DMuonErrorCode dmuon_vote(DMuonOptimizer opt, const char *what, const dmuon_vote_input *input);

#endif
