/* The communication seam's operations, of any backend, against the host's: the same values, to the
 * bit where the backend promises it, and the same counts. Every case is computed twice, by the
 * communicator under test on its device, and by one of the host.
 *
 *   conformance c = {...};
 *   conformance_run(&c);
 *
 * Both communicators are of the same axis, in different roles. Collective over its ranks. */
#ifndef TEST_BACKEND_COMM_CONFORMANCE_H
#define TEST_BACKEND_COMM_CONFORMANCE_H

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/comm.h"
#include "tap_mpi.h"

typedef struct {
  dmuon_device *device;
  dmuon_queue *queue;
  dmuon_comm *comm;
} conformance_side;

typedef struct {
  const char *mode;
  int brief;   /* the small cases alone */
  int inexact; /* sums may be associated in another way; what is computed twice is the same still */
  conformance_side tested, host;
} conformance;

static uint64_t conformance_mix(uint64_t x) {
  x ^= x >> 31, x *= UINT64_C(0x9e3779b97f4a7c15), x ^= x >> 29, x *= UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}

/* Element i of what rank contributes: of changing magnitude, so that another order of adding shows.
 */
static double conformance_value(int rank, int64_t i, int seed) {
  uint64_t bits = conformance_mix(conformance_mix((uint64_t)i + 77) + (uint64_t)rank * 1315423911u +
                                  (uint64_t)seed);
  return ldexp((double)(bits >> 40) / 16777216.0 - 0.5, (int)(bits & 7) - 3);
}

/* ---- arrays of a side ---- */

static DMuonErrorCode conformance_copy(const conformance_side *s, void *device_ptr, void *host_ptr,
                                       int64_t bytes, int to_device) {
  void *pinned = NULL;
  if (bytes == 0) return DMUON_SUCCESS;
  DMUON_TRY(s->device->ops->alloc_host(s->device, bytes, &pinned));
  if (to_device) memcpy(pinned, host_ptr, (size_t)bytes);
  DMuonErrorCode code = s->device->ops->copy(s->queue, to_device ? device_ptr : pinned,
                                             to_device ? pinned : device_ptr, bytes);
  if (!code) code = s->device->ops->queue_sync(s->queue);
  if (!code && !to_device) memcpy(host_ptr, pinned, (size_t)bytes);
  s->device->ops->free_host(s->device, pinned);
  return code;
}

static void *conformance_array(const conformance_side *s, void *from, int64_t bytes,
                               DMuonErrorCode *code) {
  void *ptr = NULL;
  if (!*code) *code = s->device->ops->alloc(s->device, bytes + 8, &ptr);
  if (!*code && from) *code = conformance_copy(s, ptr, from, bytes, 1);
  return ptr;
}

/* ---- what is communicated, the same on all ranks ---- */

enum { CONFORMANCE_PIECES = 20 };
typedef struct {
  int count;
  int64_t total, out; /* elements of the buffer; of what this rank roots, or gets */
  dmuon_segment segments[CONFORMANCE_PIECES];
  dmuon_move moves[CONFORMANCE_PIECES];
} conformance_table;

/* Segments with gaps, some empty, some roots with several or none; and moves. */
static conformance_table conformance_make(const dmuon_comm *comm, int seed, int64_t largest) {
  conformance_table t = {.count =
                             1 + (int)(conformance_mix((uint64_t)seed + 3) % CONFORMANCE_PIECES)};
  int64_t out_at = 0;
  for (int i = 0; i < t.count; i++) {
    uint64_t bits = conformance_mix((uint64_t)(seed * 1000 + i));
    dmuon_segment *s = &t.segments[i];
    t.total += (int64_t)(bits % 5);
    s->root = (int)(bits >> 8 & 0xffff) % comm->size;
    s->offset = t.total;
    s->count = bits >> 40 & 3 ? (int64_t)(bits >> 20 & 0xfffff) % (largest + 1) : 0;
    s->payload = s->count > 3 ? s->count - 3 : s->count;
    t.total += s->count;
    if (s->root == comm->rank) t.out += s->count;
    out_at += (int64_t)(bits >> 44 & 3);
    t.moves[i] = (dmuon_move){
        s->root, (int)(bits >> 48 & 0xfff) % comm->size, s->offset, out_at, s->count, s->payload};
    out_at += s->count;
  }
  t.total += 4;
  return t;
}

