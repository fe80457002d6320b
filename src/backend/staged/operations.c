/* The staged operations: for each round, what is copied to the host, what the host is asked to do
 * with it, and what is copied back. The association of sums is the host's, element by element, so
 * the rounds do not show in the bits. */
#include "backend/staged/comm_state.h"
#include "comm/check.h"
#include "comm/count.h"

/* count elements of a device's array from `offset` on, to or from an area. */
static DMuonErrorCode take(const staged_comm *comm, dmuon_queue *queue, int64_t place,
                           const void *array, int64_t offset, int64_t count, DMuonDType dtype) {
  DMUON_TRY(comm->base.device->ops->copy(queue, dmuon_dtype_at(comm->in, place, dtype),
                                         dmuon_dtype_at(array, offset, dtype),
                                         dmuon_dtype_span(count, dtype)));
  return DMUON_SUCCESS;
}
static DMuonErrorCode put(const staged_comm *comm, dmuon_queue *queue, const char *area,
                          int64_t place, void *array, int64_t offset, int64_t count,
                          DMuonDType dtype) {
  DMUON_TRY(comm->base.device->ops->copy(queue, dmuon_dtype_at(array, offset, dtype),
                                         dmuon_dtype_at(area, place, dtype),
                                         dmuon_dtype_span(count, dtype)));
  return DMUON_SUCCESS;
}

/* Behind an operation that went well so far. */
static DMuonErrorCode done(staged_comm *comm, DMuonErrorCode code, int64_t elements,
                           DMuonDType dtype) {
  dmuon_staged_close(comm);
  DMUON_TRY(code);
  dmuon_count(&comm->base, elements, dtype);
  return DMUON_SUCCESS;
}

/* ---- segments -------------------------------------------------------------------------------- */

static int64_t segment_count_of(const void *table, int i) {
  return ((const dmuon_segment *)table)[i].count;
}

/* The round's pieces where they lie in the areas. */
static void stage_segments(const staged_rounds *rounds, const dmuon_segment *segments,
                           dmuon_segment *staged) {
  for (int t = 0; t < rounds->taken; t++)
    staged[t] = (dmuon_segment){.root = segments[rounds->piece[t]].root,
                                .offset = rounds->place[t],
                                .count = rounds->take[t],
                                .payload = rounds->take[t]};
}

static DMuonErrorCode spread_round(staged_comm *comm, dmuon_queue *queue,
                                   const staged_rounds *rounds, const dmuon_segment *segments,
                                   DMuonDType dtype, void *buffer) {
  dmuon_segment staged[STAGED_PIECES];
  const int rank = comm->base.rank;
  stage_segments(rounds, segments, staged);
  for (int t = 0; t < rounds->taken; t++)
    if (staged[t].root == rank)
      DMUON_TRY(take(comm, queue, rounds->place[t], buffer,
                     segments[rounds->piece[t]].offset + rounds->at[t], rounds->take[t], dtype));
  DMUON_TRY(dmuon_staged_arrive(comm, queue));
  DMUON_TRY(comm->inner->ops->gather_segments(comm->host_queue, comm->inner, rounds->taken, staged,
                                              dtype, comm->in));
  DMUON_TRY(dmuon_staged_finish(comm));
  for (int t = 0; t < rounds->taken; t++)
    if (staged[t].root != rank)
      DMUON_TRY(put(comm, queue, comm->in, rounds->place[t], buffer,
                    segments[rounds->piece[t]].offset + rounds->at[t], rounds->take[t], dtype));
  DMUON_TRY(dmuon_staged_depart(comm, queue));
  return DMUON_SUCCESS;
}

