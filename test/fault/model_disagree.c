/* Ranks that do not say the same, or one that made a mistake: found at set-up, named with values
 * and ranks, the same code on all ranks, no hang, and the model can be set up once corrected. 4
 * ranks. */
#include <dmuon.h>

#include "mesh/mesh.h"
#include "model/model.h"
#include "left_to_mpi.h"
#include "tap_mpi.h"

static const int64_t dims[] = {8, 6}, turned[] = {6, 8}, sizes[] = {4, 4};
static DMuonMesh all;

/* Three parameters everywhere; what is special about rank 2 comes from the case. */
static DMuonModel model_with(int shaped) {
  DMuonModel model = NULL;
  DMuonModelCreate(all, &model);
  DMuonModelAddParam(model, "h.0.weight", DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelAddParam(model, "h.1.weight", DMUON_FLOAT32, 2, shaped ? turned : dims, NULL);
  DMuonModelAddParam(model, "head.weight", DMUON_FLOAT32, 2, dims, NULL);
  return model;
}

/* Set up fails with code everywhere, in time, and says `words`. Destroys the model. */
static void fails(const char *what, DMuonModel model, DMuonErrorCode code, const char *words) {
  double start = MPI_Wtime();
  DMuonErrorCode got = DMuonModelSetUp(model);
  double took = MPI_Wtime() - start;
  tap_is_int(got, code, "%s: the same code on all ranks", what);
  tap_contains(DMuonErrorGetMessage(), words, "%s: is named on all ranks", what);
  tap_ok(took < 10 && !model->object.is_set_up, "%s: at once, and nothing is set up", what);
  DMuonModelDestroy(&model);
}

enum { ODD = 2 };

static void names(void) {
  DMuonModel model = model_with(0);
  if (tap_rank == ODD) DMuonModelAddParam(model, "extra", DMUON_FLOAT32, 2, dims, NULL);
  fails("an extra name", model, DMUON_ERR_DISAGREE,
        "extra: registered on rank 2, missing on rank 0");
  model = model_with(0);
  if (tap_rank != ODD) DMuonModelAddParam(model, "tail", DMUON_FLOAT32, 2, dims, NULL);
  fails("a missing name", model, DMUON_ERR_DISAGREE,
        "tail: registered on rank 0, missing on rank 2");
  DMuonModelCreate(all, &model);
  DMuonModelAddParam(model, tap_rank == ODD ? "b" : "a", DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelAddParam(model, tap_rank == ODD ? "a" : "b", DMUON_FLOAT32, 2, dims, NULL);
  fails("another order", model, DMUON_ERR_DISAGREE,
        "a: order of registration: number 0 of its mesh on rank 0, number 1 on rank 2");
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelAddParam(model, "h.0.weight", DMUON_FLOAT32, 2, dims, NULL);
  fails("a name twice on one rank", model, DMUON_ERR_SETUP,
        "\"h.0.weight\" is registered twice: ids 0 and 3");
  DMuonModelCreate(all, &model);
  if (tap_rank != ODD) DMuonModelAddParam(model, "only", DMUON_FLOAT32, 2, dims, NULL);
  fails("a rank without any", model, DMUON_ERR_DISAGREE,
        "only: registered on rank 0, missing on rank 2");
}

static void values(void) {
  fails("another shape", model_with(tap_rank == ODD), DMUON_ERR_DISAGREE, "h.1.weight: shape ");
  DMuonModel model = model_with(tap_rank == ODD);
  DMuonModelSetUp(model);
  int both =
      strstr(DMuonErrorGetMessage(), "6x8 on rank 2") && strstr(DMuonErrorGetMessage(), "8x6");
  tap_ok(both, "another shape: both shapes and the rank");
  DMuonModelDestroy(&model);

  model = model_with(0);
  DMuonModelAddParam(model, "t", tap_rank == ODD ? DMUON_BFLOAT16 : DMUON_FLOAT32, 2, dims, NULL);
  fails("another dtype", model, DMUON_ERR_DISAGREE, "t: dtype ");
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetRoute(model, "h.1.weight", DMUON_ROUTE_ADAMW);
  fails("another route", model, DMUON_ERR_DISAGREE, "h.1.weight: route ");
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetGroup(model, "h.1.weight", "mine");
  fails("another group", model, DMUON_ERR_DISAGREE, "h.1.weight: group ");
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetOutput(model, "h.1.*", DMUON_COLS);
  fails("another output side", model, DMUON_ERR_DISAGREE, "h.1.weight: output side ");
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetBlocks(model, "h.1.*", 2, sizes, 1);
  fails("other row blocks", model, DMUON_ERR_DISAGREE, "h.1.weight: matrix view ");
  model = model_with(0);
  if (tap_rank == ODD)
    DMuonModelSetDTypes(model, "h.1.*", DMUON_BFLOAT16, DMUON_FLOAT32, DMUON_FLOAT32);
  fails("another gradient dtype", model, DMUON_ERR_DISAGREE, "h.1.weight: grad dtype ");
  float w[48];
  DMuonModelCreate(all, &model);
  if (tap_rank == ODD) {
    DMuonModelAddParamArray(model, "w", DMUON_FLOAT32, 2, dims, w, NULL, NULL);
  } else {
    DMuonModelAddParam(model, "w", DMUON_FLOAT32, 2, dims, NULL);
  }
  fails("arrays on one rank only", model, DMUON_ERR_DISAGREE, "w: registered with ");
}

static void mistakes(void) {
  DMuonModel model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetBlocks(model, "h.1.*", 1, sizes, 1);
  fails("a wrong sum on one rank", model, DMUON_ERR_SETUP, "h.1.weight: blocks cover 1 x 4 = 4");
  model = model_with(0);
  DMuonModelSetBlocks(model, "h.1.*", 1, sizes, 1);
  fails("a wrong sum on all", model, DMUON_ERR_SETUP, "h.1.weight: blocks cover 1 x 4 = 4");
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetRoute(model, "g.*", DMUON_ROUTE_FROZEN);
  fails("a pattern without a match", model, DMUON_ERR_SETUP, "\"g.*\" of DMuonModelSetRoute");
  float w[60];
  DMuonModelCreate(all, &model);
  for (int i = 0; i < 2; i++) {
    char name[32];
    snprintf(name, sizeof name, "w.%d", i);
    DMuonModelAddParamArray(model, name, DMUON_FLOAT32, 2, dims,
                            tap_rank == ODD ? w + 12 * i : NULL, NULL, NULL);
  }
  fails("arrays shared on one rank", model, DMUON_ERR_SETUP,
        "weights of \"w.0\" (id 0) and the weights of \"w.1\"");

  /* A pattern needs a match on some rank only. */
  model = model_with(0);
  if (tap_rank == ODD) DMuonModelSetRoute(model, "g.*", DMUON_ROUTE_FROZEN);
  tap_is_int(DMuonModelSetUp(model), DMUON_ERR_SETUP, "a pattern without a match");
  if (tap_rank == ODD) tap_diag("%s", DMuonErrorGetMessage());
  DMuonModelAddParam(model, "g.0", DMUON_FLOAT32, 2, dims, NULL);
  if (tap_rank != ODD) DMuonModelSetRoute(model, "g.0", DMUON_ROUTE_FROZEN);
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "is cured by the parameter");
  DMuonModelDestroy(&model);
}

static void allocations(void) {
  /* One rank's allocations fail, one after another: all ranks hear of each. */
  DMuonErrorCode code = DMUON_ERR_MEMORY;
  int tries = 0, wrong = 0;
  dmuon_memory *memory = &all->object.context->memory;
  for (int k = 1; code && k < 400; k += 1 + k / 20, tries++) {
    DMuonModel model = model_with(0);
    if (tap_rank == ODD) {
      DMuonModelSetGroup(model, "h.1.weight", "mine"); /* the long way */
      DMuonModelSetGroup(model, "h.1.weight", "h.1");
      memory->fail_at = memory->allocations + k;
    }
    code = DMuonModelSetUp(model);
    memory->fail_at = 0;
    if (code && code != DMUON_ERR_MEMORY) wrong++;
    if (code && DMuonModelSetUp(model)) wrong++;
    DMuonModelDestroy(&model);
  }
  tap_ok(tries > 10 && !wrong && !code, "%d failed allocations on one rank: all hear of each",
         tries);
}

static DMuonMesh mesh_of(MPI_Comm comm, const char *name) {
  DMuonMesh mesh = NULL;
  DMuonMeshCreate(comm, &mesh);
  DMuonMeshSetName(mesh, name);
  DMuonMeshSetTimeout(mesh, 20);
  return mesh;
}

/* A failed set-up leaves nothing behind, nor does a whole life: the second round costs what the
 * first did (the first may leave room for messages). */
static void nothing_left(void) {
  const dmuon_memory *memory = &all->object.context->memory;
  int64_t bytes[3];
  for (int i = 0; i < 3; i++) {
    DMuonModel model = model_with(tap_rank == ODD);
    DMuonModelSetUp(model);
    DMuonModelDestroy(&model);
    model = model_with(0);
    if (tap_rank == ODD) DMuonModelSetGroup(model, "head.*", "head");
    DMuonModelSetUp(model);
    DMuonModelDestroy(&model);
    bytes[i] = memory->bytes;
  }
  tap_is_int(bytes[2], bytes[1], "no bytes are lost");
}

static void meshes(void) {
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &comm);
  DMuonMesh half = mesh_of(comm, "half"), other = mesh_of(comm, "other");
  MPI_Comm_free(&comm);

  DMuonModel model = model_with(0);
  if (tap_rank < 2) DMuonModelSetMesh(model, "h.1.weight", half, NULL);
  fails("a mesh for some ranks", model, DMUON_ERR_DISAGREE, "h.1.weight: copies on mesh ");
  model = model_with(0);
  DMuonModelSetMesh(model, "h.1.weight", half, NULL);
  fails("one name on two meshes", model, DMUON_ERR_DISAGREE, "h.1.weight: copies on mesh \"half\"");
  model = model_with(0);
  if (tap_rank != 1) DMuonModelSetMesh(model, "h.1.weight", half, NULL);
  fails("a mesh that one of its ranks does not name", model, DMUON_ERR_DISAGREE,
        "mesh \"half\" (ranks 0, 1) is named in DMuonModelSetMesh on rank 0, not on rank 1");
  model = model_with(0);
  DMuonModelSetMesh(model, "h.1.weight", all, half);
  if (tap_rank == 3) DMuonModelSetMesh(model, "h.1.weight", all, other);
  fails("a mesh that only one rank names", model, DMUON_ERR_DISAGREE,
        "mesh \"other\" (ranks 2, 3) is named in DMuonModelSetMesh on rank 3, not on rank 2");

  DMuonModelCreate(all, &model);
  char name[32];
  snprintf(name, sizeof name, "h.%d.weight", tap_rank / 2);
  if (tap_rank != 3) DMuonModelAddParam(model, name, DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelSetMesh(model, "h.*", half, NULL);
  fails("a copy missing on its mesh", model, DMUON_ERR_DISAGREE,
        "h.1.weight: registered on rank 2, missing on rank 3");
  model = model_with(0);
  DMuonModelSetMesh(model, "h.1.weight", all, tap_rank < 2 ? half : all);
  if (tap_rank >= 2) DMuonModelSetMesh(model, "nothing", half, NULL);
  fails("divisors that differ", model, DMUON_ERR_DISAGREE,
        "h.1.weight: data ranks whose losses its gradient sums: 2 on rank 0, 4 on rank 2");

  DMuonModel small = NULL;
  DMuonModelCreate(half, &small);
  tap_is_int(DMuonModelSetMesh(small, "*", all, NULL), DMUON_ERR_ARGUMENT,
             "a mesh that reaches out of the model's");
  tap_contains(DMuonErrorGetMessage(), "is not in the model's mesh \"half\"", "is named");
  DMuonModelDestroy(&small);
  DMuonMeshDestroy(&other);
  DMuonMeshDestroy(&half);
}

/* Rank 0 waited too long, and all hear of it: from the call's agreement, from rank 0, or from a rank
 * that heard of it first and gave the model's mesh up before rank 0 did. */
static void hears(DMuonErrorCode code, const char *what) {
  const int heard = code == DMUON_ERR_TIMEOUT || code == DMUON_ERR_REVOKED;
  if (!heard) fprintf(stderr, "# rank %d: code %d\n", tap_rank, (int)code);
  tap_ok(heard, "%s", what);
}

/* A mesh of a rule that breaks while it is set up, on some ranks: the model's mesh is broken with
 * it, on all ranks, and every later call says so at once. */
static void broken_part(void) {
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &comm);
  DMuonMesh whole = mesh_of(MPI_COMM_WORLD, "whole"), half = mesh_of(comm, "half");
  DMuonModel model = NULL;
  char name[32];
  MPI_Comm_free(&comm);
  DMuonMeshSetTimeout(half, 0.5);
  DMuonModelCreate(whole, &model);
  snprintf(name, sizeof name, "h.%d.weight", tap_rank / 2);
  DMuonModelAddParam(model, name, DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelSetMesh(model, name, half, NULL);
  int alone = tap_rank == 0 ? (int)DMuonMeshSetUp(half) : (int)DMUON_ERR_TIMEOUT;
  tap_is_int(alone, DMUON_ERR_TIMEOUT, "rank 0 waits in vain for its half");
  hears(DMuonModelSetUp(model), "all hear of it from the model's SetUp");
  double start = MPI_Wtime();
  hears(DMuonModelSetUp(model), "and again");
  hears(DMuonMeshProgress(whole), "and from the model's mesh");
  hears(DMuonMeshSetUp(whole), "whatever is asked of it");
  tap_ok(MPI_Wtime() - start < 5, "at once");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&half);
  DMuonMeshDestroy(&whole);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  all = mesh_of(MPI_COMM_WORLD, "all");
  names();
  values();
  mistakes();
  meshes();
  allocations();
  nothing_left();
  broken_part();
  DMuonMeshDestroy(&all);
  return tap_mpi_done();
}