typedef enum {
  CONFORMANCE_GATHER_SEGMENTS,
  CONFORMANCE_REDUCE_SEGMENTS,
  CONFORMANCE_MOVE_SEGMENTS,
  CONFORMANCE_BROADCAST,
  CONFORMANCE_ALL_REDUCE,
  CONFORMANCE_GATHER,
  CONFORMANCE_SCATTER,
} conformance_kind;

typedef struct {
  conformance_kind kind;
  DMuonDType dtype, sum;
  int64_t count; /* of the largest segment, or of the array */
  int root, seed, fanin, prescale;
  int64_t chunk_bytes;
  double divisor;
} conformance_case;

static int conformance_adds(const conformance_case *k) {
  return k->kind == CONFORMANCE_REDUCE_SEGMENTS || k->kind == CONFORMANCE_ALL_REDUCE;
}

/* Elements that go in and come out of a rank; in place where there is no out. */
static void conformance_sizes(const conformance_case *k, const dmuon_comm *comm,
                              const conformance_table *t, int64_t *in, int64_t *out) {
  const int is_root = k->root == comm->rank;
  *in = k->count;
  *out = 0;
  switch (k->kind) {
    case CONFORMANCE_GATHER_SEGMENTS:
      *in = t->total;
      break;
    case CONFORMANCE_REDUCE_SEGMENTS:
      *in = t->total;
      *out = t->out;
      break;
    case CONFORMANCE_MOVE_SEGMENTS:
      *in = t->total;
      *out = t->total + 4 * CONFORMANCE_PIECES;
      break;
    case CONFORMANCE_GATHER:
      *out = is_root ? k->count * comm->size : 0;
      break;
    case CONFORMANCE_SCATTER:
      *in = is_root ? k->count * comm->size : 0;
      *out = k->count;
      break;
    case CONFORMANCE_BROADCAST:
    case CONFORMANCE_ALL_REDUCE:
      break;
  }
}

static DMuonErrorCode conformance_issue(const conformance_case *k, const conformance_side *s,
                                        const conformance_table *t, void *in, void *out) {
  const DMuonCommOps *ops = s->comm->ops;
  dmuon_reduce reduce = {.segment_count = t->count,
                         .segments = t->segments,
                         .in = in,
                         .in_dtype = k->dtype,
                         .out = out,
                         .sum_dtype = k->sum,
                         .prescale = k->prescale,
                         .divisor = k->divisor};
  switch (k->kind) {
    case CONFORMANCE_GATHER_SEGMENTS:
      return ops->gather_segments(s->queue, s->comm, t->count, t->segments, k->dtype, in);
    case CONFORMANCE_REDUCE_SEGMENTS:
      DMUON_TRY(ops->reserve(s->comm, k->count, k->sum));
      return ops->reduce_segments(s->queue, s->comm, &reduce);
    case CONFORMANCE_MOVE_SEGMENTS:
      return ops->move_segments(s->queue, s->comm, t->count, t->moves, k->dtype, in, out);
    case CONFORMANCE_BROADCAST:
      return ops->broadcast(s->queue, s->comm, k->root, k->count, k->dtype, in);
    case CONFORMANCE_ALL_REDUCE:
      return ops->all_reduce(s->queue, s->comm, k->count, k->dtype, in);
    case CONFORMANCE_GATHER:
      return ops->gather(s->queue, s->comm, k->root, k->count, k->dtype, in, out);
    case CONFORMANCE_SCATTER:
      return ops->scatter(s->queue, s->comm, k->root, k->count, k->dtype, in, out);
  }
  return DMUON_SUCCESS;
}

