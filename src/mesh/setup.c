/* Carries a mesh out: options agreed, nodes found, ranks placed, device and communicators made.
 * Whatever goes wrong on one rank comes out on all of them, and the mesh is then as it was. */
#include <stdio.h>
#include <string.h>

#include "mesh/backends.h"
#include "mesh/device_agree.h"
#include "mesh/links.h"
#include "mesh/mesh.h"

static const char agreeing[] = "setting up the mesh";

static int may_differ(const char *name, size_t length) {
  static const char word[] = "fail_allocation";
  const char *dot = memchr(name, '.', length);
  if (dot) length -= (size_t)(dot + 1 - name), name = dot + 1;
  return length == sizeof word - 1 && memcmp(name, word, length) == 0;
}

/* The mesh's settings in force, then everything said, for later objects too. */
static DMuonErrorCode list_options(DMuonMesh mesh, dmuon_text *text) {
  const dmuon_option_table *table = &dmuon_mesh_option_table;
  for (int i = 0; i < table->count; i++) {
    const char *name = table->specs[i].name, *value = NULL;
    char full[256];
    if (may_differ(name, strlen(name))) continue;
    snprintf(full, sizeof full, "%s%s%s", mesh->object.name ? mesh->object.name : "",
             mesh->object.name ? "." : "", name);
    DMUON_TRY(dmuon_options_get(&mesh->context.options, full, &value, NULL));
    dmuon_text_add(text, "%s=%s\n", name, value);
  }
  dmuon_text said;
  const char *line = NULL;
  dmuon_text_init(&said, &mesh->context.memory);
  dmuon_options_list(&mesh->context.options, &said);
  DMuonErrorCode code = dmuon_text_finish(&said, &line);
  while (!code && *line) {
    const char *end = strchr(line, '\n');
    if (!end) end = line + strlen(line);
    const char *equals = memchr(line, '=', (size_t)(end - line));
    if (!may_differ(line, (size_t)((equals ? equals : end) - line)))
      dmuon_text_add(text, "%.*s\n", (int)(end - line), line);
    line = *end ? end + 1 : end;
  }
  dmuon_text_free(&said);
  return code;
}

static DMuonErrorCode apply_options(DMuonMesh mesh) {
  dmuon_memory *memory = &mesh->context.memory;
  DMUON_TRY(dmuon_options_apply(&mesh->context.options, &dmuon_mesh_option_table, mesh->object.name,
                                mesh->program, &mesh->settings));
  if (mesh->settings.chunk_bytes > 0 && mesh->settings.chunk_bytes < 64)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "chunk_bytes is %lld, must be at least 64, or 0: from the links",
               (long long)mesh->settings.chunk_bytes);
  int64_t fail = mesh->settings.fail_allocation;
  memory->fail_at = fail > 0 ? memory->allocations + fail : 0;
  return DMUON_SUCCESS;
}

static DMuonErrorCode agree_options(DMuonMesh mesh) {
  dmuon_text text;
  dmuon_text_init(&text, &mesh->context.memory);
  DMuonErrorCode code = apply_options(mesh);
  if (!code) code = list_options(mesh, &text);
  code = dmuon_mesh_agree_text(mesh, "options", code, &text);
  dmuon_text_free(&text);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

/* Where the ranks are and stand, before anything of it is stored in the mesh. */
typedef struct {
  int size, sizes[3];
  int *node, *island, *rank_at;
  dmuon_site site;
  dmuon_split split;
  dmuon_size_reason reasons[3];
  dmuon_link links[3];
} placing;

static void placing_free(placing *p) {
  dmuon_memory_free(p->node);
  dmuon_memory_free(p->island);
  dmuon_memory_free(p->rank_at);
  dmuon_site_free(&p->site);
}

static DMuonErrorCode place_by_coords(DMuonMesh mesh, const int64_t want[3], placing *p) {
  int(*coords)[3] = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(&mesh->context.memory, p->size, sizeof *coords, &coords);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, code));
  /* No two ranks fill in the same place; -1 elsewhere. */
  for (int i = 0; i < p->size; i++)
    for (int a = 0; a < 3; a++) coords[i][a] = i == mesh->rank ? mesh->given_coords[a] : -1;
  code = dmuon_agree_reduce(mesh->bootstrap, "gathering coordinates", coords,
                            (int64_t)sizeof *coords * p->size, dmuon_agree_larger, NULL);
  if (!code)
    code = dmuon_layout_from_coords(p->size, (const int(*)[3])coords, want, p->sizes, p->reasons,
                                    p->rank_at);
  dmuon_memory_free(coords);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

