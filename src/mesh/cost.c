/* Decides what an axis costs before anybody measured it. The figures of links whose bandwidth the
 * machine does not tell are typical ones, meant for comparing plans, not for promises. */
#include "mesh/cost.h"

/* Typical figures: seconds, bytes/s in one direction. */
static const struct {
  const char *name;
  double latency, bandwidth;
} typical[] = {
    [DMUON_LINK_NONE] = {"nothing", 0, 0},
    [DMUON_LINK_NVLINK] = {"NVLink", 6e-6, 150e9},
    [DMUON_LINK_SHARED_MEMORY] = {"shared memory", 1e-6, 8e9},
    [DMUON_LINK_PCIE] = {"PCIe", 8e-6, 20e9},
    [DMUON_LINK_INFINIBAND] = {"InfiniBand", 5e-6, 12.5e9},
    [DMUON_LINK_NETWORK] = {"network", 30e-6, 1.25e9},
};
enum { LINK_CLASSES = sizeof typical / sizeof *typical };

const char *dmuon_link_name(DMuonLinkClass link_class) {
  return (int)link_class >= 0 && (int)link_class < LINK_CLASSES ? typical[link_class].name : "";
}

typedef struct {
  const dmuon_machine *machine;
  const dmuon_rank_place *places;
  const int *node_ranks; /* by the job's node */
} cost_input;

static dmuon_link link_of(DMuonLinkClass link_class) {
  return (dmuon_link){link_class, typical[link_class].latency, typical[link_class].bandwidth, 0};
}

static const dmuon_machine_kind *kind_of(const cost_input *in, int rank) {
  return in->machine ? dmuon_split_kind(in->machine, in->places[rank].node) : NULL;
}

static int gpu_of(const cost_input *in, int rank) {
  const dmuon_machine_kind *kind = kind_of(in, rank);
  const int gpu = in->places[rank].gpu;
  return kind && gpu < kind->gpu_count ? gpu : -1;
}

/* The fastest NVLink of a GPU, 10^6 bytes/s. */
static double fastest(const dmuon_machine_kind *kind, int gpu) {
  double most = 0;
  for (int g = 0; g < kind->gpu_count; g++)
    if (g != gpu && kind->nvlink_mbps[gpu][g] > most) most = kind->nvlink_mbps[gpu][g];
  return most;
}

static dmuon_link nvlink_of(double mbps) {
  dmuon_link link = link_of(DMUON_LINK_NVLINK);
  if (mbps > 0) link.bandwidth = mbps * 1e6;
  return link;
}

static dmuon_link inside_node(const cost_input *in, int a, int b) {
  const dmuon_machine_kind *kind = kind_of(in, a);
  const int g = gpu_of(in, a), h = gpu_of(in, b);
  if (g < 0 || h < 0 || g == h) return link_of(DMUON_LINK_SHARED_MEMORY);
  if (kind->nvlink_mbps[g][h] > 0) return nvlink_of(kind->nvlink_mbps[g][h]);
  int domain[DMUON_NODE_GPUS];
  dmuon_split_domains(kind, domain);
  if (domain[g] == domain[h]) { /* through other GPUs */
    const double p = fastest(kind, g), q = fastest(kind, h);
    return nvlink_of(p < q ? p : q);
  }
  dmuon_link link = link_of(DMUON_LINK_PCIE);
  const int p = kind->gpus[g].package, q = kind->gpus[h].package;
  if (p >= 0 && q >= 0 && p != q) link.bandwidth /= 2; /* and the link between packages */
  return link;
}

/* A rank's part of its node's ports, at most one of them, bytes/s; 0: the node has none. */
static double port_share(const cost_input *in, int rank) {
  const dmuon_machine_kind *kind = kind_of(in, rank);
  double all = 0, one = 0;
  if (!kind) return 0;
  for (int i = 0; i < kind->port_count; i++) {
    const double rate = kind->ports[i].mbps > 0 ? kind->ports[i].mbps * 1e6
                                                : typical[DMUON_LINK_INFINIBAND].bandwidth;
    all += rate;
    if (rate > one) one = rate;
  }
  const double share = all / in->node_ranks[in->places[rank].node];
  return share < one ? share : one;
}

static dmuon_link between_nodes(const cost_input *in, int a, int b) {
  const int g = gpu_of(in, a), h = gpu_of(in, b);
  if (g >= 0 && h >= 0) {
    const int m = in->places[a].node, n = in->places[b].node, lap = in->machine->node_count;
    const uint64_t fabric = dmuon_split_node(in->machine, m)->fabric;
    if (fabric && m / lap == n / lap && dmuon_split_node(in->machine, n)->fabric == fabric) {
      const double p = fastest(kind_of(in, a), g), q = fastest(kind_of(in, b), h);
      return nvlink_of(p < q ? p : q);
    }
  }
  const double p = port_share(in, a), q = port_share(in, b);
  if (!(p > 0 && q > 0)) return link_of(DMUON_LINK_NETWORK);
  dmuon_link link = link_of(DMUON_LINK_INFINIBAND);
  link.bandwidth = p < q ? p : q;
  return link;
}

static void keep_slower(dmuon_link *link, dmuon_link other) {
  if (link->link_class == DMUON_LINK_NONE) {
    *link = other;
    return;
  }
  /* The class of the narrower link; each figure the worse of the two. */
  if (other.bandwidth < link->bandwidth) {
    link->link_class = other.link_class;
    link->bandwidth = other.bandwidth;
  }
  if (other.latency > link->latency) link->latency = other.latency;
}

DMuonErrorCode dmuon_cost_axis(dmuon_memory *memory, const dmuon_machine *machine, int size,
                               const dmuon_rank_place *places, const int sizes[3],
                               const int *rank_at, int axis, dmuon_link *link) {
  const int strides[3] = {sizes[1] * sizes[2], sizes[2], 1}, stride = strides[axis];
  dmuon_link slowest = link_of(DMUON_LINK_NONE);
  int *node_ranks = NULL;
  if (machine && (machine->node_count < 1 || machine->kind_count < 1)) machine = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, size, sizeof *node_ranks, &node_ranks));
  for (int i = 0; i < size; i++) node_ranks[places[i].node]++;
  const cost_input in = {machine, places, node_ranks};
  for (int p = 0; p < size; p++) {
    const int coordinate = p / stride % sizes[axis];
    if (coordinate == 0) continue;
    /* Each rank with its neighbour and with the first of its group: what differs shows there. */
    const int others[2] = {rank_at[p - stride], rank_at[p - coordinate * stride]};
    for (int k = 0; k < 2; k++) {
      const int a = rank_at[p], b = others[k];
      keep_slower(&slowest, places[a].node == places[b].node ? inside_node(&in, a, b)
                                                             : between_nodes(&in, a, b));
    }
  }
  dmuon_memory_free(node_ranks);
  *link = slowest;
  return DMUON_SUCCESS;
}

double dmuon_cost_seconds(const dmuon_link *link, int64_t operations, int64_t bytes) {
  if (!(link->bandwidth > 0)) return 0;
  return (double)operations * link->latency + (double)bytes / link->bandwidth;
}

int64_t dmuon_cost_chunk(const dmuon_link *link) {
  const double wanted = 16 * link->latency * link->bandwidth;
  int64_t chunk = 1 << 16;
  while (chunk < 1 << 22 && (double)chunk < wanted) chunk *= 2;
  return chunk;
}
