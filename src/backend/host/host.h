/* The host backend: MPI and BLAS. What the mesh's list of backends needs to know of it. */
#ifndef DMUON_BACKEND_HOST_HOST_H
#define DMUON_BACKEND_HOST_HOST_H

#include "comm/comm.h"
#include "device/device.h"

/* A device that runs on this process's CPU, without MPI. deferred: see engine.h. */
DMuonErrorCode dmuon_host_device_create(dmuon_context *context, int deferred, uint64_t seed,
                                        dmuon_device **device);
/* The longest wait of its queues for other ranks. Live. */
void dmuon_host_device_set_timeout(dmuon_device *device, double seconds);
/* Holds every message back for so long, for tests of overlap. Live. */
void dmuon_host_device_set_delay(dmuon_device *device, double seconds);
/* Makes the device's engine one of those that every library call in this process advances. Needs
 * MPI. Undone by the device's destroy. */
DMuonErrorCode dmuon_host_device_join_process(dmuon_device *device);
/* The device gave up (code >= 200, message in the thread's record): nothing waits any more. */
void dmuon_host_device_break(dmuon_device *device, DMuonErrorCode code);

extern const DMuonCommOps dmuon_host_comm_ops;

#endif
