/* Decides what the islands of a job are: NVLink domains, or nodes, and why. It knows the machine as
 * data and talks to nobody; the sizes that follow are layout.c's. */
#include "mesh/split.h"

#include <string.h>

const dmuon_machine_node *dmuon_split_node(const dmuon_machine *machine, int node) {
  return &machine->nodes[node % machine->node_count];
}

const dmuon_machine_kind *dmuon_split_kind(const dmuon_machine *machine, int node) {
  return &machine->kinds[dmuon_split_node(machine, node)->kind];
}

void dmuon_split_domains(const dmuon_machine_kind *kind, int domain[DMUON_NODE_GPUS]) {
  for (int g = 0; g < DMUON_NODE_GPUS; g++) domain[g] = g;
  for (int changed = 1; changed;) {
    changed = 0;
    for (int a = 0; a < kind->gpu_count; a++)
      for (int b = 0; b < kind->gpu_count; b++)
        if (a != b && (kind->nvlink_mbps[a][b] > 0 || kind->nvlink_mbps[b][a] > 0) &&
            domain[b] < domain[a]) {
          domain[a] = domain[b];
          changed = 1;
        }
  }
}

/* ---- islands ---- */

/* What a rank's island is known by: an NVLink fabric over nodes, or a domain of its node. */
enum { REST = DMUON_NODE_GPUS, SLOTS }; /* the ranks of a node that NVLink does not join */

typedef struct {
  int nodes;   /* of the job */
  int *first;  /* [nodes * SLOTS] lowest rank of each domain of a node, or -1 */
  int *fabric; /* [nodes] which of the fabrics met so far, or -1 */
  int fabrics;
  int *fabric_node;  /* [nodes] a node of each fabric */
  int *fabric_first; /* [nodes] its lowest rank, or -1 */
  int *mark;         /* [size] */
} island_work;

static int has_gpu(const dmuon_machine *machine, const dmuon_rank_place *place) {
  return machine && place->gpu >= 0 &&
         place->gpu < dmuon_split_kind(machine, place->node)->gpu_count;
}

/* Nodes of one fabric, on one lap over the machine, are one domain. */
static void find_fabrics(island_work *w, const dmuon_machine *machine) {
  for (int n = 0; n < w->nodes; n++) {
    uint64_t fabric = machine ? dmuon_split_node(machine, n)->fabric : 0;
    w->fabric[n] = -1;
    if (!fabric) continue;
    int f = w->fabrics - 1; /* neighbours share it mostly: look at the last one first */
    while (f >= 0 && (dmuon_split_node(machine, w->fabric_node[f])->fabric != fabric ||
                      w->fabric_node[f] / machine->node_count != n / machine->node_count))
      f--;
    if (f < 0) {
      f = w->fabrics++;
      w->fabric_node[f] = n;
      w->fabric_first[f] = -1;
    }
    w->fabric[n] = f;
  }
}

/* island[i] by NVLink, the rest of a node together. Whether NVLink joins any two ranks. */
static int join_by_nvlink(island_work *w, const dmuon_machine *machine, int size,
                          const dmuon_rank_place *places, int *island) {
  int domain[DMUON_NODE_GPUS];
  const dmuon_machine_kind *known = NULL;
  int joined = 0;
  for (int64_t i = 0; i < (int64_t)w->nodes * SLOTS; i++) w->first[i] = -1;
  find_fabrics(w, machine);
  for (int i = 0; i < size; i++) {
    const dmuon_rank_place *place = &places[i];
    int *const rest = &w->first[(int64_t)place->node * SLOTS + REST], *first = rest;
    if (has_gpu(machine, place)) {
      const dmuon_machine_kind *kind = dmuon_split_kind(machine, place->node);
      if (kind != known) dmuon_split_domains(kind, domain);
      known = kind;
      int others = 0;
      for (int g = 0; g < kind->gpu_count; g++)
        others += g != place->gpu && domain[g] == domain[place->gpu];
      if (w->fabric[place->node] >= 0)
        first = &w->fabric_first[w->fabric[place->node]];
      else if (others)
        first = &w->first[(int64_t)place->node * SLOTS + domain[place->gpu]];
    }
    joined |= first != rest && *first >= 0;
    if (*first < 0) *first = i;
    island[i] = *first;
  }
  return joined;
}

