/* The plan as text and as JSON, and what was taken of it, for view.c. */
#ifndef DMUON_OPTIM_VIEW_H
#define DMUON_OPTIM_VIEW_H

#include "base/json.h"
#include "base/text.h"
#include "engine/plan.h"
#include "optim/optimizer.h"

/* Of an optimizer that is set up. */
dmuon_plan dmuon_optimizer_plan(DMuonOptimizer opt);
/* A line a group, and totals. */
void dmuon_optimizer_write_plan(DMuonOptimizer opt, dmuon_text *text);
/* NULL when memory ran out. */
json_t *dmuon_optimizer_comm_plan(DMuonOptimizer opt);
json_t *dmuon_optimizer_memory_plan(DMuonOptimizer opt);

#endif