/* One side's result, in host memory: what came out, or what became of the array in place. */
static char *conformance_result(const conformance_case *k, const conformance_side *s,
                                int64_t *elements, DMuonDType *dtype, DMuonErrorCode *code) {
  const conformance_table t = conformance_make(s->comm, k->seed, k->count);
  int64_t in_count, out_count;
  conformance_sizes(k, s->comm, &t, &in_count, &out_count);
  const int is_in_place = k->kind == CONFORMANCE_GATHER_SEGMENTS ||
                          k->kind == CONFORMANCE_BROADCAST || k->kind == CONFORMANCE_ALL_REDUCE;
  *dtype = k->kind == CONFORMANCE_REDUCE_SEGMENTS ? k->sum : k->dtype;
  *elements = is_in_place ? in_count : out_count;
  const int64_t in_bytes = dmuon_dtype_span(in_count, k->dtype),
                out_bytes = dmuon_dtype_span(*elements, *dtype);
  char *values = calloc((size_t)in_bytes + 8, 1), *result = calloc((size_t)out_bytes + 8, 1);
  for (int64_t i = 0; i < in_count; i++)
    dmuon_dtype_set(k->dtype, values, i, conformance_value(s->comm->rank, i, k->seed));
  s->comm->fanin = k->fanin;
  s->comm->chunk_bytes = k->chunk_bytes;
  void *in = conformance_array(s, values, in_bytes, code);
  void *out = conformance_array(s, is_in_place ? NULL : result, is_in_place ? 0 : out_bytes, code);
  if (!*code) *code = conformance_issue(k, s, &t, in_count ? in : NULL, out_count ? out : NULL);
  if (!*code) *code = s->device->ops->queue_sync(s->queue);
  if (!*code) *code = conformance_copy(s, is_in_place ? in : out, result, out_bytes, 0);
  s->device->ops->free(s->device, in);
  s->device->ops->free(s->device, out);
  free(values);
  return result;
}

static int64_t conformance_compare(const conformance_case *k, const conformance *c, const char *a,
                                   const char *b, int64_t n, DMuonDType dtype) {
  int64_t wrong = 0;
  if (!c->inexact || !conformance_adds(k))
    return memcmp(a, b, (size_t)dmuon_dtype_span(n, dtype)) != 0;
  for (int64_t i = 0; i < n; i++) {
    /* Contributions are at most 8 in size, and may cancel out. */
    const double x = dmuon_dtype_get(dtype, a, i), y = dmuon_dtype_get(dtype, b, i);
    wrong += !(fabs(x - y) <= 1e-6 * (fabs(y) + 8.0 * c->host.comm->size / k->divisor));
  }
  return wrong;
}

/* 0: right. */
static int64_t conformance_once(const conformance *c, const conformance_case *k) {
  const conformance_side *sides[3] = {&c->tested, &c->host, &c->tested};
  dmuon_comm_counters moved[3];
  char *results[3] = {NULL};
  int64_t n = 0, wrong = 0;
  DMuonDType dtype = DMUON_FLOAT32;
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < 2 + c->inexact && !code; i++) {
    moved[i] = sides[i]->comm->counters;
    results[i] = conformance_result(k, sides[i], &n, &dtype, &code);
    if (code) tap_diag("%s, operation %d: %s", c->mode, (int)k->kind, DMuonErrorGetMessage());
    moved[i].operations = sides[i]->comm->counters.operations - moved[i].operations;
    moved[i].bytes = sides[i]->comm->counters.bytes - moved[i].bytes;
  }
  if (!code) {
    wrong = conformance_compare(k, c, results[0], results[1], n, dtype);
    wrong += moved[0].operations != moved[1].operations || moved[0].bytes != moved[1].bytes;
    if (c->inexact)
      wrong += memcmp(results[0], results[2], (size_t)dmuon_dtype_span(n, dtype)) != 0;
  }
  for (int i = 0; i < 3; i++) free(results[i]);
  return wrong + (code != 0);
}