/* Ranks a GPU, GPUs without a rank. */
static void count_gpus(island_work *w, const dmuon_machine *machine, int size,
                       const dmuon_rank_place *places, dmuon_split *split) {
  memset(w->first, 0, (size_t)w->nodes * SLOTS * sizeof *w->first);
  for (int i = 0; i < size; i++) {
    if (!has_gpu(machine, &places[i])) continue;
    int *ranks = &w->first[(int64_t)places[i].node * SLOTS];
    split->ranks_with_gpu++;
    ranks[REST] = 1; /* the node is in use */
    if (++ranks[places[i].gpu] > split->most_on_a_gpu) split->most_on_a_gpu = ranks[places[i].gpu];
  }
  for (int n = 0; n < w->nodes; n++) {
    const int *ranks = &w->first[(int64_t)n * SLOTS];
    if (!ranks[REST]) continue;
    for (int g = 0; g < dmuon_split_kind(machine, n)->gpu_count; g++)
      split->gpus_idle += ranks[g] == 0;
  }
}

static void number_nodes(island_work *w, int size, const dmuon_rank_place *places, int *node) {
  for (int n = 0; n < w->nodes; n++) w->fabric[n] = -1;
  for (int i = 0; i < size; i++) {
    int *first = &w->fabric[places[i].node];
    if (*first < 0) *first = i;
    node[i] = *first;
  }
}

static int count_spanning(int size, const int *island, const int *node, int *mark) {
  int spanning = 0;
  for (int i = 0; i < size; i++) mark[i] = 0;
  for (int i = 0; i < size; i++)
    if (node[i] != node[island[i]] && !mark[island[i]]) mark[island[i]] = 1, spanning++;
  return spanning;
}

/* NVLink domains or nodes: split->islands holds the ranks of the former, split->nodes those of the
 * latter. */
static dmuon_islands_reason choose(const dmuon_split *split, dmuon_island_policy policy,
                                   int joined) {
  if (policy == DMUON_ISLAND_NODE) return DMUON_ISLANDS_ASKED;
  if (!split->ranks_with_gpu) return DMUON_ISLANDS_NO_GPU;
  if (policy == DMUON_ISLAND_AUTO && !joined) return DMUON_ISLANDS_NO_NVLINK;
  if (policy == DMUON_ISLAND_AUTO && split->islands.divisor == 1 && split->nodes.divisor > 1)
    return DMUON_ISLANDS_UNEVEN;
  return split->spanning ? DMUON_ISLANDS_FABRIC : DMUON_ISLANDS_NVLINK;
}

static int are_nodes(dmuon_islands_reason reason) {
  return reason != DMUON_ISLANDS_NVLINK && reason != DMUON_ISLANDS_FABRIC;
}

static DMuonErrorCode find_islands(dmuon_memory *memory, island_work *w,
                                   const dmuon_machine *machine, int size,
                                   const dmuon_rank_place *places, dmuon_island_policy policy,
                                   int *island, int *node, dmuon_split *split) {
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)w->nodes * SLOTS, sizeof *w->first, &w->first));
  DMUON_TRY(dmuon_memory_alloc(memory, w->nodes, sizeof *w->fabric, &w->fabric));
  DMUON_TRY(dmuon_memory_alloc(memory, w->nodes, sizeof *w->fabric_node, &w->fabric_node));
  DMUON_TRY(dmuon_memory_alloc(memory, w->nodes, sizeof *w->fabric_first, &w->fabric_first));
  DMUON_TRY(dmuon_memory_alloc(memory, size, sizeof *w->mark, &w->mark));
  const int joined = join_by_nvlink(w, machine, size, places, island);
  number_nodes(w, size, places, node);
  count_gpus(w, machine, size, places, split);
  split->spanning = count_spanning(size, island, node, w->mark);
  DMUON_TRY(dmuon_layout_survey(memory, size, island, &split->islands));
  DMUON_TRY(dmuon_layout_survey(memory, size, node, &split->nodes));
  split->reason = choose(split, policy, joined);
  if (are_nodes(split->reason)) {
    memcpy(island, node, (size_t)size * sizeof *island);
    split->islands = split->nodes;
    split->spanning = 0;
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_split_islands(dmuon_memory *memory, const dmuon_machine *machine, int size,
                                   const dmuon_rank_place *places, dmuon_island_policy policy,
                                   int *island, int *node, dmuon_split *split) {
  island_work w = {0};
  dmuon_split found = {0};
  if (machine && (machine->node_count < 1 || machine->kind_count < 1)) machine = NULL;
  for (int i = 0; i < size; i++)
    if (places[i].node >= w.nodes) w.nodes = places[i].node + 1;
  DMuonErrorCode code =
      find_islands(memory, &w, machine, size, places, policy, island, node, &found);
  dmuon_memory_free(w.first);
  dmuon_memory_free(w.fabric);
  dmuon_memory_free(w.fabric_node);
  dmuon_memory_free(w.fabric_first);
  dmuon_memory_free(w.mark);
  DMUON_TRY(code);
  *split = found;
  return DMUON_SUCCESS;
}

/* ---- levels ---- */

/* out[i] = the lowest rank with rank i's parent domain and key. */
static DMuonErrorCode refine(dmuon_memory *memory, int size, const int *parent, const int *key,
                             int keys, int *out) {
  int *first = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)size * keys, sizeof *first, &first));
  for (int64_t i = 0; i < (int64_t)size * keys; i++) first[i] = -1;
  for (int i = 0; i < size; i++) {
    int *at = &first[(int64_t)parent[i] * keys + key[i]];
    if (*at < 0) *at = i;
    out[i] = *at;
  }
  dmuon_memory_free(first);
  return DMUON_SUCCESS;
}

