/* The machine and what was made of it, for people. */
#ifndef DMUON_MESH_VIEW_MACHINE_H
#define DMUON_MESH_VIEW_MACHINE_H

#include "mesh/mesh.h"

/* Nodes, machine, islands, sizes, each with its reason. */
void dmuon_view_machine(DMuonMesh mesh, dmuon_text *text);
/* ", over NVLink, 450 GB/s, 6 us (estimated)": what carries an axis; nothing where nothing is sent.
 */
void dmuon_view_link(DMuonMesh mesh, int axis, dmuon_text *text);
/* Which GPU and which cores each rank of a node should have, or has. */
void dmuon_view_places(DMuonMesh mesh, dmuon_text *text);

#endif
