/* The machine on real ranks: looked at or described, the same picture everywhere, and what is made
 * of it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "config.h"

#include <dmuon.h>
#include <sched.h>

#include "base/hash.h"
#include "mesh/mesh.h"
#include "tap_mpi.h"
#include "topo/describe.h"

/* A mesh with these options (pairs, ended by NULL); NULL when SetUp failed, *code says how. */
static DMuonMesh set_up(const char *const *options, DMuonErrorCode *code) {
  DMuonMesh mesh = NULL;
  *code = DMuonMeshCreate(MPI_COMM_WORLD, &mesh);
  for (int i = 0; !*code && options[i]; i += 2)
    *code = DMuonMeshSetOption(mesh, options[i], options[i + 1]);
  if (!*code) *code = DMuonMeshSetUp(mesh);
  if (*code) DMuonMeshDestroy(&mesh);
  return mesh;
}

/* Everything the ranks must agree on. */
static int same_picture(DMuonMesh mesh) {
  dmuon_text text;
  const char *data = "";
  uint64_t hash = dmuon_hash_bytes(DMUON_HASH_SEED, mesh->sizes, sizeof mesh->sizes);
  hash = dmuon_hash_bytes(hash, mesh->rank_at, (size_t)mesh->size * sizeof(int));
  hash = dmuon_hash_bytes(hash, mesh->island, (size_t)mesh->size * sizeof(int));
  for (int a = 0; a < 3; a++) {
    hash = dmuon_hash_bytes(hash, &mesh->links[a].latency, sizeof(double));
    hash = dmuon_hash_bytes(hash, &mesh->links[a].bandwidth, sizeof(double));
  }
  dmuon_text_init(&text, &mesh->context.memory);
  dmuon_describe_print(&text, "", &mesh->site.machine);
  if (dmuon_text_finish(&text, &data)) return 0;
  hash = dmuon_hash_string(hash, data);
  dmuon_text_free(&text);
  return tap_mpi_common((int)(hash & 0x7fffffff)) >= 0;
}

static void test_described(void) {
  static const struct {
    const char *topology, *node_size, *island;
    int sizes[3];
    dmuon_islands_reason reason;
  } cases[] = {
      {"node:2 gpu:4 nvlink:all", "4", "auto", {2, 4, 1}, DMUON_ISLANDS_NVLINK},
      {"node:2 gpu:4 nvlink:pairs", "4", "auto", {4, 2, 1}, DMUON_ISLANDS_NVLINK},
      {"node:2 gpu:4 nvlink:pairs", "4", "node", {2, 4, 1}, DMUON_ISLANDS_ASKED},
      {"node:2 gpu:4 nvlink:all fabric:2", "4", "auto", {1, 8, 1}, DMUON_ISLANDS_FABRIC},
      {"node:1 gpu:2 nvlink:all", "4", "auto", {2, 4, 1}, DMUON_ISLANDS_NVLINK},
      {"node:4 gpu:2 nvlink:all", "2", "auto", {4, 2, 1}, DMUON_ISLANDS_NVLINK},
      {"node:4 gpu:8 ib:1", "2", "auto", {4, 2, 1}, DMUON_ISLANDS_NO_NVLINK},
      {"node:2 core:8", "0", "auto", {1, 8, 1}, DMUON_ISLANDS_NO_GPU},
      {"node:1 gpu:8 nvlink:all", "0", "auto", {1, 8, 1}, DMUON_ISLANDS_NVLINK},
      {"node:2 gpu:4 nvlink:all", "3", "nvlink", {8, 1, 1}, DMUON_ISLANDS_NVLINK}, /* 3, 3, 2 */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const options[] = {"topology", cases[i].topology, "node_size", cases[i].node_size,
                                   "island",   cases[i].island,   NULL};
    DMuonErrorCode code;
    DMuonMesh mesh = set_up(options, &code);
    int r = 0, g = 0, t = 0;
    if (mesh) DMuonMeshGetSizes(mesh, &r, &g, &t);
    tap_ok(!code && r == cases[i].sizes[0] && g == cases[i].sizes[1] && t == cases[i].sizes[2],
           "%s in nodes of %s, island %s: %dx%dx%d", cases[i].topology, cases[i].node_size,
           cases[i].island, cases[i].sizes[0], cases[i].sizes[1], cases[i].sizes[2]);
    tap_ok(mesh && mesh->split.reason == cases[i].reason, "with the reason");
    tap_ok(mesh && same_picture(mesh), "the same picture on all ranks");
    tap_ok(!DMuonMeshDestroy(&mesh), "destroy");
  }
}

