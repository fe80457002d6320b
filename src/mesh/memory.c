/* Memory where the mesh computes, for programs: their own pool for the library's buffers, buffers
 * of the mesh's device for theirs, and copies. It decides nothing about what lies where. */
#include <stdio.h>
#include <string.h>

#include "mesh/backends.h"
#include "mesh/mesh.h"

DMuonErrorCode DMuonMeshSetAllocator(DMuonMesh mesh, DMuonAllocFunction alloc,
                                     DMuonFreeFunction release, void *ctx) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 0, __func__));
  if (!alloc != !release)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is NULL; both functions are wanted, or neither",
               alloc ? "release" : "alloc");
  mesh->alloc = alloc;
  mesh->release = release;
  mesh->alloc_context = ctx;
  return DMUON_SUCCESS;
}

void dmuon_mesh_extras(DMuonMesh mesh, dmuon_backend_extras *extras) {
  *extras = (dmuon_backend_extras){.ordinal = mesh->ordinal,
                                   .pci = dmuon_mesh_bound_gpu(mesh),
                                   .rank = mesh->rank,
                                   .reduce_nccl = mesh->settings.reduce == DMUON_REDUCE_NCCL,
                                   .module_path = mesh->settings.module_path,
                                   .alloc = mesh->alloc,
                                   .release = mesh->release,
                                   .alloc_context = mesh->alloc_context};
}

/* A mesh that has a device to ask. */
static DMuonErrorCode check_device(DMuonMesh mesh, const char *call) {
  DMUON_TRY(dmuon_mesh_check(mesh));
  DMUON_TRY(dmuon_object_check_state(mesh, DMUON_CLASS_MESH, 1, call));
  if (!mesh->device)
    DMUON_FAIL(DMUON_ERR_STATE, "%s: a plan mesh computes nowhere, and has no memory", call);
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshAlloc(DMuonMesh mesh, int64_t bytes, void **ptr) {
  void *made = NULL;
  DMUON_TRY(check_device(mesh, __func__));
  if (!ptr) DMUON_FAIL(DMUON_ERR_ARGUMENT, "ptr is NULL; a place for the pointer is wanted");
  if (bytes < 0)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "bytes is %lld, must be at least 0", (long long)bytes);
  DMUON_TRY(mesh->device->ops->alloc(mesh->device, bytes, &made));
  *ptr = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshFree(DMuonMesh mesh, void **ptr) {
  if (!ptr || !*ptr) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_object_check(mesh, DMUON_CLASS_MESH));
  if (mesh->device) mesh->device->ops->free(mesh->device, *ptr);
  *ptr = NULL;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonMeshCopy(DMuonMesh mesh, void *dst, const void *src, int64_t bytes) {
  DMUON_TRY(check_device(mesh, __func__));
  if (bytes < 0)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "bytes is %lld, must be at least 0", (long long)bytes);
  if (bytes == 0) return DMUON_SUCCESS;
  if (!dst || !src)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is NULL, with %lld bytes to copy", dst ? "src" : "dst",
               (long long)bytes);
  const DMuonDeviceOps *ops = mesh->device->ops;
  if (!mesh->copies) DMUON_TRY(ops->queue_create(mesh->device, 0, &mesh->copies));
  /* Behind the caller's stream, which is behind all that was lent to him. That is waited for before
   * the copy, not by it: a copy of pageable memory waits without looking at anything else. */
  DMuonErrorCode code = ops->reclaim(mesh->copies, dst, bytes, 1);
  if (!code) code = ops->queue_sync(mesh->copies);
  if (!code) code = ops->copy(mesh->copies, dst, src, bytes);
  DMuonErrorCode done = ops->queue_sync(mesh->copies);
  dmuon_mesh_break(mesh, code ? code : done);
  DMUON_TRY(code);
  DMUON_TRY(done);
  return DMUON_SUCCESS;
}
