/* The mesh object: its life, what the program and the user wish, what it answers. Sizes and places
 * are decided in layout.c; setup.c carries them out. */
#include "mesh/mesh.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mesh/backends.h"
#include "mesh/device_agree.h"
#include "mesh/module.h"

static const char *const island_names[] = {"auto", "nvlink", "node", NULL};
const char *const dmuon_bind_names[] = {"none", "cores", "gpu", "all", NULL};

static const char *const reduce_names[] = {"ordered", "nccl", NULL};

static const dmuon_option_spec mesh_specs[] = {
    {"replicate", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, replicate), "decide", -1,
     INT32_MAX, NULL, "ranks of the replicate axis"},
    {"shard", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, shard), "decide", -1, INT32_MAX, NULL,
     "ranks of the shard axis; decide: those of an island"},
    {"tp", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, tp), "decide", -1, INT32_MAX, NULL,
     "ranks of the tp axis; decide: 1"},
    {"node_size", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, node_size), "0", 0, INT32_MAX,
     NULL, "pretend nodes of so many ranks; 0: as found"},
    {"topology", DMUON_OPTION_STRING, offsetof(dmuon_mesh_settings, topology), "auto", 0, 0, NULL,
     "the machine: an hwloc XML file or a text (node:16 gpu:8 nvlink:all ib:4); auto, detect, "
     "none"},
    {"island", DMUON_OPTION_ENUM, offsetof(dmuon_mesh_settings, island), "auto", 0, 0, island_names,
     "what a shard group stays inside: NVLink domain, node; auto: the first that gives one"},
    {"bind", DMUON_OPTION_ENUM, offsetof(dmuon_mesh_settings, bind), "none", 0, 0, dmuon_bind_names,
     "carry the proposed places out: cores until the process ends, the GPU at its PCI address"},
    {"measure_links", DMUON_OPTION_BOOL, offsetof(dmuon_mesh_settings, measure_links), "0", 0, 0,
     NULL, "measure latency and bandwidth of each axis at set-up"},
    {"timeout", DMUON_OPTION_REAL, offsetof(dmuon_mesh_settings, timeout), "300", 0, 1e9, NULL,
     "longest wait for another rank in seconds; 0: for ever"},
    {"device", DMUON_OPTION_STRING, offsetof(dmuon_mesh_settings, device), "host", 0, 0, NULL,
     "host, host:deferred,seed=N,staged,trace; cuda, cuda:ordinal=N,tf32,batched,staged,trace; "
     "trace on a plan mesh"},
    {"reduce", DMUON_OPTION_ENUM, offsetof(dmuon_mesh_settings, reduce), "ordered", 0, 0,
     reduce_names, "sums of a GPU: in the one order, or as NCCL adds them"},
    {"reduce_fanin", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, reduce_fanin), "32", 1,
     INT32_MAX, NULL, "reduce directly up to so many ranks, as a tree above"},
    {"chunk_bytes", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, chunk_bytes), "4194304", 0,
     1 << 30, NULL, "largest piece of a message, at least 64; 0: as the links' cost suggests"},
    {"module_path", DMUON_OPTION_STRING, offsetof(dmuon_mesh_settings, module_path), NULL, 0, 0,
     NULL, "directory of libdmuon_cuda.so; not said: where it was installed"},
    {"message_delay", DMUON_OPTION_REAL, offsetof(dmuon_mesh_settings, message_delay), "0", 0, 10,
     NULL, "hold every message back so long in seconds, for tests of overlap"},
    {"fail_allocation", DMUON_OPTION_INT, offsetof(dmuon_mesh_settings, fail_allocation), "0", 0,
     1e18, NULL, "fail the N-th allocation from SetUp on, for tests; may differ by rank"},
};
enum { REPLICATE, SHARD, TP, NODE_SIZE, TOPOLOGY, ISLAND, BIND, MEASURE_LINKS, TIMEOUT, DEVICE };

const dmuon_option_table dmuon_mesh_option_table = {"mesh", sizeof mesh_specs / sizeof *mesh_specs,
                                                    mesh_specs};