static DMuonErrorCode spread(staged_comm *comm, dmuon_queue *queue, const char *name, int count,
                             const dmuon_segment *segments, DMuonDType dtype, void *buffer) {
  staged_rounds rounds;
  DMUON_TRY(dmuon_check_segments(name, comm->base.size, count, segments));
  DMUON_TRY(dmuon_staged_open(comm, name, 0));
  if (comm->base.size == 1) return DMUON_SUCCESS;
  dmuon_staged_begin(&rounds, dtype, dtype);
  while (dmuon_staged_next(&rounds, count, segment_count_of, segments)) {
    DMUON_TRY(comm->base.device->ops->event_sync(comm->event));
    DMUON_TRY(spread_round(comm, queue, &rounds, segments, dtype, buffer));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_gather_segments(dmuon_queue *queue, dmuon_comm *base, int segment_count,
                                            const dmuon_segment *segments, DMuonDType dtype,
                                            void *buffer) {
  staged_comm *comm = staged_of(base);
  DMuonErrorCode code =
      spread(comm, queue, "gathering segments", segment_count, segments, dtype, buffer);
  return done(comm, code, code ? 0 : dmuon_count_segments(base->rank, segment_count, segments),
              dtype);
}

DMuonErrorCode dmuon_staged_broadcast(dmuon_queue *queue, dmuon_comm *base, int root, int64_t count,
                                      DMuonDType dtype, void *buffer) {
  staged_comm *comm = staged_of(base);
  const dmuon_segment segment = {root, 0, count, count};
  DMuonErrorCode code = spread(comm, queue, "broadcasting", 1, &segment, dtype, buffer);
  return done(comm, code, dmuon_count_segments(base->rank, 1, &segment), dtype);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Where piece i of the table begins in this rank's out: behind its earlier ones. */
static int64_t out_offset(const dmuon_reduce *args, int i) {
  int64_t at = 0;
  for (int k = 0; k < i; k++)
    if (args->segments[k].root == args->segments[i].root) at += args->segments[k].count;
  return at;
}

static DMuonErrorCode reduce_round(staged_comm *comm, dmuon_queue *queue,
                                   const staged_rounds *rounds, const dmuon_reduce *args) {
  dmuon_segment staged[STAGED_PIECES];
  int64_t at = 0;
  stage_segments(rounds, args->segments, staged);
  for (int t = 0; t < rounds->taken; t++)
    DMUON_TRY(take(comm, queue, rounds->place[t], args->in,
                   args->segments[rounds->piece[t]].offset + rounds->at[t], rounds->take[t],
                   args->in_dtype));
  DMUON_TRY(dmuon_staged_arrive(comm, queue));
  dmuon_reduce inner = *args;
  inner.segment_count = rounds->taken;
  inner.segments = staged;
  inner.in = comm->in;
  inner.out = comm->out;
  DMUON_TRY(comm->inner->ops->reduce_segments(comm->host_queue, comm->inner, &inner));
  DMUON_TRY(dmuon_staged_finish(comm));
  for (int t = 0; t < rounds->taken; t++) {
    if (staged[t].root != comm->base.rank) continue;
    DMUON_TRY(put(comm, queue, comm->out, at, args->out,
                  out_offset(args, rounds->piece[t]) + rounds->at[t], rounds->take[t],
                  args->sum_dtype));
    at += rounds->take[t];
  }
  DMUON_TRY(dmuon_staged_depart(comm, queue));
  return DMUON_SUCCESS;
}

static DMuonErrorCode reduce(staged_comm *comm, dmuon_queue *queue, const dmuon_reduce *args) {
  const char *name = "reducing segments";
  staged_rounds rounds;
  DMUON_TRY(dmuon_check_segments(name, comm->base.size, args->segment_count, args->segments));
  DMUON_TRY(dmuon_check_sum(args->sum_dtype));
  DMUON_TRY(dmuon_staged_open(comm, name, 0));
  dmuon_staged_begin(&rounds, args->in_dtype, args->sum_dtype);
  while (dmuon_staged_next(&rounds, args->segment_count, segment_count_of, args->segments)) {
    DMUON_TRY(comm->base.device->ops->event_sync(comm->event));
    DMUON_TRY(reduce_round(comm, queue, &rounds, args));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_reduce_segments(dmuon_queue *queue, dmuon_comm *base,
                                            const dmuon_reduce *args) {
  staged_comm *comm = staged_of(base);
  DMuonErrorCode code = reduce(comm, queue, args);
  return done(comm, code,
              code ? 0 : dmuon_count_segments(base->rank, args->segment_count, args->segments),
              args->in_dtype);
}

static DMuonErrorCode add_everywhere(staged_comm *comm, dmuon_queue *queue, int64_t count,
                                     DMuonDType dtype, void *buffer) {
  const int64_t most = STAGED_BYTES / (int64_t)dmuon_dtype_bytes(dtype);
  DMUON_TRY(dmuon_staged_open(comm, "reducing on all", 0));
  for (int64_t at = 0; at < count; at += most) {
    const int64_t n = count - at < most ? count - at : most;
    DMUON_TRY(comm->base.device->ops->event_sync(comm->event));
    DMUON_TRY(take(comm, queue, 0, buffer, at, n, dtype));
    DMUON_TRY(dmuon_staged_arrive(comm, queue));
    DMUON_TRY(comm->inner->ops->all_reduce(comm->host_queue, comm->inner, n, dtype, comm->in));
    DMUON_TRY(dmuon_staged_finish(comm));
    DMUON_TRY(put(comm, queue, comm->in, 0, buffer, at, n, dtype));
    DMUON_TRY(dmuon_staged_depart(comm, queue));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_all_reduce(dmuon_queue *queue, dmuon_comm *base, int64_t count,
                                       DMuonDType dtype, void *buffer) {
  staged_comm *comm = staged_of(base);
  DMUON_TRY(dmuon_check_sum(dtype));
  DMuonErrorCode code = add_everywhere(comm, queue, count, dtype, buffer);
  dmuon_staged_close(comm);
  DMUON_TRY(code);
  dmuon_count_all_reduce(base, count, dtype);
  return DMUON_SUCCESS;
}

/* ---- from one rank to another ---------------------------------------------------------------- */

/* What stays on its rank does not go through the host. */
static int64_t move_count_of(const void *table, int i) {
  const dmuon_move *move = (const dmuon_move *)table + i;
  return move->from == move->to ? 0 : move->count;
}

static DMuonErrorCode stay(const staged_comm *comm, dmuon_queue *queue, int count,
                           const dmuon_move *moves, DMuonDType dtype, const void *in, void *out) {
  for (int i = 0; i < count; i++) {
    const dmuon_move *m = &moves[i];
    const void *from = dmuon_dtype_at(in, m->in_offset, dtype);
    void *to = dmuon_dtype_at(out, m->out_offset, dtype);
    if (m->from != comm->base.rank || m->to != comm->base.rank || from == to || !m->count) continue;
    DMUON_TRY(comm->base.device->ops->copy(queue, to, from, dmuon_dtype_span(m->count, dtype)));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode move_round(staged_comm *comm, dmuon_queue *queue, const staged_rounds *rounds,
                                 const dmuon_move *moves, DMuonDType dtype, const void *in,
                                 void *out) {
  dmuon_move staged[STAGED_PIECES];
  const int rank = comm->base.rank;
  for (int t = 0; t < rounds->taken; t++) {
    const dmuon_move *m = &moves[rounds->piece[t]];
    staged[t] = (dmuon_move){.from = m->from,
                             .to = m->to,
                             .in_offset = rounds->place[t],
                             .out_offset = rounds->place[t],
                             .count = rounds->take[t],
                             .payload = rounds->take[t]};
    if (m->from == rank)
      DMUON_TRY(take(comm, queue, rounds->place[t], in, m->in_offset + rounds->at[t],
                     rounds->take[t], dtype));
  }
  DMUON_TRY(dmuon_staged_arrive(comm, queue));
  DMUON_TRY(comm->inner->ops->move_segments(comm->host_queue, comm->inner, rounds->taken, staged,
                                            dtype, comm->in, comm->out));
  DMUON_TRY(dmuon_staged_finish(comm));
  for (int t = 0; t < rounds->taken; t++)
    if (staged[t].to == rank)
      DMUON_TRY(put(comm, queue, comm->out, rounds->place[t], out,
                    moves[rounds->piece[t]].out_offset + rounds->at[t], rounds->take[t], dtype));
  DMUON_TRY(dmuon_staged_depart(comm, queue));
  return DMUON_SUCCESS;
}

static DMuonErrorCode move(staged_comm *comm, dmuon_queue *queue, int count,
                           const dmuon_move *moves, DMuonDType dtype, const void *in, void *out) {
  const char *name = "moving segments";
  staged_rounds rounds;
  DMUON_TRY(dmuon_check_moves(name, comm->base.size, count, moves));
  DMUON_TRY(dmuon_staged_open(comm, name, 0));
  dmuon_staged_begin(&rounds, dtype, dtype);
  while (dmuon_staged_next(&rounds, count, move_count_of, moves)) {
    DMUON_TRY(comm->base.device->ops->event_sync(comm->event));
    DMUON_TRY(move_round(comm, queue, &rounds, moves, dtype, in, out));
  }
  DMUON_TRY(stay(comm, queue, count, moves, dtype, in, out));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_move_segments(dmuon_queue *queue, dmuon_comm *base, int move_count,
                                          const dmuon_move *moves, DMuonDType dtype, const void *in,
                                          void *out) {
  staged_comm *comm = staged_of(base);
  DMuonErrorCode code = move(comm, queue, move_count, moves, dtype, in, out);
  return done(comm, code, code ? 0 : dmuon_count_moves(base->rank, move_count, moves), dtype);
}

/* ---- equal parts ----------------------------------------------------------------------------- */

/* n elements of every rank from `at` on; the root has room for all of them. */
static DMuonErrorCode gather_round(staged_comm *comm, dmuon_queue *queue, int root, int64_t count,
                                   int64_t at, int64_t n, DMuonDType dtype, const void *in,
                                   void *out) {
  DMUON_TRY(take(comm, queue, 0, in, at, n, dtype));
  DMUON_TRY(dmuon_staged_arrive(comm, queue));
  DMUON_TRY(
      comm->inner->ops->gather(comm->host_queue, comm->inner, root, n, dtype, comm->in, comm->out));
  DMUON_TRY(dmuon_staged_finish(comm));
  for (int i = 0; i < comm->base.size && root == comm->base.rank; i++)
    DMUON_TRY(put(comm, queue, comm->out, i * n, out, i * count + at, n, dtype));
  DMUON_TRY(dmuon_staged_depart(comm, queue));
  return DMUON_SUCCESS;
}

static DMuonErrorCode scatter_round(staged_comm *comm, dmuon_queue *queue, int root, int64_t count,
                                    int64_t at, int64_t n, DMuonDType dtype, const void *in,
                                    void *out) {
  for (int i = 0; i < comm->base.size && root == comm->base.rank; i++)
    DMUON_TRY(take(comm, queue, i * n, in, i * count + at, n, dtype));
  DMUON_TRY(dmuon_staged_arrive(comm, queue));
  DMUON_TRY(comm->inner->ops->scatter(comm->host_queue, comm->inner, root, n, dtype, comm->in,
                                      comm->out));
  DMUON_TRY(dmuon_staged_finish(comm));
  DMUON_TRY(put(comm, queue, comm->out, 0, out, at, n, dtype));
  DMUON_TRY(dmuon_staged_depart(comm, queue));
  return DMUON_SUCCESS;
}

static DMuonErrorCode parts(staged_comm *comm, dmuon_queue *queue, int to_root, int root,
                            int64_t count, DMuonDType dtype, const void *in, void *out) {
  const int64_t most = STAGED_BYTES / (int64_t)dmuon_dtype_bytes(dtype) / comm->base.size;
  DMUON_TRY(dmuon_staged_open(comm, to_root ? "gathering" : "scattering", root));
  for (int64_t at = 0; at < count; at += most) {
    const int64_t n = count - at < most ? count - at : most;
    DMUON_TRY(comm->base.device->ops->event_sync(comm->event));
    if (to_root)
      DMUON_TRY(gather_round(comm, queue, root, count, at, n, dtype, in, out));
    else
      DMUON_TRY(scatter_round(comm, queue, root, count, at, n, dtype, in, out));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_staged_gather(dmuon_queue *queue, dmuon_comm *base, int root, int64_t count,
                                   DMuonDType dtype, const void *in, void *out) {
  staged_comm *comm = staged_of(base);
  DMuonErrorCode code = parts(comm, queue, 1, root, count, dtype, in, out);
  return done(comm, code, dmuon_count_parts(base->rank, base->size, root, count), dtype);
}

DMuonErrorCode dmuon_staged_scatter(dmuon_queue *queue, dmuon_comm *base, int root, int64_t count,
                                    DMuonDType dtype, const void *in, void *out) {
  staged_comm *comm = staged_of(base);
  DMuonErrorCode code = parts(comm, queue, 0, root, count, dtype, in, out);
  return done(comm, code, dmuon_count_parts(base->rank, base->size, root, count), dtype);
}
