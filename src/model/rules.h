/* What the program said about names matching patterns, in order; and its resolution into
 * parameters. Pure but for the caller's own functions. A rule owns its strings; meshes in rules are
 * retained by whoever adds them (model_rules.c) and released by dmuon_rules_free. */
#ifndef DMUON_MODEL_RULES_H
#define DMUON_MODEL_RULES_H

#include "mesh/mesh.h"
#include "model/model.h"

typedef enum {
  DMUON_RULE_ROUTE = 0,
  DMUON_RULE_GROUP,
  DMUON_RULE_MESH,
  DMUON_RULE_MATRIX,
  DMUON_RULE_OUTPUT,
  DMUON_RULE_BLOCKS,
  DMUON_RULE_DTYPES,
  DMUON_RULE_RESHARD, /* its pattern is of group keys, not names */
  DMUON_RULE_KINDS
} dmuon_rule_kind;
const char *dmuon_rule_kind_name(int kind); /* "SetRoute" */

typedef struct {
  dmuon_rule_kind kind;
  char *pattern;
  DMuonRoute route;
  char *group;
  DMuonMesh copies, losses; /* losses never NULL */
  int nbatch, nrow;
  DMuonSide output;
  DMuonReshard reshard;
  int nblocks, repeat;
  int64_t *blocks;
  int grad, master, state; /* DMuonDType, or DMUON_DECIDE */
} dmuon_rule;

struct dmuon_model_rules {
  dmuon_memory *memory;
  int count, capacity;
  dmuon_rule *rules;
  DMuonRouteFunction route_function;
  void *route_context;
  DMuonGroupFunction group_function;
  void *group_context;
};

DMuonErrorCode dmuon_rules_create(dmuon_memory *memory, dmuon_model_rules **rules);
/* Appends a rule and takes over what it points to; pattern and kind are set. Nothing changes on
 * failure. */
DMuonErrorCode dmuon_rules_add(dmuon_model_rules *rules, const dmuon_rule *rule);
void dmuon_rule_free(dmuon_rule *rule);
/* The meshes are released too. */
void dmuon_rules_free(dmuon_model_rules **rules);

/* Resolves the rules for count parameters whose name, dtype, ndim, dims and numel are set: fills in
 * everything else but the mesh indices. mesh_rule[i] is the index of the rule that says the mesh of
 * parameter i, or -1. matched[k] is set where rule k matches a name. A mistake is DMUON_ERR_SETUP,
 * naming parameter, values and rule. */
DMuonErrorCode dmuon_rules_resolve(const dmuon_model_rules *rules, int count, dmuon_param *params,
                                   int *mesh_rule, unsigned char *matched);

/* What a caller's function, GetParam and View are told of a parameter; copies and divisor_ranks 0,
 * owners -1: not known here. */
void dmuon_param_info(const dmuon_param *param, DMuonParamInfo *info);

#endif
