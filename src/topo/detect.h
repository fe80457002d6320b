/* Where a machine comes from: the node this process runs on, an hwloc XML file, or a short text.
 * One rank a node looks; what the ranks saw is put together through summaries (topo/summary.h). */
#ifndef DMUON_TOPO_DETECT_H
#define DMUON_TOPO_DETECT_H

#include "topo/machine.h"

/* This node, as hwloc, the driver's management library (NVML) and /sys show it: one node. What
 * cannot be seen is no error: machine->lost says what and why. Not for every rank of a node: it
 * costs tens of milliseconds, and the result is the same. */
DMuonErrorCode dmuon_detect_node(dmuon_memory *memory, dmuon_machine *machine);

/* One node from an hwloc XML file. DMUON_ERR_FILE: cannot be read; DMUON_ERR_FORMAT: not hwloc's
 * XML (both name the file); DMUON_ERR_UNSUPPORTED: built without hwloc. */
DMuonErrorCode dmuon_detect_file(dmuon_memory *memory, const char *path, dmuon_machine *machine);

/* What a user gave: a text of topo/describe.h (it has "word:value"), else the path of a file. */
DMuonErrorCode dmuon_detect_given(dmuon_memory *memory, const char *given, dmuon_machine *machine);

#endif
