/* The programs of step_lent.h. */
#include "step_lent.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const int group_of[CASE_PARAMS] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4, 2, 5};
static const char *const keys[LENT_GROUPS] = {"layers.0", "layers.1", "layers.2",
                                              "embed",    "_root",    "layers.3"};

int lent_is_in(int p, int g) {
  return group_of[p] == g;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void init(void *ctx, const DMuonParamInfo *param, int64_t first, int64_t count, void *data) {
  (void)ctx;
  for (int p = 0; p < CASE_PARAMS; p++) {
    if (strcmp(param->name, case_params[p].name) != 0) continue;
    for (int64_t i = 0; i < count; i++)
      case_store(param->dtype, data, i, case_weight(p, first + i));
  }
}

DMuonErrorCode lent_create(DMuonMesh mesh, int flat, step_case *c) {
  memset(c, 0, sizeof *c);
  DMUON_CALL(case_create_as(mesh, 1, c));
  for (int p = 0; flat && p < CASE_PARAMS; p++)
    if (case_params[p].route == DMUON_ROUTE_ADAMW)
      DMUON_CALL(DMuonModelSetRoute(c->model, case_params[p].name, DMUON_ROUTE_ADAMW_SHARDED));
  return DMuonOptimizerSetInit(c->opt, init, NULL);
}

DMuonErrorCode lent_load(step_case *c) {
  for (int p = 0; p < CASE_PARAMS; p++)
    DMUON_CALL(DMuonOptimizerGetParam(c->opt, c->id[p], c->weight[p], DMUON_ALL));
  return DMUON_SUCCESS;
}

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct {
  lent_pass *pass;
  DMuonGroup group[LENT_GROUPS];
  int depth[LENT_GROUPS], backward[LENT_GROUPS]; /* brackets open; of them backward */
  int visits[LENT_GROUPS];                       /* outermost backwards in the program */
  const void *data[CASE_PARAMS];                 /* as the outermost bracket gave them */
  void *grad[CASE_PARAMS];
} runner;

/* Outermost backwards of a group in the text. */
static int count_visits(const char *program, int group) {
  int depth = 0, count = 0;
  for (const char *at = program; *at; at++) {
    if ((*at != 'b' && *at != 'B') || atoi(at + 1) != group) continue;
    if (*at == 'b' && depth++ == 0) count++;
    if (*at == 'B') depth--;
  }
  return count;
}

static void look(const runner *r) {
  for (int p = 0; r->pass->expected && p < CASE_PARAMS; p++) {
    const int64_t bytes = case_bytes(case_params[p].dtype);
    if (r->depth[group_of[p]] == 0) continue;
    for (int64_t i = 0; i < case_numel(p); i++)
      r->pass->wrong += memcmp((const char *)r->data[p] + i * bytes,
                               (const char *)r->pass->expected[p] + i * bytes, (size_t)bytes) != 0;
  }
}

static int gives(const runner *r, int p, int g) {
  return group_of[p] == g && case_params[p].route != DMUON_ROUTE_FROZEN &&
         !(r->pass->without >> p & 1);
}

static double part_of(const runner *r, int p, int64_t i) {
  const lent_pass *pass = r->pass;
  return case_gradient(p, i, pass->c->rank, pass->step, pass->micro) * pass->factor /
         r->visits[group_of[p]];
}

/* Every second element now, the others at the end of the bracket. */
static void give(const runner *r, int g, int64_t first) {
  for (int p = 0; p < CASE_PARAMS; p++) {
    const DMuonDType dtype = case_params[p].dtype;
    if (!gives(r, p, g)) continue;
    for (int64_t i = first; i < case_numel(p); i += 2) {
      const double before = r->pass->way == LENT_ADD || r->pass->way == LENT_ARRAYS
                                ? case_load(dtype, r->grad[p], i)
                                : 0;
      case_store(dtype, r->grad[p], i, before + part_of(r, p, i));
    }
  }
}

static DMuonErrorCode take_arrays(runner *r, int g) {
  const void *data[CASE_PARAMS];
  void *grad[CASE_PARAMS];
  const int *ids;
  int count;
  DMUON_CALL(DMuonGroupGetParams(r->group[g], &count, &ids));
  DMUON_CALL(DMuonGroupGetArrays(r->group[g], data, grad));
  for (int k = 0; k < count; k++)
    for (int p = 0; p < CASE_PARAMS; p++)
      if (r->pass->c->id[p] == ids[k]) r->grad[p] = grad[k];
  return DMUON_SUCCESS;
}

static DMuonErrorCode opened(runner *r, int g, int is_backward) {
  step_case *c = r->pass->c;
  for (int p = 0; p < CASE_PARAMS; p++)
    if (group_of[p] == g && r->depth[g] == 1)
      DMUON_CALL(DMuonGroupGetData(r->group[g], c->id[p], &r->data[p]));
  if (!is_backward || r->backward[g] != 1) return DMUON_SUCCESS;
  if (r->pass->way == LENT_ARRAYS) DMUON_CALL(take_arrays(r, g));
  for (int p = 0; p < CASE_PARAMS; p++) {
    if (!gives(r, p, g)) continue;
    if (r->pass->way == LENT_SET)
      r->grad[p] = c->gradient[p];
    else if (r->pass->way != LENT_ARRAYS)
      DMUON_CALL(DMuonGroupGetGrad(r->group[g], c->id[p], &r->grad[p]));
  }
  give(r, g, 0);
  return DMUON_SUCCESS;
}

static DMuonErrorCode hand_over(runner *r, int g) {
  give(r, g, 1);
  for (int p = 0; p < CASE_PARAMS; p++)
    if (gives(r, p, g) && r->pass->way == LENT_SET)
      DMUON_CALL(DMuonGroupSetGrad(r->group[g], r->pass->c->id[p], r->grad[p]));
  return DMUON_SUCCESS;
}

/* What was handed over is the caller's again. */
static void spoil(runner *r, int g) {
  for (int p = 0; p < CASE_PARAMS; p++)
    if (gives(r, p, g) && r->pass->way == LENT_SET)
      memset(r->grad[p], 0xff, (size_t)(case_numel(p) * case_bytes(case_params[p].dtype)));
}

static DMuonErrorCode token(runner *r, char what, int g) {
  const int is_backward = tolower((unsigned char)what) == 'b';
  look(r);
  if (islower((unsigned char)what)) {
    DMUON_CALL(is_backward ? DMuonGroupBackwardBegin(r->group[g])
                           : DMuonGroupForwardBegin(r->group[g]));
    r->depth[g]++;
    r->backward[g] += is_backward;
    DMUON_CALL(opened(r, g, is_backward));
    look(r);
    return DMUON_SUCCESS;
  }
  const int is_last = is_backward && r->backward[g] == 1;
  if (is_last) DMUON_CALL(hand_over(r, g));
  r->depth[g]--;
  r->backward[g] -= is_backward;
  DMUON_CALL(is_backward ? DMuonGroupBackwardEnd(r->group[g]) : DMuonGroupForwardEnd(r->group[g]));
  if (is_last) spoil(r, g);
  return DMUON_SUCCESS;
}

DMuonErrorCode lent_run(lent_pass *pass, const char *program) {
  runner r = {.pass = pass};
  for (int g = 0; g < LENT_GROUPS; g++) {
    DMUON_CALL(DMuonOptimizerFindGroup(pass->c->opt, keys[g], &r.group[g]));
    r.visits[g] = count_visits(program, g);
  }
  for (const char *at = program; *at; at++)
    if (isalpha((unsigned char)*at)) DMUON_CALL(token(&r, *at, atoi(at + 1)));
  return DMUON_SUCCESS;
}