DMuonErrorCode dmuon_mesh_check(DMuonMesh mesh) {
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  if (!mesh->bootstrap) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_bootstrap_check_mpi());
  DMUON_TRY(dmuon_bootstrap_listen(mesh->bootstrap));
  return DMUON_SUCCESS;
}

void dmuon_mesh_retain(DMuonMesh mesh) {
  if (mesh) mesh->object.references++;
}

void dmuon_mesh_release(DMuonMesh mesh) {
  if (!mesh || --mesh->object.references > 0) return;
  mesh->object.class_id = 0;
  while (mesh->tie_count > 0) dmuon_mesh_untie(mesh, mesh->ties[0]);
  dmuon_memory_free(mesh->ties);
  if (mesh->bootstrap) dmuon_bootstrap_on_break(mesh->bootstrap, NULL, NULL);
  /* From a thread that may not call MPI: what is there stays there. */
  if (mesh->bootstrap && dmuon_bootstrap_check_mpi() == DMUON_ERR_THREAD) return;
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++)
      if (mesh->comms[axis][role]) mesh->comms[axis][role]->ops->free(mesh->comms[axis][role]);
  if (mesh->bootstrap) dmuon_bootstrap_set_progress(mesh->bootstrap, NULL, NULL);
  if (mesh->device) {
    mesh->device->ops->queue_destroy(mesh->copies);
    mesh->device->ops->destroy(mesh->device);
  }
  dmuon_mesh_forget_transport(mesh);
  dmuon_bootstrap_destroy(&mesh->bootstrap);
  dmuon_options_settings_free(&dmuon_mesh_option_table, &mesh->settings);
  dmuon_memory_free(mesh->node);
  dmuon_memory_free(mesh->island);
  dmuon_memory_free(mesh->rank_at);
  dmuon_site_free(&mesh->site);
  dmuon_memory_free(mesh->object.name);
  dmuon_context_free(&mesh->context);
  free(mesh);
}

