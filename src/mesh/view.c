/* The mesh for people (View, ViewOptions) and for programs (Summary). It decides only what is told
 * and how. */
#include <string.h>

#include "base/json.h"
#include "mesh/backends.h"
#include "mesh/view_machine.h"

static const char *const axis_names[3] = {"replicate", "shard", "tp"};
static const char *const axis_labels[3] = {"replicate:", "shard:", "tp:"};

/* Ranks listed at most, so that a View of a large machine stays a page. */
enum { MAX_LISTED = 256 };

static int is_renumbered(DMuonMesh mesh) {
  for (int p = 0; p < mesh->size; p++)
    if (mesh->rank_at[p] != p) return 1;
  return 0;
}

/* Said where islands are not nodes. */
static void add_island_crossings(DMuonMesh mesh, int axis, dmuon_text *text) {
  if (memcmp(mesh->node, mesh->island, (size_t)mesh->size * sizeof *mesh->node) == 0) return;
  const dmuon_layout_crossing found =
      dmuon_layout_crossings(mesh->island, mesh->sizes, mesh->rank_at, axis);
  if (found.crossing)
    dmuon_text_add(text, ", %d crossing islands", found.crossing);
  else
    dmuon_text_add(text, ", all inside islands");
}

static void add_axes(DMuonMesh mesh, dmuon_text *text) {
  for (int a = 0; a < 3; a++) {
    dmuon_layout_crossing found = dmuon_layout_crossings(mesh->node, mesh->sizes, mesh->rank_at, a);
    dmuon_text_add(text, "  %-11s%d group%s of %d, ", axis_labels[a], found.groups,
                   found.groups == 1 ? "" : "s", mesh->sizes[a]);
    if (found.crossing)
      dmuon_text_add(text, "%d of them crossing nodes", found.crossing);
    else
      dmuon_text_add(text, "all inside nodes");
    add_island_crossings(mesh, a, text);
    dmuon_view_link(mesh, a, text);
    dmuon_text_add(text, "\n");
  }
}

/* One line a shard x tp block. */
static void add_places(DMuonMesh mesh, dmuon_text *text) {
  int block = mesh->sizes[1] * mesh->sizes[2];
  dmuon_text_add(text, "  order:     %s\n",
                 is_renumbered(mesh) ? "ranks renumbered so that blocks stay inside islands"
                                     : "ranks as launched");
  for (int p = 0; p < mesh->size && p < MAX_LISTED; p++) {
    if (p % block == 0) dmuon_text_add(text, "%s    replicate %d: ranks", p ? "\n" : "", p / block);
    dmuon_text_add(text, " %d", mesh->rank_at[p]);
    int next = p + 1 < mesh->size && (p + 1) % block ? mesh->rank_at[p + 1] : -1;
    if (next < 0 || mesh->node[next] != mesh->node[mesh->rank_at[p]])
      dmuon_text_add(text, " (node of %d)", mesh->node[mesh->rank_at[p]]);
  }
  if (mesh->size > MAX_LISTED)
    dmuon_text_add(text, "\n    and %d ranks more", mesh->size - MAX_LISTED);
  dmuon_text_add(text, "\n");
}

static void add_device(DMuonMesh mesh, dmuon_text *text) {
  dmuon_text_add(text, "  device:    %s", mesh->settings.device);
  if (mesh->facts) {
    dmuon_text_add(text, ", on rank 0 ");
    if (mesh->facts[0].is_missing)
      dmuon_text_add(text, "the host");
    else
      dmuon_backend_describe(mesh->device, text);
  }
  dmuon_text_add(text, "\n");
  if (mesh->transport) dmuon_text_add(text, "  transport: %s\n", mesh->transport);
  if (mesh->facts)
    dmuon_text_add(text, "  sums:      %s\n",
                   mesh->settings.reduce == DMUON_REDUCE_NCCL && !mesh->transport
                       ? "as NCCL adds them (reduce nccl)"
                       : "in the one order, as on the host (reduce ordered)");
}

static void add_all(DMuonMesh mesh, dmuon_text *text) {
  dmuon_text_add(text, "mesh%s%s: ", mesh->object.name ? " " : "",
                 mesh->object.name ? mesh->object.name : "");
  if (!mesh->object.is_set_up) {
    dmuon_text_add(text, "%d rank%s, not set up yet\n", mesh->size, mesh->size == 1 ? "" : "s");
    return;
  }
  dmuon_text_add(text, "replicate %d x shard %d x tp %d = %d rank%s\n", mesh->sizes[0],
                 mesh->sizes[1], mesh->sizes[2], mesh->size, mesh->size == 1 ? "" : "s");
  dmuon_view_machine(mesh, text);
  add_axes(mesh, text);
  add_places(mesh, text);
  dmuon_view_places(mesh, text);
  if (!mesh->bootstrap) return;
  char bytes[32];
  add_device(mesh, text);
  dmuon_text_add(text, "  messages:  reduced directly up to %lld ranks, in chunks of %s\n",
                 (long long)mesh->settings.reduce_fanin,
                 dmuon_text_bytes(bytes, (double)mesh->chunk_bytes));
  if (mesh->settings.timeout > 0)
    dmuon_text_add(text, "  timeout:   %g s\n", mesh->settings.timeout);
  else
    dmuon_text_add(text, "  timeout:   none, waits last for ever\n");
}

