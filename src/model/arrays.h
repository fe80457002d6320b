/* Whether the caller's arrays are apart. Pure. */
#ifndef DMUON_MODEL_ARRAYS_H
#define DMUON_MODEL_ARRAYS_H

#include "model/model.h"

/* Where the gradients of a resolved parameter are: in a stack, so many elements of the gradients'
 * own dtype after its beginning, unless the pointer was replaced since. */
const void *dmuon_arrays_gradients(const dmuon_param *param, const dmuon_param_arrays *arrays);

/* DMUON_ERR_SETUP names the first two parameters whose weights or gradients share memory. */
DMuonErrorCode dmuon_arrays_check(dmuon_memory *memory, int count, const dmuon_param *params,
                                  const dmuon_param_arrays *arrays);

#endif
