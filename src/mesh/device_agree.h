/* The mesh's device, and the communication that all ranks use, agreed. */
#ifndef DMUON_MESH_DEVICE_AGREE_H
#define DMUON_MESH_DEVICE_AGREE_H

#include "mesh/mesh.h"

/* mesh->device, of a real mesh, before its ranks are placed. Where some ranks have none of the kind
 * that was asked for, those get the host's; where no rank has one, all fail alike. Collective. What
 * is left of a failure is the caller's to drop. */
DMuonErrorCode dmuon_mesh_make_device(DMuonMesh mesh);
/* Once the ranks are placed: what carries their communication, the same on all ranks. Local. */
DMuonErrorCode dmuon_mesh_choose_transport(DMuonMesh mesh);
/* The table that was chosen; of a plan mesh, its device's. */
const DMuonCommOps *dmuon_mesh_comm_ops(DMuonMesh mesh);
/* As before dmuon_mesh_make_device, but for the device. */
void dmuon_mesh_forget_transport(DMuonMesh mesh);

#endif
