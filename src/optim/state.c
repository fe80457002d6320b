/* Reading an owner's state out: whole tensors, to one rank of the parameter's mesh or to all. */
#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"

enum { CHUNK_BYTES = 1 << 20 };

typedef struct {
  void *data; /* at the owner */
  int64_t bytes;
} state_field;

static DMuonErrorCode find_field(const dmuon_param *param, dmuon_param_state *state,
                                 const char *name, state_field *field) {
  const int muon = param->route == DMUON_ROUTE_MUON;
  const int64_t bytes = param->numel * (int64_t)dmuon_dtype_bytes(param->state_dtype);
  if (param->route == DMUON_ROUTE_FROZEN)
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "%s is frozen and has no state", param->name);
  if (strcmp(name, "master") == 0)
    *field = (state_field){state->master,
                           param->numel * (int64_t)dmuon_dtype_bytes(param->master_dtype)};
  else if (strcmp(name, "step") == 0)
    *field = (state_field){&state->step, (int64_t)sizeof state->step};
  else if (muon && strcmp(name, "momentum") == 0)
    *field = (state_field){state->momentum, bytes};
  else if (!muon && strcmp(name, "exp_avg") == 0)
    *field = (state_field){state->exp_avg, bytes};
  else if (!muon && strcmp(name, "exp_avg_sq") == 0)
    *field = (state_field){state->exp_avg_sq, bytes};
  else
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "%s has no state \"%s\"; it has %s", param->name, name,
               muon ? "momentum, master, step" : "exp_avg, exp_avg_sq, master, step");
  return DMUON_SUCCESS;
}

/* Chunk by chunk, so that a rank that does not want the tensor needs no room for it. */
static DMuonErrorCode broadcast_field(DMuonOptimizer opt, DMuonMesh mesh, int owner,
                                      const state_field *field, void *data) {
  dmuon_memory *memory = &opt->object.context->memory;
  const int am_owner = dmuon_bootstrap_rank(mesh->bootstrap) == owner;
  char *chunk = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, CHUNK_BYTES, 1, &chunk);
  code = dmuon_agree_error(mesh->bootstrap, "GetState", code, DMUON_ERR_MEMORY);
  for (int64_t at = 0; !code && at < field->bytes; at += CHUNK_BYTES) {
    const int64_t bytes = field->bytes - at < CHUNK_BYTES ? field->bytes - at : CHUNK_BYTES;
    if (am_owner) memcpy(chunk, (char *)field->data + at, (size_t)bytes);
    code = dmuon_agree_broadcast(mesh->bootstrap, "GetState", owner, chunk, bytes);
    if (!code && data) memcpy((char *)data + at, chunk, (size_t)bytes);
  }
  dmuon_memory_free(chunk);
  return code;
}

/* All ranks ask for the same state of the same parameter for the same root. */
static DMuonErrorCode same_question(DMuonOptimizer opt, DMuonMesh mesh, int index, const char *name,
                                    int root) {
  uint64_t hash = dmuon_hash_string(DMUON_HASH_SEED, opt->model->registry.params[index].name);
  hash = dmuon_hash_int(dmuon_hash_string(hash, name), root);
  int equal, other;
  DMUON_TRY(dmuon_agree_equal(mesh->bootstrap, "GetState", hash, &equal, &other));
  if (!equal)
    DMUON_FAIL(
        DMUON_ERR_DISAGREE,
        "GetState: rank %d asks for another parameter, state or root than rank 0; here \"%s\" "
        "of %s for root %d",
        other, name, opt->model->registry.params[index].name, root);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerGetState(DMuonOptimizer opt, int id, const char *name, void *data,
                                      int root) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  const dmuon_registry *registry = &opt->model->registry;
  if (id < 0 || id >= registry->local_count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter id %d out of range [0,%d)", id,
               registry->local_count);
  if (!name) DMUON_FAIL(DMUON_ERR_ARGUMENT, "state name is NULL");
  const int index = registry->local_to_global[id];
  const dmuon_param *param = &registry->params[index];
  const DMuonMesh mesh = registry->meshes[param->mesh].mesh;
  const int *owner = opt->partition->owners[index];
  state_field field = {NULL, 0};
  if (root < DMUON_ALL || root >= mesh->size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "root %d out of range [0,%d)", root, mesh->size);
  DMUON_TRY(find_field(param, &opt->states[id], name, &field));
  DMUON_TRY(dmuon_optimizer_drain(opt));
  DMUON_TRY(same_question(opt, mesh, index, name, root));
  const int position =
      (owner[DMUON_AXIS_REPLICATE] * mesh->sizes[DMUON_AXIS_SHARD] + owner[DMUON_AXIS_SHARD]) *
          mesh->sizes[DMUON_AXIS_TP] +
      owner[DMUON_AXIS_TP];
  const int wanted = root == DMUON_ALL || root == dmuon_mesh_position(mesh);
  return dmuon_optimizer_settle(
      opt, broadcast_field(opt, mesh, mesh->rank_at[position], &field, wanted ? data : NULL));
}
