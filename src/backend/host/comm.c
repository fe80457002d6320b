/* The host's communicator: its life, its memory, and how an operation goes through its items. What
 * an item does is in comm_spread.c and comm_reduce.c; how operations are issued in comm_ops.c. */
#include "backend/host/comm_operation.h"

#include "backend/host/host.h"
#include "comm/count.h"

enum {
  DEFAULT_FANIN = 32,
  DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024,
  MOST_CHUNK_BYTES = 1 << 30, /* MPI counts messages with an int */
  COMPUTE_A_PASS = 1000000    /* elements added up in one look, about a millisecond */
};

DMuonErrorCode dmuon_host_comm_create(dmuon_device *device, dmuon_bootstrap *bootstrap,
                                      DMuonAxis axis, dmuon_role role, dmuon_comm **out) {
  host_comm *comm = NULL;
  MPI_Comm mpi = dmuon_bootstrap_comm(bootstrap, axis, role);
  DMUON_TRY(dmuon_bootstrap_check(bootstrap));
  DMUON_TRY(dmuon_memory_alloc(&device->context->memory, 1, sizeof *comm, &comm));
  comm->base.ops = &dmuon_host_comm_ops;
  comm->base.device = device;
  comm->base.axis = axis;
  comm->base.role = role;
  comm->base.size = 1; /* an axis of one rank has no communicator */
  comm->base.fanin = DEFAULT_FANIN;
  comm->base.chunk_bytes = DEFAULT_CHUNK_BYTES;
  comm->bootstrap = bootstrap;
  comm->engine = dmuon_host_device_engine(device);
  comm->memory = &device->context->memory;
  comm->port.comm = mpi;
  if (mpi != MPI_COMM_NULL &&
      (MPI_Comm_rank(mpi, &comm->base.rank) || MPI_Comm_size(mpi, &comm->base.size))) {
    dmuon_memory_free(comm);
    DMUON_FAIL(DMUON_ERR_COMM, "MPI_Comm_rank failed on the communicator of an axis");
  }
  *out = &comm->base;
  return DMUON_SUCCESS;
}

void dmuon_host_comm_free(dmuon_comm *base) {
  host_comm *comm = (host_comm *)base;
  if (!comm) return;
  if (comm->channel.issued != comm->channel.finished) {
    /* Other ranks may be in the middle of it: nobody else gets this communicator. */
    DMuonErrorCode code = dmuon_bootstrap_check(comm->bootstrap);
    if (!code)
      code = DMUON_ERROR(DMUON_ERR_INTERNAL, "a communicator was freed with operations unfinished");
    dmuon_bootstrap_break(comm->bootstrap, code);
    dmuon_host_engine_break(comm->engine, code); /* which drops them */
  }
  if (!comm->block_is_left) dmuon_memory_free(comm->block);
  dmuon_memory_free(comm->next_block);
  dmuon_memory_free(comm);
}

void dmuon_host_comm_abort(dmuon_comm *base) {
  host_comm *comm = (host_comm *)base;
  if (!comm->aborted) comm->aborted = DMUON_ERR_REVOKED;
}

/* What MPI may still use is not given back: the chunk buffers, or a buffer of some device. */
static void give_up_transfer(host_comm *comm, dmuon_transfer *transfer) {
  if (!dmuon_transfer_give_up(transfer)) return;
  const uintptr_t at = (uintptr_t)transfer->buffer, block = (uintptr_t)comm->block;
  if (block && at >= block && at - block < (uintptr_t)(comm->buffer_count * comm->buffer_bytes))
    comm->block_is_left = 1;
  else
    dmuon_host_buffer_leave(comm->engine, transfer->buffer);
}