static void test_setter(void) {
  DMuonMesh mesh = NULL;
  int r = 0, g = 0;
  tap_ok(!DMuonMeshCreate(MPI_COMM_WORLD, &mesh), "create");
  tap_is_int(DMuonMeshSetTopology(mesh, NULL), DMUON_ERR_ARGUMENT, "no topology");
  tap_is_int(DMuonMeshSetTopology(mesh, ""), DMUON_ERR_ARGUMENT, "an empty one");
  tap_ok(!DMuonMeshSetTopology(mesh, "node:4 gpu:2 nvlink:all ib:1@100Gb"), "by setter");
  tap_ok(!DMuonMeshSetOption(mesh, "node_size", "2") && !DMuonMeshSetUp(mesh), "set up");
  tap_ok(!DMuonMeshGetSizes(mesh, &r, &g, NULL) && r == tap_size / 2 && g == 2, "pairs");
  tap_is_int(DMuonMeshSetTopology(mesh, "none"), DMUON_ERR_STATE, "not after SetUp");
  DMuonLinkInfo info = {.struct_size = sizeof info};
  tap_ok(!DMuonMeshGetLink(mesh, DMUON_AXIS_SHARD, &info) && info.link_class == DMUON_LINK_NVLINK &&
             fabs(info.bytes_per_second - 450e9) < 1 && info.latency_seconds > 0 &&
             !info.is_measured,
         "shard over NVLink");
  tap_ok(!DMuonMeshGetLink(mesh, DMUON_AXIS_REPLICATE, &info) &&
             info.link_class == DMUON_LINK_INFINIBAND && fabs(info.bytes_per_second - 6.25e9) < 1,
         "replicate over half a port of InfiniBand");
  tap_ok(!DMuonMeshGetLink(mesh, DMUON_AXIS_TP, &info) && info.link_class == DMUON_LINK_NONE &&
             !(info.bytes_per_second > 0),
         "nothing along tp");
  tap_is_int(DMuonMeshGetLink(mesh, DMUON_AXIS_ALL, &info), DMUON_ERR_ARGUMENT, "one axis");
  info.struct_size = 0;
  tap_is_int(DMuonMeshGetLink(mesh, DMUON_AXIS_TP, &info), DMUON_ERR_ARGUMENT, "and a size");
  DMuonMeshDestroy(&mesh);
}

static void test_detected(void) {
  static const char *const options[] = {"topology", "detect", NULL};
  static const char *const pretend[] = {"topology", "detect", "node_size", "2", NULL};
  DMuonErrorCode code;
  DMuonMesh mesh = set_up(options, &code);
  tap_ok(mesh && mesh->site.source == DMUON_SITE_SEEN && mesh->site.machine.node_count == 1 &&
             mesh->sizes[1] == tap_size,
         "this machine: one node, one shard group");
  tap_ok(mesh && same_picture(mesh), "the same picture on all ranks");
  DMuonMeshDestroy(&mesh);
  mesh = set_up(pretend, &code);
  tap_ok(mesh && mesh->site.machine.node_count == tap_size / 2 &&
             mesh->site.machine.kind_count == 1 && mesh->sizes[1] == 2,
         "pretended nodes: as many of one kind");
  tap_ok(mesh && same_picture(mesh), "the same picture on all ranks");
  DMuonMeshDestroy(&mesh);
  static const char *const nothing[] = {NULL};
  mesh = set_up(nothing, &code);
  tap_ok(mesh && mesh->site.source == DMUON_SITE_NODES, "nobody looks where nothing depends on it");
  DMuonMeshDestroy(&mesh);
}

