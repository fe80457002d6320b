/* Rules resolved into parameters, and arrays that must be apart; no mesh, no ranks. */
#include "model/rules.h"

#include "model/arrays.h"
#include "tap.h"

enum { COUNT = 6 };
static dmuon_memory memory;
static dmuon_model_rules *rules;
static dmuon_param params[COUNT];
static int mesh_rule[COUNT];
static unsigned char matched[16];

static const struct {
  const char *name;
  int ndim;
  int64_t dims[3];
} shapes[COUNT] = {{"wte", 2, {50, 8}},         {"h.0.attn.weight", 2, {24, 8}},
                   {"h.0.attn.bias", 1, {24}},  {"h.0.experts", 3, {4, 8, 6}},
                   {"h.0.ln_1.weight", 1, {8}}, {"head.weight", 2, {50, 8}}};

static void begin(void) {
  dmuon_rules_create(&memory, &rules);
  for (int i = 0; i < COUNT; i++) {
    params[i] = (dmuon_param){.ndim = shapes[i].ndim};
    dmuon_memory_strdup(&memory, shapes[i].name, &params[i].name);
    params[i].numel = 1;
    for (int k = 0; k < shapes[i].ndim; k++)
      params[i].numel *= params[i].dims[k] = shapes[i].dims[k];
  }
}

static void end(void) {
  for (int i = 0; i < COUNT; i++) dmuon_param_free(&params[i]);
  dmuon_rules_free(&rules);
}

static void rule(const char *pattern, dmuon_rule made) {
  dmuon_memory_strdup(&memory, pattern, &made.pattern);
  dmuon_rules_add(rules, &made);
}

static DMuonErrorCode resolve(void) {
  return dmuon_rules_resolve(rules, COUNT, params, mesh_rule, matched);
}

static int asked;
static DMuonRoute freeze_matrices(void *context, const DMuonParamInfo *param) {
  asked++;
  if (context != &asked) return (DMuonRoute)99;
  return param->ndim == 2 && param->rows == 50 ? DMUON_ROUTE_FROZEN : param->route;
}
static DMuonRoute all_muon(void *context, const DMuonParamInfo *param) {
  (void)context, (void)param;
  return DMUON_ROUTE_MUON;
}
static DMuonRoute nonsense(void *context, const DMuonParamInfo *param) {
  (void)context, (void)param;
  return (DMuonRoute)7;
}
static const char *by_route(void *context, const DMuonParamInfo *param) {
  (void)context;
  return param->route == DMUON_ROUTE_MUON ? "matrices" : NULL;
}

static void defaults(void) {
  begin();
  tap_is_int(resolve(), DMUON_SUCCESS, "no rules");
  const DMuonRoute routes[COUNT] = {DMUON_ROUTE_ADAMW, DMUON_ROUTE_MUON,  DMUON_ROUTE_ADAMW,
                                    DMUON_ROUTE_MUON,  DMUON_ROUTE_ADAMW, DMUON_ROUTE_ADAMW};
  const char *groups[COUNT] = {"_root", "h.0", "h.0", "h.0", "h.0", "head"};
  for (int i = 0; i < COUNT; i++) {
    tap_is_int(params[i].route, routes[i], "route of %s", params[i].name);
    tap_is_string(params[i].group, groups[i], "group of %s", params[i].name);
  }
  tap_ok(params[3].batch == 1 && params[3].rows == 4 && params[3].cols == 48, "default view");
  tap_ok(params[1].grad_dtype == DMUON_FLOAT32 && params[1].master_dtype == DMUON_FLOAT32,
         "default dtypes");
  end();
}

static void patterns(void) {
  begin();
  params[1].dtype = DMUON_BFLOAT16;
  int64_t *blocks = NULL;
  dmuon_memory_alloc(&memory, 3, sizeof *blocks, &blocks);
  for (int i = 0; i < 3; i++) blocks[i] = 8;
  rule("*.weight", (dmuon_rule){.kind = DMUON_RULE_ROUTE, .route = DMUON_ROUTE_FROZEN});
  rule("h.*.attn.*", (dmuon_rule){.kind = DMUON_RULE_ROUTE, .route = DMUON_ROUTE_ADAMW});
  rule("nothing.*", (dmuon_rule){.kind = DMUON_RULE_OUTPUT, .output = DMUON_COLS});
  rule("h.0.experts", (dmuon_rule){.kind = DMUON_RULE_MATRIX, .nbatch = 1, .nrow = 1});
  rule("*attn.weight",
       (dmuon_rule){.kind = DMUON_RULE_BLOCKS, .nblocks = 3, .blocks = blocks, .repeat = 1});
  rule("h.*", (dmuon_rule){.kind = DMUON_RULE_DTYPES,
                           .grad = DMUON_FLOAT32,
                           .master = DMUON_DECIDE,
                           .state = DMUON_FLOAT64});
  dmuon_rule group = {.kind = DMUON_RULE_GROUP};
  dmuon_memory_strdup(&memory, "ends", &group.group);
  rule("wte|head.*", group);
  rules->route_function = freeze_matrices;
  rules->route_context = &asked;
  rules->group_function = by_route;
  tap_is_int(resolve(), DMUON_SUCCESS, "rules of every kind");
  tap_is_int(params[1].route, DMUON_ROUTE_ADAMW, "the later pattern wins");
  tap_is_string(params[1].route_reason, "pattern \"h.*.attn.*\"", "and is the reason");
  tap_is_int(params[5].route, DMUON_ROUTE_FROZEN, "the earlier where it alone matches");
  tap_is_int(params[0].route, DMUON_ROUTE_FROZEN, "the function where no pattern does");
  tap_is_string(params[0].route_reason, "route function", "and is the reason");
  tap_is_int(asked, 2, "it was asked about the two that no pattern decides");
  tap_is_string(params[3].route_reason, "matrix in numbered block h.0", "it may agree");
  tap_ok(matched[0] && matched[1] && !matched[2], "which patterns match is told");
  tap_ok(params[3].batch == 4 && params[3].rows == 8 && params[3].cols == 6, "a stack of matrices");
  tap_ok(params[1].nblocks == 3 && params[1].blocks[2] == 8, "row blocks");
  tap_ok(params[1].grad_dtype == DMUON_FLOAT32 && params[1].master_dtype == DMUON_FLOAT32 &&
             params[1].state_dtype == DMUON_FLOAT64,
         "dtypes, one left to the library");
  tap_is_string(params[0].group, "ends", "group by pattern");
  tap_is_string(params[3].group, "matrices", "group by function, which sees the route");
  tap_is_string(params[1].group, "h.0", "group by name where it returns NULL");
  tap_is_int(mesh_rule[0], -1, "no rule about meshes");
  end();
}

