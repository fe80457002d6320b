/* Values on their way: from homes into a group's buffer, and from an update to all homes. */
#include "engine/lend.h"

#include "base/dtype.h"

static DMuonMesh mesh_of(const dmuon_lend *lend, const dmuon_bundle *bundle) {
  return lend->base->registry->meshes[bundle->mesh].mesh;
}

/* Fetches read a home that was published; what lay in the buffer is not needed any more. */
static DMuonErrorCode fetch_part(dmuon_lend *lend, const dmuon_group_bundle *part, char *buffer,
                                 dmuon_event *left, int before) {
  const dmuon_bundle *bundle = dmuon_lend_bundle(lend, part->bundle);
  dmuon_lent_bundle *lent = &lend->bundles[part->bundle];
  dmuon_queue *queue = lend->base->queues[bundle->mesh].unshard;
  dmuon_comm *comm = dmuon_mesh_comm(mesh_of(lend, bundle), DMUON_AXIS_SHARD, DMUON_ROLE_UNSHARD);
  const DMuonDeviceOps *ops = lend->base->device->ops;
  const int64_t element = (int64_t)dmuon_dtype_bytes(bundle->dtype);
  char *values = buffer + part->value_offset;
  const dmuon_group_plan *old = before < 0 ? NULL : &lend->groups.groups[before];
  DMUON_TRY(ops->event_wait(queue, left));
  for (int k = 0; old && k < old->part_count; k++)
    DMUON_TRY(ops->event_wait(queue, lend->bundles[old->parts[k].bundle].fetched));
  DMUON_TRY(ops->event_wait(queue, lent->published));
  DMUON_TRY(ops->discard(queue, values, part->value_bytes));
  if (bundle->home_count > 0)
    DMUON_TRY(ops->copy(queue, values + bundle->home_offset * element, lent->home,
                        bundle->home_count * element));
  DMUON_TRY(comm->ops->gather_segments(queue, comm, bundle->unshard_segment_count,
                                       bundle->unshard_segments, bundle->dtype, values));
  return ops->event_record(queue, lent->fetched);
}

DMuonErrorCode dmuon_lend_fetch(dmuon_lend *lend, int group, char *buffer, dmuon_event *left,
                                int before) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  for (int k = 0; k < plan->part_count; k++)
    DMUON_TRY(fetch_part(lend, &plan->parts[k], buffer, left, before));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_refetch(dmuon_lend *lend, int bundle) {
  const int g = dmuon_groups_find(&lend->groups, dmuon_lend_bundle(lend, bundle)->group);
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, g);
  const dmuon_lent_group *state = &lend->states[g];
  const int place = plan->is_z2 ? -1 : dmuon_pool_find(&lend->values, g);
  char *buffer = place >= 0 ? lend->value_buffers[place].data : state->z2_values;
  dmuon_event *left = place >= 0 ? lend->value_buffers[place].left : state->z2_left;
  if (plan->is_z2 ? !state->is_resident : place < 0) return DMUON_SUCCESS;
  for (int k = 0; k < plan->part_count; k++)
    if (plan->parts[k].bundle == bundle)
      DMUON_TRY(fetch_part(lend, &plan->parts[k], buffer, left, g));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_lend_await(dmuon_lend *lend, int group) {
  const dmuon_group_plan *plan = dmuon_lend_plan(lend, group);
  for (int k = 0; k < plan->part_count; k++)
    DMUON_TRY(lend->base->device->ops->event_wait(lend->caller,
                                                  lend->bundles[plan->parts[k].bundle].fetched));
  return DMUON_SUCCESS;
}

void *dmuon_lend_value(const dmuon_lend *lend, int b, int index) {
  const dmuon_bundle *bundle = dmuon_lend_bundle(lend, b);
  const dmuon_bundle_param *p = &bundle->params[index];
  const dmuon_lent_bundle *lent = &lend->bundles[b];
  const int64_t at = p->offset + p->mine_first;
  if (bundle->residency == DMUON_RESIDENCY_GATHERED)
    return dmuon_dtype_at(lent->staged, at - bundle->mine_offset, bundle->dtype);
  return dmuon_dtype_at(lent->home, at - bundle->home_offset, bundle->dtype);
}

/* Its old values may still be on their way to others. */
DMuonErrorCode dmuon_lend_before_update(dmuon_lend *lend, int b) {
  const DMuonDeviceOps *ops = lend->base->device->ops;
  DMUON_TRY(ops->event_wait(lend->base->compute, lend->bundles[b].fetched));
  return ops->event_wait(lend->base->compute, lend->bundles[b].published);
}

DMuonErrorCode dmuon_lend_publish(dmuon_lend *lend, int b) {
  const dmuon_bundle *bundle = dmuon_lend_bundle(lend, b);
  dmuon_lent_bundle *lent = &lend->bundles[b];
  const DMuonMesh mesh = mesh_of(lend, bundle);
  const DMuonDeviceOps *ops = lend->base->device->ops;
  dmuon_queue *queue = lend->base->queues[bundle->mesh].publish;
  dmuon_comm *shard = dmuon_mesh_comm(mesh, DMUON_AXIS_SHARD, DMUON_ROLE_UNSHARD);
  dmuon_comm *replicate = dmuon_mesh_comm(mesh, DMUON_AXIS_REPLICATE, DMUON_ROLE_PUBLISH);

  DMUON_TRY(ops->event_record(lend->base->compute, lent->updated));
  DMUON_TRY(ops->event_wait(queue, lent->updated));
  if (bundle->residency == DMUON_RESIDENCY_GATHERED) {
    DMUON_TRY(ops->event_wait(queue, lent->fetched));
    DMUON_TRY(shard->ops->move_segments(queue, shard, bundle->move_count, bundle->moves,
                                        bundle->dtype, lent->staged, lent->home));
  }
  for (int k = 0, first = 0; k < bundle->bucket_count; k++) {
    DMUON_TRY(replicate->ops->gather_segments(queue, replicate, bundle->bucket_end[k] - first,
                                              bundle->publish_segments + first, bundle->dtype,
                                              lent->home));
    first = bundle->bucket_end[k];
  }
  return ops->event_record(queue, lent->published);
}
