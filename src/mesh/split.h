/* Islands: which ranks are joined by the fastest links, from the machine and from where each rank
 * sits on it. A pure function; sizes and order of the ranks follow from the islands (layout.h).
 *
 * An island is the NVLink domain of a rank's GPU (GPUs reached over NVLink, directly or through
 * others; over nodes where they share a fabric), and the node for ranks that have none. */
#ifndef DMUON_MESH_SPLIT_H
#define DMUON_MESH_SPLIT_H

#include "mesh/layout.h"
#include "topo/machine.h"

/* Where a rank is. */
typedef struct {
  /* Of the job's nodes, by their lowest rank. Node k looks like node k of the machine; with more of
   * them than the machine has they begin again, on NVLink fabrics of their own. */
  int node;
  int gpu; /* of its node, or -1 */
} dmuon_rank_place;

/* Option island. */
typedef enum { DMUON_ISLAND_AUTO = 0, DMUON_ISLAND_NVLINK, DMUON_ISLAND_NODE } dmuon_island_policy;

/* What the islands are, and why. */
typedef enum {
  DMUON_ISLANDS_NVLINK = 0, /* NVLink domains inside nodes */
  DMUON_ISLANDS_FABRIC,     /* NVLink domains, some of ranks on several nodes */
  DMUON_ISLANDS_ASKED,      /* nodes, by option */
  DMUON_ISLANDS_NO_GPU,     /* nodes: no rank has a GPU that is known */
  DMUON_ISLANDS_NO_NVLINK,  /* nodes: no two ranks have GPUs that NVLink joins */
  DMUON_ISLANDS_UNEVEN      /* nodes: their ranks divide better than the NVLink domains' */
} dmuon_islands_reason;

typedef struct {
  dmuon_islands_reason reason;
  dmuon_layout_domains nodes, islands; /* ranks a node, ranks an island */
  int ranks_with_gpu;
  int most_on_a_gpu; /* ranks */
  int gpus_idle;     /* of the nodes that have ranks with GPUs */
  int spanning;      /* islands with ranks on several nodes */
} dmuon_split;

enum { DMUON_SPLIT_LEVELS = 3 };

/* domain[g] = the lowest GPU of g's NVLink domain inside a node; g itself where it has none. */
void dmuon_split_domains(const dmuon_machine_kind *kind, int domain[DMUON_NODE_GPUS]);

/* island[i]: the lowest rank of rank i's island; node[i] the same of its node (inputs
 * places[i].node number the nodes from 0). machine NULL: nodes alone. */
DMuonErrorCode dmuon_split_islands(dmuon_memory *memory, const dmuon_machine *machine, int size,
                                   const dmuon_rank_place *places, dmuon_island_policy policy,
                                   int *island, int *node, dmuon_split *split);

/* The levels that dmuon_layout_order wants, innermost first, each finer than the next: GPUs on one
 * package, island inside a node, then the larger of island and node. levels[k]: [size]. */
DMuonErrorCode dmuon_split_levels(dmuon_memory *memory, const dmuon_machine *machine, int size,
                                  const dmuon_rank_place *places, const int *island,
                                  const int *node, int *levels[DMUON_SPLIT_LEVELS]);

/* "NVLink domain", "node", and a clause that says why. */
const char *dmuon_split_name(const dmuon_split *split);
const char *dmuon_split_explain(const dmuon_split *split);

/* The node of the machine that the job's node looks like, and its kind. */
const dmuon_machine_node *dmuon_split_node(const dmuon_machine *machine, int node);
const dmuon_machine_kind *dmuon_split_kind(const dmuon_machine *machine, int node);

#endif
