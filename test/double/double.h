/* The test double of CUDA's runtime, cuBLAS and NCCL: what kernels.cpp and tests see of it.
 *
 * A kernel is a handle (the function that cudaLaunchKernel gets: here a dummy of the same name that
 * nobody calls) with what the double needs to stand in for it: what it touches, so that missing
 * waits are found, and a run over grid and block. Touches must cover all that run reads and writes:
 * other device memory stays unreadable meanwhile. README.md says what is checked, and what a pass
 * does not prove. */
#ifndef TEST_DOUBLE_DOUBLE_H
#define TEST_DOUBLE_DOUBLE_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  DOUBLE_READ = 1,   /* every byte must have been written before */
  DOUBLE_WRITE = 2,  /* without reading; pinned memory shows NaN until the kernel has run */
  DOUBLE_UPDATE = 3, /* read and written */
  DOUBLE_MOVE = 4,   /* read, but what was never written may be among it: padding, copies */
  DOUBLE_MAYBE = 6   /* MOVE and written: written only where the kernel so decides, in place */
} double_mode;

typedef struct double_touches double_touches;

/* count elements from ptr on, of so many bytes, to which ptr must be aligned. Nothing when count is
 * 0; NULL is a failure else. */
void double_touch(double_touches *touches, const void *ptr, int64_t count, int64_t element_bytes,
                  double_mode mode);
/* rows of cols elements, ld elements apart. */
void double_touch_rows(double_touches *touches, const void *ptr, int64_t rows, int64_t cols,
                       int64_t ld, int64_t element_bytes, double_mode mode);

typedef struct {
  const void *handle; /* the address given to cudaLaunchKernel */
  const char *name;
  size_t args_bytes; /* of the one struct that it takes by value; copied at launch */
  void (*touches)(const void *args, dim3 grid, dim3 block, double_touches *touches);
  /* All blocks and threads of the launch, from inside one call. */
  void (*run)(const void *args, dim3 grid, dim3 block);
} double_kernel;

/* The table stays the caller's and valid. In C++: static const int known = double_register(...). */
int double_register(const double_kernel *kernels, int count);

/* Calls so far that make the host wait: allocation, freeing, ...Synchronize, copies from and to
 * pageable memory. */
int64_t double_blocking_calls(void);
/* From now on (until off) such a call is a failure. */
void double_forbid_blocking(int on);
/* The host is about to read these bytes of pinned memory: fails unless it has waited for all that
 * writes them. */
void double_host_reads(const void *ptr, int64_t bytes);
/* The nth call from now on (1: the next) of this entry point returns the error code. */
void double_fail_call(const char *call, int nth, int code);
/* What the stream was created with: 0, down to -5 for the most urgent. */
int double_stream_priority(cudaStream_t stream);
/* What is left at exit is meant to be: a test of a broken run. */
void double_forgive_leaks(void);

#ifdef __cplusplus
}
#endif
#endif
