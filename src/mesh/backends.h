/* The one list of backends. A name that is not built says so, an unknown one gets the nearest. */
#ifndef DMUON_MESH_BACKENDS_H
#define DMUON_MESH_BACKENDS_H

#include "comm/comm.h"
#include "device/device.h"

/* text: "host", "host:deferred,seed=7", "host:trace" (which also records), "trace" (which only
 * records; for plan meshes). DMUON_ERR_ARGUMENT, DMUON_ERR_UNSUPPORTED ("not compiled in").
 * with_mpi: the device takes part in the progress of all meshes of the process. */
DMuonErrorCode dmuon_backend_create_device(dmuon_context *context, const char *text, int with_mpi,
                                           dmuon_device **device);
/* The device works without ranks: on a plan mesh. */
int dmuon_backend_is_for_plans(const char *text);
const DMuonCommOps *dmuon_backend_comm_ops(const dmuon_device *device);
void dmuon_backend_set_timeout(dmuon_device *device, double seconds);
void dmuon_backend_set_delay(dmuon_device *device, double seconds);
void dmuon_backend_break(dmuon_device *device, DMuonErrorCode code);

#endif
