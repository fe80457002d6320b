/* What libdmuon_cuda.so exports. */
#include "config.h"

#include <string.h>

#include "backend/cuda/cuda.h"

static void set_timeout(dmuon_device *device, double seconds) {
  dmuon_cuda_of(device)->timeout = seconds;
}

static void break_device(dmuon_device *device, DMuonErrorCode code) {
  dmuon_cuda_break(dmuon_cuda_of(device), code);
}

static void identify(const dmuon_device *device, unsigned char uuid[16]) {
  memcpy(uuid, ((const dmuon_cuda_device *)(const void *)device)->uuid, 16);
}

__attribute__((visibility("default"))) const dmuon_module dmuon_cuda_module = {
    .abi = DMUON_MODULE_ABI,
    .build = DMUON_MODULE_BUILD,
    .name = "cuda",
    .comm = &dmuon_cuda_comm_ops,
    .create = dmuon_cuda_device_create,
    .set_timeout = set_timeout,
    .break_device = break_device,
    .describe = dmuon_cuda_device_describe,
    .library = dmuon_error_set,
    .identify = identify,
};
