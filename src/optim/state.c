/* Reading and setting what owners keep: values, masters, momentum and moments, as whole tensors. */
#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"
#include "optim/whole.h"

/* ---- what there is --------------------------------------------------------------------------- */

static DMuonErrorCode find_field(DMuonOptimizer opt, int id, const char *name, dmuon_whole *what) {
  const int index = opt->model->registry.local_to_global[id];
  const dmuon_param *param = &opt->model->registry.params[index];
  dmuon_param_state *state = &opt->states[id];
  const int muon = param->route == DMUON_ROUTE_MUON;
  const int64_t element = (int64_t)dmuon_dtype_bytes(param->state_dtype);
  int bundle, place;
  const int is_here = dmuon_whole_find(opt, index, &bundle, &place) &&
                      opt->runtime.packing.bundles[bundle].params[place].is_mine;
  if (param->route == DMUON_ROUTE_FROZEN)
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "%s is frozen and has no state", param->name);
  *what = (dmuon_whole){.index = index, .bytes = element};
  if (strcmp(name, "master") == 0) {
    what->bytes = (int64_t)dmuon_dtype_bytes(param->master_dtype);
    what->data = state->master;
  } else if (strcmp(name, "step") == 0) {
    what->bytes = (int64_t)sizeof state->step;
    what->data = is_here ? &state->step : NULL;
    what->is_single = 1;
  } else if (muon && strcmp(name, "momentum") == 0) {
    what->data = state->momentum;
  } else if (!muon && strcmp(name, "exp_avg") == 0) {
    what->data = state->exp_avg;
  } else if (!muon && strcmp(name, "exp_avg_sq") == 0) {
    what->data = state->exp_avg_sq;
  } else {
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "%s has no state \"%s\"; it has %s", param->name, name,
               muon ? "momentum, master, step" : "exp_avg, exp_avg_sq, master, step");
  }
  return DMUON_SUCCESS;
}

/* The values of a lent parameter. */
static dmuon_whole values_of(DMuonOptimizer opt, int id) {
  const int index = opt->model->registry.local_to_global[id];
  const dmuon_param *param = &opt->model->registry.params[index];
  dmuon_whole what = {.index = index, .bytes = (int64_t)dmuon_dtype_bytes(param->dtype)};
  int bundle, place;
  if (dmuon_whole_find(opt, index, &bundle, &place) &&
      opt->runtime.packing.bundles[bundle].params[place].mine_count > 0)
    what.data = dmuon_lend_value(&opt->lend, bundle, place);
  return what;
}

static DMuonErrorCode check_call(DMuonOptimizer opt, const char *call, int id, int root) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, call));
  const dmuon_registry *registry = &opt->model->registry;
  if (dmuon_mesh_is_plan(dmuon_optimizer_mesh(opt)))
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "%s: a plan has no values; it needs a mesh of real ranks",
               call);
  if (id < 0 || id >= registry->local_count)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "parameter id %d out of range [0,%d)", id,
               registry->local_count);
  const int size =
      registry->meshes[registry->params[registry->local_to_global[id]].mesh].mesh->size;
  if (root < DMUON_ALL || root >= size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "root %d out of range [0,%d)", root, size);
  return DMUON_SUCCESS;
}

static const dmuon_param *param_of(DMuonOptimizer opt, int id) {
  return &opt->model->registry.params[opt->model->registry.local_to_global[id]];
}

static int is_wanted(DMuonOptimizer opt, int id, int root) {
  const DMuonMesh mesh = opt->model->registry.meshes[param_of(opt, id)->mesh].mesh;
  return root == DMUON_ALL || root == dmuon_mesh_position(mesh);
}

static uint64_t question(const char *call, const char *name, int root) {
  return dmuon_hash_int(dmuon_hash_string(dmuon_hash_string(DMUON_HASH_SEED, call), name), root);
}

/* ---- reading --------------------------------------------------------------------------------- */

static DMuonErrorCode read_whole(DMuonOptimizer opt, const char *call, const char *name, int id,
                                 const dmuon_whole *what, void *data, int root) {
  const int wanted = is_wanted(opt, id, root);
  DMuonErrorCode code = DMUON_SUCCESS;
  if (wanted && !data && param_of(opt, id)->numel > 0)
    code = DMUON_ERROR(DMUON_ERR_ARGUMENT, "%s: data is NULL where it is wanted", call);
  DMUON_TRY(dmuon_optimizer_drain(opt));
  DMUON_TRY(dmuon_whole_agree(opt, call, what->index, question(call, name, root), code));
  return dmuon_optimizer_settle(opt, dmuon_whole_get(opt, call, what, wanted ? data : NULL));
}

