/* Items that add up: the contributions of all ranks to one chunk, in the one association of
 * comm/tree.h. Two ways with the same bits.
 *
 * Direct: every rank sends its contribution to the root, which takes them in rank order into the
 * stack of a binary counter; few are posted at a time, so memory does not grow with the ranks.
 * Tree: partial sums travel along the same association; each rank has one partial sum an item and
 * one buffer for what comes in. Bare contributions travel in their own type, partial sums in the
 * sum's. */
#include "backend/host/comm_state.h"

#include "backend/host/sum.h"

enum { FRESH = 0, COLLECTING, SENDING };

int dmuon_host_reduce_buffers(int size, int fanin) {
  if (size == 1) return 1;
  if (size <= fanin) return dmuon_counter_depth(size) + HOST_RECEIVES;
  return 2 * HOST_TREE_SLOTS;
}

static const void *contribution(const host_comm *comm, const host_item *item) {
  return dmuon_dtype_at(comm->operation.in, item->offset, comm->operation.in_dtype);
}

static void finish(const host_comm *comm, const host_item *item, const void *total) {
  const host_operation *operation = &comm->operation;
  dmuon_sum_finish(item->count, operation->sum_dtype,
                   dmuon_dtype_at(operation->out, item->out_offset, operation->sum_dtype), total,
                   operation->divisor);
}

static DMuonErrorCode send(host_comm *comm, host_slot *slot, const void *data, DMuonDType dtype,
                           int to) {
  slot->stage = SENDING;
  return dmuon_transfer_send(&comm->port, &slot->leg[0], data,
                             slot->item.count * (int64_t)dmuon_dtype_bytes(dtype), to,
                             (uint32_t)slot->item.ordinal);
}

static DMuonErrorCode advance_send(host_comm *comm, host_slot *slot) {
  DMUON_TRY(dmuon_transfer_advance(&comm->port, &slot->leg[0]));
  slot->done = !dmuon_transfer_is_pending(&slot->leg[0]);
  return DMUON_SUCCESS;
}

/* Adds contribution `rank` (counted so that a pass stays short), as the counter says. */
static void take(host_comm *comm, const host_item *item, int rank, const void *data) {
  const host_operation *operation = &comm->operation;
  host_collector *c = &comm->collector;
  DMuonDType sum = operation->sum_dtype, dtype = operation->in_dtype;
  int merges = dmuon_counter_merges(rank);
  if (merges > 0) {
    dmuon_sum_add_widened(item->count, sum, host_buffer(comm, c->depth - 1), dtype, data,
                          operation->prescale);
    merges--;
  } else {
    dmuon_sum_widen(item->count, sum, host_buffer(comm, c->depth++), dtype, data,
                    operation->prescale);
  }
  int last = rank == comm->base.size - 1;
  for (; merges > 0 || (last && c->depth > 1); merges--) {
    c->depth--;
    dmuon_sum_add(item->count, sum, host_buffer(comm, c->depth - 1), host_buffer(comm, c->depth));
  }
  comm->compute_left -= item->count;
  comm->port.moves++;
}

/* Receives are posted in rank order, at most HOST_RECEIVES ahead of what was taken. A receive's
 * place is its number among the other ranks. */
