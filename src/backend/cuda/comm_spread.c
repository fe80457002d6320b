/* Operations that move data and add nothing: from its root to all, in place, by broadcasts of NCCL;
 * from one rank to another by sends and receives; on one rank by a copy on the queue. Each is one
 * group of calls. */
#include "backend/cuda/cuda.h"
#include "comm/check.h"
#include "comm/count.h"

/* An operation on a queue, its device being current meanwhile. */
typedef struct {
  dmuon_cuda_comm *comm;
  dmuon_queue *queue;
  const char *name;
  int previous;
} scope;

static scope enter(dmuon_queue *queue, dmuon_comm *comm, const char *name) {
  scope s = {dmuon_cuda_comm_of(comm), queue, name, 0};
  s.previous = dmuon_cuda_enter(s.comm->device);
  return s;
}

/* Counted when all of it was issued. */
static DMuonErrorCode leave(const scope *s, DMuonErrorCode code, int64_t elements,
                            DMuonDType dtype) {
  dmuon_cuda_leave(s->comm->device, s->previous);
  DMUON_TRY(code);
  dmuon_count(&s->comm->base, elements, dtype);
  return DMUON_SUCCESS;
}

static DMuonErrorCode spread(const scope *s, int count, const dmuon_segment *segments,
                             DMuonDType dtype, void *buffer) {
  dmuon_cuda_comm *comm = s->comm;
  if (comm->base.size == 1) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_nccl_begin(comm, s->queue));
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < count && !code; i++)
    code = dmuon_nccl_broadcast(comm, s->queue, dmuon_dtype_at(buffer, segments[i].offset, dtype),
                                segments[i].count, dtype, segments[i].root);
  DMUON_TRY(dmuon_nccl_end(comm, s->queue, s->name, code));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_gather_segments(dmuon_queue *queue, dmuon_comm *base, int segment_count,
                                          const dmuon_segment *segments, DMuonDType dtype,
                                          void *buffer) {
  scope s = enter(queue, base, "gathering segments");
  DMuonErrorCode code = dmuon_cuda_comm_check_segments(s.comm, s.name, segment_count, segments);
  if (!code) code = spread(&s, segment_count, segments, dtype, buffer);
  return leave(&s, code, code ? 0 : dmuon_count_segments(base->rank, segment_count, segments),
               dtype);
}

DMuonErrorCode dmuon_cuda_broadcast(dmuon_queue *queue, dmuon_comm *base, int root, int64_t count,
                                    DMuonDType dtype, void *buffer) {
  scope s = enter(queue, base, "broadcasting");
  const dmuon_segment segment = {root, 0, count, count};
  DMuonErrorCode code = dmuon_cuda_comm_check(s.comm, s.name, root);
  if (!code) code = spread(&s, 1, &segment, dtype, buffer);
  return leave(&s, code, dmuon_count_segments(base->rank, 1, &segment), dtype);
}

/* One way: what is sent of in, and what comes into out. A rank does not talk to itself. */
static DMuonErrorCode pass(const scope *s, const dmuon_move *move, DMuonDType dtype, const void *in,
                           void *out) {
  const int rank = s->comm->base.rank;
  if (move->from == move->to) return DMUON_SUCCESS;
  if (move->from == rank)
    DMUON_TRY(dmuon_nccl_send(s->comm, s->queue, dmuon_dtype_at(in, move->in_offset, dtype),
                              move->count, dtype, move->to));
  if (move->to == rank)
    DMUON_TRY(dmuon_nccl_receive(s->comm, s->queue, dmuon_dtype_at(out, move->out_offset, dtype),
                                 move->count, dtype, move->from));
  return DMUON_SUCCESS;
}

static DMuonErrorCode stay(const scope *s, const dmuon_move *move, DMuonDType dtype, const void *in,
                           void *out) {
  const int rank = s->comm->base.rank;
  const void *from = dmuon_dtype_at(in, move->in_offset, dtype);
  void *to = dmuon_dtype_at(out, move->out_offset, dtype);
  if (move->from != rank || move->to != rank || move->count == 0 || from == to)
    return DMUON_SUCCESS;
  DMUON_TRY(dmuon_cuda_copy(s->queue, to, from, dmuon_dtype_span(move->count, dtype)));
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_moves(const scope *s, int count, const dmuon_move *moves) {
  DMUON_TRY(dmuon_cuda_comm_check(s->comm, s->name, 0));
  return dmuon_check_moves(s->name, s->comm->base.size, count, moves);
}

static DMuonErrorCode move(const scope *s, int count, const dmuon_move *moves, DMuonDType dtype,
                           const void *in, void *out) {
  DMuonErrorCode code = DMUON_SUCCESS;
  if (s->comm->base.size > 1) {
    DMUON_TRY(dmuon_nccl_begin(s->comm, s->queue));
    for (int i = 0; i < count && !code; i++) code = pass(s, &moves[i], dtype, in, out);
    DMUON_TRY(dmuon_nccl_end(s->comm, s->queue, s->name, code));
  }
  for (int i = 0; i < count; i++) DMUON_TRY(stay(s, &moves[i], dtype, in, out));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cuda_move_segments(dmuon_queue *queue, dmuon_comm *base, int move_count,
                                        const dmuon_move *moves, DMuonDType dtype, const void *in,
                                        void *out) {
  scope s = enter(queue, base, "moving segments");
  DMuonErrorCode code = check_moves(&s, move_count, moves);
  if (!code) code = move(&s, move_count, moves, dtype, in, out);
  return leave(&s, code, code ? 0 : dmuon_count_moves(base->rank, move_count, moves), dtype);
}

/* count elements of every rank, to or from root, as moves one by one. */
static DMuonErrorCode parts(const scope *s, int to_root, int root, int64_t count, DMuonDType dtype,
                            const void *in, void *out) {
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int pass_number = 0; pass_number < 2; pass_number++) {
    const int is_local = pass_number == 1; /* behind the group */
    if (!is_local && s->comm->base.size == 1) continue;
    if (!is_local) DMUON_TRY(dmuon_nccl_begin(s->comm, s->queue));
    for (int i = 0; i < s->comm->base.size && !code; i++) {
      dmuon_move m = {.from = to_root ? i : root,
                      .to = to_root ? root : i,
                      .in_offset = to_root ? 0 : i * count,
                      .out_offset = to_root ? i * count : 0,
                      .count = count,
                      .payload = count};
      code = is_local ? stay(s, &m, dtype, in, out) : pass(s, &m, dtype, in, out);
    }
    if (!is_local) DMUON_TRY(dmuon_nccl_end(s->comm, s->queue, s->name, code));
  }
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

static DMuonErrorCode issue_parts(dmuon_queue *queue, dmuon_comm *base, const char *name,
                                  int to_root, int root, int64_t count, DMuonDType dtype,
                                  const void *in, void *out) {
  scope s = enter(queue, base, name);
  DMuonErrorCode code = dmuon_cuda_comm_check(s.comm, s.name, root);
  if (!code) code = parts(&s, to_root, root, count, dtype, in, out);
  return leave(&s, code, dmuon_count_parts(base->rank, base->size, root, count), dtype);
}

DMuonErrorCode dmuon_cuda_gather(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                 DMuonDType dtype, const void *in, void *out) {
  return issue_parts(queue, comm, "gathering", 1, root, count, dtype, in, out);
}

DMuonErrorCode dmuon_cuda_scatter(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                  DMuonDType dtype, const void *in, void *out) {
  return issue_parts(queue, comm, "scattering", 0, root, count, dtype, in, out);
}