/* ---- the cases ---- */

static const struct {
  DMuonDType in, sum;
} conformance_types[] = {{DMUON_FLOAT32, DMUON_FLOAT32},
                         {DMUON_FLOAT64, DMUON_FLOAT64},
                         {DMUON_BFLOAT16, DMUON_FLOAT32},
                         {DMUON_FLOAT16, DMUON_FLOAT32},
                         {DMUON_FLOAT32, DMUON_FLOAT64}};

static int64_t conformance_chunk(int k) {
  return k % 3 == 0 ? 160 : k % 3 == 1 ? 1000 : 4 << 20;
}

static void conformance_test_reduce(const conformance *c) {
  int64_t wrong[2] = {0, 0};
  for (int way = 0; way < 2; way++)
    for (int t = 0; t < (c->brief ? 3 : 5); t++)
      for (int k = 0; k < 3; k++) {
        conformance_case one = {.kind = CONFORMANCE_REDUCE_SEGMENTS,
                                .dtype = conformance_types[t].in,
                                .sum = conformance_types[t].sum,
                                .count = k < 2 ? 200 : 3000,
                                .seed = k + 50 * t,
                                .fanin = way ? 1 : 32,
                                .chunk_bytes = conformance_chunk(k + t),
                                .prescale = k == 2 ? -3 : 0,
                                .divisor = k % 2 ? 1 : 7};
        wrong[way] += conformance_once(c, &one);
      }
  tap_is_int(wrong[0], 0, "%s: contributions to their roots, of all types", c->mode);
  tap_is_int(wrong[1], 0, "%s: the same as partial sums along a tree", c->mode);
}

static void conformance_test_spread(const conformance *c) {
  int64_t wrong[3] = {0, 0, 0};
  for (int k = 0; k < (c->brief ? 3 : 6); k++) {
    conformance_case one = {.dtype = conformance_types[k % 4].in,
                            .count = k < 4 ? 300 : 5000,
                            .seed = k,
                            .fanin = 32,
                            .divisor = 1,
                            .root = k % c->host.comm->size,
                            .chunk_bytes = conformance_chunk(k)};
    one.kind = CONFORMANCE_GATHER_SEGMENTS;
    wrong[0] += conformance_once(c, &one);
    one.kind = CONFORMANCE_MOVE_SEGMENTS;
    wrong[1] += conformance_once(c, &one);
    one.kind = CONFORMANCE_BROADCAST;
    wrong[2] += conformance_once(c, &one);
  }
  tap_is_int(wrong[0], 0, "%s: segments gathered", c->mode);
  tap_is_int(wrong[1], 0, "%s: segments moved", c->mode);
  tap_is_int(wrong[2], 0, "%s: arrays broadcast", c->mode);
}

static void conformance_test_parts(const conformance *c) {
  int64_t wrong[2] = {0, 0};
  for (int64_t n = 1; n <= 3000; n = n * 37 + 1)
    for (int root = (int)n % 2; root < c->host.comm->size; root += 2) {
      conformance_case one = {.kind = CONFORMANCE_GATHER,
                              .dtype = n % 2 ? DMUON_FLOAT32 : DMUON_BFLOAT16,
                              .count = n,
                              .root = root,
                              .fanin = 32,
                              .divisor = 1,
                              .chunk_bytes = 4096};
      wrong[0] += conformance_once(c, &one);
      one.kind = CONFORMANCE_SCATTER;
      wrong[0] += conformance_once(c, &one);
    }
  for (int way = 0; way < 2; way++)
    for (int64_t n = 1; n <= 20000; n = n * 41 + 1) {
      conformance_case one = {.kind = CONFORMANCE_ALL_REDUCE,
                              .dtype = n % 2 ? DMUON_FLOAT64 : DMUON_FLOAT32,
                              .count = n,
                              .seed = (int)n,
                              .fanin = way ? 1 : 32,
                              .divisor = 1,
                              .chunk_bytes = 8000};
      wrong[1] += conformance_once(c, &one);
    }
  tap_is_int(wrong[0], 0, "%s: equal parts to and from every root", c->mode);
  tap_is_int(wrong[1], 0, "%s: sums on all ranks", c->mode);
}

