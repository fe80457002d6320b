/* The registry put together over ranks: the same everywhere, whatever ranks hold which parameters;
 * and cases that must not hang: meshes of every shape named in any order. Any number of ranks. */
#include <dmuon.h>

#include "mesh/mesh.h"
#include "model/model.h"
#include "tap_mpi.h"

static const int64_t dims[] = {8, 6};

static DMuonMesh mesh_of(MPI_Comm comm, int replicate, int shard, const char *name) {
  DMuonMesh mesh = NULL;
  DMuonErrorCode code = DMuonMeshCreate(comm, &mesh);
  if (!code) code = DMuonMeshSetSizes(mesh, replicate, shard, 1);
  if (!code) code = DMuonMeshSetName(mesh, name);
  if (!code) code = DMuonMeshSetTimeout(mesh, 20);
  if (code) fprintf(stderr, "# %s\n", DMuonErrorGetMessage());
  return mesh;
}

static int set_up(DMuonModel model) {
  DMuonErrorCode code = DMuonModelSetUp(model);
  if (code) fprintf(stderr, "# [%d] %s\n", tap_rank, DMuonErrorGetMessage());
  return code == DMUON_SUCCESS;
}

/* Equal on all ranks. */
static int same_hash(DMuonModel model) {
  uint64_t mine = model->registry.hash, low = 0, high = 0;
  MPI_Request request[2];
  MPI_Iallreduce(&mine, &low, 1, MPI_UINT64_T, MPI_MIN, tap_comm, &request[0]);
  MPI_Iallreduce(&mine, &high, 1, MPI_UINT64_T, MPI_MAX, tap_comm, &request[1]);
  tap_mpi_wait(&request[0]);
  tap_mpi_wait(&request[1]);
  return low == high;
}

/* Each rank's ids and the registry's indices lead to each other, and to the same name. */
static int maps_agree(DMuonModel model) {
  const dmuon_registry *registry = &model->registry;
  int held = 0;
  for (int i = 0; i < registry->param_count; i++) {
    int id = registry->global_to_local[i];
    const dmuon_registry_mesh *mesh = &registry->meshes[registry->params[i].mesh];
    if ((id >= 0) != (mesh->mesh != NULL)) return 0; /* held just where its mesh is */
    if (id < 0) continue;
    held++;
    if (registry->local_to_global[id] != i) return 0;
    if (strcmp(model->params[id].name, registry->params[i].name) != 0) return 0;
    if (mesh->ranks[dmuon_mesh_position(mesh->mesh)] != dmuon_mesh_position(model->mesh)) return 0;
  }
  return held == model->count && registry->local_count == model->count;
}

