/* The machine, the islands and the proposed places, told to people. It decides nothing but words.
 */
#include "mesh/view_machine.h"

#include "topo/describe.h"

/* Ranks of a node, and kinds of node, listed at most. */
enum { MOST_RANKS = 16, MOST_KINDS = 4 };

static void add_count(dmuon_text *text, const dmuon_layout_domains *domains, const char *what) {
  const char *plural = domains->count == 1 ? "" : "s";
  if (domains->smallest == domains->largest)
    dmuon_text_add(text, "%d %s%s of %d rank%s", domains->count, what, plural, domains->largest,
                   domains->largest == 1 ? "" : "s");
  else
    dmuon_text_add(text, "%d %s%s of %d to %d ranks, greatest common divisor %d", domains->count,
                   what, plural, domains->smallest, domains->largest, domains->divisor);
}

static void add_reason(DMuonMesh mesh, dmuon_size_reason reason, dmuon_text *text) {
  const char *island = dmuon_split_name(&mesh->split);
  switch (reason) {
    case DMUON_SIZE_GIVEN:
      dmuon_text_add(text, "given");
      return;
    case DMUON_SIZE_ISLAND:
      dmuon_text_add(text, "the ranks of %s %s", island[0] == 'N' ? "an" : "a", island);
      return;
    case DMUON_SIZE_COMMON:
      dmuon_text_add(text, "the greatest common divisor of the %ss' ranks", island);
      return;
    case DMUON_SIZE_REST:
      dmuon_text_add(text, "the rest");
      return;
    case DMUON_SIZE_ONE:
      dmuon_text_add(text, "one unless given");
      return;
    case DMUON_SIZE_COORDS:
      dmuon_text_add(text, "as the ranks' coordinates say");
      return;
  }
}

static void add_nodes(DMuonMesh mesh, dmuon_text *text) {
  const dmuon_site *site = &mesh->site;
  dmuon_text_add(text, "  nodes:     ");
  add_count(text, &mesh->split.nodes, "node");
  if (mesh->settings.node_size)
    dmuon_text_add(text, ", pretended (node_size)");
  else if (!mesh->bootstrap && !dmuon_site_machine(site))
    dmuon_text_add(text, ", taken for a plan");
  else if (!mesh->bootstrap)
    dmuon_text_add(text, ", filled one after another");
  dmuon_text_add(text, "\n");
  const int known = site->machine.node_count;
  if (site->source == DMUON_SITE_GIVEN && known != site->nodes)
    dmuon_text_add(text, "             the description has %d node%s: %s\n", known,
                   known == 1 ? "" : "s",
                   known < site->nodes ? "the job's are laid on them again and again"
                                       : "the job's are the first of them");
  if (site->source == DMUON_SITE_NODES)
    dmuon_text_add(text, "  machine: not looked at (topology detect does, or is given one)\n");
  else
    dmuon_describe_print(text, "  ", &site->machine);
}

static void add_gpus(DMuonMesh mesh, dmuon_text *text) {
  const dmuon_split *split = &mesh->split;
  if (!split->ranks_with_gpu) return;
  dmuon_text_add(text, "  GPUs:      ");
  if (split->ranks_with_gpu < mesh->size)
    dmuon_text_add(text, "%d of %d ranks have one", split->ranks_with_gpu, mesh->size);
  else
    dmuon_text_add(text, "each rank has one");
  dmuon_text_add(text, "%s", mesh->site.gpus == DMUON_GPUS_FOUND ? "" : " (as proposed)");
  if (split->most_on_a_gpu > 1)
    dmuon_text_add(text, ", up to %d ranks share one", split->most_on_a_gpu);
  if (split->gpus_idle)
    dmuon_text_add(text, ", %d GPU%s without a rank", split->gpus_idle,
                   split->gpus_idle == 1 ? "" : "s");
  dmuon_text_add(text, "\n");
}

/* Where nothing fits together: what to do. */
static void add_hint(DMuonMesh mesh, dmuon_text *text) {
  const dmuon_layout_domains *islands = &mesh->split.islands;
  if (mesh->reasons[1] != DMUON_SIZE_COMMON || mesh->sizes[1] > 1 || islands->largest < 2) return;
  dmuon_text_add(
      text,
      "             islands of %d to %d ranks have nothing in common: no shard axis; say "
      "shard, and some of its groups cross them\n",
      islands->smallest, islands->largest);
}

void dmuon_view_machine(DMuonMesh mesh, dmuon_text *text) {
  const dmuon_split *split = &mesh->split;
  add_nodes(mesh, text);
  add_gpus(mesh, text);
  dmuon_text_add(text, "  islands:   ");
  add_count(text, &split->islands, "island");
  dmuon_text_add(text, ": %s\n", dmuon_split_explain(split));
  dmuon_text_add(text, "  sizes:     replicate %d (", mesh->sizes[0]);
  add_reason(mesh, mesh->reasons[0], text);
  dmuon_text_add(text, "), shard %d (", mesh->sizes[1]);
  add_reason(mesh, mesh->reasons[1], text);
  dmuon_text_add(text, "), tp %d (", mesh->sizes[2]);
  add_reason(mesh, mesh->reasons[2], text);
  dmuon_text_add(text, ")\n");
  add_hint(mesh, text);
}