static void mistakes(void) {
  begin();
  rule("h.0.attn.*", (dmuon_rule){.kind = DMUON_RULE_ROUTE, .route = DMUON_ROUTE_MUON});
  tap_is_int(resolve(), DMUON_ERR_SETUP, "a pattern that routes a vector to muon");
  tap_contains(DMuonErrorGetMessage(), "h.0.attn.bias", "names it");
  tap_contains(DMuonErrorGetMessage(), "pattern \"h.0.attn.*\"", "and the pattern");
  end();
  begin();
  rules->route_function = all_muon;
  tap_is_int(resolve(), DMUON_ERR_SETUP, "a function that routes a vector to muon");
  tap_contains(DMuonErrorGetMessage(), "route function", "says so");
  end();
  begin();
  rules->route_function = nonsense;
  tap_is_int(resolve(), DMUON_ERR_SETUP, "a function that gives no route");
  tap_contains(DMuonErrorGetMessage(), "7", "with its value");
  end();
  begin();
  rule("h.0.experts", (dmuon_rule){.kind = DMUON_RULE_MATRIX, .nbatch = 2, .nrow = 1});
  rule("h.0.experts", (dmuon_rule){.kind = DMUON_RULE_ROUTE, .route = DMUON_ROUTE_MUON});
  tap_is_int(resolve(), DMUON_ERR_SETUP, "a view that leaves vectors, routed to muon");
  end();
  begin();
  rule("wte", (dmuon_rule){.kind = DMUON_RULE_MATRIX, .nbatch = 2, .nrow = 1});
  tap_is_int(resolve(), DMUON_ERR_SETUP, "a view that does not fit");
  tap_contains(DMuonErrorGetMessage(), "50x8", "names the shape");
  end();
  begin();
  params[0].dtype = DMUON_FLOAT64;
  rule("wte", (dmuon_rule){.kind = DMUON_RULE_DTYPES,
                           .grad = DMUON_DECIDE,
                           .master = DMUON_FLOAT32,
                           .state = DMUON_DECIDE});
  tap_is_int(resolve(), DMUON_ERR_SETUP, "a master narrower than the parameter");
  end();
}

static void arrays(void) {
  float w[400], g[400], more[192];
  begin();
  tap_is_int(resolve(), DMUON_SUCCESS, "resolved");
  dmuon_param_arrays a[COUNT] = {{.has_arrays = 1, .weights = w, .gradients = g}};
  tap_is_int(dmuon_arrays_check(&memory, COUNT, params, a), DMUON_SUCCESS,
             "NULL arrays share nothing");
  a[1] = (dmuon_param_arrays){.has_arrays = 1, .weights = more, .gradients = NULL};
  tap_is_int(dmuon_arrays_check(&memory, COUNT, params, a), DMUON_SUCCESS, "arrays apart");
  a[4] = (dmuon_param_arrays){.has_arrays = 1, .weights = w + 399, .gradients = NULL};
  tap_is_int(dmuon_arrays_check(&memory, COUNT, params, a), DMUON_ERR_SETUP,
             "overlap by one element");
  tap_contains(DMuonErrorGetMessage(), "weights of \"wte\"", "names the one");
  tap_contains(DMuonErrorGetMessage(), "weights of \"h.0.ln_1.weight\"", "and the other");
  a[4] = (dmuon_param_arrays){.has_arrays = 1, .weights = NULL, .gradients = g + 100};
  tap_is_int(dmuon_arrays_check(&memory, COUNT, params, a), DMUON_ERR_SETUP, "gradients shared");
  tap_contains(DMuonErrorGetMessage(), "gradients of \"wte\"", "are named");
  a[4] = (dmuon_param_arrays){.has_arrays = 1, .weights = w, .gradients = w};
  params[4].numel = 0;
  tap_is_int(dmuon_arrays_check(&memory, COUNT, params, a), DMUON_SUCCESS,
             "a parameter without elements shares nothing");
  end();
}

int main(void) {
  tap_plan(0);
  defaults();
  patterns();
  mistakes();
  arrays();
  tap_is_int(memory.bytes, 0, "nothing is left allocated");
  return tap_done();
}
