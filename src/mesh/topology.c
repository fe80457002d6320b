/* What a program says of the machine, and what it can ask about it. */
#include <string.h>

#include "mesh/mesh.h"

DMuonErrorCode DMuonMeshSetTopology(DMuonMesh mesh, const char *topology) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 0, __func__));
  if (!topology || !topology[0])
    DMUON_FAIL(
        DMUON_ERR_ARGUMENT,
        "topology is %s; a file, a text (\"node:16 gpu:8 nvlink:all ib:4\"), auto, detect or "
        "none is wanted",
        topology ? "empty" : "NULL");
  const int option = dmuon_options_find(&dmuon_mesh_option_table, "topology");
  DMUON_TRY(dmuon_options_store(&mesh->context.memory, &dmuon_mesh_option_table.specs[option],
                                topology, &mesh->settings));
  mesh->program[option] = 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshGetLink(DMuonMesh mesh, DMuonAxis axis, DMuonLinkInfo *info) {
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, __func__));
  if ((int)axis < 0 || axis >= DMUON_AXIS_ALL)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "axis %d is none of replicate, shard, tp", (int)axis);
  if (!info || info->struct_size < sizeof info->struct_size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "info %s; set info.struct_size = sizeof info (%zu)",
               info ? "says no size" : "is NULL", sizeof *info);
  const dmuon_link *link = &mesh->links[axis];
  const DMuonLinkInfo all = {.struct_size = info->struct_size,
                             .link_class = link->link_class,
                             .is_measured = link->is_measured,
                             .latency_seconds = link->latency,
                             .bytes_per_second = link->bandwidth};
  memcpy(info, &all, all.struct_size < sizeof all ? all.struct_size : sizeof all);
  return DMUON_SUCCESS;
}
