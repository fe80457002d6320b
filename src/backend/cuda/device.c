/* The CUDA device: which GPU it is, its life, and its table of operations. What is missing where no
 * device can be made is said in words: no driver, no GPU, an ordinal that is none. */
#include "backend/cuda/cuda.h"

#include <string.h>

int dmuon_cuda_enter(dmuon_cuda_device *device) {
  int previous = -1;
  if (cudaGetDevice(&previous) != cudaSuccess) previous = -1;
  if (previous != device->ordinal) (void)cudaSetDevice(device->ordinal);
  return previous;
}

void dmuon_cuda_leave(dmuon_cuda_device *device, int previous) {
  if (previous >= 0 && previous != device->ordinal) (void)cudaSetDevice(previous);
}

static DMuonErrorCode cuda_reserve(dmuon_device *device, int64_t operations) {
  (void)operations; /* CUDA keeps what was issued */
  DMUON_TRY(dmuon_cuda_check(dmuon_cuda_of(device)));
  return DMUON_SUCCESS;
}

/* A queue's workspace does for products of every shape. */
static DMuonErrorCode cuda_reserve_matrix(dmuon_queue *queue, DMuonDType dtype, int64_t rows,
                                          int64_t cols) {
  (void)dtype;
  (void)rows;
  (void)cols;
  DMUON_CUDA_WITHIN(queue->device, dmuon_cuda_queue_products(queue));
}

static DMuonErrorCode cuda_set_stream(dmuon_device *device, void *stream) {
  dmuon_cuda_of(device)->caller = stream;
  return DMUON_SUCCESS;
}

static DMuonErrorCode cuda_alloc(dmuon_device *device, int64_t bytes, void **ptr) {
  DMUON_TRY(dmuon_cuda_alloc(dmuon_cuda_of(device), bytes, ptr));
  return DMUON_SUCCESS;
}

static void cuda_free(dmuon_device *device, void *ptr) {
  dmuon_cuda_free(dmuon_cuda_of(device), ptr);
}

static DMuonErrorCode cuda_alloc_host(dmuon_device *device, int64_t bytes, void **ptr) {
  DMUON_TRY(dmuon_cuda_alloc_host(dmuon_cuda_of(device), bytes, ptr));
  return DMUON_SUCCESS;
}

static void cuda_free_host(dmuon_device *device, void *ptr) {
  dmuon_cuda_free_host(dmuon_cuda_of(device), ptr);
}

static void cuda_destroy(dmuon_device *base) {
  if (!base) return;
  dmuon_cuda_device *device = dmuon_cuda_of(base);
  const int previous = dmuon_cuda_enter(device);
  dmuon_cuda_comms_close(device);
  for (int i = 0; i < DMUON_CUDA_RING; i++)
    if (device->ring[i]) (void)cudaEventDestroy(device->ring[i]);
  if (device->blas) (void)cublasDestroy(device->blas);
  while (device->blocks) dmuon_cuda_free(device, device->blocks->ptr);
  dmuon_cuda_leave(device, previous);
  dmuon_memory_free(device);
}

static const DMuonDeviceOps cuda_ops = {
    .name = "cuda",
    .queue_create = dmuon_cuda_queue_create,
    .queue_destroy = dmuon_cuda_queue_destroy,
    .queue_sync = dmuon_cuda_queue_sync,
    .event_create = dmuon_cuda_event_create,
    .event_destroy = dmuon_cuda_event_destroy,
    .event_record = dmuon_cuda_event_record,
    .event_wait = dmuon_cuda_event_wait,
    .event_test = dmuon_cuda_event_test,
    .event_sync = dmuon_cuda_event_sync,
    .reserve = cuda_reserve,
    .reserve_matrix = cuda_reserve_matrix,
    .progress = dmuon_cuda_progress,
    .lend = dmuon_cuda_lend,
    .reclaim = dmuon_cuda_reclaim,
    .set_stream = cuda_set_stream,
    .check_pointer = dmuon_cuda_check_pointer,
    .discard = dmuon_cuda_discard,
    .stamp = dmuon_cuda_stamp,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .zero = dmuon_cuda_zero,
    .copy = dmuon_cuda_copy,
    .cast = dmuon_cuda_cast,
    .pack = dmuon_cuda_pack,
    .copy_matrix = dmuon_cuda_copy_matrix,
    .gemm = dmuon_cuda_gemm,
    .syrk = dmuon_cuda_syrk,
    .gemm_symmetric = dmuon_cuda_gemm_symmetric,
    .axpby = dmuon_cuda_axpby,
    .divide = dmuon_cuda_divide,
    .add_diagonal = dmuon_cuda_add_diagonal,
    .norm = dmuon_cuda_norm,
    .find_nonfinite = dmuon_cuda_find_nonfinite,
    .decide = dmuon_cuda_decide,
    .muon_momentum = dmuon_cuda_muon_momentum,
    .muon_apply = dmuon_cuda_muon_apply,
    .adamw = dmuon_cuda_adamw,
    .destroy = cuda_destroy,
};

