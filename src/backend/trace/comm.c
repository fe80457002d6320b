/* Traced communicators. Around another backend they are that backend's own, with this table in
 * front; alone they are nothing but an axis, a role, a rank and a size, which the mesh fills in. */
#include <string.h>

#include "backend/trace/device_state.h"
#include "comm/count.h"

static trace_device *device_of(dmuon_comm *comm) {
  return (trace_device *)(void *)comm->device;
}

static const DMuonCommOps *inner_of(dmuon_comm *comm) {
  return device_of(comm)->inner ? device_of(comm)->inner_comm : NULL;
}

static DMuonErrorCode trace_create(dmuon_device *base, dmuon_bootstrap *bootstrap, DMuonAxis axis,
                                   dmuon_role role, dmuon_comm **comm) {
  trace_device *device = (trace_device *)(void *)base;
  dmuon_comm *made = NULL;
  if (device->inner) {
    DMUON_TRY(device->inner_comm->create(device->inner, bootstrap, axis, role, &made));
  } else {
    DMUON_TRY(dmuon_memory_alloc(&base->context->memory, 1, sizeof *made, &made));
    made->axis = axis;
    made->role = role;
    made->size = 1;
  }
  made->ops = &dmuon_trace_comm_ops;
  made->device = base;
  *comm = made;
  return DMUON_SUCCESS;
}

static void trace_free(dmuon_comm *comm) {
  if (!comm) return;
  const DMuonCommOps *inner = inner_of(comm);
  if (inner)
    inner->free(comm);
  else
    dmuon_memory_free(comm);
}

