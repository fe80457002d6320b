/* Life of the optimizer: create, set up (all that Step will need), destroy.
 *
 * SetUp alternates local work with agreements, so that whatever goes wrong anywhere comes out as
 * the same code on every rank, with everything as it was before. */
#include <string.h>

#include "base/glob.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"
#include "optim/pass.h"
#include "optim/vote.h"

DMuonMesh dmuon_optimizer_mesh(DMuonOptimizer opt) {
  return opt->model->mesh;
}

DMuonErrorCode DMuonOptimizerCreate(DMuonModel model, DMuonOptimizer *opt) {
  DMuonOptimizer made = NULL;
  DMUON_TRY(dmuon_model_check(model));
  if (!opt) DMUON_FAIL(DMUON_ERR_ARGUMENT, "opt is NULL");
  dmuon_context *context = model->object.context;
  DMUON_TRY(dmuon_memory_alloc(&context->memory, 1, sizeof *made, &made));
  dmuon_object_init(&made->object, DMUON_CLASS_OPTIMIZER, context);
  made->factor = 1;
  made->samples = -1;
  made->info.struct_size = sizeof made->info;
  made->info.nonfinite_rank = -1;
  DMuonErrorCode code = dmuon_object_set_name(&made->object, "opt");
  if (!code)
    code = dmuon_options_defaults(&context->memory, &dmuon_optimizer_option_table, &made->settings);
  if (code) {
    dmuon_memory_free(made->object.name);
    dmuon_memory_free(made);
    return code;
  }
  dmuon_mesh_add_table(model->mesh, &dmuon_optimizer_option_table);
  dmuon_model_retain(model);
  made->model = model;
  *opt = made;
  return DMUON_SUCCESS;
}

void dmuon_optimizer_teardown(DMuonOptimizer opt) {
  dmuon_device *device = opt->runtime.device;
  const int count = opt->model->registry.local_count;
  for (int i = 0; device && opt->states && i < count; i++) {
    device->ops->free(device, opt->states[i].momentum);
    device->ops->free(device, opt->states[i].exp_avg);
    device->ops->free(device, opt->states[i].exp_avg_sq);
    if (opt->own_master && opt->own_master[i]) device->ops->free(device, opt->states[i].master);
  }
  for (int i = 0; device && opt->accumulators && i < count; i++)
    device->ops->free(device, opt->accumulators[i]);
  if (device) device->ops->free(device, opt->workspace);
  for (int i = 0; opt->plans && i < count; i++) dmuon_update_plan_free(&opt->plans[i]);
  if (device) {
    device->ops->free_host(device, opt->ns_stamps);
    device->ops->free_host(device, opt->norms);
    device->ops->free_host(device, opt->nonfinite);
  }
  opt->ns_stamps = NULL;
  opt->norms = NULL;
  opt->nonfinite = NULL;
  dmuon_verdict_destroy(&opt->verdict);
  dmuon_lend_destroy(&opt->lend);
  dmuon_runtime_destroy(&opt->runtime);
  opt->workspace = NULL;
  for (int g = 0; opt->groups && g < opt->group_count; g++) opt->groups[g].magic = 0;
  dmuon_memory_release(&opt->groups);
  dmuon_memory_release(&opt->pass_vote);
  dmuon_memory_release(&opt->states);
  dmuon_memory_release(&opt->plans);
  dmuon_memory_release(&opt->own_master);
  dmuon_memory_release(&opt->arrays);
  dmuon_memory_release(&opt->hyper);
  dmuon_memory_release(&opt->accumulators);
  dmuon_memory_release(&opt->accumulated);
  dmuon_memory_release(&opt->ballot);
  dmuon_memory_release(&opt->routes);
  dmuon_memory_release(&opt->active);
}

/* How many optimizers live on the meshes of this one. */
static void count_on_meshes(DMuonOptimizer opt, int by) {
  const dmuon_registry *registry = &opt->model->registry;
  for (int m = 0; m < registry->mesh_count; m++) {
    DMuonMesh mesh = registry->meshes[m].mesh;
    if (!mesh) continue;
    mesh->live_optimizers += by;
    if (opt->has_lent) mesh->lent_optimizers += by;
  }
}