static void all_the_same(void) {
  DMuonMesh mesh = mesh_of(MPI_COMM_WORLD, 1, tap_size, "all");
  DMuonModel model = NULL;
  DMuonModelCreate(mesh, &model);
  DMuonModelAddStack(model, "h.%d.weight", 0, 5, DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelAddParam(model, "head.weight", DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelSetRoute(model, "h.3.*", DMUON_ROUTE_FROZEN);
  tap_ok(set_up(model), "the same on all ranks: set up");
  tap_is_int(model->registry.param_count, 6, "six parameters");
  tap_is_int(model->registry.mesh_count, 1, "one mesh");
  tap_ok(same_hash(model) && maps_agree(model), "one registry");
  DMuonParamInfo info = {.struct_size = sizeof info};
  DMuonModelGetParam(model, 3, &info);
  tap_ok(
      info.route == DMUON_ROUTE_FROZEN && info.copies == tap_size && info.divisor_ranks == tap_size,
      "copies and divisor: all");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

/* A rank without parameters, in a model without any. */
static void nothing(void) {
  DMuonMesh mesh = mesh_of(MPI_COMM_WORLD, tap_size, 1, "all");
  DMuonModel model = NULL;
  DMuonModelCreate(mesh, &model);
  tap_ok(set_up(model), "no parameters at all");
  tap_is_int(model->registry.param_count, 0, "an empty registry");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

/* Pipeline: half the ranks a stage, each stage its layers; the embedding on all, its losses a
 * stage's. With an odd number of ranks the last stage is larger: then only the layers. */
static void pipeline(void) {
  int half = tap_size / 2 ? tap_size / 2 : 1, stage = tap_rank >= half, even = tap_size % 2 == 0;
  int members = stage ? tap_size - half : half;
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, stage, tap_rank, &comm);
  DMuonMesh all = mesh_of(MPI_COMM_WORLD, DMUON_DECIDE, DMUON_DECIDE, "all");
  DMuonMesh mine = mesh_of(comm, 1, members, "stage");
  MPI_Comm_free(&comm);
  DMuonModel model = NULL;
  DMuonModelCreate(all, &model);
  for (int chunk = 0; chunk < 2; chunk++)
    DMuonModelAddStack(model, "layers.%d.weight", 2 * chunk + stage, 1, DMUON_FLOAT32, 2, dims,
                       NULL);
  DMuonModelAddParam(model, "embed.weight", DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelSetMesh(model, "layers.*", mine, NULL);
  if (even) DMuonModelSetMesh(model, "embed.weight", all, mine);
  DMuonMeshDestroy(&mine); /* the model keeps it */
  tap_ok(set_up(model), "pipeline stages: set up");
  int stages = tap_size > 1 ? 2 : 1;
  tap_is_int(model->registry.param_count, 2 * stages + 1, "every stage's layers and the embedding");
  tap_is_int(model->registry.mesh_count, stages > 1 ? 3 : 1, "a mesh each, and the whole");
  tap_ok(same_hash(model) && maps_agree(model), "one registry");
  tap_is_string(model->registry.params[0].name, "layers.0.weight", "rank 0's first");
  tap_is_string(model->registry.params[2].name, "embed.weight", "then its others");
  if (stages > 1)
    tap_is_string(model->registry.params[4].name, "layers.3.weight", "then the other stage's");
  DMuonParamInfo info = {.struct_size = sizeof info};
  DMuonModelGetParam(model, 0, &info);
  tap_ok(info.copies == members && info.divisor_ranks == members, "a layer's copies and divisor");
  DMuonModelGetParam(model, 2, &info);
  tap_ok(info.copies == tap_size && info.divisor_ranks == (even ? members : tap_size),
         "the embedding's");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&all);
}

/* Experts: rank r holds a copy of expert r mod 2, the losses are everyone's; and the rules name the
 * meshes in another order on every other rank, with one mesh of the same ranks twice. */
static void experts(void) {
  int x = tap_rank % 2, kinds = tap_size > 1 ? 2 : 1;
  int members = (tap_size + kinds - 1 - x) / kinds;
  MPI_Comm same, pair;
  MPI_Comm_split(MPI_COMM_WORLD, x, tap_rank, &same);
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &pair);
  int pair_size;
  MPI_Comm_size(pair, &pair_size);
  DMuonMesh all = mesh_of(MPI_COMM_WORLD, 1, tap_size, "all");
  DMuonMesh copies = mesh_of(same, members, 1, "copies"),
            again = mesh_of(same, members, 1, "again");
  DMuonMesh two = mesh_of(pair, 1, pair_size, "pair");
  MPI_Comm_free(&same);
  MPI_Comm_free(&pair);
  DMuonModel model = NULL;
  char name[64];
  DMuonModelCreate(all, &model);
  DMuonModelAddParam(model, "layers.0.attn.weight", DMUON_FLOAT32, 2, dims, NULL);
  snprintf(name, sizeof name, "layers.0.experts.%d.weight", x);
  DMuonModelAddParam(model, name, DMUON_FLOAT32, 2, dims, NULL);
  snprintf(name, sizeof name, "layers.0.pairs.%d.weight", tap_rank / 2);
  DMuonModelAddParam(model, name, DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelAddParam(model, "layers.0.more.weight", DMUON_FLOAT32, 2, dims, NULL);
  if (x) DMuonModelSetMesh(model, "*.pairs.*", two, NULL);
  DMuonModelSetMesh(model, "*.experts.*", copies, all);
  DMuonModelSetMesh(model, "*.experts.*", again, all);
  if (!x) DMuonModelSetMesh(model, "*.pairs.*", two, NULL);
  tap_ok(set_up(model), "experts: set up");
  int pairs = (tap_size + 1) / 2;
  tap_is_int(model->registry.param_count, 2 + kinds + pairs, "every expert and every pair once");
  tap_ok(same_hash(model) && maps_agree(model), "one registry");
  DMuonParamInfo info = {.struct_size = sizeof info};
  DMuonModelGetParam(model, 1, &info);
  tap_ok(info.copies == members && info.divisor_ranks == tap_size,
         "copies on equal ranks, losses of all");
  const dmuon_registry_mesh *mesh = &model->registry.meshes[model->params[1].mesh];
  tap_ok(tap_size == 1 || mesh->mesh == again, "the mesh that was said last");
  tap_ok(mesh->size < 2 || mesh->ranks[1] - mesh->ranks[0] == 2, "its ranks by position");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&two);
  DMuonMeshDestroy(&again);
  DMuonMeshDestroy(&copies);
  DMuonMeshDestroy(&all);
}

/* Ranks renumbered by the mesh: cyclic nodes. Positions are not ranks then. */
static void renumbered(void) {
  DMuonMesh all = mesh_of(MPI_COMM_WORLD, DMUON_DECIDE, DMUON_DECIDE, "all"), last = NULL;
  if (tap_size % 2 == 0) {
    /* Coordinates given so that rank r sits at position (r + size/2) mod size. */
    DMuonMeshSetSizes(all, 1, tap_size, 1);
    DMuonMeshSetCoords(all, 0, (tap_rank + tap_size / 2) % tap_size, 0);
  }
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank == tap_size - 1, 0, &comm);
  last = mesh_of(comm, 1, tap_rank == tap_size - 1 ? 1 : tap_size - 1, "last or others");
  MPI_Comm_free(&comm);
  DMuonModel model = NULL;
  DMuonModelCreate(all, &model);
  DMuonModelAddParam(model, tap_rank == tap_size - 1 ? "h.1.weight" : "h.0.weight", DMUON_FLOAT32,
                     2, dims, NULL);
  DMuonModelSetMesh(model, "h.*", last, NULL);
  tap_ok(set_up(model), "positions that are not ranks: set up");
  tap_ok(same_hash(model) && maps_agree(model), "one registry");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&last);
  DMuonMeshDestroy(&all);
}

static void view(void) {
  const char *path = "model_agree_view.txt";
  DMuonMesh mesh = mesh_of(MPI_COMM_WORLD, 1, tap_size, "all");
  DMuonModel model = NULL;
  DMuonModelCreate(mesh, &model);
  DMuonModelAddParam(model, "h.0.weight", DMUON_FLOAT32, 2, dims, NULL);
  tap_ok(set_up(model), "set up");
  tap_is_int(DMuonModelView(model, path), DMUON_SUCCESS, "viewed");
  int lines = 0;
  if (tap_rank == 0) {
    char line[512];
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in)) lines += strstr(line, "h.0.weight fp32 8x6") != NULL;
    if (in) fclose(in);
    remove(path);
  }
  tap_is_int(lines, tap_rank == 0, "once, by rank 0");
  tap_is_int(DMuonModelView(model, "/nowhere/at/all"), DMUON_ERR_FILE,
             "a file that cannot be written: every rank is told");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  all_the_same();
  nothing();
  pipeline();
  experts();
  renumbered();
  view();
  return tap_mpi_done();
}