/* Whether any rank gave coordinates. */
static DMuonErrorCode ask_for_coords(DMuonMesh mesh, int *any) {
  *any = mesh->bootstrap && mesh->given_coords[0] >= 0;
  if (!mesh->bootstrap) return DMUON_SUCCESS; /* every rank stands where the order puts it */
  return dmuon_agree_reduce(mesh->bootstrap, agreeing, any, sizeof *any, dmuon_agree_larger, NULL);
}

/* How many ranks a plan has: those of its sizes, or, where some are left to the machine, as many as
 * were said last. */
static DMuonErrorCode count_planned(DMuonMesh mesh, const int64_t want[3], int *size) {
  const int is_open = want[0] < 0 || want[1] < 0 || want[2] < 0;
  *size = mesh->plan_size;
  if (is_open) return DMUON_SUCCESS;
  if (want[0] < 1 || want[1] < 1 || want[2] < 1 || want[0] * want[1] > INT32_MAX / 2 / want[2])
    DMUON_FAIL(DMUON_ERR_SETUP,
               "a plan mesh of %lld x %lld x %lld; each size must be at least 1, their product "
               "at most %d",
               (long long)want[0], (long long)want[1], (long long)want[2], INT32_MAX / 2);
  *size = (int)(want[0] * want[1] * want[2]);
  return DMUON_SUCCESS;
}

/* Nodes, machine, devices. A real mesh has its device from here on. */
static DMuonErrorCode find_site(DMuonMesh mesh, const int64_t want[3], placing *p) {
  p->size = mesh->size;
  if (!mesh->bootstrap) {
    DMUON_TRY(count_planned(mesh, want, &p->size));
    const int is_open = want[0] < 0 || want[1] < 0 || want[2] < 0;
    DMUON_TRY(dmuon_site_plan(mesh, p->size, is_open ? p->size : want[1] * want[2], &p->site));
    if (is_open && !dmuon_site_machine(&p->site))
      DMUON_FAIL(DMUON_ERR_SETUP,
                 "a plan mesh has no machine to ask: give all its sizes, or say topology");
    return DMUON_SUCCESS;
  }
  DMUON_TRY(dmuon_site_find(mesh, &p->site));
  if (mesh->settings.bind != DMUON_BIND_NONE)
    DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, dmuon_site_bind_gpu(mesh, &p->site)));
  /* Before the ranks are placed: which GPU a rank has is part of where it is. */
  DMUON_TRY(dmuon_mesh_make_device(mesh));
  DMUON_TRY(dmuon_site_find_gpus(mesh, &p->site));
  if (mesh->settings.bind != DMUON_BIND_NONE)
    DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, dmuon_site_bind_cores(mesh, &p->site)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode order_ranks(DMuonMesh mesh, const dmuon_machine *machine, placing *p) {
  dmuon_memory *memory = &mesh->context.memory;
  int *levels[DMUON_SPLIT_LEVELS] = {NULL};
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int k = 0; k < DMUON_SPLIT_LEVELS && !code; k++)
    code = dmuon_memory_alloc(memory, p->size, sizeof *levels[k], &levels[k]);
  if (!code)
    code = dmuon_split_levels(memory, machine, p->size, p->site.places, p->island, p->node, levels);
  if (!code)
    code = dmuon_layout_order(memory, p->size, DMUON_SPLIT_LEVELS, (const int *const *)levels,
                              p->sizes, p->rank_at);
  for (int k = 0; k < DMUON_SPLIT_LEVELS; k++) dmuon_memory_free(levels[k]);
  return code;
}

static DMuonErrorCode find_links(DMuonMesh mesh, placing *p) {
  for (int axis = 0; axis < 3; axis++)
    DMUON_TRY(dmuon_cost_axis(&mesh->context.memory, dmuon_site_machine(&p->site), p->size,
                              p->site.places, p->sizes, p->rank_at, axis, &p->links[axis]));
  return DMUON_SUCCESS;
}

/* Sizes and order from the islands, and what the axes cost then. */
static DMuonErrorCode place(DMuonMesh mesh, const int64_t want[3], int by_coords, placing *p) {
  dmuon_memory *memory = &mesh->context.memory;
  const dmuon_machine *machine = dmuon_site_machine(&p->site);
  DMUON_TRY(dmuon_memory_alloc(memory, p->size, sizeof *p->node, &p->node));
  DMUON_TRY(dmuon_memory_alloc(memory, p->size, sizeof *p->island, &p->island));
  DMUON_TRY(dmuon_memory_alloc(memory, p->size, sizeof *p->rank_at, &p->rank_at));
  DMUON_TRY(dmuon_split_islands(memory, machine, p->size, p->site.places,
                                (dmuon_island_policy)mesh->settings.island, p->island, p->node,
                                &p->split));
  if (by_coords) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_layout_sizes(p->size, &p->split.islands, want, p->sizes, p->reasons));
  DMUON_TRY(order_ranks(mesh, machine, p));
  DMUON_TRY(find_links(mesh, p));
  return DMUON_SUCCESS;
}

