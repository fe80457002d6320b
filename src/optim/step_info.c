/* What a step leaves behind for those who ask: what it did, where its time went, and, where the
 * device decides late, whether it took place at all. */
#include <math.h>

#include "mesh/mesh.h"
#include "optim/step.h"

/* Accumulated gradients are used up, whether the step took place or not. */
void dmuon_optimizer_forget_accumulated(DMuonOptimizer opt) {
  opt->accumulated_samples = 0;
  opt->accumulate_calls = 0;
  for (int id = 0; id < opt->model->registry.local_count; id++) opt->accumulated[id] = NULL;
}

static int64_t matrices_in_step(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  int64_t count = 0;
  for (int p = 0; p < registry->param_count; p++)
    if (registry->params[p].route == DMUON_ROUTE_MUON && dmuon_step_takes_part(opt, p))
      count += dmuon_piece_count(&registry->params[p]);
  return count;
}

void dmuon_step_fill_info(DMuonOptimizer opt, const dmuon_clip_result *clip) {
  const dmuon_registry *registry = &opt->model->registry;
  const dmuon_ballot *ballot = opt->ballot;
  DMuonStepInfo *info = &opt->info;
  const DMuonStepInfo before = *info;
  const int64_t updates = info->step;
  *info = (DMuonStepInfo){.struct_size = sizeof *info,
                          .step = updates,
                          .nonfinite_rank = -1,
                          .grad_norm = NAN,
                          .muon_norm = NAN,
                          .adamw_norm = NAN,
                          .clip_factor = 1};
  info->samples = dmuon_ballot_mesh_at(opt->ballot, 0)->samples;
  if (ballot->nonfinite_param >= 0) {
    info->skipped = 1;
    info->nonfinite_name = registry->params[ballot->nonfinite_param].name;
    info->nonfinite_rank = ballot->nonfinite_rank;
    return;
  }
  info->step = updates + 1;
  if (opt->is_async ||
      dmuon_verdict_is_used(&opt->verdict)) { /* those of this step are known once it is done */
    info->seconds_reduce = before.seconds_reduce;
    info->seconds_update = before.seconds_update;
    info->seconds_publish = before.seconds_publish;
    info->seconds_newton_schulz = before.seconds_newton_schulz;
  }
  info->newton_schulz_calls = matrices_in_step(opt);
  if (opt->settings.clip == DMUON_CLIP_NONE) return;
  info->grad_norm = clip->grad_norm;
  info->muon_norm = clip->muon_norm;
  info->adamw_norm = clip->adamw_norm;
  info->clip_factor = clip->factor;
}

void dmuon_step_fill_seconds(DMuonOptimizer opt, int active_count) {
  DMuonStepInfo *info = &opt->info;
  info->seconds_reduce = info->seconds_update = info->seconds_publish = 0;
  info->seconds_newton_schulz = 0;
  for (int a = 0; a < active_count; a++) {
    const dmuon_bundle *bundle = &opt->runtime.packing.bundles[opt->active[a]];
    const dmuon_bundle_stamps *stamps = &opt->runtime.stamps[opt->active[a]];
    info->seconds_reduce += stamps->pack[1] - stamps->pack[0];
    info->seconds_reduce += stamps->update[1] - stamps->update[0];
    info->seconds_update += stamps->update[2] - stamps->update[1];
    info->seconds_publish += stamps->unpack[1] - stamps->unpack[0];
    for (int i = 0; i < bundle->count; i++) {
      const double *ns = &opt->ns_stamps[2 * bundle->params[i].id];
      const int p = bundle->params[i].param;
      if (bundle->params[i].is_mine && opt->routes[p] == DMUON_ROUTE_MUON &&
          dmuon_step_takes_part(opt, p))
        info->seconds_newton_schulz += ns[1] - ns[0];
    }
  }
  opt->seconds_known = 1;
}

DMuonErrorCode dmuon_step_hear_verdict(DMuonOptimizer opt) {
  dmuon_verdict *verdict = &opt->verdict;
  const dmuon_registry *registry = &opt->model->registry;
  DMuonStepInfo *info = &opt->info;
  if (!verdict->is_open) return DMUON_SUCCESS;
  verdict->is_open = 0;
  const int64_t *skipped = verdict->seen_counts;
  for (int p = 0; p < registry->param_count && !info->skipped; p++) {
    if (verdict->seen_flags[p] == 0) continue;
    info->skipped = 1;
    info->nonfinite_name = registry->params[p].name;
    info->newton_schulz_calls = 0;
  }
  for (int r = 0; r < verdict->size && info->skipped && info->nonfinite_rank < 0; r++)
    if (verdict->seen_flags[registry->param_count + r] != 0) info->nonfinite_rank = r;
  info->step -= skipped[registry->local_count];
  for (int id = 0; id < registry->local_count; id++) opt->states[id].step -= skipped[id];
  return dmuon_verdict_restart(verdict, &opt->runtime);
}
