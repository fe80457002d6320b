/* Clipping by a global norm. Pure: from the norm of each parameter's averaged gradient, in registry
 * order, to factors. Each parameter counts once whatever its mesh, and the order of the sum does
 * not depend on who owns what. */
#ifndef DMUON_CLIP_CLIP_H
#define DMUON_CLIP_CLIP_H

#include "device/device.h"

typedef struct {
  double grad_norm, muon_norm, adamw_norm;  /* before clipping */
  double muon_factor, adamw_factor, factor; /* factor: the smaller of the two */
} dmuon_clip_result;

/* norms[count] with the route of each parameter; parameters without a gradient have norm zero.
 * The factor is min(1, max_norm / (norm + 1e-6)). */
void dmuon_clip_decide(DMuonClip kind, double max_norm, int count, const dmuon_norm *norms,
                       const DMuonRoute *routes, dmuon_clip_result *result);

#endif