void dmuon_view_link(DMuonMesh mesh, int axis, dmuon_text *text) {
  const dmuon_link *link = &mesh->links[axis];
  char rate[32];
  if (link->link_class == DMUON_LINK_NONE) return;
  dmuon_text_add(text, ", over %s, %s, %.3g us (%s)", dmuon_link_name(link->link_class),
                 dmuon_describe_rate(rate, link->bandwidth / 1e6), link->latency * 1e6,
                 link->is_measured ? "measured" : "estimated");
  if (mesh->transport) dmuon_text_add(text, ", not used: see transport");
}

/* ---- places ---- */

/* gpus: those in use on this node, or NULL: as proposed. */
static void add_place(const dmuon_machine_kind *kind, int ranks, int local, const int *gpus,
                      dmuon_text *text) {
  dmuon_node_place place, proposed;
  dmuon_place_rank(kind, ranks, local, &proposed);
  place = proposed;
  if (gpus) dmuon_place_beside(kind, ranks, gpus, local, &place);
  dmuon_text_add(text, "      %d:", local);
  if (place.gpu >= 0) {
    const dmuon_machine_gpu *gpu = &kind->gpus[place.gpu];
    dmuon_text_add(text, " GPU %d (%s", place.gpu, gpu->name);
    if (gpu->port >= 0 && gpu->port < kind->port_count)
      dmuon_text_add(text, ", near %s", kind->ports[gpu->port].name);
    dmuon_text_add(text, ")");
  }
  if (place.numa >= 0) dmuon_text_add(text, " NUMA node %d", place.numa);
  if (place.core_count == 1)
    dmuon_text_add(text, " core %d", place.first_core);
  else if (place.core_count > 1)
    dmuon_text_add(text, " cores %d-%d", place.first_core, place.first_core + place.core_count - 1);
  if (proposed.gpu != place.gpu) dmuon_text_add(text, "; GPU %d proposed", proposed.gpu);
  dmuon_text_add(text, "\n");
}

/* Nodes that look like this one and have as many ranks were listed before. */
typedef struct {
  const dmuon_machine_kind *kind;
  int ranks;
} node_shape;

static void add_shape(node_shape shape, const int *gpus, dmuon_text *text) {
  dmuon_text_add(text, "    the %d rank%s of a node", shape.ranks, shape.ranks == 1 ? "" : "s");
  if (shape.kind->gpu_count > 0)
    dmuon_text_add(text, " with %d GPU%s", shape.kind->gpu_count,
                   shape.kind->gpu_count == 1 ? "" : "s");
  if (shape.kind->cores > 0)
    dmuon_text_add(text, "%s %d core%s", shape.kind->gpu_count > 0 ? "," : " with",
                   shape.kind->cores, shape.kind->cores == 1 ? "" : "s");
  dmuon_text_add(text, ":\n");
  for (int i = 0; i < shape.ranks && i < MOST_RANKS; i++)
    add_place(shape.kind, shape.ranks, i, gpus, text);
  if (shape.ranks > MOST_RANKS)
    dmuon_text_add(text, "      and %d ranks more\n", shape.ranks - MOST_RANKS);
}

static const char *bound(int bind) {
  switch (bind) {
    case DMUON_BIND_CORES:
      return "ranks are bound to their cores";
    case DMUON_BIND_GPU:
      return "ranks use the GPUs proposed";
    case DMUON_BIND_ALL:
      return "ranks use the GPUs proposed and are bound to their cores";
    default:
      return "nobody is bound (option bind)";
  }
}

void dmuon_view_places(DMuonMesh mesh, dmuon_text *text) {
  const dmuon_machine *machine = dmuon_site_machine(&mesh->site);
  const int in_use = mesh->site.gpus == DMUON_GPUS_FOUND;
  node_shape shapes[MOST_KINDS];
  int count = 0, *gpus = NULL;
  if (!machine) return;
  if (dmuon_memory_alloc(&mesh->context.memory, mesh->size, sizeof *gpus, &gpus)) return;
  dmuon_text_add(text, "  places:    %s; %s\n",
                 in_use ? "GPUs in use and the cores beside them" : "proposed by locality",
                 bound(mesh->settings.bind));
  for (int i = 0; i < mesh->size && count < MOST_KINDS; i++) {
    if (mesh->node[i] != i) continue;
    node_shape shape = {dmuon_split_kind(machine, mesh->site.places[i].node), 0};
    int k = 0, local;
    dmuon_site_gpus_of(&mesh->site, i, gpus, &local, &shape.ranks);
    while (k < count && (shapes[k].kind != shape.kind || shapes[k].ranks != shape.ranks)) k++;
    if (k < count) continue;
    shapes[count++] = shape;
    add_shape(shape, in_use ? gpus : NULL, text);
  }
  dmuon_memory_free(gpus);
}
