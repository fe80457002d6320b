/* Which GPU and which cores each rank of a node should have, by locality. A proposal and a pure
 * function: it binds nobody. */
#ifndef DMUON_MESH_PLACE_H
#define DMUON_MESH_PLACE_H

#include "topo/machine.h"

typedef struct {
  int gpu;                    /* of the node, or -1 */
  int numa, package;          /* -1: not known, or several */
  int first_core, core_count; /* in the order of hwloc; 0 of them: not known */
} dmuon_node_place;

/* The GPUs of a node's ranks: returns n, and rank `local` of `ranks` gets gpus[local % n]; 0: there
 * are none. In order, NVLink domain after NVLink domain. More ranks than GPUs: round and round.
 * Fewer: from as few NVLink domains as hold them, inside those spread evenly, so over packages and
 * ports. */
int dmuon_place_gpus(const dmuon_machine_kind *kind, int ranks, int gpus[DMUON_NODE_GPUS]);

/* place: that of the node's rank `local` of `ranks`. Cores: those of the GPU's NUMA node (else
 * package), shared evenly among the ranks there; without a GPU the ranks are spread over NUMA nodes
 * in order. At least one core a rank, if need be the same for several. */
void dmuon_place_rank(const dmuon_machine_kind *kind, int ranks, int local,
                      dmuon_node_place *place);

/* The same where the GPUs are given: gpus[k] is that of the node's rank k, or -1. */
void dmuon_place_beside(const dmuon_machine_kind *kind, int ranks, const int *gpus, int local,
                        dmuon_node_place *place);

/* How many ranks a node is made for: its GPUs, else its cores, else one. */
int dmuon_place_capacity(const dmuon_machine_kind *kind);

#endif
