/* Finds out where the ranks of a mesh are: nodes by shared memory, their machine by one rank a
 * node, GPUs by the devices in use, or all of it from a description. It decides how a description
 * is laid over the job's nodes (in order, again and again), and when looking at the hardware is
 * worth it. */
#include "mesh/site.h"

#include <string.h>

#include "comm/agree.h"
#include "mesh/backends.h"
#include "mesh/mesh.h"
#include "topo/bind.h"
#include "topo/detect.h"
#include "topo/summary.h"

static const char looking[] = "looking at the machine";

const dmuon_machine *dmuon_site_machine(const dmuon_site *site) {
  return site->source == DMUON_SITE_NODES || site->machine.node_count < 1 ? NULL : &site->machine;
}

void dmuon_site_free(dmuon_site *site) {
  dmuon_machine_free(&site->machine);
  dmuon_memory_free(site->places);
  *site = (dmuon_site){0};
}

void dmuon_site_gpus_of(const dmuon_site *site, int rank, int *gpus, int *local, int *ranks) {
  *local = *ranks = 0;
  for (int i = 0; i < site->size; i++) {
    if (site->places[i].node != site->places[rank].node) continue;
    *local += i < rank;
    if (gpus) gpus[*ranks] = site->places[i].gpu;
    ++*ranks;
  }
}

/* ---- nodes ---- */

/* node[i]: a rank that names rank i's node; nodes are numbered as they come up. */
static void number_nodes(dmuon_site *site, int *node) {
  /* The lowest rank of a node comes first and names it, so it is its own name. */
  for (int i = 0; i < site->size; i++) {
    site->places[i].node = node[i] == i ? site->nodes++ : site->places[node[i]].node;
    site->places[i].gpu = -1;
  }
}

static DMuonErrorCode find_nodes(DMuonMesh mesh, int64_t pretended, int *node, dmuon_site *site) {
  if (pretended > 0)
    dmuon_layout_pretend_nodes(site->size, pretended, node);
  else
    DMUON_TRY(dmuon_bootstrap_nodes(mesh->bootstrap, node));
  number_nodes(site, node);
  return DMUON_SUCCESS;
}

/* ---- machine ---- */

typedef enum { WORD_AUTO, WORD_NONE, WORD_DETECT, WORD_GIVEN } topology_word;

static topology_word word_of(const char *topology) {
  if (strcmp(topology, "auto") == 0) return WORD_AUTO;
  if (strcmp(topology, "none") == 0) return WORD_NONE;
  if (strcmp(topology, "detect") == 0) return WORD_DETECT;
  return WORD_GIVEN;
}

/* Ranks on the CPUs of one node, or of nodes that are only pretended: whatever the machine is, it
 * changes neither sizes nor costs. */
static int is_worth_looking(DMuonMesh mesh, const dmuon_site *site) {
  if (mesh->settings.bind != DMUON_BIND_NONE) return 1;
  if (mesh->settings.node_size > 0) return 0;
  return site->nodes > 1 || dmuon_backend_may_be_missing(mesh->settings.device);
}

/* What this rank knows of the machine: all of it (described, on rank 0), its node (that node's
 * lowest rank), or nothing. */
static DMuonErrorCode look(DMuonMesh mesh, const int *node, int given, dmuon_machine *machine) {
  dmuon_memory *memory = &mesh->context.memory;
  if (given && mesh->rank == 0)
    DMUON_TRY(dmuon_detect_given(memory, mesh->settings.topology, machine));
  else if (!given && node[mesh->rank] == mesh->rank)
    DMUON_TRY(dmuon_detect_node(memory, machine));
  return DMUON_SUCCESS;
}

