/* What the optimizer says of itself: text for people, JSON for programs. */
#include <string.h>

#include "mesh/mesh.h"
#include "optim/view.h"

/* Bytes of this rank, by purpose, as they were taken. */
typedef struct {
  int64_t state, master, means, buffers, workspace, accumulators, lent;
} memory_use;

static void count_updated(DMuonOptimizer opt, const dmuon_bundle *bundle, memory_use *use) {
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    const dmuon_param *param = &opt->model->registry.params[p->param];
    const dmuon_param_state *state = &opt->states[p->id];
    if (!p->is_mine) continue;
    use->state += p->mine_count * (int64_t)dmuon_dtype_bytes(param->state_dtype) *
                  ((state->momentum != NULL) + 2 * (state->exp_avg != NULL));
    if (opt->own_master[p->id])
      use->master += p->mine_count * (int64_t)dmuon_dtype_bytes(param->master_dtype);
  }
}

static memory_use count_memory(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  const dmuon_packing *packing = &opt->runtime.packing;
  memory_use use = {0};
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    const int64_t wide = (int64_t)dmuon_dtype_bytes(dmuon_dtype_wide(param->grad_dtype));
    if (opt->plans[id].workspace_bytes > use.workspace)
      use.workspace = opt->plans[id].workspace_bytes;
    if (opt->accumulators && opt->accumulators[id]) use.accumulators += param->numel * wide;
    if (opt->lend.accumulators && opt->lend.accumulators[id])
      use.accumulators += param->numel * wide;
  }
  for (int b = 0; b < packing->bundle_count; b++) {
    use.means +=
        packing->bundles[b].mine_count * (int64_t)dmuon_dtype_bytes(packing->bundles[b].sum_dtype);
    count_updated(opt, &packing->bundles[b], &use);
  }
  use.buffers = dmuon_runtime_buffer_bytes(&opt->runtime);
  if (dmuon_lend_is_used(&opt->lend)) {
    const dmuon_lend_bytes lent =
        dmuon_lend_plan_bytes(packing, &opt->lend.groups, &opt->lend.settings);
    use.lent = lent.homes + lent.value_buffers + lent.grad_buffers;
  }
  return use;
}

static const char *variant_of(DMuonOptimizer opt, int id) {
  const dmuon_update_plan *plan = &opt->plans[id];
  if (plan->piece_count == 0) return "";
  return plan->plans[0].variant == DMUON_NS_GRAM ? "gram" : "direct";
}

static void write_rule(DMuonOptimizer opt, dmuon_text *text) {
  const dmuon_optimizer_settings *settings = &opt->settings;
  const dmuon_rule *rule = &settings->rule;
  dmuon_text_add(text, "Optimizer \"%s\": rule %s\n", opt->object.name,
                 dmuon_recipe_names[settings->recipe]);
  dmuon_text_add(text, "  muon   lr %g, momentum %g (%s%s), decay %g (%s), scale %s x %g\n",
                 rule->lr, rule->momentum, dmuon_momentum_form_names[rule->momentum_form],
                 rule->nesterov ? ", nesterov" : "", rule->weight_decay,
                 dmuon_decay_names[rule->decay], dmuon_scale_names[rule->scale],
                 rule->scale_factor);
  dmuon_text_add(text, "  adamw  lr %g, betas %g %g, eps %g, decay %g\n", rule->adamw_lr,
                 rule->beta1, rule->beta2, rule->eps, rule->adamw_weight_decay);
  dmuon_text_add(text, "  missing gradient: %s; clip: %s",
                 dmuon_missing_gradient_names[rule->missing_gradient],
                 dmuon_clip_names[settings->clip]);
  if (settings->clip != DMUON_CLIP_NONE) dmuon_text_add(text, " to %g", settings->clip_norm);
  dmuon_text_add(text, "; learning rate factor %g; %s\n", opt->factor,
                 opt->is_async ? "asynchronous (Wait before reading weights)" : "synchronous");
}