/* More than one round or chunk of anything. */
static void conformance_test_large(const conformance *c) {
  int64_t wrong = 0;
  for (int k = 0; k < 3; k++) {
    conformance_case one = {.kind = k == 0   ? CONFORMANCE_REDUCE_SEGMENTS
                                    : k == 1 ? CONFORMANCE_GATHER_SEGMENTS
                                             : CONFORMANCE_MOVE_SEGMENTS,
                            .dtype = k ? DMUON_FLOAT32 : DMUON_BFLOAT16,
                            .sum = DMUON_FLOAT32,
                            .count = 100000,
                            .seed = 9 + k,
                            .fanin = 32,
                            .divisor = c->host.comm->size,
                            .chunk_bytes = 90000};
    wrong += conformance_once(c, &one);
  }
  tap_is_int(wrong, 0, "%s: large segments", c->mode);
}

/* Many operations issued before any is waited for. */
static void conformance_test_many(const conformance *c) {
  enum { OPERATIONS = 30, N = 500 };
  const conformance_side *sides[2] = {&c->tested, &c->host};
  float *results[2];
  DMuonErrorCode code = DMUON_SUCCESS;
  const int size = c->host.comm->size, rank = c->host.comm->rank;
  int64_t wrong = 0;
  for (int side = 0; side < 2; side++) {
    const conformance_side *s = sides[side];
    dmuon_segment segments[OPERATIONS];
    float *values = malloc(sizeof *values * N * OPERATIONS);
    results[side] = calloc(N * OPERATIONS, sizeof **results);
    for (int64_t i = 0; i < N * OPERATIONS; i++) values[i] = (float)conformance_value(rank, i, 4);
    s->comm->fanin = 32;
    s->comm->chunk_bytes = 1024;
    float *in = conformance_array(s, values, (int64_t)sizeof *in * N * OPERATIONS, &code);
    float *out = conformance_array(s, results[side], (int64_t)sizeof *in * N * OPERATIONS, &code);
    if (!code) code = s->comm->ops->reserve(s->comm, N, DMUON_FLOAT32);
    for (int k = 0; k < OPERATIONS && !code; k++) {
      segments[k] = (dmuon_segment){k % size, 0, N - 10 * k, N - 10 * k};
      dmuon_reduce args = {.segment_count = 1,
                           .segments = &segments[k],
                           .in = in + k * N,
                           .in_dtype = DMUON_FLOAT32,
                           .out = out + k * N,
                           .sum_dtype = DMUON_FLOAT32,
                           .divisor = 1};
      if (k % 3 == 2)
        code = s->comm->ops->broadcast(s->queue, s->comm, k % size, N, DMUON_FLOAT32, out + k * N);
      else
        code = s->comm->ops->reduce_segments(s->queue, s->comm, &args);
    }
    if (!code) code = s->device->ops->queue_sync(s->queue);
    if (!code)
      code = conformance_copy(s, out, results[side], (int64_t)sizeof *in * N * OPERATIONS, 0);
    if (code) tap_diag("%s", DMuonErrorGetMessage());
    s->device->ops->free(s->device, in);
    s->device->ops->free(s->device, out);
    free(values);
  }
  for (int64_t i = 0; i < N * OPERATIONS && !code; i++)
    wrong += c->inexact ? !(fabsf(results[0][i] - results[1][i]) <= 1e-5f * (float)size)
                        : results[0][i] != results[1][i];
  tap_ok(!code && !wrong, "%s: thirty operations issued at once", c->mode);
  free(results[0]), free(results[1]);
}