static DMuonErrorCode share(DMuonMesh mesh, const int *node, int given, dmuon_machine *machine) {
  dmuon_memory *memory = &mesh->context.memory;
  dmuon_machine mine = {0};
  void *data = NULL;
  int64_t bytes = 0;
  DMuonErrorCode code = look(mesh, node, given, &mine);
  if (!code) code = dmuon_summary_encode(memory, &mine, &data, &bytes);
  dmuon_machine_free(&mine);
  code = dmuon_mesh_agree_error(mesh, looking, code);
  if (!code)
    code = dmuon_agree_merge(mesh->bootstrap, looking, &data, &bytes, dmuon_summary_merge, NULL);
  if (!code) {
    code = dmuon_summary_decode(memory, data, bytes, machine);
    code = dmuon_mesh_agree_error(mesh, looking, code);
  }
  dmuon_memory_free(data);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

static DMuonErrorCode find(DMuonMesh mesh, int *node, dmuon_site *site) {
  const topology_word word = word_of(mesh->settings.topology);
  DMUON_TRY(find_nodes(mesh, mesh->settings.node_size, node, site));
  if (word == WORD_NONE || (word == WORD_AUTO && !is_worth_looking(mesh, site)))
    return DMUON_SUCCESS;
  DMUON_TRY(share(mesh, node, word == WORD_GIVEN, &site->machine));
  site->source = word == WORD_GIVEN ? DMUON_SITE_GIVEN : DMUON_SITE_SEEN;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_site_find(DMuonMesh mesh, dmuon_site *site) {
  dmuon_memory *memory = &mesh->context.memory;
  dmuon_site found = {.size = mesh->size};
  int *node = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, found.size, sizeof *node, &node);
  if (!code) code = dmuon_memory_alloc(memory, found.size, sizeof *found.places, &found.places);
  code = dmuon_mesh_agree_error(mesh, looking, code);
  if (!code) code = find(mesh, node, &found);
  dmuon_memory_free(node);
  if (code) {
    dmuon_site_free(&found);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *site = found;
  return DMUON_SUCCESS;
}

/* ---- GPUs ---- */

/* As place.c proposes, node by node. */
static DMuonErrorCode lay_gpus(dmuon_memory *memory, dmuon_site *site) {
  int *ranks = NULL, *next = NULL, order[DMUON_NODE_GPUS], used = 0, ordered = 0;
  const dmuon_machine_kind *known = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, site->nodes, sizeof *ranks, &ranks);
  if (!code) code = dmuon_memory_alloc(memory, site->nodes, sizeof *next, &next);
  for (int i = 0; i < site->size && !code; i++) ranks[site->places[i].node]++;
  for (int i = 0; i < site->size && !code; i++) {
    const int node = site->places[i].node;
    const dmuon_machine_kind *kind = dmuon_split_kind(&site->machine, node);
    if (kind != known || ordered != ranks[node])
      used = dmuon_place_gpus(kind, ordered = ranks[node], order);
    known = kind;
    if (used) site->gpus = DMUON_GPUS_LAID;
    site->places[i].gpu = used ? order[next[node]++ % used] : -1;
  }
  dmuon_memory_free(ranks);
  dmuon_memory_free(next);
  return code;
}

static int gpu_called(const dmuon_machine_kind *kind, const char *pci) {
  for (int g = 0; g < kind->gpu_count; g++)
    if (strcmp(kind->gpus[g].name, pci) == 0) return g;
  return -1;
}

/* What a rank says of its GPU: its number in the picture from KNOWN on. */
enum { UNSAID, NO_GPU, NOT_IN_PICTURE, KNOWN };

/* said[i] of all ranks; no two fill in the same place. */
static DMuonErrorCode gather_gpus(DMuonMesh mesh, const dmuon_site *site, int *said) {
  char pci[24] = "";
  for (int i = 0; i < site->size; i++) said[i] = UNSAID;
  if (mesh->device) dmuon_backend_pci(mesh->device, pci);
  const int gpu = gpu_called(dmuon_split_kind(&site->machine, site->places[mesh->rank].node), pci);
  said[mesh->rank] = !pci[0] ? NO_GPU : gpu < 0 ? NOT_IN_PICTURE : KNOWN + gpu;
  return dmuon_agree_reduce(mesh->bootstrap, looking, said, (int64_t)sizeof *said * site->size,
                            dmuon_agree_larger, NULL);
}

/* Ranks whose devices the system hides from each other can have GPUs that the one that looked did
 * not see: then nothing is known of anybody's, rather than something wrong. */
static void take_gpus(dmuon_site *site, const int *said) {
  for (int i = 0; i < site->size; i++) {
    if (said[i] != NOT_IN_PICTURE) continue;
    if (site->source == DMUON_SITE_SEEN)
      dmuon_machine_note(site->machine.lost, sizeof site->machine.lost,
                         "GPUs of some ranks, hidden from the rank that looked");
    return;
  }
  for (int i = 0; i < site->size; i++) {
    if (said[i] < KNOWN) continue;
    site->places[i].gpu = said[i] - KNOWN;
    site->gpus = DMUON_GPUS_FOUND;
  }
}

DMuonErrorCode dmuon_site_find_gpus(DMuonMesh mesh, dmuon_site *site) {
  dmuon_memory *memory = &mesh->context.memory;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (!dmuon_site_machine(site)) return DMUON_SUCCESS;
  if (dmuon_backend_may_be_missing(mesh->settings.device)) {
    int *said = NULL;
    code = dmuon_memory_alloc(memory, site->size, sizeof *said, &said);
    DMUON_TRY(dmuon_mesh_agree_error(mesh, looking, code));
    code = gather_gpus(mesh, site, said);
    if (!code) take_gpus(site, said);
    dmuon_memory_free(said);
    DMUON_TRY(code);
  }
  /* A description stands for what is not here. */
  if (site->gpus == DMUON_GPUS_NONE && site->source == DMUON_SITE_GIVEN)
    code = lay_gpus(memory, site);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, looking, code));
  return DMUON_SUCCESS;
}

