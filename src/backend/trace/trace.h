/* The trace backend: records operations. Alone it carries nothing out (memory has addresses and
 * nothing behind them, scalars written by operations get a harmless value at once), so that one
 * process plays one rank of a mesh of any size; around another device it records what that device
 * does. What the mesh's list of backends needs to know of it, and how its log is reached. */
#ifndef DMUON_BACKEND_TRACE_TRACE_H
#define DMUON_BACKEND_TRACE_TRACE_H

#include "backend/trace/log.h"
#include "comm/comm.h"
#include "device/device.h"

enum { DMUON_TRACE_LIMIT = 1 << 18 }; /* records kept, unless told */

/* inner: NULL, or the device that carries operations out (then the trace's, destroyed with it) and
 * its communicators. inner stays the caller's when this fails. */
DMuonErrorCode dmuon_trace_device_create(dmuon_context *context, dmuon_device *inner,
                                         const DMuonCommOps *inner_comm, int64_t limit,
                                         dmuon_device **device);
dmuon_device *dmuon_trace_device_inner(dmuon_device *device);
/* Of a traced device; NULL for any other. */
dmuon_trace_log *dmuon_trace_log_of(dmuon_device *device);
/* The caller reads or writes these bytes himself now, in the host thread. */
DMuonErrorCode dmuon_trace_touch(dmuon_device *device, const void *ptr, int64_t bytes, int written);

extern const DMuonCommOps dmuon_trace_comm_ops;

#endif