/* The intersection of two partitions, both named by their lowest ranks. */
static DMuonErrorCode intersect(dmuon_memory *memory, int size, const int *a, const int *b,
                                int *out) {
  /* The members of each domain of a form a list; those of one b in it are found along it. */
  int *last = NULL, *before = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, size, sizeof *last, &last);
  if (!code) code = dmuon_memory_alloc(memory, size, sizeof *before, &before);
  for (int i = 0; i < size && !code; i++) last[i] = -1;
  for (int i = 0; i < size && !code; i++) {
    /* Domains so far of a[i], by their lowest rank, the latest first. */
    int found = last[a[i]];
    while (found >= 0 && b[found] != b[i]) found = before[found];
    if (found < 0) {
      before[i] = last[a[i]];
      last[a[i]] = found = i;
    }
    out[i] = found;
  }
  dmuon_memory_free(last);
  dmuon_memory_free(before);
  return code;
}

enum { PACKAGES = 16 }; /* told apart on a node; further ones count as the last */

static int package_of(const dmuon_machine *machine, const dmuon_rank_place *place) {
  if (!has_gpu(machine, place)) return PACKAGES - 1;
  const int package = dmuon_split_kind(machine, place->node)->gpus[place->gpu].package;
  return package < 0 || package >= PACKAGES ? PACKAGES - 1 : package;
}

DMuonErrorCode dmuon_split_levels(dmuon_memory *memory, const dmuon_machine *machine, int size,
                                  const dmuon_rank_place *places, const int *island,
                                  const int *node, int *levels[DMUON_SPLIT_LEVELS]) {
  if (machine && (machine->node_count < 1 || machine->kind_count < 1)) machine = NULL;
  int spans = 0, *package = NULL;
  for (int i = 0; i < size; i++) spans |= node[i] != node[island[i]];
  memcpy(levels[2], spans ? island : node, (size_t)size * sizeof *island);
  DMUON_TRY(intersect(memory, size, island, node, levels[1]));
  DMUON_TRY(dmuon_memory_alloc(memory, size, sizeof *package, &package));
  for (int i = 0; i < size; i++) package[i] = package_of(machine, &places[i]);
  DMuonErrorCode code = refine(memory, size, levels[1], package, PACKAGES, levels[0]);
  dmuon_memory_free(package);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

/* ---- words ---- */

const char *dmuon_split_name(const dmuon_split *split) {
  return are_nodes(split->reason) ? "node" : "NVLink domain";
}

const char *dmuon_split_explain(const dmuon_split *split) {
  switch (split->reason) {
    case DMUON_ISLANDS_NVLINK:
      return "NVLink domains inside nodes: the fastest links";
    case DMUON_ISLANDS_FABRIC:
      return "NVLink domains that span nodes: the fastest links";
    case DMUON_ISLANDS_ASKED:
      return "nodes, as option island says";
    case DMUON_ISLANDS_NO_GPU:
      return "nodes: no rank has a GPU that is known";
    case DMUON_ISLANDS_NO_NVLINK:
      return "nodes: NVLink joins the GPUs of no two ranks";
    case DMUON_ISLANDS_UNEVEN:
      return "nodes: the NVLink domains hold numbers of ranks without a common divisor";
  }
  return "";
}
