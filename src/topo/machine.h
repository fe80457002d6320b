/* The machine, as far as it matters to who computes where: nodes of a few kinds, their GPUs and
 * network ports, what connects the GPUs. Pure data; read from the hardware (detect), from a file
 * (hwloc XML) or from a short text (describe), put together over all ranks (summary). */
#ifndef DMUON_TOPO_MACHINE_H
#define DMUON_TOPO_MACHINE_H

#include "base/memory.h"

/* More devices than these in a node, or more nodes, are not looked at. */
enum { DMUON_NODE_GPUS = 32, DMUON_NODE_PORTS = 32, DMUON_MACHINE_NODES = 1 << 20 };

typedef struct {
  char name[24];         /* PCI address "0000:34:00.0"; "gpu3" where none is known */
  int16_t numa, package; /* of the node; -1: not known */
  int16_t port;          /* index of the nearest network port; -1: none, or not known */
} dmuon_machine_gpu;

typedef struct {
  char name[24]; /* "mlx5_0" */
  int16_t numa, package;
  double mbps; /* bandwidth in 10^6 bytes/s, 0: not known */
} dmuon_machine_port;

/* What nodes of one kind look like. */
typedef struct {
  int packages, numa_nodes, cores; /* 0: not known */
  int gpu_count, port_count;
  dmuon_machine_gpu gpus[DMUON_NODE_GPUS]; /* by PCI address: CUDA_DEVICE_ORDER=PCI_BUS_ID */
  dmuon_machine_port ports[DMUON_NODE_PORTS];
  /* NVLink between two GPUs, through switches or direct, 10^6 bytes/s in one direction; 0: none */
  float nvlink_mbps[DMUON_NODE_GPUS][DMUON_NODE_GPUS];
} dmuon_machine_kind;

/* A node: its kind, and which NVLink fabric spans nodes here (0: none). Nodes with equal fabric are
 * one NVLink domain. */
typedef struct {
  int kind;
  uint64_t fabric;
} dmuon_machine_node;

typedef struct {
  int kind_count, node_count;
  int kind_room, node_room; /* how many the arrays hold */
  dmuon_machine_kind *kinds;
  dmuon_machine_node *nodes;
  char source[64]; /* "hwloc", "hwloc XML dgx2.xml", "description", "the system alone" */
  char lost[128];  /* what could not be seen and why, or "" */
} dmuon_machine;

void dmuon_machine_free(dmuon_machine *machine);

/* count more nodes of this kind at the end; a kind that is there already is not stored again. At
 * most DMUON_MACHINE_NODES nodes: DMUON_ERR_FORMAT beyond. */
DMuonErrorCode dmuon_machine_add(dmuon_memory *memory, dmuon_machine *machine,
                                 const dmuon_machine_kind *kind, uint64_t fabric, int64_t count);

int dmuon_machine_same_kind(const dmuon_machine_kind *a, const dmuon_machine_kind *b);

/* GPUs that reach switches with these bandwidths reach each other with the smaller of two; direct
 * links that are faster stay. */
void dmuon_machine_join(dmuon_machine_kind *kind, const double to_switch[DMUON_NODE_GPUS]);

/* Appends a phrase to a list of phrases in text (source, lost), "; " between them, unless it is in
 * there or does not fit. */
void dmuon_machine_note(char *text, size_t size, const char *phrase);

#endif