DMuonErrorCode DMuonOptimizerGetState(DMuonOptimizer opt, int id, const char *name, void *data,
                                      int root) {
  dmuon_whole what;
  DMUON_TRY(check_call(opt, __func__, id, root));
  if (!name) DMUON_FAIL(DMUON_ERR_ARGUMENT, "state name is NULL");
  DMUON_TRY(find_field(opt, id, name, &what));
  return read_whole(opt, "GetState", name, id, &what, data, root);
}

DMuonErrorCode DMuonOptimizerGetParam(DMuonOptimizer opt, int id, void *data, int root) {
  DMUON_TRY(check_call(opt, __func__, id, root));
  const dmuon_param *param = param_of(opt, id);
  if (param->is_lent) {
    const dmuon_whole what = values_of(opt, id);
    return read_whole(opt, "GetParam", "", id, &what, data, root);
  }
  DMUON_TRY(dmuon_optimizer_drain(opt)); /* an array of the caller, the same on all ranks */
  DMUON_TRY(dmuon_optimizer_take_arrays(opt, opt->runtime.compute));
  if (is_wanted(opt, id, root) && data && param->numel > 0)
    DMUON_TRY(dmuon_whole_copy(opt, data, opt->arrays[id].weights,
                               param->numel * (int64_t)dmuon_dtype_bytes(param->dtype)));
  return DMUON_SUCCESS;
}

/* ---- setting --------------------------------------------------------------------------------- */

static DMuonErrorCode write_whole(DMuonOptimizer opt, const char *call, const char *name, int id,
                                  const dmuon_whole *what, const void *data, int root, void *copy) {
  DMuonErrorCode code = DMUON_SUCCESS;
  if (is_wanted(opt, id, root) && !data && param_of(opt, id)->numel > 0)
    code = DMUON_ERROR(DMUON_ERR_ARGUMENT, "%s: data is NULL on a rank that gives it", call);
  if (!code && data && is_wanted(opt, id, root) && strcmp(name, "step") == 0 &&
      *(const int64_t *)data < 0)
    code = DMUON_ERROR(DMUON_ERR_ARGUMENT, "%s: step is %lld; it counts updates, from 0", call,
                       (long long)*(const int64_t *)data);
  if (!code && param_of(opt, id)->is_lent && opt->lend.is_touched)
    code = DMUON_ERROR(DMUON_ERR_STATE,
                       "%s: a pass is under way; values are set after Step, BeginPass or "
                       "CancelPass, before the first bracket",
                       call);
  DMUON_TRY(dmuon_optimizer_drain(opt));
  DMUON_TRY(dmuon_whole_agree(opt, call, what->index, question(call, name, root), code));
  return dmuon_optimizer_settle(opt, dmuon_whole_set(opt, call, what, data, root, copy));
}

/* dst = src cast, for what this rank has of a lent parameter. */
static DMuonErrorCode cast_share(DMuonOptimizer opt, int bundle, int place, int to_master) {
  const dmuon_bundle_param *p = &opt->runtime.packing.bundles[bundle].params[place];
  const dmuon_param *param = &opt->model->registry.params[p->param];
  dmuon_param_state *state = &opt->states[p->id];
  void *value = dmuon_lend_value(&opt->lend, bundle, place);
  if (!p->is_mine || state->master == value) return DMUON_SUCCESS;
  return opt->runtime.device->ops->cast(
      opt->runtime.compute, p->mine_count, to_master ? state->master : value,
      to_master ? param->master_dtype : param->dtype, to_master ? value : state->master,
      to_master ? param->dtype : param->master_dtype);
}

/* New values of a bundle are at those who update it: to all who keep them. Waits. */
static DMuonErrorCode spread(DMuonOptimizer opt, int bundle) {
  DMUON_TRY(dmuon_lend_publish(&opt->lend, bundle));
  DMUON_TRY(dmuon_lend_refetch(&opt->lend, bundle));
  opt->pending = 1;
  return dmuon_optimizer_drain(opt);
}

/* Masters or values of one lent parameter were set: the other follows. */
static DMuonErrorCode follow(DMuonOptimizer opt, int index, int to_master) {
  int bundle = 0, place = 0;
  opt->is_stepping = 1;
  (void)dmuon_whole_find(opt, index, &bundle, &place);
  DMUON_TRY(cast_share(opt, bundle, place, to_master));
  DMUON_TRY(spread(opt, bundle));
  opt->is_stepping = 0;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetParam(DMuonOptimizer opt, int id, const void *data, int root) {
  DMUON_TRY(check_call(opt, __func__, id, root));
  if (!param_of(opt, id)->is_lent)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "%s is an array of yours: change it and call DMuonOptimizerSyncArrays",
               param_of(opt, id)->name);
  const dmuon_whole what = values_of(opt, id);
  DMUON_TRY(write_whole(opt, "SetParam", "", id, &what, data, root, NULL));
  return dmuon_optimizer_settle(opt, follow(opt, what.index, 1));
}

