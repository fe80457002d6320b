/* Kernels are launched by handle, each with its one struct of arguments, so that C alone needs no
 * CUDA compiler. Decides the shape of a grid. */
#include "backend/cuda/cuda.h"

#include "backend/cuda/kernels.h"

/* Enough for 2048 threads on every processor, twice over. */
enum { BLOCKS_A_PROCESSOR = 16 };

int64_t dmuon_cuda_blocks(const dmuon_cuda_device *device, int64_t n) {
  const int64_t each = DMUON_THREADS * DMUON_VECTOR;
  const int64_t needed = n / each + (n % each != 0);
  const int64_t most = (int64_t)BLOCKS_A_PROCESSOR * device->processors;
  return needed < 1 ? 1 : needed < most ? needed : most;
}

DMuonErrorCode dmuon_cuda_launch(dmuon_queue *queue, const void *handle, int64_t blocks,
                                 int threads, const void *args) {
  if (blocks <= 0) return DMUON_SUCCESS;
  const int64_t most = INT32_MAX; /* every kernel walks on with fewer blocks than work */
  const dim3 grid = {(unsigned)(blocks < most ? blocks : most), 1, 1};
  const dim3 block = {(unsigned)threads, 1, 1};
  /* cudaLaunchKernel takes addresses of arguments, and reads them before it returns. */
  void *list[1] = {(void *)(uintptr_t)args};
  DMUON_TRY(DMUON_CUDA(cudaLaunchKernel, (handle, grid, block, list, 0, queue->stream)));
  return DMUON_SUCCESS;
}