DMuonErrorCode DMuonMeshView(DMuonMesh mesh, const char *path) {
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  dmuon_text text;
  dmuon_text_init(&text, &mesh->context.memory);
  if (mesh->rank == 0) add_all(mesh, &text);
  DMuonErrorCode code = dmuon_mesh_write(mesh, "viewing the mesh", &text, path);
  dmuon_text_free(&text);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshViewOptions(DMuonMesh mesh, const char *path) {
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  dmuon_text text;
  dmuon_text_init(&text, &mesh->context.memory);
  if (mesh->rank == 0)
    dmuon_options_report(&mesh->context.options, mesh->table_count, mesh->tables, &text);
  DMuonErrorCode code = dmuon_mesh_write(mesh, "viewing the options", &text, path);
  dmuon_text_free(&text);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

static json_t *triple(const int values[3]) {
  return json_pack("{s:i, s:i, s:i}", "replicate", values[0], "shard", values[1], "tp", values[2]);
}

static json_t *comm_summary(DMuonMesh mesh) {
  json_t *all = json_object();
  for (int a = 0; a < 3; a++) {
    dmuon_comm_counters sum = {0};
    for (int role = 0; role < 2; role++) {
      if (!mesh->comms[a][role]) continue;
      const dmuon_comm_counters *counters = &mesh->comms[a][role]->counters;
      sum.operations += counters->operations;
      sum.bytes += counters->bytes;
      sum.messages += counters->messages;
      sum.seconds_waited += counters->seconds_waited;
    }
    json_object_set_new(all, axis_names[a],
                        json_pack("{s:I, s:I, s:I, s:f}", "operations", (json_int_t)sum.operations,
                                  "bytes", (json_int_t)sum.bytes, "messages",
                                  (json_int_t)sum.messages, "seconds_waited", sum.seconds_waited));
  }
  return all;
}

static json_t *islands_summary(DMuonMesh mesh) {
  const dmuon_split *split = &mesh->split;
  return json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:i, s:i}", "what", dmuon_split_name(split),
                   "count", split->islands.count, "smallest", split->islands.smallest, "largest",
                   split->islands.largest, "why", dmuon_split_explain(split), "machine",
                   dmuon_site_machine(&mesh->site) ? mesh->site.machine.source : "not looked at",
                   "ranks_with_gpu", split->ranks_with_gpu, "gpus_idle", split->gpus_idle);
}

static json_t *links_summary(DMuonMesh mesh) {
  json_t *all = json_object();
  for (int a = 0; a < 3; a++) {
    const dmuon_link *link = &mesh->links[a];
    json_object_set_new(
        all, axis_names[a],
        json_pack("{s:s, s:f, s:f, s:b}", "class", dmuon_link_name(link->link_class),
                  "latency_seconds", link->latency, "bytes_per_second", link->bandwidth, "measured",
                  link->is_measured));
  }
  return all;
}

DMuonErrorCode DMuonMeshSummary(DMuonMesh mesh, char **json) {
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if (!json) DMUON_FAIL(DMUON_ERR_ARGUMENT, "json is NULL; a place for the text is wanted");
  const dmuon_memory *memory = &mesh->context.memory;
  json_t *root = json_pack(
      "{s:s, s:s, s:b, s:i, s:i, s:o, s:o, s:i, s:i, s:b, s:s, s:f}", "class", "mesh", "name",
      mesh->object.name ? mesh->object.name : "mesh", "plan", mesh->bootstrap == NULL, "rank",
      mesh->rank, "size", mesh->size, "sizes", triple(mesh->sizes), "coords", triple(mesh->coords),
      "data_rank", dmuon_mesh_position(mesh) / mesh->sizes[2], "nodes", mesh->split.nodes.count,
      "renumbered", is_renumbered(mesh), "device", mesh->bootstrap ? mesh->settings.device : "plan",
      "timeout", mesh->settings.timeout);
  if (root) {
    json_object_set_new(root, "transport",
                        json_string(mesh->transport ? mesh->transport : "of the device"));
    json_object_set_new(root, "comm", comm_summary(mesh));
    json_object_set_new(root, "islands", islands_summary(mesh));
    json_object_set_new(root, "links", links_summary(mesh));
    json_object_set_new(
        root, "memory",
        json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)memory->bytes, "peak_bytes",
                  (json_int_t)memory->peak_bytes, "allocations", (json_int_t)memory->allocations));
    if (mesh->bootstrap)
      json_object_set_new(root, "mpi_calls",
                          json_integer((json_int_t)dmuon_bootstrap_mpi_calls(mesh->bootstrap)));
  }
  DMUON_TRY(dmuon_json_finish(root, json));
  return DMUON_SUCCESS;
}