/* ---- plans ---- */

static DMuonErrorCode plan(DMuonMesh mesh, int64_t block, dmuon_site *site) {
  dmuon_memory *memory = &mesh->context.memory;
  const topology_word word = word_of(mesh->settings.topology);
  if (word == WORD_GIVEN) {
    DMUON_TRY(dmuon_detect_given(memory, mesh->settings.topology, &site->machine));
    site->source = DMUON_SITE_GIVEN;
  } else if (word == WORD_DETECT) {
    DMUON_TRY(dmuon_detect_node(memory, &site->machine));
    site->source = DMUON_SITE_SEEN;
  }
  const dmuon_machine *machine = dmuon_site_machine(site);
  int64_t room = 0;
  for (int i = 0; i < site->size; i++, room--) {
    if (room == 0) {
      room = mesh->settings.node_size > 0 ? mesh->settings.node_size : block;
      if (machine && mesh->settings.node_size < 1)
        room = dmuon_place_capacity(dmuon_split_kind(machine, site->nodes));
      site->nodes++;
    }
    site->places[i] = (dmuon_rank_place){site->nodes - 1, -1};
  }
  if (machine) DMUON_TRY(lay_gpus(memory, site));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_site_plan(DMuonMesh mesh, int size, int64_t block, dmuon_site *site) {
  dmuon_site found = {.size = size};
  DMuonErrorCode code =
      dmuon_memory_alloc(&mesh->context.memory, size, sizeof *found.places, &found.places);
  if (!code) code = plan(mesh, block, &found);
  if (code) {
    dmuon_site_free(&found);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *site = found;
  return DMUON_SUCCESS;
}

/* ---- binding ---- */

static DMuonErrorCode check_bind(DMuonMesh mesh, const dmuon_site *site) {
  if (mesh->settings.node_size > 0 || !dmuon_site_machine(site))
    DMUON_FAIL(
        DMUON_ERR_SETUP,
        "bind is %s, but %s: ranks are bound on nodes as they are (node_size 0), and on a "
        "machine that is known (topology auto, detect, or given)",
        dmuon_bind_names[mesh->settings.bind],
        mesh->settings.node_size > 0 ? "nodes are pretended" : "the machine is not looked at");
  return DMUON_SUCCESS;
}

static DMuonErrorCode fail_bind(DMuonMesh mesh, const dmuon_site *site, const char *what) {
  DMUON_FAIL(DMUON_ERR_SETUP, "bind is %s, but %s of the node are not known%s%s",
             dmuon_bind_names[mesh->settings.bind], what, site->machine.lost[0] ? ": " : "",
             site->machine.lost);
}

DMuonErrorCode dmuon_site_bind_gpu(DMuonMesh mesh, const dmuon_site *site) {
  int local, ranks;
  dmuon_node_place place;
  mesh->bound_gpu[0] = 0;
  if (!(mesh->settings.bind & DMUON_BIND_GPU)) return DMUON_SUCCESS;
  DMUON_TRY(check_bind(mesh, site));
  dmuon_site_gpus_of(site, mesh->rank, NULL, &local, &ranks);
  const dmuon_machine_kind *kind = dmuon_split_kind(&site->machine, site->places[mesh->rank].node);
  dmuon_place_rank(kind, ranks, local, &place);
  if (place.gpu < 0) DMUON_TRY(fail_bind(mesh, site, "GPUs"));
  if (!strchr(kind->gpus[place.gpu].name, ':'))
    DMUON_TRY(fail_bind(mesh, site, "PCI addresses of GPUs"));
  memcpy(mesh->bound_gpu, kind->gpus[place.gpu].name, sizeof mesh->bound_gpu);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_site_bind_cores(DMuonMesh mesh, const dmuon_site *site) {
  int local, ranks, *gpus = NULL;
  dmuon_node_place place;
  if (!(mesh->settings.bind & DMUON_BIND_CORES)) return DMUON_SUCCESS;
  DMUON_TRY(check_bind(mesh, site));
  DMUON_TRY(dmuon_memory_alloc(&mesh->context.memory, site->size, sizeof *gpus, &gpus));
  dmuon_site_gpus_of(site, mesh->rank, gpus, &local, &ranks);
  dmuon_place_beside(dmuon_split_kind(&site->machine, site->places[mesh->rank].node), ranks, gpus,
                     local, &place);
  dmuon_memory_free(gpus);
  if (place.core_count < 1) DMUON_TRY(fail_bind(mesh, site, "cores"));
  DMUON_TRY(dmuon_topo_bind(place.first_core, place.core_count));
  return DMUON_SUCCESS;
}

const char *dmuon_mesh_bound_gpu(DMuonMesh mesh) {
  return mesh->ordinal < 0 && mesh->bound_gpu[0] ? mesh->bound_gpu : NULL;
}
