/* Items that move data and add nothing: a chunk from its root to all ranks, in place, along a tree;
 * and a chunk from one rank to another. */
#include "backend/host/comm_state.h"

#include <string.h>

enum { FRESH = 0, RECEIVING, SENDING };

static DMuonErrorCode advance_legs(host_comm *comm, host_slot *slot) {
  int pending = 0;
  for (int i = 0; i < slot->leg_count; i++) {
    if (!dmuon_transfer_is_pending(&slot->leg[i])) continue;
    DMUON_TRY(dmuon_transfer_advance(&comm->port, &slot->leg[i]));
    pending |= dmuon_transfer_is_pending(&slot->leg[i]);
  }
  slot->done = !pending;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_advance_spread(host_comm *comm, host_slot *slot) {
  const host_operation *operation = &comm->operation;
  const host_item *item = &slot->item;
  void *data = dmuon_dtype_at(operation->out, item->offset, operation->in_dtype);
  int64_t bytes = item->count * (int64_t)dmuon_dtype_bytes(operation->in_dtype);
  uint32_t number = (uint32_t)item->ordinal;
  dmuon_tree_spread plan;
  if (slot->stage == FRESH || slot->stage == RECEIVING)
    dmuon_tree_spread_plan(comm->base.rank, comm->base.size, item->root, &plan);
  if (slot->stage == FRESH) {
    slot->stage = RECEIVING;
    if (plan.parent >= 0)
      DMUON_TRY(dmuon_transfer_receive(&comm->port, &slot->in, data, bytes, plan.parent, number));
  }
  if (slot->stage == RECEIVING) {
    if (plan.parent >= 0) {
      DMUON_TRY(dmuon_transfer_advance(&comm->port, &slot->in));
      if (dmuon_transfer_is_pending(&slot->in)) return DMUON_SUCCESS;
    }
    slot->stage = SENDING;
    slot->leg_count = plan.count;
    for (int i = 0; i < plan.count; i++)
      DMUON_TRY(
          dmuon_transfer_send(&comm->port, &slot->leg[i], data, bytes, plan.child[i], number));
  }
  return advance_legs(comm, slot);
}

/* From whom to whom, and where the item begins in the arrays of the two. */
typedef struct {
  int from, to;
  int64_t in_offset, out_offset;
} leg;

static leg leg_of(const host_operation *operation, const host_item *item) {
  const int part = item->segment; /* equal parts: the rank whose part it is */
  const int64_t whole = part * operation->count + item->offset; /* in the root's array */
  if (operation->kind == HOST_GATHER) return (leg){part, item->root, item->offset, whole};
  if (operation->kind == HOST_SCATTER) return (leg){item->root, part, whole, item->offset};
  const dmuon_move *move = &operation->moves[part];
  return (leg){move->from, move->to, move->in_offset + item->offset,
               move->out_offset + item->offset};
}

DMuonErrorCode dmuon_host_advance_pair(host_comm *comm, host_slot *slot) {
  const host_operation *operation = &comm->operation;
  const host_item *item = &slot->item;
  const DMuonDType dtype = operation->in_dtype;
  const leg way = leg_of(operation, item);
  const int rank = comm->base.rank, from = way.from, to = way.to;
  const int64_t bytes = item->count * (int64_t)dmuon_dtype_bytes(dtype);
  const void *in = dmuon_dtype_at(operation->in, way.in_offset, dtype);
  void *out = dmuon_dtype_at(operation->out, way.out_offset, dtype);
  if (slot->stage == FRESH) {
    slot->stage = SENDING;
    slot->leg_count = 1;
    slot->leg[0].state = DMUON_TRANSFER_DONE;
    if (rank == from && rank == to) {
      if (in != out) memmove(out, in, (size_t)bytes);
      comm->port.moves++;
    } else if (rank == from) {
      DMUON_TRY(
          dmuon_transfer_send(&comm->port, &slot->leg[0], in, bytes, to, (uint32_t)item->ordinal));
    } else if (rank == to) {
      DMUON_TRY(dmuon_transfer_receive(&comm->port, &slot->leg[0], out, bytes, from,
                                       (uint32_t)item->ordinal));
    }
  }
  return advance_legs(comm, slot);
}
