/* The caller's stream, for devices that have streams: kept until there is a device, then told to
 * the device of each of the model's meshes. */
#include "mesh/mesh.h"
#include "optim/optimizer.h"

DMuonErrorCode dmuon_optimizer_apply_stream(DMuonOptimizer opt) {
  const dmuon_registry *registry = &opt->model->registry;
  for (int m = 0; opt->has_stream && m < registry->mesh_count; m++) {
    const DMuonMesh mesh = registry->meshes[m].mesh;
    if (mesh && mesh->device && mesh->device->ops->set_stream)
      DMUON_TRY(mesh->device->ops->set_stream(mesh->device, opt->stream));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonOptimizerSetStream(DMuonOptimizer opt, void *stream) {
  DMUON_TRY(dmuon_object_check(opt, DMUON_CLASS_OPTIMIZER));
  opt->stream = stream;
  opt->has_stream = 1;
  if (opt->object.is_set_up) DMUON_TRY(dmuon_optimizer_apply_stream(opt));
  return DMUON_SUCCESS;
}
