/* Binding this process to cores, which the library does only when it is asked to. */
#ifndef DMUON_TOPO_BIND_H
#define DMUON_TOPO_BIND_H

#include "base/error.h"

/* This process, and its threads from now on, run on core_count cores from first_core on, counted in
 * hwloc's logical order among those it may use. DMUON_ERR_SETUP: there are fewer, or the system
 * refuses; DMUON_ERR_UNSUPPORTED: built without hwloc. */
DMuonErrorCode dmuon_topo_bind(int first_core, int core_count);

#endif
