/* The host's device against the conformance suite of the seam, at once and put off. */
#include "device_conformance.h"

#include "backend/host/host.h"

int main(void) {
  tap_plan(0);
  for (int deferred = 0; deferred < 2; deferred++) {
    dmuon_context context;
    dmuon_device *device = NULL;
    dmuon_context_init(&context);
    must(dmuon_host_device_create(&context, deferred, 7, &device));
    conformance_run(device, deferred ? "host:deferred" : "host");
    device->ops->destroy(device);
    tap_is_int(context.memory.bytes, 0, "everything was freed");
    dmuon_context_free(&context);
  }
  return tap_done();
}
