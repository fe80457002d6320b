/* Answers of CUDA and cuBLAS as codes of the library, and what a fatal one does to the device: it
 * is broken for good, says so at every later call, and its communicators are given up so that
 * nobody waits for them. */
#include "backend/cuda/cuda.h"

#include <string.h>

DMuonErrorCode dmuon_cuda_result(cudaError_t result, const char *call, const char *function,
                                 const char *file, int line) {
  if (result == cudaSuccess) return DMUON_SUCCESS;
  (void)cudaGetLastError(); /* the runtime keeps it for whoever asks next */
  const DMuonErrorCode code =
      result == cudaErrorMemoryAllocation ? DMUON_ERR_MEMORY : DMUON_ERR_DEVICE;
  return dmuon_error_set(code, function, file, line, "%s: %s (%s)", call,
                         cudaGetErrorString(result), cudaGetErrorName(result));
}

DMuonErrorCode dmuon_cublas_result(cublasStatus_t result, const char *call, const char *function,
                                   const char *file, int line) {
  if (result == CUBLAS_STATUS_SUCCESS) return DMUON_SUCCESS;
  const DMuonErrorCode code =
      result == CUBLAS_STATUS_ALLOC_FAILED ? DMUON_ERR_MEMORY : DMUON_ERR_DEVICE;
  return dmuon_error_set(code, function, file, line, "%s: %s", call, cublasGetStatusString(result));
}

void dmuon_cuda_break(dmuon_cuda_device *device, DMuonErrorCode code) {
  if (device->broken) return;
  device->broken = DMuonErrorIsFatal(code) ? code : DMUON_ERR_DEVICE;
  const char *text = dmuon_error_text();
  size_t length = strlen(text);
  if (length >= sizeof device->message) length = sizeof device->message - 1;
  memcpy(device->message, text, length);
  device->message[length] = 0;
  dmuon_cuda_comms_give_up(device);
}

DMuonErrorCode dmuon_cuda_check(dmuon_cuda_device *device) {
  if (device->broken) DMUON_FAIL(device->broken, "%s", device->message);
  return DMUON_SUCCESS;
}