/* ---- making one ---------------------------------------------------------------------------- */

/* As other tools write it: 0000:07:00.0. */
static void write_pci(char pci[24], const struct cudaDeviceProp *properties) {
  static const char digits[] = "0123456789abcdef";
  const unsigned domain = (unsigned)properties->pciDomainID;
  const unsigned bus = (unsigned)properties->pciBusID, slot = (unsigned)properties->pciDeviceID;
  const char text[13] = {digits[domain >> 12 & 15],
                         digits[domain >> 8 & 15],
                         digits[domain >> 4 & 15],
                         digits[domain & 15],
                         ':',
                         digits[bus >> 4 & 15],
                         digits[bus & 15],
                         ':',
                         digits[slot >> 4 & 15],
                         digits[slot & 15],
                         '.',
                         '0',
                         0};
  memcpy(pci, text, sizeof text);
}

/* The ordinal of the GPU at the address that was asked for. */
static DMuonErrorCode find_address(const dmuon_module_request *request, int count, int *ordinal) {
  for (int i = 0; i < count; i++) {
    struct cudaDeviceProp properties;
    char pci[24] = "";
    memset(&properties, 0, sizeof properties);
    DMUON_TRY(DMUON_CUDA(cudaGetDeviceProperties, (&properties, i)));
    write_pci(pci, &properties);
    if (strcmp(pci, request->pci)) continue;
    *ordinal = i;
    return DMUON_SUCCESS;
  }
  DMUON_FAIL(DMUON_ERR_ARGUMENT,
             "device \"%s\": rank %d is to use the GPU at %s, which is not among the %d that it "
             "sees; let every rank see all GPUs of its node (CUDA_VISIBLE_DEVICES), or bind none",
             request->text, request->rank, request->pci, count);
}

/* The ordinal that is meant, or what is missing here. */
static DMuonErrorCode find_ordinal(const dmuon_module_request *request, int *ordinal) {
  int driver = 0, runtime = 0, count = 0, current = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    (void)cudaGetLastError();
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "device \"%s\": rank %d finds no NVIDIA driver (libcuda.so.1)", request->text,
               request->rank);
  }
  cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "device \"%s\": on rank %d the NVIDIA driver supports CUDA %d.%d, this library was "
               "built for %d.%d",
               request->text, request->rank, driver / 1000, driver % 1000 / 10, runtime / 1000,
               runtime % 1000 / 10);
  }
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0)) {
    (void)cudaGetLastError();
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "device \"%s\": rank %d sees no GPU (does CUDA_VISIBLE_DEVICES hide it?)",
               request->text, request->rank);
  }
  DMUON_TRY(dmuon_cuda_error(result, "cudaGetDeviceCount"));
  if (request->ordinal >= count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": ordinal %d on rank %d, which sees %d GPU%s",
               request->text, request->ordinal, request->rank, count, count == 1 ? "" : "s");
  if (request->pci) {
    DMUON_TRY(find_address(request, count, ordinal));
    return DMUON_SUCCESS;
  }
  *ordinal = request->ordinal;
  if (request->ordinal >= 0) return DMUON_SUCCESS;
  DMUON_TRY(DMUON_CUDA(cudaGetDevice, (&current)));
  *ordinal = current;
  return DMUON_SUCCESS;
}