/* Sums that are not finite, and quotients that would not be. */
static void conformance_test_special(const conformance *c) {
  const conformance_side *s = &c->tested;
  const int size = s->comm->size, rank = s->comm->rank;
  float in[6] = {FLT_MAX, 1, 2, 1, FLT_MAX / 16, -FLT_MAX / 16}, out[2][4] = {{0}, {0}};
  if (rank == size / 2) in[1] = NAN, in[2] = INFINITY;
  dmuon_segment whole = {size - 1, 0, 4, 4}, quotient = {size - 1, 4, 2, 2};
  DMuonErrorCode code = DMUON_SUCCESS;
  s->comm->fanin = 32;
  s->comm->chunk_bytes = 4 << 20;
  float *from = conformance_array(s, in, sizeof in, &code);
  float *to = conformance_array(s, out, sizeof out, &code);
  dmuon_reduce args = {.segment_count = 1,
                       .segments = &whole,
                       .in = from,
                       .in_dtype = DMUON_FLOAT32,
                       .out = to,
                       .sum_dtype = DMUON_FLOAT32,
                       .prescale = -3,
                       .divisor = size * 0.125};
  if (!code) code = s->comm->ops->reduce_segments(s->queue, s->comm, &args);
  args.segments = &quotient;
  args.out = to ? to + 4 : NULL;
  args.prescale = 0;
  args.divisor = 1.0 / 1024;
  if (!code) code = s->comm->ops->reduce_segments(s->queue, s->comm, &args);
  if (!code) code = s->device->ops->queue_sync(s->queue);
  if (!code) code = conformance_copy(s, to, out, sizeof out, 0);
  const int is_root = rank == size - 1;
  tap_ok(!code && (!is_root || (out[0][0] == FLT_MAX && isnan(out[0][1]) && isinf(out[0][2]) &&
                                out[0][3] == 1)),
         "%s: the mean of the largest values is finite, NaN and infinity pass", c->mode);
  tap_ok(!code && (!is_root || (out[1][0] == FLT_MAX && out[1][1] == -FLT_MAX)),
         "%s: a quotient that overflows becomes the largest finite value", c->mode);
  s->device->ops->free(s->device, from);
  s->device->ops->free(s->device, to);
}

static void conformance_test_refused(const conformance *c) {
  const conformance_side *s = &c->tested;
  const int size = s->comm->size;
  dmuon_segment segment = {size, 0, 1, 1};
  dmuon_move piece = {0, size, 0, 0, 1, 1};
  dmuon_reduce args = {.segment_count = 1,
                       .segments = &segment,
                       .in_dtype = DMUON_FLOAT32,
                       .sum_dtype = DMUON_FLOAT32,
                       .divisor = 1};
  int refused = s->comm->ops->gather_segments(s->queue, s->comm, 1, &segment, DMUON_FLOAT32,
                                              NULL) == DMUON_ERR_INTERNAL;
  refused += s->comm->ops->reduce_segments(s->queue, s->comm, &args) == DMUON_ERR_INTERNAL;
  refused += s->comm->ops->move_segments(s->queue, s->comm, 1, &piece, DMUON_FLOAT32, NULL, NULL) ==
             DMUON_ERR_INTERNAL;
  refused +=
      s->comm->ops->broadcast(s->queue, s->comm, -1, 1, DMUON_FLOAT32, NULL) == DMUON_ERR_INTERNAL;
  refused +=
      s->comm->ops->all_reduce(s->queue, s->comm, 1, DMUON_BFLOAT16, NULL) == DMUON_ERR_UNSUPPORTED;
  tap_is_int(refused, 5, "%s: roots that are none, and sums in bf16, are refused", c->mode);
}

static void conformance_run(const conformance *c) {
  tap_ok(c->tested.comm->rank == c->host.comm->rank && c->tested.comm->size == c->host.comm->size,
         "%s: place on the axis", c->mode);
  conformance_test_reduce(c);
  conformance_test_spread(c);
  if (!c->brief) conformance_test_parts(c);
  if (!c->brief) conformance_test_large(c);
  conformance_test_many(c);
  conformance_test_special(c);
  conformance_test_refused(c);
}

#endif
