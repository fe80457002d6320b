/* Links by measurement: option measure_links. The figures of cost.h, replaced by what a few
 * broadcasts took. */
#ifndef DMUON_MESH_LINKS_H
#define DMUON_MESH_LINKS_H

#include "mesh/cost.h"

/* links: by DMuonAxis, as estimated; those of axes that carry something become measured ones, the
 * same on all ranks. All groups of an axis communicate at a time, as in a step. Some 30 MB a rank
 * and axis. Collective, blocks; after an error from 200 the mesh is broken. */
DMuonErrorCode dmuon_links_measure(DMuonMesh mesh, dmuon_link links[3]);

#endif
