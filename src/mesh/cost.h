/* What communication along an axis costs: a latency and a bandwidth, from the machine, and what
 * follows from them. Pure; links.c replaces the figures by measured ones when asked. */
#ifndef DMUON_MESH_COST_H
#define DMUON_MESH_COST_H

#include "mesh/split.h"

/* The slowest link between ranks of a group. */
typedef struct {
  DMuonLinkClass link_class;
  double latency;   /* seconds an operation */
  double bandwidth; /* bytes/s of one rank while all ranks communicate; 0 where nothing is sent */
  int is_measured;
} dmuon_link;

/* Along axis, for ranks as dmuon_layout_order put them. machine NULL: nodes and no more is known.
 */
DMuonErrorCode dmuon_cost_axis(dmuon_memory *memory, const dmuon_machine *machine, int size,
                               const dmuon_rank_place *places, const int sizes[3],
                               const int *rank_at, int axis, dmuon_link *link);

/* operations of together so many bytes, one after another. */
double dmuon_cost_seconds(const dmuon_link *link, int64_t operations, int64_t bytes);

/* The largest piece of a message: its time is sixteen latencies or more, so a piece costs little
 * more than its bytes, and pieces still overlap along a tree. A power of two, 64 KB to 4 MB. */
int64_t dmuon_cost_chunk(const dmuon_link *link);

/* "NVLink", "shared memory", "PCIe", "InfiniBand", "network", "nothing". */
const char *dmuon_link_name(DMuonLinkClass link_class);

#endif
