/* From the norms of all parameters to the factors that clipping multiplies gradients by. */
#include "clip/clip.h"

static double factor_for(double norm, double max_norm) {
  double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

void dmuon_clip_decide(DMuonClip kind, double max_norm, int count, const dmuon_norm *norms,
                       const DMuonRoute *routes, dmuon_clip_result *result) {
  dmuon_norm all = {0, 0}, muon = {0, 0}, adamw = {0, 0};
  for (int i = 0; i < count; i++) {
    dmuon_norm *part = routes[i] == DMUON_ROUTE_MUON ? &muon : &adamw;
    all = dmuon_norm_combine(&all, &norms[i]);
    *part = dmuon_norm_combine(part, &norms[i]);
  }
  result->grad_norm = dmuon_norm_value(&all);
  result->muon_norm = dmuon_norm_value(&muon);
  result->adamw_norm = dmuon_norm_value(&adamw);
  result->muon_factor = result->adamw_factor = 1;
  if (kind == DMUON_CLIP_GLOBAL)
    result->muon_factor = result->adamw_factor = factor_for(result->grad_norm, max_norm);
  if (kind == DMUON_CLIP_BY_ROUTE) {
    result->muon_factor = factor_for(result->muon_norm, max_norm);
    result->adamw_factor = factor_for(result->adamw_norm, max_norm);
  }
  result->factor =
      result->muon_factor < result->adamw_factor ? result->muon_factor : result->adamw_factor;
}