static void write_here(DMuonOptimizer opt, dmuon_text *text) {
  const dmuon_registry *registry = &opt->model->registry;
  const memory_use use = count_memory(opt);
  char buffer[32];
  dmuon_text_add(text, "  on this rank (%d): %d communication units\n",
                 dmuon_optimizer_mesh(opt)->rank, opt->runtime.packing.bundle_count);
  dmuon_text_add(text, "  memory: state %s", dmuon_text_bytes(buffer, (double)use.state));
  dmuon_text_add(text, ", masters %s", dmuon_text_bytes(buffer, (double)use.master));
  dmuon_text_add(text, ", averaged gradients %s", dmuon_text_bytes(buffer, (double)use.means));
  dmuon_text_add(text, ", buffers %s", dmuon_text_bytes(buffer, (double)use.buffers));
  dmuon_text_add(text, ", lent %s", dmuon_text_bytes(buffer, (double)use.lent));
  dmuon_text_add(text, ", workspace %s", dmuon_text_bytes(buffer, (double)use.workspace));
  dmuon_text_add(text, ", accumulators %s\n", dmuon_text_bytes(buffer, (double)use.accumulators));
  dmuon_text_add(text,
                 "  steps %lld; Newton-Schulz here %lld, over all ranks in the last step %lld\n",
                 (long long)opt->info.step, (long long)opt->newton_schulz_here,
                 (long long)opt->info.newton_schulz_calls);
  for (int p = 0; p < registry->param_count; p++) {
    const int id = registry->global_to_local[p];
    const dmuon_param *param = &registry->params[p];
    const int *owner = opt->partition->owners[p];
    dmuon_text_add(text, "  %-40s %-7s owner (%d,%d)", param->name, dmuon_route_name(param->route),
                   owner[DMUON_AXIS_REPLICATE], owner[DMUON_AXIS_SHARD]);
    if (id >= 0 && param->route == DMUON_ROUTE_MUON)
      dmuon_text_add(text, " lr %g, %lld matrices%s%s", opt->hyper[id].value[DMUON_HYPER_LR],
                     (long long)dmuon_piece_count(param), *variant_of(opt, id) ? ", here by " : "",
                     variant_of(opt, id));
    else if (id >= 0)
      dmuon_text_add(text, " lr %g", opt->hyper[id].value[DMUON_HYPER_LR]);
    dmuon_text_add(text, "\n");
  }
}

DMuonErrorCode DMuonOptimizerView(DMuonOptimizer opt, const char *path) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  dmuon_text text;
  dmuon_text_init(&text, &opt->object.context->memory);
  write_rule(opt, &text);
  if (opt->object.is_set_up) {
    write_here(opt, &text);
    dmuon_optimizer_write_plan(opt, &text);
  } else {
    dmuon_text_add(&text, "  not set up\n");
  }
  DMuonErrorCode code = dmuon_mesh_write(dmuon_optimizer_mesh(opt), "View", &text, path);
  dmuon_text_free(&text);
  return code;
}

static json_t *params_json(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  json_t *list = json_array();
  for (int id = 0; id < registry->local_count; id++) {
    const int p = registry->local_to_global[id];
    const dmuon_param *param = &registry->params[p];
    const int *owner = opt->partition->owners[p];
    json_array_append_new(
        list,
        json_pack("{s:s, s:s, s:[i,i], s:f, s:I, s:s}", "name", param->name, "group", param->group,
                  "owner", owner[0], owner[1], "lr", opt->hyper[id].value[DMUON_HYPER_LR],
                  "matrices",
                  (json_int_t)(param->route == DMUON_ROUTE_MUON ? dmuon_piece_count(param) : 0),
                  "variant", variant_of(opt, id)));
  }
  return list;
}

DMuonErrorCode DMuonOptimizerSummary(DMuonOptimizer opt, char **json) {
  DMUON_TRY(dmuon_object_check_state(opt, DMUON_CLASS_OPTIMIZER, 1, __func__));
  if (!json) DMUON_FAIL(DMUON_ERR_ARGUMENT, "json is NULL");
  const memory_use use = count_memory(opt);
  const dmuon_memory *memory = &opt->object.context->memory;
  json_t *root = json_pack(
      "{s:s, s:s, s:I, s:b, s:I, s:I, s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}, s:o, s:o, s:o}", "name",
      opt->object.name, "rule", dmuon_recipe_names[opt->settings.recipe], "steps",
      (json_int_t)opt->info.step, "async", opt->is_async, "newton_schulz_here",
      (json_int_t)opt->newton_schulz_here, "newton_schulz_last_step",
      (json_int_t)opt->info.newton_schulz_calls, "bytes", "state", (json_int_t)use.state, "masters",
      (json_int_t)use.master, "means", (json_int_t)use.means, "buffers", (json_int_t)use.buffers,
      "workspace", (json_int_t)use.workspace, "accumulators", (json_int_t)use.accumulators, "lent",
      (json_int_t)use.lent, "peak", (json_int_t)memory->peak_bytes, "params", params_json(opt),
      "comm_plan", dmuon_optimizer_comm_plan(opt), "memory_plan", dmuon_optimizer_memory_plan(opt));
  return dmuon_json_finish(root, json);
}