/* The context lives in the mesh, so the mesh itself is not counted in it. */
static DMuonErrorCode mesh_new(DMuonMesh *mesh) {
  DMuonMesh made = calloc(1, sizeof *made);
  if (!made) DMUON_FAIL(DMUON_ERR_MEMORY, "no memory for a mesh of %zu bytes", sizeof *made);
  dmuon_context_init(&made->context);
  dmuon_object_init(&made->object, DMUON_CLASS_MESH, &made->context);
  for (int a = 0; a < 3; a++) made->given_coords[a] = -1;
  made->ordinal = DMUON_DECIDE;
  dmuon_mesh_add_table(made, &dmuon_mesh_option_table);
  DMuonErrorCode code =
      dmuon_options_defaults(&made->context.memory, &dmuon_mesh_option_table, &made->settings);
  if (code) {
    dmuon_mesh_release(made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *mesh = made;
  return DMUON_SUCCESS;
}

/* ---- breaking ---- */

static void give_up_work(DMuonMesh mesh, DMuonErrorCode code) {
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++)
      if (mesh->comms[axis][role]) mesh->comms[axis][role]->ops->abort(mesh->comms[axis][role]);
  if (mesh->device) dmuon_backend_break(mesh->device, code);
}

/* The bootstrap broke, and with it those of the meshes tied to it. */
static void on_break(void *argument, DMuonErrorCode code) {
  DMuonMesh mesh = argument;
  give_up_work(mesh, code);
  for (int i = 0; i < mesh->tie_count; i++)
    dmuon_bootstrap_follow(mesh->ties[i]->bootstrap, mesh->bootstrap);
}

void dmuon_mesh_break(DMuonMesh mesh, DMuonErrorCode code) {
  if (!DMuonErrorIsFatal(code)) return;
  if (mesh->bootstrap) dmuon_bootstrap_break(mesh->bootstrap, code);
  give_up_work(mesh, code);
}

DMuonErrorCode DMuonMeshRevoke(DMuonMesh mesh, const char *reason) {
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  if (!mesh->bootstrap)
    DMUON_FAIL(DMUON_ERR_STATE, "a plan mesh has no ranks that could be told to give up");
  DMUON_TRY(dmuon_bootstrap_check_mpi());
  DMUON_TRY(dmuon_bootstrap_revoke(mesh->bootstrap, reason ? reason : "no reason given"));
  return DMUON_SUCCESS;
}

static DMuonErrorCode add_tie(DMuonMesh mesh, DMuonMesh other) {
  if (mesh->tie_count == mesh->tie_capacity) {
    const int capacity = 2 * mesh->tie_capacity + 4;
    DMUON_TRY(dmuon_memory_resize(&mesh->context.memory, &mesh->ties, mesh->tie_capacity, capacity,
                                  sizeof *mesh->ties));
    mesh->tie_capacity = capacity;
  }
  mesh->ties[mesh->tie_count++] = other;
  return DMUON_SUCCESS;
}

static void remove_tie(DMuonMesh mesh, DMuonMesh other) {
  int i = 0;
  while (i < mesh->tie_count && mesh->ties[i] != other) i++;
  if (i < mesh->tie_count) mesh->ties[i] = mesh->ties[--mesh->tie_count];
}

DMuonErrorCode dmuon_mesh_tie(DMuonMesh a, DMuonMesh b) {
  if (!a || !b || a == b || !a->bootstrap || !b->bootstrap) return DMUON_SUCCESS;
  DMUON_TRY(add_tie(a, b));
  DMuonErrorCode code = add_tie(b, a);
  if (code) remove_tie(a, b);
  return code;
}

void dmuon_mesh_untie(DMuonMesh a, DMuonMesh b) {
  if (!a || !b || a == b) return;
  remove_tie(a, b);
  remove_tie(b, a);
}

/* ---- life ---- */

DMuonErrorCode DMuonMeshCreate(MPI_Comm comm, DMuonMesh *mesh) {
  if (!mesh) DMUON_FAIL(DMUON_ERR_ARGUMENT, "mesh is NULL; a place for the handle is wanted");
  DMUON_TRY(dmuon_bootstrap_check_mpi());
  DMuonMesh made = NULL;
  DMUON_TRY(mesh_new(&made));
  DMuonErrorCode code =
      dmuon_bootstrap_create(&made->context, comm, made->settings.timeout, &made->bootstrap);
  if (code) {
    dmuon_mesh_release(made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  made->rank = dmuon_bootstrap_rank(made->bootstrap);
  made->size = dmuon_bootstrap_size(made->bootstrap);
  dmuon_bootstrap_on_break(made->bootstrap, on_break, made);
  *mesh = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshCreateFortran(MPI_Fint comm, DMuonMesh *mesh) {
  DMUON_TRY(dmuon_bootstrap_check_mpi());
  DMUON_TRY(DMuonMeshCreate(MPI_Comm_f2c(comm), mesh));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshCreatePlan(int replicate, int shard, int tp, DMuonMesh *mesh) {
  if (!mesh) DMUON_FAIL(DMUON_ERR_ARGUMENT, "mesh is NULL; a place for the handle is wanted");
  if (replicate < 1 || shard < 1 || tp < 1 || (int64_t)replicate * shard > INT32_MAX / 2 / tp)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "a mesh of %d x %d x %d; each size must be at least 1, their product at most %d",
               replicate, shard, tp, INT32_MAX / 2);
  DMuonMesh made = NULL;
  DMUON_TRY(mesh_new(&made));
  made->size = made->plan_size = replicate * shard * tp;
  made->settings.replicate = replicate;
  made->settings.shard = shard;
  made->settings.tp = tp;
  for (int i = REPLICATE; i <= TP; i++) made->program[i] = 1;
  *mesh = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshDestroy(DMuonMesh *mesh) {
  if (!mesh || !*mesh) return DMUON_SUCCESS;
  DMuonMesh gone = *mesh;
  *mesh = NULL;
  if (gone->object.class_id == DMUON_CLASS_MESH) dmuon_mesh_release(gone);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_mesh_create_local_device(dmuon_context *context, dmuon_device **device) {
  DMUON_TRY(dmuon_backend_create_device(context, "host", 0, NULL, device));
  return DMUON_SUCCESS;
}

/* ---- wishes ---- */

/* A setter before SetUp, on a mesh that works. */
static DMuonErrorCode check_setter(DMuonMesh mesh, const char *call) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 0, call));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetName(DMuonMesh mesh, const char *name) {
  DMUON_TRY(check_setter(mesh, __func__));
  DMUON_TRY(dmuon_object_set_name(&mesh->object, name));
  if (mesh->bootstrap) dmuon_bootstrap_set_name(mesh->bootstrap, mesh->object.name);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetSizes(DMuonMesh mesh, int replicate, int shard, int tp) {
  DMUON_TRY(check_setter(mesh, __func__));
  const int sizes[3] = {replicate, shard, tp};
  int is_open = 0;
  for (int a = 0; a < 3; a++) {
    if (sizes[a] < 1 && sizes[a] != DMUON_DECIDE)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is %d, must be at least 1, or DMUON_DECIDE",
                 mesh_specs[a].name, sizes[a]);
    is_open |= sizes[a] == DMUON_DECIDE;
  }
  if (!mesh->bootstrap && !is_open && (int64_t)replicate * shard > INT32_MAX / 2 / tp)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "a mesh of %d x %d x %d has more than %d ranks", replicate,
               shard, tp, INT32_MAX / 2);
  mesh->settings.replicate = replicate;
  mesh->settings.shard = shard;
  mesh->settings.tp = tp;
  if (!mesh->bootstrap && !is_open) mesh->plan_size = replicate * shard * tp;
  for (int a = 0; a < 3; a++) mesh->program[a] = sizes[a] != DMUON_DECIDE;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetCoords(DMuonMesh mesh, int replicate, int shard, int tp) {
  DMUON_TRY(check_setter(mesh, __func__));
  if (replicate < 0 || shard < 0 || tp < 0)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "coordinates (%d, %d, %d): each must be at least 0", replicate,
               shard, tp);
  mesh->given_coords[0] = replicate;
  mesh->given_coords[1] = shard;
  mesh->given_coords[2] = tp;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetDevice(DMuonMesh mesh, DMuonDevice device, int ordinal) {
  DMUON_TRY(check_setter(mesh, __func__));
  static const char *const names[] = {"host", "cuda", "trace"};
  if ((int)device < 0 || device > DMUON_DEVICE_TRACE)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "device %d is none of host, cuda, trace", (int)device);
  if (ordinal < DMUON_DECIDE)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "ordinal %d must be at least 0, or DMUON_DECIDE", ordinal);
  if (device == DMUON_DEVICE_CUDA && !dmuon_module_is_built(names[device]))
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "backend %s is not compiled in; this library has host and trace", names[device]);
  DMUON_TRY(dmuon_options_store(&mesh->context.memory, &mesh_specs[DEVICE], names[device],
                                &mesh->settings));
  mesh->program[DEVICE] = 1;
  mesh->ordinal = ordinal;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetLogger(DMuonMesh mesh, DMuonLogFunction log, void *ctx) {
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  mesh->context.logger.function = log;
  mesh->context.logger.context = ctx;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetTimeout(DMuonMesh mesh, double seconds) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  if (!isfinite(seconds) || seconds < 0 || seconds > mesh_specs[TIMEOUT].high)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "timeout of %g seconds, must be in [0, %g] (0: for ever)",
               seconds, mesh_specs[TIMEOUT].high);
  if (mesh->object.is_set_up) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", seconds);
    DMUON_TRY(dmuon_options_note_live(&mesh->context.options, mesh->object.name, "timeout", text));
  }
  mesh->settings.timeout = seconds;
  mesh->program[TIMEOUT] = 1;
  if (mesh->bootstrap) dmuon_bootstrap_set_timeout(mesh->bootstrap, seconds);
  if (mesh->device) dmuon_backend_set_timeout(mesh->device, seconds);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetFromOptions(DMuonMesh mesh, int *argc, char **argv) {
  DMUON_TRY(check_setter(mesh, __func__));
  DMUON_TRY(dmuon_options_read(&mesh->context.options, argc, argv));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshSetOption(DMuonMesh mesh, const char *name, const char *value) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  const char *dot = name ? strrchr(name, '.') : NULL;
  if (name && mesh->object.is_set_up &&
      dmuon_options_find(&dmuon_mesh_option_table, dot ? dot + 1 : name) >= 0)
    DMUON_FAIL(DMUON_ERR_STATE, "option %s: the mesh is set up already; say it before", name);
  DMUON_TRY(dmuon_options_say(&mesh->context.options, name, value, DMUON_SOURCE_COMMAND_LINE));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshGetOption(DMuonMesh mesh, const char *name, const char **value,
                                  const char **source) {
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  DMUON_TRY(dmuon_options_get(&mesh->context.options, name, value, source));
  return DMUON_SUCCESS;
}

void dmuon_mesh_add_table(DMuonMesh mesh, const dmuon_option_table *table) {
  for (int i = 0; i < mesh->table_count; i++)
    if (mesh->tables[i] == table) return;
  if (mesh->table_count < (int)(sizeof mesh->tables / sizeof *mesh->tables))
    mesh->tables[mesh->table_count++] = table;
}

/* ---- answers ---- */

DMuonErrorCode DMuonMeshGetSizes(DMuonMesh mesh, int *replicate, int *shard, int *tp) {
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if (replicate) *replicate = mesh->sizes[DMUON_AXIS_REPLICATE];
  if (shard) *shard = mesh->sizes[DMUON_AXIS_SHARD];
  if (tp) *tp = mesh->sizes[DMUON_AXIS_TP];
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshGetCoords(DMuonMesh mesh, int *replicate, int *shard, int *tp) {
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if (replicate) *replicate = mesh->coords[DMUON_AXIS_REPLICATE];
  if (shard) *shard = mesh->coords[DMUON_AXIS_SHARD];
  if (tp) *tp = mesh->coords[DMUON_AXIS_TP];
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshGetDataRank(DMuonMesh mesh, int *rank, int *size) {
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if (rank) *rank = dmuon_mesh_position(mesh) / mesh->sizes[DMUON_AXIS_TP];
  if (size) *size = mesh->sizes[DMUON_AXIS_REPLICATE] * mesh->sizes[DMUON_AXIS_SHARD];
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshGetCommInfo(DMuonMesh mesh, DMuonAxis axis, DMuonCommInfo *info) {
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if ((int)axis < 0 || axis > DMUON_AXIS_ALL)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "axis %d is none of replicate, shard, tp, all", (int)axis);
  if (!info || info->struct_size < sizeof info->struct_size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "info %s; set info.struct_size = sizeof info (%zu)",
               info ? "says no size" : "is NULL", sizeof *info);
  DMuonCommInfo sum = {.struct_size = info->struct_size};
  for (int a = 0; a < 3; a++) {
    if (axis != DMUON_AXIS_ALL && (int)axis != a) continue;
    for (int role = 0; role < 2; role++) {
      if (!mesh->comms[a][role]) continue;
      const dmuon_comm_counters *counters = &mesh->comms[a][role]->counters;
      sum.operations += counters->operations;
      sum.bytes_sent += counters->bytes;
      sum.seconds_waited += counters->seconds_waited;
    }
  }
  memcpy(info, &sum, sum.struct_size < sizeof sum ? sum.struct_size : sizeof sum);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshProgress(DMuonMesh mesh) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  if (!mesh->device) return DMUON_SUCCESS;
  DMuonErrorCode code = mesh->device->ops->progress(mesh->device);
  dmuon_mesh_break(mesh, code);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

dmuon_comm *dmuon_mesh_comm(DMuonMesh mesh, DMuonAxis axis, dmuon_role role) {
  return axis > DMUON_AXIS_TP ? NULL : mesh->comms[axis][role];
}

int dmuon_mesh_position(DMuonMesh mesh) {
  return (mesh->coords[0] * mesh->sizes[1] + mesh->coords[1]) * mesh->sizes[2] + mesh->coords[2];
}

int dmuon_mesh_is_plan(DMuonMesh mesh) {
  return mesh->bootstrap == NULL;
}
