/* The model object as the layers above see it. Patterns are resolved in rules.c (pure), groups and
 * default routes in names.c (pure), matrix views in matrix.c (pure); the ranks' lists are put
 * together in merge.c (pure); setup.c carries it out. */
#ifndef DMUON_MODEL_MODEL_H
#define DMUON_MODEL_MODEL_H

#include <dmuon/model.h>

#include "base/object.h"
#include "model/registry.h"

/* The caller's pointers of one local parameter. */
typedef struct {
  int has_arrays; /* registered with AddParamArray or AddStackArray */
  void *weights;
  const void *gradients;
  /* Until SetUp: the gradients of the stack, and the place in it. The stride is known then only,
   * when the gradients' dtype is; NULL elsewhere and afterwards. */
  const void *stack;
  int stack_index;
} dmuon_param_arrays;

typedef struct dmuon_model_rules dmuon_model_rules; /* patterns as said, in order */

struct DMuonModel_ {
  dmuon_object object;
  DMuonMesh mesh; /* retained */
  int count, capacity;
  dmuon_param *params;        /* as registered; resolved by SetUp; ids are indices */
  dmuon_param_arrays *arrays; /* [count] */
  dmuon_model_rules *rules;
  dmuon_registry registry; /* after SetUp */
  /* owner coordinates in the parameter's mesh, by registry index; set by the optimizer's SetUp from
   * its partition, for GetParam and View; NULL before. */
  int (*owners)[3];
};

DMuonErrorCode dmuon_model_check(DMuonModel model);
void dmuon_model_retain(DMuonModel model);
void dmuon_model_release(DMuonModel model);

/* What a caller's function is told about parameter index of the registry (the strings are the
 * model's). info->struct_size is set. After SetUp. */
void dmuon_model_info(DMuonModel model, int index, DMuonParamInfo *info);

/* No two of the caller's arrays share memory, whether weights or gradients: DMUON_ERR_SETUP names
 * both parameters. NULL arrays and parameters without elements share nothing. Local. */
DMuonErrorCode dmuon_model_check_arrays(DMuonModel model);

#endif
