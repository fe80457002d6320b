/* The kernel of reductions: adds up what lies ready of a chunk. See kernels.h. */
#ifndef DMUON_BACKEND_CUDA_KERNELS_COMM_H
#define DMUON_BACKEND_CUDA_KERNELS_COMM_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/sum_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = (the contributions, widened, times factor, added as ((0+1)+(2+3))+((4+5)+(6+7)), NULL being
 * nobody's; then merge[0], merge[1], ... added) / divisor, saturated as comm.h says. Something is
 * there. out may be one of the operands. */
typedef struct {
  int64_t n;
  double factor, divisor;
  const void *source[DMUON_SUM_WIDTH]; /* of in_dtype */
  const void *merge[DMUON_SUM_PLACES]; /* of sum_dtype */
  void *out;
  int merge_count;
  DMuonDType in_dtype, sum_dtype;
} dmuon_sum_args;

#define DMUON_KERNELS_COMM(X) X(sum, dmuon_sum_args, THREAD)

DMUON_KERNEL(sum, dmuon_sum_args);

#ifdef __cplusplus
}
#endif
#endif
