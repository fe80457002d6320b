/* The one list of backends. A name that is not built says so, an unknown one gets the nearest. */
#ifndef DMUON_MESH_BACKENDS_H
#define DMUON_MESH_BACKENDS_H

#include <dmuon/types.h>

#include "comm/comm.h"
#include "device/device.h"
#include "base/text.h"

#define DMUON_BACKEND_STAGED "staged"

/* What a device that is not this process's CPU is told beside its text. NULL: nothing of it. */
typedef struct {
  int ordinal;     /* -1: the current one */
  const char *pci; /* unless NULL: the one at this address, whatever its ordinal */
  int rank;        /* in the mesh */
  int reduce_nccl;
  const char *module_path; /* NULL: where modules are installed */
  DMuonAllocFunction alloc;
  DMuonFreeFunction release;
  void *alloc_context;
} dmuon_backend_extras;

/* text: "host", "host:deferred,seed=7", "host:late" (steps decide as on a device, where results
 * reach the host late), "host:trace" (which also records), "trace" (which only records; for plan
 * meshes), "cuda", "cuda:ordinal=1,tf32,trace"; the item staged is for device_agree.c.
 * DMUON_ERR_ARGUMENT; DMUON_ERR_UNSUPPORTED: what it needs is not here (not compiled in, no driver,
 * no GPU).
 * with_mpi: the device takes part in the progress of all meshes of the process. */
DMuonErrorCode dmuon_backend_create_device(dmuon_context *context, const char *text, int with_mpi,
                                           const dmuon_backend_extras *extras,
                                           dmuon_device **device);
/* What the mesh was told of its device. */
void dmuon_mesh_extras(DMuonMesh mesh, dmuon_backend_extras *extras);
/* Which piece of hardware it is (the host: zeros), its PCI address ("0000:07:00.0"; the host: ""),
 * and what it is in words (the host: nothing). */
void dmuon_backend_identify(const dmuon_device *device, unsigned char uuid[16]);
void dmuon_backend_pci(const dmuon_device *device, char pci[24]);
void dmuon_backend_describe(const dmuon_device *device, dmuon_text *text);
/* A rank may find itself without: the device is no part of every process. */
int dmuon_backend_may_be_missing(const char *text);
/* The text has the item staged: communication through host memory. */
int dmuon_backend_wants_staged(const char *text);
/* The device works without ranks: on a plan mesh. */
int dmuon_backend_is_for_plans(const char *text);
const DMuonCommOps *dmuon_backend_comm_ops(const dmuon_device *device);
void dmuon_backend_set_timeout(dmuon_device *device, double seconds);
void dmuon_backend_set_delay(dmuon_device *device, double seconds);
void dmuon_backend_break(dmuon_device *device, DMuonErrorCode code);

#endif