static DMuonErrorCode find_places(DMuonMesh mesh, placing *p) {
  const int64_t want[3] = {mesh->settings.replicate, mesh->settings.shard, mesh->settings.tp};
  int by_coords = 0;
  DMUON_TRY(find_site(mesh, want, p));
  DMUON_TRY(ask_for_coords(mesh, &by_coords));
  DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, place(mesh, want, by_coords, p)));
  if (!by_coords) return DMUON_SUCCESS;
  DMUON_TRY(place_by_coords(mesh, want, p));
  DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, find_links(mesh, p)));
  return DMUON_SUCCESS;
}

/* Coordinates of a plan mesh say which of its ranks this process plays. */
static DMuonErrorCode check_played(const int sizes[3], const int coords[3]) {
  for (int a = 0; a < 3; a++)
    if (coords[a] < 0 || coords[a] >= sizes[a])
      DMUON_FAIL(DMUON_ERR_SETUP, "coordinates (%d, %d, %d) are not in the plan of %dx%dx%d",
                 coords[0], coords[1], coords[2], sizes[0], sizes[1], sizes[2]);
  return DMUON_SUCCESS;
}

static void play(DMuonMesh mesh, const int coords[3]) {
  memcpy(mesh->coords, coords, sizeof mesh->coords);
  mesh->rank = mesh->rank_at[dmuon_mesh_position(mesh)];
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++) {
      dmuon_comm *comm = mesh->comms[axis][role];
      if (!comm) continue;
      comm->rank = mesh->coords[axis];
      comm->size = mesh->sizes[axis];
      memset(&comm->counters, 0, sizeof comm->counters);
    }
}

DMuonErrorCode dmuon_mesh_play(DMuonMesh mesh, int replicate, int shard, int tp) {
  const int coords[3] = {replicate, shard, tp};
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if (mesh->bootstrap) DMUON_FAIL(DMUON_ERR_STATE, "a mesh of real ranks plays none; plans do");
  DMUON_TRY(check_played(mesh->sizes, coords));
  play(mesh, coords);
  return DMUON_SUCCESS;
}

static void take_places(DMuonMesh mesh, placing *p) {
  dmuon_memory_free(mesh->node);
  dmuon_memory_free(mesh->island);
  dmuon_memory_free(mesh->rank_at);
  dmuon_site_free(&mesh->site);
  mesh->node = p->node;
  mesh->island = p->island;
  mesh->rank_at = p->rank_at;
  mesh->site = p->site;
  mesh->split = p->split;
  p->node = p->island = p->rank_at = NULL;
  p->site = (dmuon_site){0};
  memcpy(mesh->links, p->links, sizeof mesh->links);
  mesh->size = p->size;
  int position = 0;
  while (mesh->rank_at[position] != mesh->rank) position++;
  for (int a = 0; a < 3; a++) {
    mesh->sizes[a] = p->sizes[a];
    mesh->reasons[a] = p->reasons[a];
  }
  mesh->coords[2] = position % p->sizes[2];
  mesh->coords[1] = position / p->sizes[2] % p->sizes[1];
  mesh->coords[0] = position / p->sizes[2] / p->sizes[1];
}

/* How messages are cut, once it is known what links cost. */
static void set_chunks(DMuonMesh mesh) {
  mesh->chunk_bytes = mesh->settings.chunk_bytes;
  for (int axis = 0; axis < 3 && mesh->settings.chunk_bytes == 0; axis++) {
    const int64_t chunk = dmuon_cost_chunk(&mesh->links[axis]);
    if (mesh->sizes[axis] > 1 && chunk > mesh->chunk_bytes) mesh->chunk_bytes = chunk;
  }
  if (mesh->chunk_bytes == 0) mesh->chunk_bytes = 1 << 16; /* nothing is sent */
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++)
      if (mesh->comms[axis][role]) mesh->comms[axis][role]->chunk_bytes = mesh->chunk_bytes;
}