DMuonErrorCode DMuonOptimizerDestroy(DMuonOptimizer *handle) {
  if (!handle || !*handle) return DMUON_SUCCESS;
  DMuonOptimizer opt = *handle;
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  /* A step under way still uses the buffers. When the mesh broke or MPI is gone, nobody waits, and
   * what MPI may still touch is left to it. */
  if (opt->object.is_set_up && opt->has_lent && !dmuon_mesh_check(dmuon_optimizer_mesh(opt))) {
    /* Brackets may have begun what other ranks have not: all issue the same, then all of it ends.
     */
    (void)dmuon_pass_close(opt, "Destroy", DMUON_ENDS_DESTROY, DMUON_SUCCESS);
    opt->pending = 1;
  }
  (void)dmuon_optimizer_drain(opt);
  if (opt->object.is_set_up) count_on_meshes(opt, -1);
  dmuon_optimizer_teardown(opt);
  for (int i = 0; i < opt->hyper_rule_count; i++) dmuon_memory_free(opt->hyper_rules[i].pattern);
  dmuon_memory_free(opt->hyper_rules);
  dmuon_partition_release(opt->partition);
  dmuon_ns_release(opt->ns);
  DMuonModel model = opt->model;
  dmuon_memory_free(opt->object.name);
  opt->object.class_id = 0;
  dmuon_memory_free(opt);
  dmuon_model_release(model);
  *handle = NULL;
  return DMUON_SUCCESS;
}

/* ---- the stages of SetUp ------------------------------------------------------------------ */

static DMuonErrorCode make_parts(DMuonOptimizer opt) {
  DMuonMesh mesh = dmuon_optimizer_mesh(opt);
  DMUON_TRY(dmuon_optimizer_apply_options(opt));
  if (!opt->partition) DMUON_TRY(DMuonPartitionCreate(opt->model, &opt->partition));
  if (!opt->ns) {
    const char *coefficients;
    DMuonNewtonSchulz ns = NULL;
    DMUON_TRY(dmuon_rule_recipe(dmuon_recipe_names[opt->settings.recipe], NULL, &coefficients));
    DMUON_TRY(DMuonNewtonSchulzCreate(mesh, &ns));
    DMuonErrorCode code = DMuonNewtonSchulzSetCoefficients(ns, coefficients);
    if (code) {
      dmuon_ns_release(ns);
      return code;
    }
    opt->ns = ns;
  }
  return DMuonNewtonSchulzSetUp(opt->ns);
}

/* Brackets communicate where one rank stands and another does not yet: nobody else's operations may
 * come between on the same communicators. */
