/* The kernels, for the GPU: each is its body (bodies.h, bodies_comm.h). The only file that nvcc
 * compiles; without fused multiply-adds (-fmad=false), so that it rounds as the host does. */
#include "backend/cuda/bodies_comm.h"

#define DEFINE_THREAD(name, args)                                                                 \
  extern "C" __global__ void __launch_bounds__(DMUON_THREADS) dmuon_kernel_##name(const args a) { \
    dmuon_body_##name(&a, (int64_t)blockIdx.x *blockDim.x + threadIdx.x,                          \
                      (int64_t)gridDim.x * blockDim.x);                                           \
  }
#define DEFINE_BLOCK(name, args)                                                                  \
  extern "C" __global__ void __launch_bounds__(DMUON_THREADS) dmuon_kernel_##name(const args a) { \
    __shared__ double shared[DMUON_SHARED];                                                       \
    dmuon_body_##name(&a, blockIdx.x, gridDim.x, (int)blockDim.x, shared);                        \
  }
#define DEFINE(name, args, kind) DEFINE_##kind(name, args)

DMUON_KERNELS(DEFINE)
DMUON_KERNELS_COMM(DEFINE)
