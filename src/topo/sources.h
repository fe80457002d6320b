/* The places one node's picture comes from, for topo/detect.c alone. Each adds what it knows to a
 * kind and notes in lost (of `size` bytes) what it could not see. None changes the environment,
 * prints, or is collective. */
#ifndef DMUON_TOPO_SOURCES_H
#define DMUON_TOPO_SOURCES_H

#include "topo/machine.h"

/* 1: built with hwloc. */
int dmuon_hwloc_present(void);

/* What hwloc sees of this node (xml NULL), or an XML file it wrote. *kind starts empty. */
DMuonErrorCode dmuon_hwloc_read(const char *xml, dmuon_machine_kind *kind, char *lost, size_t size);

/* What the driver's management library adds: GPUs that are not in *kind yet, NVLink between them
 * (in place of what is there, where it sees any), and the fabric of the node (0: none). library is
 * the name to open, "libnvidia-ml.so.1". A library that is not there is no error. */
void dmuon_nvml_read(const char *library, dmuon_machine_kind *kind, uint64_t *fabric, char *lost,
                     size_t size);

/* What Linux shows below sys ("/sys"): NUMA nodes and cores where they are not known, rates of
 * network ports, ports where hwloc listed none (list = 1), NUMA nodes of devices. */
void dmuon_sysfs_read(const char *sys, int list, dmuon_machine_kind *kind);

/* Puts GPUs in the order of their PCI addresses. */
void dmuon_arrange_gpus(dmuon_machine_kind *kind);
/* Gives each GPU that has none a port: of its NUMA node, of its package, any; the least used. */
void dmuon_arrange_ports(dmuon_machine_kind *kind);

#endif