static DMuonErrorCode learn(dmuon_cuda_device *device) {
  struct cudaDeviceProp properties;
  memset(&properties, 0, sizeof properties);
  DMUON_TRY(DMUON_CUDA(cudaGetDeviceProperties, (&properties, device->ordinal)));
  memcpy(device->name, properties.name, sizeof device->name);
  device->name[sizeof device->name - 1] = 0;
  memcpy(device->uuid, properties.uuid.bytes, sizeof device->uuid);
  device->major = properties.major;
  device->minor = properties.minor;
  device->processors = properties.multiProcessorCount > 0 ? properties.multiProcessorCount : 1;
  write_pci(device->module.pci, &properties);
  /* What cuBLAS recommends. */
  device->blas_bytes = (int64_t)(properties.major >= 9 ? 32 : 8) << 20;
  device->overhead =
      (dmuon_device_overhead){.buffer = (int64_t)sizeof(dmuon_cuda_block),
                              .queue = DMUON_CUDA_QUEUE_BYTES,
                              .products = device->blas_bytes + DMUON_CUDA_TILE_BYTES};
  device->module.base.overhead = &device->overhead;
  DMUON_TRY(DMUON_CUDA(cudaDeviceGetStreamPriorityRange,
                       (&device->low_priority, &device->high_priority)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode open_device(dmuon_cuda_device *device) {
  DMUON_TRY(learn(device));
  for (int i = 0; i < DMUON_CUDA_RING; i++)
    DMUON_TRY(DMUON_CUDA(cudaEventCreateWithFlags, (&device->ring[i], cudaEventDisableTiming)));
  DMUON_TRY(DMUON_CUBLAS(cublasCreate, (&device->blas)));
  DMUON_TRY(DMUON_CUBLAS(
      cublasSetMathMode,
      (device->blas,
       (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_device_create(dmuon_context *context, const dmuon_module_request *request,
                                        dmuon_device **device) {
  dmuon_cuda_device *d = NULL;
  int ordinal = 0;
  DMUON_TRY(find_ordinal(request, &ordinal));
  DMUON_TRY(dmuon_memory_alloc(&context->memory, 1, sizeof *d, &d));
  d->module.base.ops = &cuda_ops;
  d->module.base.context = context;
  d->module.base.decides_late = 1;
  d->module.base.prefers_half = 1;
  d->module.base.cuts_products = 1;
  d->module.module = &dmuon_cuda_module;
  d->ordinal = ordinal;
  d->reduce_nccl = request->reduce_nccl;
  d->allow_tf32 = request->allow_tf32;
  d->one_call_batches = d->module.base.prefers_batches = request->batched;
  d->rank = request->rank;
  d->progress = request->progress;
  d->progress_argument = request->progress_argument;
  d->alloc = request->alloc;
  d->release = request->release;
  d->alloc_context = request->alloc_context;
  d->tile = DMUON_CUDA_TILE_TABLE;
  const int previous = dmuon_cuda_enter(d);
  DMuonErrorCode code = open_device(d);
  dmuon_cuda_leave(d, previous);
  if (code) {
    cuda_destroy(&d->module.base);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *device = &d->module.base;
  return DMUON_SUCCESS;
}

void dmuon_cuda_device_set_tile(dmuon_device *device, int64_t tile) {
  dmuon_cuda_of(device)->tile = tile;
}

void dmuon_cuda_device_set_one_call_batches(dmuon_device *device, int on) {
  dmuon_cuda_of(device)->one_call_batches = on;
}

void dmuon_cuda_device_describe(const dmuon_device *base, dmuon_text *text) {
  const dmuon_cuda_device *device = (const dmuon_cuda_device *)(const void *)base;
  int runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  dmuon_text_add(text, "%s, ordinal %d, PCI %s; CUDA %d.%d, ", device->name, device->ordinal,
                 device->module.pci, runtime / 1000, runtime % 1000 / 10);
  dmuon_cuda_comms_version(device, text);
  if (device->allow_tf32) dmuon_text_add(text, "; fp32 products in TF32");
}