void dmuon_host_comm_give_up(dmuon_host_engine *engine, void *args) {
  host_operation *operation = args;
  host_comm *comm = operation->comm;
  (void)engine;
  if (!operation->started || !comm->active) return;
  for (int64_t k = comm->first; k < comm->end; k++) {
    host_slot *slot = &comm->slots[k % HOST_WINDOW];
    give_up_transfer(comm, &slot->in);
    for (int i = 0; i < DMUON_TREE_DEPTH; i++) give_up_transfer(comm, &slot->leg[i]);
  }
  for (int i = 0; i < HOST_RECEIVES; i++) give_up_transfer(comm, &comm->collector.in[i]);
  comm->active = 0;
}

static int64_t chunk_elements(const host_comm *comm, DMuonDType a, DMuonDType b) {
  int64_t bytes = comm->base.chunk_bytes, wide = (int64_t)dmuon_dtype_bytes(a);
  if ((int64_t)dmuon_dtype_bytes(b) > wide) wide = (int64_t)dmuon_dtype_bytes(b);
  if (bytes > MOST_CHUNK_BYTES) bytes = MOST_CHUNK_BYTES;
  return bytes / wide > 0 ? bytes / wide : 1;
}

static DMuonErrorCode ensure_buffers(host_comm *comm, int64_t bytes, int count) {
  int more = comm->next_block ? bytes > comm->next_buffer_bytes || count > comm->next_buffer_count
                              : bytes > comm->buffer_bytes || count > comm->buffer_count;
  if (more) {
    if (bytes < comm->buffer_bytes) bytes = comm->buffer_bytes;
    if (count < comm->buffer_count) count = comm->buffer_count;
    if (bytes < comm->next_buffer_bytes) bytes = comm->next_buffer_bytes;
    if (count < comm->next_buffer_count) count = comm->next_buffer_count;
    bytes = (bytes + 63) / 64 * 64;
    char *block;
    if (!comm->active && !comm->next_block) dmuon_memory_release(&comm->block);
    if (!comm->block) comm->buffer_bytes = 0, comm->buffer_count = 0;
    DMUON_TRY(dmuon_memory_alloc(comm->memory, count * bytes, 1, &block));
    dmuon_memory_free(comm->next_block);
    comm->next_block = block;
    comm->next_buffer_bytes = bytes;
    comm->next_buffer_count = count;
  }
  if (comm->active || !comm->next_block) return DMUON_SUCCESS;
  dmuon_memory_free(comm->block);
  comm->block = comm->next_block;
  comm->buffer_bytes = comm->next_buffer_bytes;
  comm->buffer_count = comm->next_buffer_count;
  comm->next_block = NULL;
  comm->next_buffer_bytes = 0;
  comm->next_buffer_count = 0;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_host_comm_reserve(dmuon_comm *base, int64_t largest_segment,
                                       DMuonDType sum_dtype) {
  host_comm *comm = (host_comm *)base;
  int64_t chunk = chunk_elements(comm, sum_dtype, sum_dtype);
  if (largest_segment < chunk) chunk = largest_segment;
  if (chunk <= 0) return DMUON_SUCCESS;
  return ensure_buffers(comm, chunk * (int64_t)dmuon_dtype_bytes(sum_dtype),
                        dmuon_host_reduce_buffers(comm->base.size, comm->base.fanin));
}

dmuon_segment dmuon_host_segment(const host_operation *operation, int size, int i) {
  if (operation->segments) return operation->segments[i];
  if (operation->kind == HOST_MOVE)
    return (dmuon_segment){.root = operation->moves[i].from,
                           .count = operation->moves[i].count,
                           .payload = operation->moves[i].payload};
  dmuon_segment segment = {.root = operation->root, .count = operation->count};
  if (operation->kind != HOST_GATHER && operation->kind != HOST_SCATTER &&
      operation->segment_count > 1)
    return dmuon_part(size, operation->count, i);
  segment.payload = segment.count;
  return segment;
}

/* The next chunk: level by level, at each level every segment that reaches so far. */
static int next_item(host_comm *comm, host_item *item) {
  const host_operation *operation = &comm->operation;
  while (!comm->exhausted) {
    if (comm->next_segment == operation->segment_count) {
      if (!comm->more) {
        comm->exhausted = 1;
        break;
      }
      comm->more = 0;
      comm->next_segment = 0;
      comm->level++;
    }
    int i = comm->next_segment++;
    dmuon_segment segment = dmuon_host_segment(operation, comm->base.size, i);
    int64_t at = comm->level * comm->chunk, left = segment.count - at;
    if (left <= 0) continue;
    if (left > comm->chunk) comm->more = 1;
    item->segment = i;
    item->root = segment.root;
    item->offset = segment.offset + at;
    item->count = left < comm->chunk ? left : comm->chunk;
    item->out_offset = at;
    if (operation->kind == HOST_REDUCE && segment.root == comm->base.rank) {
      for (int k = 0; k < i; k++) {
        dmuon_segment before = dmuon_host_segment(operation, comm->base.size, k);
        if (before.root == segment.root) item->out_offset += before.count;
      }
    }
    return 1;
  }
  return 0;
}

static DMuonErrorCode begin(host_comm *comm, const host_operation *operation) {
  DMuonDType wide = operation->kind == HOST_REDUCE ? operation->sum_dtype : operation->in_dtype;
  comm->chunk = chunk_elements(comm, operation->in_dtype, wide);
  comm->is_tree = comm->base.size > 1 && comm->base.size > comm->base.fanin;
  if (operation->kind == HOST_REDUCE) {
    int64_t largest = 0;
    for (int i = 0; i < operation->segment_count; i++) {
      dmuon_segment segment = dmuon_host_segment(operation, comm->base.size, i);
      if (segment.count > largest) largest = segment.count;
    }
    if (largest > comm->chunk) largest = comm->chunk;
    int64_t bytes = (int64_t)dmuon_dtype_bytes(wide);
    if ((int64_t)dmuon_dtype_bytes(operation->in_dtype) > bytes)
      bytes = (int64_t)dmuon_dtype_bytes(operation->in_dtype);
    DMUON_TRY(ensure_buffers(comm, largest * bytes,
                             dmuon_host_reduce_buffers(comm->base.size, comm->base.fanin)));
  }
  comm->operation = *operation;
  comm->active = 1;
  comm->idle_before = dmuon_host_engine_idle_seconds(comm->engine);
  comm->level = 0;
  comm->next_segment = 0;
  comm->more = 0;
  comm->exhausted = 0;
  comm->tree_slots = 0;
  comm->collector.ordinal = -1;
  return DMUON_SUCCESS;
}

/* Payload that came from or went to other ranks, whatever way it took. */
static void count(host_comm *comm) {
  const host_operation *operation = &comm->operation;
  int64_t elements = 0;
  for (int i = 0; i < operation->segment_count; i++) {
    dmuon_segment segment = dmuon_host_segment(operation, comm->base.size, i);
    int rank = comm->base.rank, is_root = segment.root == rank;
    switch (operation->kind) {
      case HOST_SPREAD:
      case HOST_REDUCE:
        if (!is_root) elements += segment.payload;
        break;
      case HOST_GATHER:
      case HOST_SCATTER:
        if (i != segment.root && (is_root || i == rank)) elements += segment.payload;
        break;
      case HOST_MOVE:
        if (!is_root && operation->moves[i].to == rank) elements += segment.payload;
        break;
    }
  }
  dmuon_count(&comm->base, elements, operation->in_dtype);
}

static DMuonErrorCode advance_item(host_comm *comm, host_slot *slot) {
  switch (comm->operation.kind) {
    case HOST_SPREAD:
      return dmuon_host_advance_spread(comm, slot);
    case HOST_REDUCE:
      return comm->is_tree ? dmuon_host_advance_tree(comm, slot)
                           : dmuon_host_advance_direct(comm, slot);
    default:
      return dmuon_host_advance_pair(comm, slot);
  }
}

static void fill_window(host_comm *comm) {
  host_item item = {0};
  while (comm->end - comm->first < HOST_WINDOW && next_item(comm, &item)) {
    host_slot *slot = &comm->slots[comm->end % HOST_WINDOW];
    item.ordinal = comm->end++;
    slot->item = item;
    slot->stage = 0;
    slot->done = 0;
    slot->tree_slot = -1;
    slot->next = 0;
    slot->leg_count = 0;
    slot->in.state = DMUON_TRANSFER_IDLE;
    for (int i = 0; i < DMUON_TREE_DEPTH; i++) slot->leg[i].state = DMUON_TRANSFER_IDLE;
  }
}

DMuonErrorCode dmuon_host_comm_advance(dmuon_host_engine *engine, void *args, int *done) {
  host_operation *operation = args;
  host_comm *comm = operation->comm;
  if (comm->aborted) DMUON_FAIL(comm->aborted, "%s was given up", operation->name);
  if (!operation->started) {
    DMUON_TRY(begin(comm, operation));
    operation->started = 1;
  }
  int64_t moves = comm->port.moves, messages = comm->port.messages, seen;
  comm->port.delay = dmuon_host_engine_delay(engine);
  comm->compute_left = COMPUTE_A_PASS;
  comm->tree_is_blocked = 0;
  do { /* again while items end, so that small ones go through in one pass */
    seen = comm->first;
    fill_window(comm);
    for (int64_t k = comm->first; k < comm->end; k++) {
      host_slot *slot = &comm->slots[k % HOST_WINDOW];
      if (!slot->done) DMUON_TRY(advance_item(comm, slot));
    }
    while (comm->first < comm->end && comm->slots[comm->first % HOST_WINDOW].done) comm->first++;
  } while (comm->first > seen && comm->compute_left > 0);
  comm->base.counters.messages += comm->port.messages - messages;
  if (comm->port.moves != moves) dmuon_host_engine_note_progress(engine);
  if (comm->exhausted && comm->first == comm->end) {
    count(comm);
    comm->base.counters.seconds_waited +=
        dmuon_host_engine_idle_seconds(engine) - comm->idle_before;
    comm->active = 0;
    *done = 1;
  }
  return DMUON_SUCCESS;
}

/* Adds the peers of unfinished transfers, each once. */
static int add_peer(dmuon_text *text, const dmuon_transfer *transfer, int *seen, int count) {
  if (!dmuon_transfer_is_pending(transfer)) return count;
  for (int i = 0; i < count; i++)
    if (seen[i] == transfer->peer) return count;
  if (count < DMUON_TREE_DEPTH) {
    dmuon_text_add(text, count ? ", %d" : " with rank %d", transfer->peer);
    seen[count++] = transfer->peer;
  }
  return count;
}

void dmuon_host_comm_describe(const void *args, dmuon_text *text) {
  static const char *const axes[] = {"replicate", "shard", "tp", "whole"};
  const host_operation *operation = args;
  const host_comm *comm = operation->comm;
  int seen[DMUON_TREE_DEPTH], count = 0;
  dmuon_text_add(text, "%s on the %s axis", operation->name, axes[comm->base.axis]);
  if (!operation->started || !comm->active || comm->first == comm->end) return;
  /* Whom the oldest item waits for: younger ones may wait for ranks that are stuck themselves. */
  const host_slot *slot = &comm->slots[comm->first % HOST_WINDOW];
  if (comm->collector.ordinal == slot->item.ordinal)
    for (int i = 0; i < HOST_RECEIVES; i++)
      count = add_peer(text, &comm->collector.in[i], seen, count);
  count = add_peer(text, &slot->in, seen, count);
  for (int i = 0; i < DMUON_TREE_DEPTH; i++) count = add_peer(text, &slot->leg[i], seen, count);
  if (count) dmuon_text_add(text, " of %d", comm->base.size);
}
