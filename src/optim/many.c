/* Several optimizers, whose handles may come in another order on each rank: decides in which order
 * they step, which is that of their names. All ranks then make the steps that they share in one
 * order, so no circle of ranks that wait for each other can close. What a step does is step.c's. */
#include <stdio.h>
#include <string.h>

#include "optim/optimizer.h"

static DMuonErrorCode check(int n, const DMuonOptimizer *opts) {
  if (n < 0 || (n > 0 && !opts))
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%d optimizers%s", n, n < 0 ? "" : ", but opts is NULL");
  for (int i = 0; i < n; i++)
    DMUON_TRY(dmuon_object_check_state(opts[i], DMUON_CLASS_OPTIMIZER, 1, "StepMany"));
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      if (!strcmp(opts[i]->object.name, opts[k]->object.name))
        DMUON_FAIL(DMUON_ERR_ARGUMENT,
                   "optimizers %d and %d are %s \"%s\": they step in order of their names, which "
                   "must differ; see SetName",
                   k, i, opts[i] == opts[k] ? "the same," : "both named", opts[i]->object.name);
  return DMUON_SUCCESS;
}

/* The one whose name follows `last`; NULL: the first of all. */
static DMuonOptimizer next_in_order(int n, const DMuonOptimizer *opts, const char *last) {
  DMuonOptimizer next = NULL;
  for (int i = 0; i < n; i++) {
    const char *name = opts[i]->object.name;
    if (last && strcmp(name, last) <= 0) continue;
    if (!next || strcmp(name, next->object.name) < 0) next = opts[i];
  }
  return next;
}

DMuonErrorCode DMuonOptimizerStepMany(int n, const DMuonOptimizer *opts) {
  DMUON_TRY(check(n, opts));
  const char *last = NULL;
  for (int i = 0; i < n; i++) {
    DMuonOptimizer opt = next_in_order(n, opts, last);
    last = opt->object.name;
    const DMuonErrorCode code = DMuonOptimizerStep(opt);
    if (!code) continue;
    char text[512];
    snprintf(text, sizeof text, "%s", dmuon_error_text());
    DMUON_FAIL(code, "optimizer \"%s\", %d of %d in order of name: %s", last, i + 1, n, text);
  }
  return DMUON_SUCCESS;
}
