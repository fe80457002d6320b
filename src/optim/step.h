/* What the files of the step share. */
#ifndef DMUON_OPTIM_STEP_H
#define DMUON_OPTIM_STEP_H

#include "clip/clip.h"
#include "optim/optimizer.h"

/* Whether the update of a registry parameter takes place in this step. */
int dmuon_step_takes_part(DMuonOptimizer opt, int param);

/* ---- step_info.c ---- */

/* What the step that was just issued does, as far as the host knows. */
void dmuon_step_fill_info(DMuonOptimizer opt, const dmuon_clip_result *clip);
/* Adds up the stamps of a step that is done. */
void dmuon_step_fill_seconds(DMuonOptimizer opt, int active_count);
/* The host hears whether the last step was skipped, and how many were: its counts follow. All that
 * was issued is done. */
DMuonErrorCode dmuon_step_hear_verdict(DMuonOptimizer opt);

#endif
