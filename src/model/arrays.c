/* Decides whether the caller's arrays are apart: the updates of two parameters that share memory
 * would depend on their order, and a gradient inside weights would change while it is read. */
#include "model/arrays.h"

#include <stdint.h>

#include "base/dtype.h"
#include "base/sort.h"

const void *dmuon_arrays_gradients(const dmuon_param *param, const dmuon_param_arrays *arrays) {
  const char *stack = arrays->stack;
  int64_t elements = arrays->stack_index * param->numel;
  if (!stack || arrays->gradients != stack + elements * (int64_t)dmuon_dtype_bytes(param->dtype))
    return arrays->gradients;
  return stack + elements * (int64_t)dmuon_dtype_bytes(param->grad_dtype);
}

typedef struct {
  uintptr_t begin, end;
  int param, is_gradient;
} range;

static int compare_ranges(const void *a, const void *b, void *context) {
  const range *x = a, *y = b;
  (void)context;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static DMuonErrorCode check_sorted(int count, const range *ranges, const dmuon_param *params) {
  int widest = 0; /* the range reaching furthest so far */
  for (int i = 1; i < count; i++) {
    if (ranges[i].begin < ranges[widest].end) {
      /* Named in order of registration, whatever their order in memory. */
      const range *a = &ranges[widest], *b = &ranges[i];
      if (b->param < a->param || (b->param == a->param && b->is_gradient < a->is_gradient)) {
        a = &ranges[i];
        b = &ranges[widest];
      }
      DMUON_FAIL(
          DMUON_ERR_SETUP,
          "the %s of \"%s\" (id %d) and the %s of \"%s\" (id %d) share memory; each parameter "
          "needs arrays of its own",
          a->is_gradient ? "gradients" : "weights", params[a->param].name, a->param,
          b->is_gradient ? "gradients" : "weights", params[b->param].name, b->param);
    }
    if (ranges[i].end > ranges[widest].end) widest = i;
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_arrays_check(dmuon_memory *memory, int count, const dmuon_param *params,
                                  const dmuon_param_arrays *arrays) {
  range *ranges = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, 2 * (int64_t)count, sizeof *ranges, &ranges));
  int used = 0;
  for (int i = 0; i < count; i++) {
    const void *data[2] = {arrays[i].weights, dmuon_arrays_gradients(&params[i], &arrays[i])};
    DMuonDType dtype[2] = {params[i].dtype, params[i].grad_dtype};
    for (int k = 0; k < 2; k++) {
      if (!data[k] || params[i].numel == 0) continue;
      uintptr_t begin = (uintptr_t)data[k];
      ranges[used++] =
          (range){begin, begin + (uintptr_t)params[i].numel * dmuon_dtype_bytes(dtype[k]), i, k};
    }
  }
  DMuonErrorCode code = dmuon_sort(memory, ranges, used, sizeof *ranges, compare_ranges, NULL);
  if (!code) code = check_sorted(used, ranges, params);
  dmuon_memory_free(ranges);
  return code;
}
