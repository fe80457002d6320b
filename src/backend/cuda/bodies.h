/* What the kernels do, as inline functions that nvcc and a plain C++ compiler both take. Decides
 * the arithmetic: the formulas and the rounding of the host's loops, to the bit: in double, rounded
 * once where a value is stored (a conversion, or a sum of fp32 numbers stored in fp32, is the same
 * without the detour). Contraction into fused multiply-adds must be off. A reduction has one
 * association, a function of the size alone, and its threads meet between phases. */
#ifndef DMUON_BACKEND_CUDA_BODIES_H
#define DMUON_BACKEND_CUDA_BODIES_H

#include "backend/cuda/bodies_loops.h"
#include "backend/cuda/bodies_reduce.h"
#include "backend/cuda/bodies_update.h"

#endif