/* Masters of the caller's arrays: every rank gets the whole tensor and rounds it into its array. */
static DMuonErrorCode set_array_master(DMuonOptimizer opt, int id, const dmuon_whole *what,
                                       const void *data, int root) {
  const dmuon_param *param = param_of(opt, id);
  dmuon_memory *memory = &opt->object.context->memory;
  const int64_t bytes = param->numel * (int64_t)dmuon_dtype_bytes(param->dtype);
  void *copy = NULL, *rounded = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, param->numel, (size_t)what->bytes, &copy);
  if (!code) code = dmuon_memory_alloc(memory, bytes, 1, &rounded);
  code = dmuon_agree_error(opt->model->registry.meshes[param->mesh].mesh->bootstrap, "SetState",
                           code, DMUON_ERR_MEMORY);
  if (!code) code = write_whole(opt, "SetState", "master", id, what, data, root, copy);
  if (!code) {
    dmuon_dtype_cast(param->numel, param->dtype, rounded, param->master_dtype, copy);
    code =
        dmuon_optimizer_settle(opt, dmuon_whole_copy(opt, opt->arrays[id].weights, rounded, bytes));
  }
  dmuon_memory_free(copy);
  dmuon_memory_free(rounded);
  return code;
}

DMuonErrorCode DMuonOptimizerSetState(DMuonOptimizer opt, int id, const char *name,
                                      const void *data, int root) {
  dmuon_whole what;
  DMUON_TRY(check_call(opt, __func__, id, root));
  if (!name) DMUON_FAIL(DMUON_ERR_ARGUMENT, "state name is NULL");
  DMUON_TRY(find_field(opt, id, name, &what));
  const int is_master = strcmp(name, "master") == 0;
  if (is_master && !param_of(opt, id)->is_lent) return set_array_master(opt, id, &what, data, root);
  DMUON_TRY(write_whole(opt, "SetState", name, id, &what, data, root, NULL));
  return is_master ? dmuon_optimizer_settle(opt, follow(opt, what.index, 0)) : DMUON_SUCCESS;
}

/* ---- at SetUp -------------------------------------------------------------------------------- */

enum { INIT_ELEMENTS = 65536 };

/* The program's function fills host memory piece by piece. */
static DMuonErrorCode init_param(DMuonOptimizer opt, int bundle, int place, void *piece) {
  const dmuon_bundle_param *p = &opt->runtime.packing.bundles[bundle].params[place];
  const dmuon_param *param = &opt->model->registry.params[p->param];
  const DMuonDeviceOps *ops = opt->runtime.device->ops;
  DMuonParamInfo info = {.struct_size = sizeof info};
  dmuon_model_info(opt->model, p->param, &info);
  for (int64_t at = 0; at < p->mine_count; at += INIT_ELEMENTS) {
    const int64_t count = p->mine_count - at < INIT_ELEMENTS ? p->mine_count - at : INIT_ELEMENTS;
    opt->init(opt->init_context, &info, p->mine_first + at, count, piece);
    DMUON_TRY(
        ops->copy(opt->runtime.compute,
                  dmuon_dtype_at(dmuon_lend_value(&opt->lend, bundle, place), at, param->dtype),
                  piece, count * (int64_t)dmuon_dtype_bytes(param->dtype)));
    DMUON_TRY(ops->queue_sync(opt->runtime.compute));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode init_bundle(DMuonOptimizer opt, int bundle, void *piece) {
  for (int i = 0; i < opt->runtime.packing.bundles[bundle].count; i++) {
    DMUON_TRY(init_param(opt, bundle, i, piece));
    DMUON_TRY(cast_share(opt, bundle, i, 1));
  }
  return dmuon_lend_publish(&opt->lend, bundle);
}

DMuonErrorCode dmuon_optimizer_init_values(DMuonOptimizer opt) {
  const dmuon_packing *packing = &opt->runtime.packing;
  void *piece = NULL;
  if (!opt->has_lent) return DMUON_SUCCESS;
  if (!opt->init || dmuon_mesh_is_plan(dmuon_optimizer_mesh(opt)))
    return DMUON_SUCCESS; /* buffers begin as zeros; a plan has none */
  DMuonErrorCode code =
      dmuon_memory_alloc(&opt->object.context->memory, INIT_ELEMENTS, sizeof(double), &piece);
  code = dmuon_mesh_agree_error(dmuon_optimizer_mesh(opt), "initial values", code);
  for (int b = 0; !code && b < packing->bundle_count; b++)
    if (dmuon_bundle_is_lent(&packing->bundles[b])) code = init_bundle(opt, b, piece);
  dmuon_memory_free(piece);
  if (code) return code;
  opt->pending = 1;
  return dmuon_optimizer_drain(opt);
}
