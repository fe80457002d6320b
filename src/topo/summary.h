/* A machine in a few hundred bytes a node, for the exchange between ranks: kinds once each, nodes
 * as runs of equal ones. The bytes carry a version and are checked while they are read; what does
 * not fit is DMUON_ERR_FORMAT. They are meant for ranks of one job, not for files. Pure. */
#ifndef DMUON_TOPO_SUMMARY_H
#define DMUON_TOPO_SUMMARY_H

#include "topo/machine.h"

/* *data is allocated from memory. A machine of no nodes is fine: what a rank says that leaves its
 * node to another one. */
DMuonErrorCode dmuon_summary_encode(dmuon_memory *memory, const dmuon_machine *machine, void **data,
                                    int64_t *bytes);

/* The machine again, all values the same. *machine is written on success only. */
DMuonErrorCode dmuon_summary_decode(dmuon_memory *memory, const void *data, int64_t bytes,
                                    dmuon_machine *machine);

/* The nodes of a, then those of b; equal kinds become one. O(nodes). Where source or lost differ,
 * both are kept as far as they fit. The signature is that of dmuon_agree_merge; context unused. */
DMuonErrorCode dmuon_summary_merge(dmuon_memory *memory, const void *a, int64_t a_bytes,
                                   const void *b, int64_t b_bytes, void **out, int64_t *out_bytes,
                                   void *context);

#endif