static DMuonErrorCode make_comms(DMuonMesh mesh, dmuon_comm *comms[3][2]) {
  const DMuonCommOps *ops = dmuon_mesh_comm_ops(mesh);
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < (axis == DMUON_AXIS_TP ? 1 : 2); role++) {
      code = ops->create(mesh->device, mesh->bootstrap, (DMuonAxis)axis, (dmuon_role)role,
                         &comms[axis][role]);
      /* Agreed one by one: creation is collective over the bootstrap. */
      DMUON_TRY(dmuon_mesh_agree_error(mesh, "making communicators", code));
      comms[axis][role]->fanin = (int)mesh->settings.reduce_fanin;
    }
  return DMUON_SUCCESS;
}

/* After a failure: as before SetUp. */
static void drop_device(DMuonMesh mesh) {
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++) {
      if (mesh->comms[axis][role]) mesh->comms[axis][role]->ops->free(mesh->comms[axis][role]);
      mesh->comms[axis][role] = NULL;
    }
  if (mesh->bootstrap) dmuon_bootstrap_set_progress(mesh->bootstrap, NULL, NULL);
  if (mesh->device) mesh->device->ops->destroy(mesh->device);
  mesh->device = NULL;
  dmuon_mesh_forget_transport(mesh);
}

/* The device of a plan mesh, where one was asked for that can do without ranks. */
static DMuonErrorCode make_plan_device(DMuonMesh mesh) {
  static const int first[3] = {0, 0, 0};
  const int *coords = mesh->given_coords[0] >= 0 ? mesh->given_coords : first;
  DMUON_TRY(check_played(mesh->sizes, coords));
  if (dmuon_backend_is_for_plans(mesh->settings.device)) {
    DMUON_TRY(
        dmuon_backend_create_device(&mesh->context, mesh->settings.device, 0, NULL, &mesh->device));
    DMUON_TRY(make_comms(mesh, mesh->comms));
  }
  set_chunks(mesh);
  play(mesh, coords);
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_all_comms(DMuonMesh mesh) {
  dmuon_comm *comms[3][2] = {{NULL}};
  if (!mesh->is_split)
    DMUON_TRY(dmuon_bootstrap_split(mesh->bootstrap, mesh->sizes[0], mesh->sizes[1], mesh->sizes[2],
                                    mesh->rank_at));
  mesh->is_split = 1;
  DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, dmuon_mesh_choose_transport(mesh)));
  DMuonErrorCode code = make_comms(mesh, comms);
  memcpy(mesh->comms, comms, sizeof comms); /* given back with the device when one is missing */
  DMUON_TRY(code);
  if (mesh->settings.measure_links) DMUON_TRY(dmuon_links_measure(mesh, mesh->links));
  set_chunks(mesh);
  return DMUON_SUCCESS;
}

/* A second SetUp after one that failed late: the communicators made then are kept. */
static DMuonErrorCode check_split(DMuonMesh mesh, const placing *p) {
  if (!mesh->is_split) return DMUON_SUCCESS;
  if (memcmp(mesh->sizes, p->sizes, sizeof p->sizes) ||
      memcmp(mesh->rank_at, p->rank_at, (size_t)p->size * sizeof *p->rank_at))
    DMUON_FAIL(DMUON_ERR_SETUP,
               "an earlier SetUp already made communicators for %dx%dx%d; destroy this mesh and "
               "create another for %dx%dx%d",
               mesh->sizes[0], mesh->sizes[1], mesh->sizes[2], p->sizes[0], p->sizes[1],
               p->sizes[2]);
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_up(DMuonMesh mesh) {
  placing p = {0};
  DMUON_TRY(agree_options(mesh));
  if (mesh->bootstrap) dmuon_bootstrap_set_timeout(mesh->bootstrap, mesh->settings.timeout);
  DMuonErrorCode code = find_places(mesh, &p);
  if (!code) code = check_split(mesh, &p);
  if (!code) {
    take_places(mesh, &p);
    code = mesh->bootstrap ? make_all_comms(mesh) : make_plan_device(mesh);
  }
  placing_free(&p);
  if (code) drop_device(mesh);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetUp(DMuonMesh mesh) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  if (mesh->object.is_set_up) return DMUON_SUCCESS;
  DMuonErrorCode code = set_up(mesh);
  if (code) mesh->context.memory.fail_at = 0; /* as it was */
  DMUON_TRY(code);
  mesh->object.is_set_up = 1;
  dmuon_log(&mesh->context.logger, 2, "mesh%s%s: replicate %d x shard %d x tp %d on %d node%s, %s",
            mesh->object.name ? " " : "", mesh->object.name ? mesh->object.name : "",
            mesh->sizes[0], mesh->sizes[1], mesh->sizes[2], mesh->split.nodes.count,
            mesh->split.nodes.count == 1 ? "" : "s",
            mesh->bootstrap ? mesh->settings.device : "plan");
  return DMUON_SUCCESS;
}
