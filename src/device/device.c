/* What is common to all devices: norms that keep their exponent apart, what devices take that say
 * nothing of it, and names for those who read what a device was told to do. */
#include "device/device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static int clamp_exponent(int64_t exponent) {
  return exponent > 100000 ? 100000 : exponent < -100000 ? -100000 : (int)exponent;
}

double dmuon_norm_value(const dmuon_norm *norm) {
  return ldexp(sqrt(norm->sum), clamp_exponent(norm->exponent));
}

dmuon_norm dmuon_norm_combine(const dmuon_norm *a, const dmuon_norm *b) {
  if (a->sum == 0) return *b;
  if (b->sum == 0) return *a;
  dmuon_norm both;
  both.exponent = a->exponent > b->exponent ? a->exponent : b->exponent;
  both.sum = ldexp(a->sum, clamp_exponent(2 * (a->exponent - both.exponent))) +
             ldexp(b->sum, clamp_exponent(2 * (b->exponent - both.exponent)));
  return both;
}

void dmuon_queue_settle(dmuon_device *device, dmuon_queue *queue, DMuonErrorCode code) {
  char text[512];
  if (!queue) return;
  snprintf(text, sizeof text, "%s", dmuon_error_text());
  if (device->ops->queue_sync(queue)) (void)DMUON_ERROR(code, "%s", text);
}

/* Rounded: they matter to models of a few megabytes only. */
static const dmuon_device_overhead of_a_host = {
    .buffer = 512, .operation = 240, .queue = 0, .products = 0, .widens = 1};

const dmuon_device_overhead *dmuon_device_overhead_of(const dmuon_device *device) {
  return device && device->overhead ? device->overhead : &of_a_host;
}

enum { NOTE_BYTES = 160 };

void dmuon_device_name_queue(dmuon_device *device, const dmuon_queue *queue, const char *name) {
  if (device->ops->note && queue) device->ops->note(device, queue, 1, name);
}

void dmuon_device_name_buffer(dmuon_device *device, const void *buffer, const char *format, ...) {
  char text[NOTE_BYTES];
  va_list list;
  if (!device->ops->note || !buffer) return;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  device->ops->note(device, buffer, 0, text);
}

void dmuon_device_note(dmuon_device *device, const char *format, ...) {
  char text[NOTE_BYTES];
  va_list list;
  if (!device->ops->note) return;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  device->ops->note(device, NULL, 0, text);
}