static DMuonErrorCode trace_reserve(dmuon_comm *comm, int64_t largest_segment,
                                    DMuonDType sum_dtype) {
  const DMuonCommOps *inner = inner_of(comm);
  if (inner) DMUON_TRY(inner->reserve(comm, largest_segment, sum_dtype));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_group_begin(dmuon_comm *comm) {
  const DMuonCommOps *inner = inner_of(comm);
  if (inner) DMUON_TRY(inner->group_begin(comm));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_group_end(dmuon_comm *comm) {
  const DMuonCommOps *inner = inner_of(comm);
  if (inner) DMUON_TRY(inner->group_end(comm));
  return DMUON_SUCCESS;
}

static void trace_abort(dmuon_comm *comm) {
  const DMuonCommOps *inner = inner_of(comm);
  if (inner) inner->abort(comm);
}

/* ---- operations ---------------------------------------------------------------------------- */

static DMuonErrorCode begin(dmuon_queue *queue, dmuon_comm *comm, dmuon_trace_operation operation,
                            DMuonDType dtype, dmuon_trace_record **record) {
  trace_queue *q = traced(queue);
  DMUON_TRY(dmuon_trace_log_add(&q->device->log, operation, q->number, record));
  if (!*record) return DMUON_SUCCESS;
  (*record)->comm = dmuon_trace_log_comm(&q->device->log, comm);
  (*record)->dtype = dtype;
  return DMUON_SUCCESS;
}

/* count elements from offset on of an array that may be NULL. */
static DMuonErrorCode touch(dmuon_queue *queue, const void *base, int64_t offset, int64_t count,
                            DMuonDType dtype, int is_write, int64_t padding) {
  const int64_t bytes = (int64_t)dmuon_dtype_bytes(dtype);
  if (!base) return DMUON_SUCCESS;
  return dmuon_trace_log_access(&traced(queue)->device->log, dmuon_dtype_at(base, offset, dtype),
                                count * bytes, is_write, padding * bytes);
}

static DMuonErrorCode piece(dmuon_queue *queue, int64_t from, int64_t to, int64_t offset,
                            int64_t count) {
  return dmuon_trace_log_piece(&traced(queue)->device->log, from, to, offset, count);
}

/* Alone, payload is counted here, as if all went well. */
static void count(dmuon_comm *comm, int64_t elements, DMuonDType dtype) {
  if (!inner_of(comm)) dmuon_count(comm, elements, dtype);
}

/* What a call on the inner device is passed on to: its queue, or NULL. */
static dmuon_queue *inner_queue(dmuon_queue *queue) {
  return traced(queue)->inner;
}

static DMuonErrorCode trace_gather_segments(dmuon_queue *queue, dmuon_comm *comm, int segment_count,
                                            const dmuon_segment *segments, DMuonDType dtype,
                                            void *buffer) {
  dmuon_trace_record *record;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_GATHER_SEGMENTS, dtype, &record));
  for (int i = 0; i < segment_count; i++)
    DMUON_TRY(piece(queue, segments[i].root, -1, segments[i].offset, segments[i].count));
  for (int is_write = 0; is_write < 2; is_write++)
    for (int i = 0; i < segment_count; i++) {
      const dmuon_segment *s = &segments[i];
      if ((s->root == comm->rank) != !is_write) continue;
      DMUON_TRY(touch(queue, buffer, s->offset, s->count, dtype, is_write, s->count - s->payload));
    }
  count(comm, dmuon_count_segments(comm->rank, segment_count, segments), dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner)
    DMUON_TRY(inner_of(comm)->gather_segments(inner, comm, segment_count, segments, dtype, buffer));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_reduce_segments(dmuon_queue *queue, dmuon_comm *comm,
                                            const dmuon_reduce *args) {
  dmuon_trace_record *record;
  int64_t mine = 0;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_REDUCE_SEGMENTS, args->in_dtype, &record));
  if (record) {
    record->sum_dtype = args->sum_dtype;
    record->prescale = args->prescale;
  }
  for (int i = 0; i < args->segment_count; i++) {
    const dmuon_segment *s = &args->segments[i];
    DMUON_TRY(piece(queue, s->root, -1, s->offset, s->count));
    DMUON_TRY(
        touch(queue, args->in, s->offset, s->count, args->in_dtype, 0, s->count - s->payload));
    if (s->root == comm->rank) mine += s->count;
  }
  DMUON_TRY(touch(queue, args->out, 0, mine, args->sum_dtype, 1, 0));
  count(comm, dmuon_count_segments(comm->rank, args->segment_count, args->segments),
        args->in_dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner) DMUON_TRY(inner_of(comm)->reduce_segments(inner, comm, args));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_move_segments(dmuon_queue *queue, dmuon_comm *comm, int move_count,
                                          const dmuon_move *moves, DMuonDType dtype, const void *in,
                                          void *out) {
  dmuon_trace_record *record;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_MOVE_SEGMENTS, dtype, &record));
  for (int i = 0; i < move_count; i++) {
    const dmuon_move *m = &moves[i];
    DMUON_TRY(piece(queue, m->from, m->to, m->in_offset, m->count));
    if (m->from == comm->rank)
      DMUON_TRY(touch(queue, in, m->in_offset, m->count, dtype, 0, m->count - m->payload));
  }
  for (int i = 0; i < move_count; i++)
    if (moves[i].to == comm->rank)
      DMUON_TRY(touch(queue, out, moves[i].out_offset, moves[i].count, dtype, 1, 0));
  count(comm, dmuon_count_moves(comm->rank, move_count, moves), dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner)
    DMUON_TRY(inner_of(comm)->move_segments(inner, comm, move_count, moves, dtype, in, out));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_broadcast(dmuon_queue *queue, dmuon_comm *comm, int root,
                                      int64_t elements, DMuonDType dtype, void *buffer) {
  dmuon_trace_record *record;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_BROADCAST, dtype, &record));
  DMUON_TRY(piece(queue, root, -1, 0, elements));
  DMUON_TRY(touch(queue, buffer, 0, elements, dtype, root != comm->rank, 0));
  count(comm, root == comm->rank ? 0 : elements, dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner) DMUON_TRY(inner_of(comm)->broadcast(inner, comm, root, elements, dtype, buffer));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_all_reduce(dmuon_queue *queue, dmuon_comm *comm, int64_t elements,
                                       DMuonDType dtype, void *buffer) {
  dmuon_trace_record *record;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_ALL_REDUCE, dtype, &record));
  DMUON_TRY(piece(queue, -1, -1, 0, elements));
  DMUON_TRY(touch(queue, buffer, 0, elements, dtype, 0, 0));
  DMUON_TRY(touch(queue, buffer, 0, elements, dtype, 1, 0));
  if (!inner_of(comm)) dmuon_count_all_reduce(comm, elements, dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner) DMUON_TRY(inner_of(comm)->all_reduce(inner, comm, elements, dtype, buffer));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_gather(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t elements,
                                   DMuonDType dtype, const void *in, void *out) {
  dmuon_trace_record *record;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_GATHER, dtype, &record));
  DMUON_TRY(piece(queue, root, -1, 0, elements));
  DMUON_TRY(touch(queue, in, 0, elements, dtype, 0, 0));
  if (root == comm->rank) DMUON_TRY(touch(queue, out, 0, elements * comm->size, dtype, 1, 0));
  count(comm, dmuon_count_parts(comm->rank, comm->size, root, elements), dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner) DMUON_TRY(inner_of(comm)->gather(inner, comm, root, elements, dtype, in, out));
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_scatter(dmuon_queue *queue, dmuon_comm *comm, int root,
                                    int64_t elements, DMuonDType dtype, const void *in, void *out) {
  dmuon_trace_record *record;
  DMUON_TRY(begin(queue, comm, DMUON_TRACE_SCATTER, dtype, &record));
  DMUON_TRY(piece(queue, root, -1, 0, elements));
  if (root == comm->rank) DMUON_TRY(touch(queue, in, 0, elements * comm->size, dtype, 0, 0));
  DMUON_TRY(touch(queue, out, 0, elements, dtype, 1, 0));
  count(comm, dmuon_count_parts(comm->rank, comm->size, root, elements), dtype);
  dmuon_queue *inner = inner_queue(queue);
  if (inner) DMUON_TRY(inner_of(comm)->scatter(inner, comm, root, elements, dtype, in, out));
  return DMUON_SUCCESS;
}

const DMuonCommOps dmuon_trace_comm_ops = {
    .name = "trace",
    .create = trace_create,
    .free = trace_free,
    .reserve = trace_reserve,
    .group_begin = trace_group_begin,
    .group_end = trace_group_end,
    .gather_segments = trace_gather_segments,
    .reduce_segments = trace_reduce_segments,
    .move_segments = trace_move_segments,
    .broadcast = trace_broadcast,
    .all_reduce = trace_all_reduce,
    .gather = trace_gather,
    .scatter = trace_scatter,
    .abort = trace_abort,
};
