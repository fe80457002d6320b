/* The real GPU against the conformance suite of the seam, with symmetric products whole and in
 * tiles. Not a part of make check: gpu_check.sh runs it. */
#include "config.h"

#include "device_conformance.h"

#include "backend/cuda/cuda.h"

static int run(int cut) {
  const dmuon_module_request request = {.text = "cuda", .ordinal = -1};
  dmuon_context context;
  dmuon_device *device = NULL;
  dmuon_context_init(&context);
  if (dmuon_cuda_module.create(&context, &request, &device)) {
    printf("1..0 # SKIP %.*s\n", (int)strcspn(DMuonErrorGetMessage(), "\n"),
           DMuonErrorGetMessage());
    return 0;
  }
  dmuon_cuda_device_set_tile(device, cut ? 128 : 0);
  conformance_run(device, cut ? "cuda in tiles" : "cuda");
  device->ops->destroy(device);
  tap_is_int(context.memory.bytes, 0, "everything was freed");
  dmuon_context_free(&context);
  return 1;
}

int main(void) {
  tap_plan(0);
  if (!run(0)) return 77;
  run(1);
  return tap_done();
}