static DMuonErrorCode post(host_comm *comm, const host_item *item) {
  host_collector *c = &comm->collector;
  int rank = comm->base.rank, first_buffer = comm->buffer_count - HOST_RECEIVES;
  int64_t bytes = item->count * (int64_t)dmuon_dtype_bytes(comm->operation.in_dtype);
  for (; c->posted < comm->base.size; c->posted++) {
    if (c->posted == rank) continue;
    int number = c->posted - (c->posted > rank), taken = c->taken - (c->taken > rank);
    if (number - taken >= HOST_RECEIVES) break;
    int place = number % HOST_RECEIVES;
    DMUON_TRY(dmuon_transfer_receive(&comm->port, &c->in[place],
                                     host_buffer(comm, first_buffer + place), bytes, c->posted,
                                     (uint32_t)item->ordinal));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode collect(host_comm *comm, host_slot *slot) {
  host_collector *c = &comm->collector;
  const host_item *item = &slot->item;
  int rank = comm->base.rank, first_buffer = comm->buffer_count - HOST_RECEIVES;
  DMUON_TRY(post(comm, item));
  while (c->taken < comm->base.size) {
    int number = c->taken - (c->taken > rank), place = number % HOST_RECEIVES;
    if (c->taken != rank) {
      DMUON_TRY(dmuon_transfer_advance(&comm->port, &c->in[place]));
      if (dmuon_transfer_is_pending(&c->in[place])) return DMUON_SUCCESS;
    }
    if (comm->compute_left <= 0) return DMUON_SUCCESS;
    const void *data = c->taken == rank ? contribution(comm, item)
                                        : (const void *)host_buffer(comm, first_buffer + place);
    take(comm, item, c->taken, data);
    c->taken++;
    DMUON_TRY(post(comm, item));
  }
  finish(comm, item, host_buffer(comm, 0));
  c->ordinal = -1;
  slot->done = 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_advance_direct(host_comm *comm, host_slot *slot) {
  const host_item *item = &slot->item;
  if (comm->base.rank != item->root) {
    if (slot->stage == FRESH)
      DMUON_TRY(send(comm, slot, contribution(comm, item), comm->operation.in_dtype, item->root));
    return advance_send(comm, slot);
  }
  host_collector *c = &comm->collector;
  if (slot->stage == FRESH) {
    if (c->ordinal >= 0) return DMUON_SUCCESS; /* an older item of this root */
    slot->stage = COLLECTING;
    c->ordinal = item->ordinal;
    c->posted = c->taken = c->depth = 0;
  }
  return collect(comm, slot);
}

static DMuonErrorCode receive_peer(host_comm *comm, host_slot *slot, const dmuon_tree_sum *plan) {
  const host_operation *operation = &comm->operation;
  DMuonDType dtype = plan->peer_is_leaf[slot->next] ? operation->in_dtype : operation->sum_dtype;
  return dmuon_transfer_receive(&comm->port, &slot->in, host_buffer(comm, 2 * slot->tree_slot + 1),
                                slot->item.count * (int64_t)dmuon_dtype_bytes(dtype),
                                plan->peer[slot->next], (uint32_t)slot->item.ordinal);
}

static void release_tree_slot(host_comm *comm, host_slot *slot) {
  if (slot->tree_slot >= 0) comm->tree_slots &= ~(1 << slot->tree_slot);
  slot->tree_slot = -1;
}

static DMuonErrorCode begin_tree(host_comm *comm, host_slot *slot, const dmuon_tree_sum *plan) {
  const host_operation *operation = &comm->operation;
  const host_item *item = &slot->item;
  if (plan->count == 0 && plan->parent >= 0)
    return send(comm, slot, contribution(comm, item), operation->in_dtype, plan->parent);
  int place = 0;
  while (place < HOST_TREE_SLOTS && (comm->tree_slots >> place & 1)) place++;
  if (place == HOST_TREE_SLOTS) comm->tree_is_blocked = 1;
  /* Never before an older item that waits for a place, and never too much adding in one pass. */
  if (comm->tree_is_blocked || comm->compute_left <= 0) {
    comm->tree_is_blocked = 1;
    return DMUON_SUCCESS;
  }
  comm->tree_slots |= 1 << place;
  slot->tree_slot = place;
  slot->stage = COLLECTING;
  slot->next = 0;
  if (plan->count > 0) DMUON_TRY(receive_peer(comm, slot, plan));
  dmuon_sum_widen(item->count, operation->sum_dtype, host_buffer(comm, 2 * place),
                  operation->in_dtype, contribution(comm, item), operation->prescale);
  comm->compute_left -= item->count;
  comm->port.moves++;
  return DMUON_SUCCESS;
}

static DMuonErrorCode collect_tree(host_comm *comm, host_slot *slot, const dmuon_tree_sum *plan) {
  const host_operation *operation = &comm->operation;
  const host_item *item = &slot->item;
  char *total = host_buffer(comm, 2 * slot->tree_slot), *other = total + comm->buffer_bytes;
  while (slot->next < plan->count) {
    DMUON_TRY(dmuon_transfer_advance(&comm->port, &slot->in));
    if (dmuon_transfer_is_pending(&slot->in) || comm->compute_left <= 0) return DMUON_SUCCESS;
    /* Left or right does not matter to the bits of one addition. */
    if (plan->peer_is_leaf[slot->next]) {
      dmuon_sum_add_widened(item->count, operation->sum_dtype, total, operation->in_dtype, other,
                            operation->prescale);
    } else {
      dmuon_sum_add(item->count, operation->sum_dtype, total, other);
    }
    comm->compute_left -= item->count;
    comm->port.moves++;
    slot->next++;
    if (slot->next < plan->count) DMUON_TRY(receive_peer(comm, slot, plan));
  }
  if (plan->parent >= 0) return send(comm, slot, total, operation->sum_dtype, plan->parent);
  finish(comm, item, total);
  release_tree_slot(comm, slot);
  slot->done = 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_advance_tree(host_comm *comm, host_slot *slot) {
  if (slot->stage != SENDING) {
    dmuon_tree_sum plan;
    dmuon_tree_sum_plan(comm->base.rank, comm->base.size, slot->item.root, &plan);
    if (slot->stage == FRESH) DMUON_TRY(begin_tree(comm, slot, &plan));
    if (slot->stage == COLLECTING) DMUON_TRY(collect_tree(comm, slot, &plan));
  }
  if (slot->stage == SENDING) {
    DMUON_TRY(advance_send(comm, slot));
    if (slot->done) release_tree_slot(comm, slot);
  }
  return DMUON_SUCCESS;
}