static DMuonErrorCode check_alone(DMuonOptimizer opt, DMuonMesh mesh) {
  if (mesh && (opt->has_lent ? mesh->live_optimizers : mesh->lent_optimizers) > 0)
    DMUON_FAIL(DMUON_ERR_SETUP,
               "mesh \"%s\" has an optimizer already; one with parameters in the library's memory "
               "needs meshes of its own: make another on the same communicator",
               mesh->object.name ? mesh->object.name : "mesh");
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_params(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  for (int m = 0; m < registry->mesh_count; m++) {
    const dmuon_registry_mesh *mesh = &registry->meshes[m];
    DMUON_TRY(check_alone(opt, mesh->mesh));
    if (mesh->tp > 1)
      DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
                 "mesh \"%s\" has %d tensor parallel ranks; the optimizer needs tp = 1", mesh->name,
                 mesh->tp);
    if (opt->settings.initial_root >= mesh->replicate * mesh->shard)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "initial root is data rank %lld; mesh \"%s\" has %d",
                 (long long)opt->settings.initial_root, mesh->name, mesh->replicate * mesh->shard);
  }
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    const dmuon_param_arrays *arrays = &opt->arrays[id];
    if (param->is_lent) continue;
    if (param->route == DMUON_ROUTE_ADAMW_SHARDED)
      DMUON_FAIL(DMUON_ERR_SETUP,
                 "%s is routed to adamw_sharded but registered with arrays; flat parts are of "
                 "parameters in the library's memory (AddParam)",
                 param->name);
    if (!arrays->weights && param->numel > 0)
      DMUON_FAIL(DMUON_ERR_SETUP, "%s has no weights; give them with SetArrays before SetUp",
                 param->name);
    DMUON_TRY(dmuon_optimizer_check_arrays(opt, param, arrays));
  }
  DMUON_TRY(dmuon_model_check_arrays(opt->model)); /* SetArrays may have brought new ones */
  for (int i = 0; i < opt->hyper_rule_count; i++) {
    int matched = 0;
    for (int p = 0; p < registry->param_count && !matched; p++)
      matched = dmuon_glob_match(opt->hyper_rules[i].pattern, registry->params[p].name);
    if (!matched)
      DMUON_FAIL(DMUON_ERR_SETUP, "SetHyper: pattern \"%s\" matches no parameter",
                 opt->hyper_rules[i].pattern);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode make_tables(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  dmuon_memory *memory = &opt->object.context->memory;
  const int64_t local = registry->local_count, global = registry->param_count;
  DMUON_TRY(dmuon_memory_alloc(memory, local, sizeof *opt->arrays, &opt->arrays));
  DMUON_TRY(dmuon_memory_alloc(memory, local, sizeof *opt->hyper, &opt->hyper));
  DMUON_TRY(dmuon_memory_alloc(memory, local, sizeof *opt->states, &opt->states));
  DMUON_TRY(dmuon_memory_alloc(memory, local, sizeof *opt->plans, &opt->plans));
  DMUON_TRY(dmuon_memory_alloc(memory, local, 1, &opt->own_master));
  DMUON_TRY(dmuon_memory_alloc(memory, local, sizeof *opt->accumulated, &opt->accumulated));
  DMUON_TRY(dmuon_memory_alloc(memory, local, sizeof *opt->active, &opt->active));
  DMUON_TRY(dmuon_memory_alloc(memory, global, sizeof *opt->routes, &opt->routes));
  DMUON_TRY(dmuon_memory_alloc(
      memory, dmuon_ballot_bytes(registry->mesh_count, registry->param_count), 1, &opt->ballot));
  if (local > 0) memcpy(opt->arrays, opt->model->arrays, (size_t)local * sizeof *opt->arrays);
  for (int p = 0; p < global; p++) opt->routes[p] = registry->params[p].route;
  for (int id = 0; id < local; id++)
    dmuon_optimizer_resolve_hyper(opt, &registry->params[registry->local_to_global[id]],
                                  &opt->hyper[id]);
  return DMUON_SUCCESS;
}

/* What operations tell the host. */
static DMuonErrorCode make_results(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  dmuon_device *device = opt->runtime.device;
  const int64_t local = registry->local_count, global = registry->param_count;
  DMUON_TRY(device->ops->alloc_host(device, local * (int64_t)sizeof *opt->nonfinite,
                                    (void **)&opt->nonfinite));
  DMUON_TRY(device->ops->alloc_host(device, 2 * local * (int64_t)sizeof *opt->ns_stamps,
                                    (void **)&opt->ns_stamps));
  DMUON_TRY(
      device->ops->alloc_host(device, global * (int64_t)sizeof *opt->norms, (void **)&opt->norms));
  return dmuon_verdict_create(registry, &opt->runtime, &opt->verdict);
}

/* Whether any rank has lent parameters, or arrays. */
static int has_params(DMuonOptimizer opt, int lent) {
  for (int i = 0; i < opt->model->registry.param_count; i++)
    if (opt->model->registry.params[i].is_lent == lent) return 1;
  return 0;
}

static DMuonErrorCode make_all(DMuonOptimizer opt) {
  DMuonMesh mesh = dmuon_optimizer_mesh(opt);
  const dmuon_registry *registry = &opt->model->registry;
  const dmuon_packing_options packing = {
      .gathers = opt->settings.muon_forward_unshard != 0,
      .bucket_bytes = (int64_t)(opt->settings.publish_bucket_mb * 1048576)};
  opt->has_arrays = has_params(opt, 0);
  opt->has_lent = has_params(opt, 1);
  opt->is_async =
      opt->settings.replicate_async < 0 ? !opt->has_arrays : (int)opt->settings.replicate_async;
  DMUON_TRY(dmuon_optimizer_apply_stream(opt));
  DMUON_TRY(make_tables(opt));
  DMUON_TRY(check_params(opt));
  DMUON_TRY(dmuon_runtime_create(registry, mesh->device, opt->partition->owners, &packing,
                                 &opt->runtime));
  DMUON_TRY(make_results(opt));
  DMUON_TRY(dmuon_optimizer_make_groups(opt));
  DMUON_TRY(dmuon_optimizer_make_owned(opt));
  int64_t largest = dmuon_ballot_bytes(registry->mesh_count, registry->param_count);
  if (largest < registry->param_count * (int64_t)sizeof *opt->norms)
    largest = registry->param_count * (int64_t)sizeof *opt->norms;
  if (largest < dmuon_pass_vote_bytes(registry->param_count))
    largest = dmuon_pass_vote_bytes(registry->param_count);
  return dmuon_agree_reserve(mesh->bootstrap, largest);
}

/* The device can reach a caller's arrays. */
DMuonErrorCode dmuon_optimizer_check_arrays(DMuonOptimizer opt, const dmuon_param *param,
                                            const dmuon_param_arrays *arrays) {
  dmuon_device *device = dmuon_optimizer_mesh(opt)->device;
  const void *pointers[] = {arrays->weights, arrays->gradients};
  const DMuonDType dtypes[] = {param->dtype, param->grad_dtype};
  for (int i = 0; device->ops->check_pointer && i < 2; i++) {
    if (!pointers[i]) continue;
    if (device->ops->check_pointer(device, pointers[i],
                                   param->numel * (int64_t)dmuon_dtype_bytes(dtypes[i])))
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s, %s: %s", param->name, i ? "gradients" : "weights",
                 dmuon_error_text());
  }
  return DMUON_SUCCESS;
}

