/* Device memory, from CUDA or from the caller's pool, and pinned memory of the host. Each block is
 * remembered, so that it is counted like the library's other memory and goes back where it came
 * from. On a broken device operations may still use their buffers: nothing is given back there. */
#include "backend/cuda/cuda.h"

#include <string.h>

enum { ALIGNMENT = 256 };

static void count(dmuon_cuda_device *device, int64_t bytes) {
  dmuon_memory *memory = dmuon_cuda_memory(device);
  memory->bytes += bytes;
  if (memory->bytes > memory->peak_bytes) memory->peak_bytes = memory->bytes;
}

static void unlink_block(dmuon_cuda_device *device, dmuon_cuda_block *block) {
  if (block->next) block->next->previous = block->previous;
  if (block->previous)
    block->previous->next = block->next;
  else
    device->blocks = block->next;
}

static void give_back(dmuon_cuda_device *device, const dmuon_cuda_block *block) {
  if (device->broken || !block->ptr) return;
  if (block->is_host)
    (void)cudaFreeHost(block->ptr);
  else if (!block->is_pool)
    (void)cudaFree(block->ptr);
  else if (device->release)
    device->release(device->alloc_context, block->ptr, (size_t)block->bytes, NULL);
}

/* Where a pointer of the pool, or of the caller, lies. */
static DMuonErrorCode check_place(dmuon_cuda_device *device, const void *ptr, const char *who) {
  struct cudaPointerAttributes at;
  memset(&at, 0, sizeof at);
  DMUON_TRY(DMUON_CUDA(cudaPointerGetAttributes, (&at, ptr)));
  if (at.type == cudaMemoryTypeUnregistered)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "%s %p is memory of the host that device %d cannot reach; it must come from "
               "DMuonMeshAlloc, cudaMalloc or another allocator of device memory",
               who, ptr, device->ordinal);
  if (at.type == cudaMemoryTypeDevice && at.device != device->ordinal)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s %p is memory of device %d; this mesh computes on device %d",
               who, ptr, at.device, device->ordinal);
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_pointer(dmuon_cuda_device *device, const void *ptr, int64_t bytes) {
  if (!ptr || bytes <= 0) return DMUON_SUCCESS;
  DMUON_TRY(check_place(device, ptr, "pointer"));
  if (check_place(device, (const char *)ptr + bytes - 1, "the last byte"))
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "an array of %lld bytes at %p reaches beyond the memory that begins there",
               (long long)bytes, ptr);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_check_pointer(dmuon_device *device, const void *ptr, int64_t bytes) {
  DMUON_CUDA_WITHIN(dmuon_cuda_of(device), check_pointer(dmuon_cuda_of(device), ptr, bytes));
}

/* A pool may hand memory out in the order of a stream: it is the queues' at once only behind
 * that. */
static DMuonErrorCode await_pool(dmuon_cuda_device *device) {
  const double since = dmuon_cuda_seconds();
  for (int64_t turn = 0;; turn++) {
    const cudaError_t answer = cudaStreamQuery(NULL);
    if (answer != cudaErrorNotReady) return dmuon_cuda_error(answer, "cudaStreamQuery");
    (void)cudaGetLastError();
    DMUON_TRY(dmuon_cuda_pause(device, since, turn, "the program's allocator"));
  }
}

static DMuonErrorCode take_from_pool(dmuon_cuda_device *device, dmuon_cuda_block *block,
                                     size_t bytes) {
  void *ptr = device->alloc(device->alloc_context, bytes, NULL);
  if (!ptr)
    DMUON_FAIL(DMUON_ERR_MEMORY, "the program's allocator has no %zu bytes of device memory",
               bytes);
  block->ptr = ptr;
  block->is_pool = 1;
  if ((uintptr_t)ptr % ALIGNMENT)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "the program's allocator gave %p, which must be aligned to %d bytes", ptr,
               ALIGNMENT);
  DMUON_TRY(check_place(device, ptr, "what the program's allocator gave,"));
  DMUON_TRY(await_pool(device));
  return DMUON_SUCCESS;
}

static DMuonErrorCode take(dmuon_cuda_device *device, dmuon_cuda_block *block) {
  const size_t bytes = block->bytes > 0 ? (size_t)block->bytes : 1;
  if (block->is_host) {
    DMUON_TRY(DMUON_CUDA(cudaHostAlloc,
                         (&block->ptr, bytes, cudaHostAllocMapped | cudaHostAllocPortable)));
    memset(block->ptr, 0, bytes);
    return DMUON_SUCCESS;
  }
  if (device->alloc) {
    block->bytes = (int64_t)bytes;
    DMUON_TRY(take_from_pool(device, block, bytes));
    return DMUON_SUCCESS;
  }
  cudaError_t result = cudaMalloc(&block->ptr, bytes);
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    DMUON_FAIL(DMUON_ERR_MEMORY, "cudaMalloc: device %d (%s) has no %zu bytes left",
               device->ordinal, device->name, bytes);
  }
  return dmuon_cuda_error(result, "cudaMalloc");
}

/* The record is a counted allocation of its own, so that tests find and fail this one, too. */
static DMuonErrorCode add_block(dmuon_cuda_device *device, int64_t bytes, int is_host, void **ptr) {
  dmuon_cuda_block *block = NULL;
  if (bytes < 0)
    DMUON_FAIL(DMUON_ERR_MEMORY, "a buffer of %lld bytes was asked for", (long long)bytes);
  DMUON_TRY(dmuon_memory_alloc(dmuon_cuda_memory(device), 1, sizeof *block, &block));
  block->bytes = bytes;
  block->is_host = is_host;
  DMuonErrorCode code = take(device, block);
  if (code) {
    give_back(device, block);
    dmuon_memory_free(block);
    return code;
  }
  count(device, block->bytes);
  block->next = device->blocks;
  if (device->blocks) device->blocks->previous = block;
  device->blocks = block;
  *ptr = block->ptr;
  return DMUON_SUCCESS;
}

static void remove_block(dmuon_cuda_device *device, void *ptr) {
  if (!ptr) return;
  dmuon_cuda_block *block = device->blocks;
  while (block && block->ptr != ptr) block = block->next;
  if (!block) return;
  unlink_block(device, block);
  const int previous = dmuon_cuda_enter(device);
  give_back(device, block);
  dmuon_cuda_leave(device, previous);
  count(device, -block->bytes);
  dmuon_memory_free(block);
}

DMuonErrorCode dmuon_cuda_alloc(dmuon_cuda_device *device, int64_t bytes, void **ptr) {
  DMUON_CUDA_WITHIN(device, add_block(device, bytes, 0, ptr));
}

void dmuon_cuda_free(dmuon_cuda_device *device, void *ptr) {
  remove_block(device, ptr);
}

DMuonErrorCode dmuon_cuda_alloc_host(dmuon_cuda_device *device, int64_t bytes, void **ptr) {
  DMUON_CUDA_WITHIN(device, add_block(device, bytes, 1, ptr));
}

void dmuon_cuda_free_host(dmuon_cuda_device *device, void *ptr) {
  remove_block(device, ptr);
}