static void test_measured(void) {
  static const char *const options[] = {"measure_links", "1", "chunk_bytes", "0",
                                        "node_size",     "4", NULL};
  DMuonErrorCode code;
  DMuonMesh mesh = set_up(options, &code);
  tap_ok(mesh && same_picture(mesh), "measured: the same figures on all ranks");
  DMuonLinkInfo info = {.struct_size = sizeof info};
  for (int axis = 0; axis < 2; axis++)
    tap_ok(mesh && !DMuonMeshGetLink(mesh, (DMuonAxis)axis, &info) && info.is_measured &&
               info.latency_seconds > 0 && info.latency_seconds < 10 && info.bytes_per_second > 1e4,
           "latency and bandwidth of axis %d", axis);
  DMuonCommInfo sent = {.struct_size = sizeof sent};
  tap_ok(mesh && !DMuonMeshGetCommInfo(mesh, DMUON_AXIS_ALL, &sent) && sent.operations == 0 &&
             sent.bytes_sent == 0,
         "measuring is not counted");
  tap_ok(mesh && mesh->chunk_bytes >= 1 << 16 && mesh->chunk_bytes <= 1 << 22 &&
             mesh->comms[1][0]->chunk_bytes == mesh->chunk_bytes,
         "messages are cut as the links suggest");
  DMuonMeshDestroy(&mesh);
}

#ifdef HAVE_HWLOC
enum { NO_XML = DMUON_ERR_FILE };
static const char no_xml[] = "/nonexistent/node.xml";
#else
enum { NO_XML = DMUON_ERR_SETUP };
static const char no_xml[] = "hwloc";
#endif

static void test_refused(void) {
  static const struct {
    const char *options[7];
    DMuonErrorCode code;
    const char *text;
  } cases[] = {
      {{"topology", "node:2 gpu:x", NULL}, DMUON_ERR_FORMAT, "gpu:x"},
      {{"topology", "/nonexistent/node.xml", NULL}, (DMuonErrorCode)NO_XML, no_xml},
      {{"topology", "node:2 gpu:4", "bind", "cores", NULL},
       DMUON_ERR_SETUP,
       "cores of the node are not known"},
      {{"topology", "node:2 core:4", "bind", "all", NULL},
       DMUON_ERR_SETUP,
       "GPUs of the node are not known"},
      {{"topology", "node:1 gpu:8", "bind", "gpu", NULL},
       DMUON_ERR_SETUP,
       "PCI addresses of GPUs of the node are not known"},
      {{"node_size", "2", "bind", "all", NULL}, DMUON_ERR_SETUP, "pretended"},
      {{"topology", "none", "bind", "gpu", NULL}, DMUON_ERR_SETUP, "not looked at"},
      {{"island", "rack", NULL}, DMUON_ERR_SETUP, "rack"},
      {{"chunk_bytes", "7", NULL}, DMUON_ERR_SETUP, "chunk_bytes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    DMuonErrorCode code;
    DMuonMesh mesh = set_up(cases[i].options, &code);
    tap_ok(!mesh, "%s %s refused", cases[i].options[0], cases[i].options[1]);
    tap_is_int(code, cases[i].code, "with the right code");
    tap_contains(DMuonErrorGetMessage(), cases[i].text, "and named");
    DMuonMeshDestroy(&mesh);
  }
}

/* The last one: a process stays bound. */
static void test_bound(void) {
  static const char *const options[] = {"bind", "cores", NULL};
  cpu_set_t before, after;
  dmuon_node_place place = {.core_count = 0};
  int local, ranks;
  DMuonErrorCode code;
  CPU_ZERO(&before);
  CPU_ZERO(&after);
  sched_getaffinity(0, sizeof before, &before);
  DMuonMesh mesh = set_up(options, &code);
  if (tap_mpi_any(!mesh)) {
    tap_ok(!mesh && strstr(DMuonErrorGetMessage(), "hwloc"), "without hwloc nobody is bound");
    return;
  }
  sched_getaffinity(0, sizeof after, &after);
  const dmuon_machine_kind *kind = &mesh->site.machine.kinds[0];
  dmuon_site_gpus_of(&mesh->site, tap_rank, NULL, &local, &ranks);
  dmuon_place_rank(kind, ranks, local, &place);
  tap_ok(local == tap_rank && ranks == tap_size && place.core_count > 0, "each rank has cores");
  tap_ok(CPU_COUNT(&after) * kind->cores == CPU_COUNT(&before) * place.core_count,
         "and is bound to as many");
  DMuonMeshDestroy(&mesh);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  test_described();
  test_setter();
  test_detected();
  test_measured();
  test_refused();
  test_bound();
  return tap_mpi_done();
}
