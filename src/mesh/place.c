/* Decides where on a node a rank belongs: GPU first, then the cores next to it. Cores are taken to
 * be numbered NUMA node by NUMA node, evenly, as hwloc's logical order does on usual machines. */
#include "mesh/place.h"

#include "mesh/split.h"

/* GPUs in the order they are given to ranks: NVLink domains by their lowest GPU, then by package
 * (those not known first), then by address. */
static void order_gpus(const dmuon_machine_kind *kind, const int *domain, int *order) {
  for (int g = 0; g < kind->gpu_count; g++) {
    int at = g;
    for (; at > 0; at--) {
      const int before = order[at - 1];
      if (domain[before] < domain[g] ||
          (domain[before] == domain[g] && kind->gpus[before].package <= kind->gpus[g].package))
        break;
      order[at] = before;
    }
    order[at] = g;
  }
}

/* The place in the order of the local-th of `ranks` ranks, fewer than GPUs: the first domains that
 * hold all ranks together, each filled up before the next one is touched, the last one spread. */
static int spread(const int *domain, const int *order, int gpus, int ranks, int local) {
  for (int from = 0, to; from < gpus; from = to) {
    for (to = from; to < gpus && domain[order[to]] == domain[order[from]];) to++;
    const int room = to - from;
    if (local >= room && ranks > room) {
      local -= room;
      ranks -= room;
      continue;
    }
    return ranks >= room ? from + local : from + local * room / ranks;
  }
  return 0;
}

int dmuon_place_gpus(const dmuon_machine_kind *kind, int ranks, int gpus[DMUON_NODE_GPUS]) {
  int domain[DMUON_NODE_GPUS], order[DMUON_NODE_GPUS], joined = 0;
  const int used = ranks < kind->gpu_count ? ranks : kind->gpu_count;
  if (used < 1) return 0;
  dmuon_split_domains(kind, domain);
  for (int g = 0; g < kind->gpu_count; g++) joined |= domain[g] != g;
  /* Nothing to keep together: all GPUs are alike, and are spread over. */
  for (int g = 0; g < kind->gpu_count && !joined; g++) domain[g] = 0;
  order_gpus(kind, domain, order);
  for (int i = 0; i < used; i++)
    gpus[i] = order[used < kind->gpu_count ? spread(domain, order, kind->gpu_count, used, i) : i];
  return used;
}

/* The k-th of n equal parts of [0, total): [*first, *first + *count), one at least of a total that
 * is not 0. */
static void part(int total, int n, int k, int *first, int *count) {
  const int64_t from = (int64_t)total * k / n, to = (int64_t)total * (k + 1) / n;
  *first = (int)(from < total ? from : total - 1);
  *count = (int)(to > from ? to - from : 1);
}

/* The share-th of `shares` ranks on one of n equal parts of the node's cores. */
static void take_cores(int cores, int n, int which, int shares, int share,
                       dmuon_node_place *place) {
  int first, count, offset, length;
  if (cores < 1 || n < 1 || which >= n) return;
  part(cores, n, which, &first, &count);
  part(count, shares, share, &offset, &length);
  place->first_core = first + offset;
  place->core_count = length;
}

/* Which of the node's NUMA nodes (else packages) a GPU is on; -1: not known. */
static int home_of(const dmuon_machine_kind *kind, int gpu, int by_numa) {
  return by_numa ? kind->gpus[gpu].numa : kind->gpus[gpu].package;
}

static void place_by_gpu(const dmuon_machine_kind *kind, const int *gpus, int used, int ranks,
                         int local, dmuon_node_place *place) {
  const int by_numa = kind->numa_nodes > 0 && kind->gpus[place->gpu].numa >= 0;
  const int home = home_of(kind, place->gpu, by_numa);
  int share = 0, shares = 0;
  place->numa = kind->gpus[place->gpu].numa;
  place->package = kind->gpus[place->gpu].package;
  if (home < 0) return;
  for (int i = 0; i < ranks; i++) {
    const int gpu = gpus[i % used];
    if (gpu < 0 || (kind->numa_nodes > 0 && kind->gpus[gpu].numa >= 0) != by_numa ||
        home_of(kind, gpu, by_numa) != home)
      continue;
    share += i < local;
    shares++;
  }
  take_cores(kind->cores, by_numa ? kind->numa_nodes : kind->packages, home, shares, share, place);
}

static void place_by_cores(const dmuon_machine_kind *kind, int ranks, int local,
                           dmuon_node_place *place) {
  const int n = kind->numa_nodes > 0 ? kind->numa_nodes : 1;
  if (ranks < n) { /* whole NUMA nodes */
    int first, count, begin, end, unused;
    part(n, ranks, local, &first, &count);
    if (count == 1) place->numa = first;
    if (kind->cores < 1) return;
    part(kind->cores, n, first, &begin, &unused);
    part(kind->cores, n, first + count - 1, &end, &unused);
    place->first_core = begin;
    place->core_count = end + unused - begin;
    return;
  }
  const int home = (int)((int64_t)local * n / ranks);
  int share = 0, shares = 0;
  for (int i = 0; i < ranks; i++) {
    if ((int)((int64_t)i * n / ranks) != home) continue;
    share += i < local;
    shares++;
  }
  place->numa = kind->numa_nodes > 0 ? home : -1;
  take_cores(kind->cores, n, home, shares, share, place);
}

/* gpus[local % used]; used 0: nobody has one. */
static void place_rank(const dmuon_machine_kind *kind, int ranks, const int *gpus, int used,
                       int local, dmuon_node_place *place) {
  *place = (dmuon_node_place){.gpu = used ? gpus[local % used] : -1, .numa = -1, .package = -1};
  if (place->gpu >= 0) place_by_gpu(kind, gpus, used, ranks, local, place);
  /* Without a GPU, or where nobody knows what is near it. */
  if (place->gpu < 0 || (place->core_count == 0 && kind->cores > 0))
    place_by_cores(kind, ranks, local, place);
  if (place->package < 0 && place->numa >= 0 && kind->packages > 0 && kind->numa_nodes > 0)
    place->package = place->numa * kind->packages / kind->numa_nodes;
}

void dmuon_place_rank(const dmuon_machine_kind *kind, int ranks, int local,
                      dmuon_node_place *place) {
  int gpus[DMUON_NODE_GPUS];
  const int used = dmuon_place_gpus(kind, ranks, gpus);
  place_rank(kind, ranks, gpus, used, local, place);
}

void dmuon_place_beside(const dmuon_machine_kind *kind, int ranks, const int *gpus, int local,
                        dmuon_node_place *place) {
  place_rank(kind, ranks, gpus, ranks, local, place);
}

int dmuon_place_capacity(const dmuon_machine_kind *kind) {
  if (kind->gpu_count > 0) return kind->gpu_count;
  return kind->cores > 0 ? kind->cores : 1;
}
