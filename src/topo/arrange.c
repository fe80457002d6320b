/* The order of a node's GPUs, and a port for each that has none: what is left to decide when a
 * picture was put together from several places. Pure. */
#include "topo/pci.h"
#include "topo/sources.h"

/* Names that are no PCI address come last. */
static uint64_t address(const char *name) {
  dmuon_pci pci;
  return dmuon_pci_parse(name, &pci) ? dmuon_pci_key(pci) : UINT64_MAX;
}

/* Exchanges GPUs i and j with all their links. */
static void swap(dmuon_machine_kind *kind, int i, int j) {
  dmuon_machine_gpu gpu = kind->gpus[i];
  kind->gpus[i] = kind->gpus[j];
  kind->gpus[j] = gpu;
  for (int k = 0; k < kind->gpu_count; k++) {
    float rate = kind->nvlink_mbps[i][k];
    kind->nvlink_mbps[i][k] = kind->nvlink_mbps[j][k];
    kind->nvlink_mbps[j][k] = rate;
  }
  for (int k = 0; k < kind->gpu_count; k++) {
    float rate = kind->nvlink_mbps[k][i];
    kind->nvlink_mbps[k][i] = kind->nvlink_mbps[k][j];
    kind->nvlink_mbps[k][j] = rate;
  }
}

/* 2: same NUMA node, 1: same package, 0: neither known to be. */
static int nearness(const dmuon_machine_gpu *gpu, const dmuon_machine_port *port) {
  if (gpu->numa >= 0 && gpu->numa == port->numa) return 2;
  return gpu->package >= 0 && gpu->package == port->package;
}

void dmuon_arrange_gpus(dmuon_machine_kind *kind) {
  for (int i = 1; i < kind->gpu_count; i++) {
    for (int at = i; at > 0 && address(kind->gpus[at - 1].name) > address(kind->gpus[at].name);
         at--) {
      swap(kind, at - 1, at);
    }
  }
}

void dmuon_arrange_ports(dmuon_machine_kind *kind) {
  int serves[DMUON_NODE_PORTS] = {0};
  for (int i = 0; i < kind->gpu_count; i++) {
    if (kind->gpus[i].port >= 0) serves[kind->gpus[i].port]++;
  }
  for (int i = 0; i < kind->gpu_count; i++) {
    dmuon_machine_gpu *gpu = &kind->gpus[i];
    if (gpu->port >= 0 || kind->port_count == 0) continue;
    int best = 0;
    for (int p = 1; p < kind->port_count; p++) {
      int near = nearness(gpu, &kind->ports[p]), now = nearness(gpu, &kind->ports[best]);
      if (near > now || (near == now && serves[p] < serves[best])) best = p;
    }
    gpu->port = (int16_t)best;
    serves[best]++;
  }
}