/* The owner's copy in a wider dtype follows the caller's array. */
DMuonErrorCode dmuon_optimizer_refresh_masters(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  dmuon_device *device = opt->runtime.device;
  DMUON_TRY(dmuon_optimizer_take_arrays(opt, opt->runtime.compute));
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    if (!opt->own_master[id] || param->is_lent) continue;
    DMUON_TRY(device->ops->cast(opt->runtime.compute, param->numel, opt->states[id].master,
                                param->master_dtype, opt->arrays[id].weights, param->dtype));
  }
  return device->ops->queue_sync(opt->runtime.compute);
}

/* A copy of the owners for the model, whose GetParam and View show them. */
static DMuonErrorCode copy_owners(DMuonOptimizer opt, int (**owners)[3]) {
  const int64_t count = opt->model->registry.param_count;
  DMUON_TRY(dmuon_memory_alloc(&opt->object.context->memory, count, sizeof **owners, owners));
  if (count > 0) memcpy(*owners, opt->partition->owners, (size_t)count * sizeof **owners);
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_up(DMuonOptimizer opt) {
  DMuonMesh mesh = dmuon_optimizer_mesh(opt);
  const char *what = "setting up the optimizer";
  int(*owners)[3] = NULL;
  DMUON_TRY(DMuonModelSetUp(opt->model));
  DMuonErrorCode code = make_parts(opt);
  opt->number = mesh->optimizers + 1;
  DMUON_TRY(dmuon_vote_settings(opt, code));
  DMUON_TRY(DMuonPartitionSetUp(opt->partition));

  code = make_all(opt);
  if (!code) code = copy_owners(opt, &owners);
  code = dmuon_agree_error(mesh->bootstrap, what, code, DMUON_ERR_SETUP);
  if (!code) code = dmuon_vote(opt, what, NULL);
  if (!code && opt->settings.initial_root != DMUON_ALL)
    code =
        dmuon_runtime_broadcast_arrays(&opt->runtime, (int)opt->settings.initial_root, opt->arrays);
  if (!code) code = dmuon_optimizer_refresh_masters(opt);
  if (!code) code = dmuon_optimizer_init_values(opt);
  if (code) {
    dmuon_memory_free(owners);
    return dmuon_optimizer_settle(opt, code);
  }
  dmuon_memory_free(opt->model->owners);
  opt->model->owners = owners;
  mesh->optimizers++;
  count_on_meshes(opt, 1);
  return DMUON_SUCCESS;
}

/* A mistyped option is no error (another optimizer may yet take it), but it is not silent. */
static void log_unused_options(DMuonOptimizer opt) {
  DMuonMesh mesh = dmuon_optimizer_mesh(opt);
  const char *data;
  dmuon_text text;
  dmuon_text_init(&text, &opt->object.context->memory);
  dmuon_options_unused(&mesh->context.options, mesh->table_count, mesh->tables, &text);
  if (text.length > 0 && !dmuon_text_finish(&text, &data))
    dmuon_log(&mesh->context.logger, 1, "%.*s", (int)text.length - 1, data);
  dmuon_text_free(&text);
}

DMuonErrorCode DMuonOptimizerSetUp(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  if (opt->object.is_set_up) return DMUON_SUCCESS;
  DMuonMesh mesh = dmuon_optimizer_mesh(opt);
  if (dmuon_mesh_is_plan(mesh)) DMUON_TRY(DMuonMeshSetUp(mesh));
  if (dmuon_mesh_is_plan(mesh) && !mesh->device)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "mesh \"%s\" is a plan without ranks; model and partition work on it, the optimizer "
               "needs a mesh made by DMuonMeshCreate",
               mesh->object.name ? mesh->object.name : "mesh");
  /* What a failed SetUp leaves is what the program had set: settings, and no parts of our own,
   * which were made from settings that may be corrected. */
  const dmuon_optimizer_settings wishes = opt->settings;
  const int makes_ns = opt->ns == NULL, makes_partition = opt->partition == NULL;
  DMuonErrorCode code = set_up(opt);
  if (code) {
    dmuon_queue_settle(opt->runtime.device, opt->runtime.compute, code);
    dmuon_queue_settle(opt->runtime.device, opt->lend.caller, code);
    dmuon_optimizer_teardown(opt);
    opt->settings = wishes;
    if (makes_ns) dmuon_ns_release(opt->ns);
    if (makes_ns) opt->ns = NULL;
    if (makes_partition) dmuon_partition_release(opt->partition);
    if (makes_partition) opt->partition = NULL;
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  opt->object.is_set_up = 1;
  log_unused_options(opt);
  dmuon_log(&opt->object.context->logger, 2, "optimizer \"%s\" set up: %d parameters here",
            opt->object.name, opt->model->registry.local_count);
  return DMUON_SUCCESS;
}
