/* The host's table of communication operations: each checks its arguments, puts them into a task
 * and issues it on the communicator's channel. How a task runs is comm.c's. */
#include "backend/host/comm_operation.h"

#include "backend/host/host.h"
#include "comm/check.h"
#include "comm/count.h"

_Static_assert(sizeof(host_operation) <= DMUON_HOST_TASK_BYTES,
               "an operation does not fit into a task");

static const dmuon_host_task_class comm_task = {
    .name = "communication",
    .advance = dmuon_host_comm_advance,
    .describe = dmuon_host_comm_describe,
    .give_up = dmuon_host_comm_give_up,
};

/* A root out of range would be a message to nobody. */
static DMuonErrorCode check(const host_operation *operation) {
  int size = operation->comm->base.size;
  DMUON_TRY(dmuon_bootstrap_check(operation->comm->bootstrap));
  if (operation->root < 0 || operation->root >= size)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: root %d out of range [0,%d)", operation->name,
               operation->root, size);
  for (int i = 0; operation->moves && i < operation->segment_count; i++) {
    const dmuon_move *move = &operation->moves[i];
    if (move->from < 0 || move->from >= size || move->to < 0 || move->to >= size)
      DMUON_FAIL(DMUON_ERR_INTERNAL, "%s: piece %d goes from rank %d to %d of [0,%d)",
                 operation->name, i, move->from, move->to, size);
  }
  for (int i = 0; operation->segments && i < operation->segment_count; i++) {
    const dmuon_segment *segment = &operation->segments[i];
    if (segment->root < 0 || segment->root >= size || segment->offset < 0 || segment->count < 0)
      DMUON_FAIL(DMUON_ERR_INTERNAL,
                 "%s: segment %d has root %d of [0,%d), offset %lld, count %lld", operation->name,
                 i, segment->root, size, (long long)segment->offset, (long long)segment->count);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode issue(dmuon_queue *queue, const host_operation *operation) {
  DMUON_TRY(check(operation));
  DMUON_TRY(dmuon_host_engine_issue(queue, &comm_task, &operation->comm->channel, operation,
                                    sizeof *operation));
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_group(dmuon_comm *comm) {
  (void)comm; /* operations are carried out one after another anyway */
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_gather_segments(dmuon_queue *queue, dmuon_comm *comm, int segment_count,
                                           const dmuon_segment *segments, DMuonDType dtype,
                                           void *buffer) {
  host_operation operation = {.comm = (host_comm *)comm,
                              .kind = HOST_SPREAD,
                              .name = "gathering segments",
                              .segment_count = segment_count,
                              .segments = segments,
                              .out = buffer,
                              .in_dtype = dtype};
  DMUON_TRY(dmuon_check_table(operation.name, segment_count, segments, "segments"));
  return issue(queue, &operation);
}

static DMuonErrorCode host_reduce_segments(dmuon_queue *queue, dmuon_comm *comm,
                                           const dmuon_reduce *args) {
  host_operation operation = {.comm = (host_comm *)comm,
                              .kind = HOST_REDUCE,
                              .name = "reducing segments",
                              .segment_count = args->segment_count,
                              .segments = args->segments,
                              .in = args->in,
                              .out = args->out,
                              .in_dtype = args->in_dtype,
                              .sum_dtype = args->sum_dtype,
                              .prescale = args->prescale,
                              .divisor = args->divisor};
  DMUON_TRY(dmuon_check_table(operation.name, args->segment_count, args->segments, "segments"));
  DMUON_TRY(dmuon_check_sum(args->sum_dtype));
  return issue(queue, &operation);
}

static DMuonErrorCode host_move_segments(dmuon_queue *queue, dmuon_comm *comm, int move_count,
                                         const dmuon_move *moves, DMuonDType dtype, const void *in,
                                         void *out) {
  host_operation operation = {.comm = (host_comm *)comm,
                              .kind = HOST_MOVE,
                              .name = "moving segments",
                              .segment_count = move_count,
                              .moves = moves,
                              .in = in,
                              .out = out,
                              .in_dtype = dtype};
  DMUON_TRY(dmuon_check_table(operation.name, move_count, moves, "pieces"));
  return issue(queue, &operation);
}

static DMuonErrorCode host_broadcast(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                     DMuonDType dtype, void *buffer) {
  host_operation operation = {.comm = (host_comm *)comm,
                              .kind = HOST_SPREAD,
                              .name = "broadcasting",
                              .segment_count = 1,
                              .count = count,
                              .root = root,
                              .out = buffer,
                              .in_dtype = dtype};
  return issue(queue, &operation);
}

static DMuonErrorCode host_all_reduce(dmuon_queue *queue, dmuon_comm *base, int64_t count,
                                      DMuonDType dtype, void *buffer) {
  host_comm *comm = (host_comm *)base;
  host_operation operation = {.comm = comm,
                              .kind = HOST_REDUCE,
                              .name = "reducing on all",
                              .segment_count = dmuon_part_count(base->size, count),
                              .count = count,
                              .in = buffer,
                              .in_dtype = dtype,
                              .sum_dtype = dtype,
                              .divisor = 1};
  DMUON_TRY(dmuon_check_sum(dtype));
  /* In place: a chunk of out is written after this rank's contribution to it was read, and nobody
   * else's contribution lies there. */
  int own = operation.segment_count > 1 ? base->rank : 0;
  dmuon_segment part = dmuon_host_segment(&operation, base->size, own);
  operation.out = dmuon_dtype_at(buffer, part.offset, dtype);
  DMUON_TRY(issue(queue, &operation));
  operation.kind = HOST_SPREAD;
  operation.out = buffer;
  return issue(queue, &operation);
}

/* count elements a rank, between root and everyone. */
static DMuonErrorCode issue_parts(dmuon_queue *queue, dmuon_comm *comm, host_kind kind,
                                  const char *name, int root, int64_t count, DMuonDType dtype,
                                  const void *in, void *out) {
  host_operation operation = {.comm = (host_comm *)comm,
                              .kind = kind,
                              .name = name,
                              .segment_count = comm->size,
                              .count = count,
                              .root = root,
                              .in = in,
                              .out = out,
                              .in_dtype = dtype};
  return issue(queue, &operation);
}

static DMuonErrorCode host_gather(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                  DMuonDType dtype, const void *in, void *out) {
  return issue_parts(queue, comm, HOST_GATHER, "gathering", root, count, dtype, in, out);
}

static DMuonErrorCode host_scatter(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                   DMuonDType dtype, const void *in, void *out) {
  return issue_parts(queue, comm, HOST_SCATTER, "scattering", root, count, dtype, in, out);
}

const DMuonCommOps dmuon_host_comm_ops = {
    .name = "host",
    .create = dmuon_host_comm_create,
    .free = dmuon_host_comm_free,
    .reserve = dmuon_host_comm_reserve,
    .group_begin = host_group,
    .group_end = host_group,
    .gather_segments = host_gather_segments,
    .reduce_segments = host_reduce_segments,
    .move_segments = host_move_segments,
    .broadcast = host_broadcast,
    .all_reduce = host_all_reduce,
    .gather = host_gather,
    .scatter = host_scatter,
    .abort = dmuon_host_comm_abort,
};
