/* The host's communication operations against values computed by every rank for itself: segment
 * tables of all kinds, types, chunk sizes, both ways of reducing (the same bits), both modes of the
 * engine, and what is counted. Runs on any number of ranks. */
#include "backend/host/host.h"
#include "base/dtype.h"
#include "tap_mpi.h"

#include <float.h>

static dmuon_context context;
static dmuon_bootstrap *bootstrap;
static dmuon_device *device;
static dmuon_queue *queue;
static dmuon_comm *comm;

static uint64_t mix(uint64_t x) {
  x ^= x >> 31, x *= UINT64_C(0x9e3779b97f4a7c15), x ^= x >> 29, x *= UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}

/* Element i of what rank contributes: of changing magnitude, so that another order of adding shows.
 */
static double value(int rank, int64_t i, int seed) {
  uint64_t bits = mix(mix((uint64_t)i + 77) + (uint64_t)rank * 1315423911u + (uint64_t)seed);
  double x = (double)(bits >> 40) / 16777216.0 - 0.5;
  return ldexp(x, (int)(bits & 7) - 3);
}

/* The sum over ranks [low, high), written down from the definition of the association. */
static double reference_f64(int low, int high, int64_t i, int seed, DMuonDType dtype,
                            int prescale) {
  if (high - low == 1) {
    double store;
    dmuon_dtype_set(dtype, &store, 0, value(low, i, seed));
    return ldexp(dmuon_dtype_get(dtype, &store, 0), prescale);
  }
  int power = 1;
  while (power * 2 < high - low) power *= 2;
  return reference_f64(low, low + power, i, seed, dtype, prescale) +
         reference_f64(low + power, high, i, seed, dtype, prescale);
}
static float reference_f32(int low, int high, int64_t i, int seed, DMuonDType dtype, int prescale) {
  if (high - low == 1) {
    double store;
    dmuon_dtype_set(dtype, &store, 0, value(low, i, seed));
    return (float)ldexp(dmuon_dtype_get(dtype, &store, 0), prescale);
  }
  int power = 1;
  while (power * 2 < high - low) power *= 2;
  float a = reference_f32(low, low + power, i, seed, dtype, prescale);
  float b = reference_f32(low + power, high, i, seed, dtype, prescale);
  return a + b;
}

enum { MOST_SEGMENTS = 20 };
static dmuon_segment table[MOST_SEGMENTS];

/* A table of segments with gaps, some empty, some roots with several or none; equal on all ranks.
 */
static int make_table(int seed, int64_t largest, int64_t *total) {
  int count = 1 + (int)(mix((uint64_t)seed) % MOST_SEGMENTS);
  int64_t at = 0;
  for (int i = 0; i < count; i++) {
    uint64_t bits = mix((uint64_t)(seed * 1000 + i));
    at += (int64_t)(bits % 5);
    table[i].root = (int)(bits >> 8) % tap_size;
    if (table[i].root < 0) table[i].root += tap_size;
    table[i].offset = at;
    table[i].count = bits >> 40 & 3 ? (int64_t)(bits >> 20 & 0xfffff) % (largest + 1) : 0;
    table[i].payload = table[i].count > 3 ? table[i].count - 3 : table[i].count;
    at += table[i].count;
  }
  *total = at + 4;
  return count;
}

static int64_t out_count(int count) {
  int64_t sum = 0;
  for (int i = 0; i < count; i++) sum += table[i].root == tap_rank ? table[i].count : 0;
  return sum;
}

static int64_t check_reduced(int count, const void *out, int seed, DMuonDType dtype, DMuonDType sum,
                             int prescale, double divisor) {
  int64_t wrong = 0, at = 0;
  for (int s = 0; s < count; s++) {
    if (table[s].root != tap_rank) continue;
    int64_t stride = table[s].count > 5000 ? 97 : 1; /* of large ones a sample */
    for (int64_t k = 0; k < table[s].count; k += stride) {
      int64_t i = table[s].offset + k;
      if (sum == DMUON_FLOAT64) {
        double expected = reference_f64(0, tap_size, i, seed, dtype, prescale) / divisor;
        wrong += ((const double *)out)[at + k] != expected;
      } else {
        float expected = reference_f32(0, tap_size, i, seed, dtype, prescale);
        expected = (float)(expected / divisor);
        wrong += ((const float *)out)[at + k] != expected;
      }
    }
    at += table[s].count;
  }
  return wrong;
}

static DMuonErrorCode sync_queue(void) {
  return device->ops->queue_sync(queue);
}

/* One reduction both ways; 0 when both are right and equal to the bit. */
static int64_t reduce_once(int seed, int64_t largest, DMuonDType dtype, DMuonDType sum,
                           int64_t chunk_bytes, int prescale, double divisor) {
  int64_t total, wrong = 0;
  int count = make_table(seed, largest, &total);
  size_t wide = dmuon_dtype_bytes(sum);
  int64_t outs = out_count(count);
  char *in = malloc((size_t)total * dmuon_dtype_bytes(dtype) + 8);
  char *out[2];
  for (int64_t i = 0; i < total; i++) dmuon_dtype_set(dtype, in, i, value(tap_rank, i, seed));
  int64_t expected_bytes = 0;
  for (int s = 0; s < count; s++)
    if (table[s].root != tap_rank)
      expected_bytes += table[s].payload * (int64_t)dmuon_dtype_bytes(dtype);
  comm->chunk_bytes = chunk_bytes;
  for (int way = 0; way < 2; way++) {
    out[way] = calloc((size_t)outs + 1, wide);
    comm->fanin = way ? 1 : 32;
    dmuon_reduce args = {.segment_count = count,
                         .segments = table,
                         .in = in,
                         .in_dtype = dtype,
                         .out = outs ? out[way] : NULL,
                         .sum_dtype = sum,
                         .prescale = prescale,
                         .divisor = divisor};
    int64_t before = comm->counters.bytes;
    DMuonErrorCode code = comm->ops->reserve(comm, largest, sum);
    if (!code) code = comm->ops->reduce_segments(queue, comm, &args);
    if (!code) code = sync_queue();
    if (code) tap_diag("%s", DMuonErrorGetMessage());
    wrong += code != 0;
    wrong += comm->counters.bytes - before != expected_bytes;
    if (!code) wrong += check_reduced(count, out[way], seed, dtype, sum, prescale, divisor);
  }
  wrong += memcmp(out[0], out[1], (size_t)outs * wide) != 0;
  free(out[0]), free(out[1]), free(in);
  return wrong;
}

static int64_t gather_once(int seed, int64_t largest, DMuonDType dtype, int64_t chunk_bytes) {
  int64_t total, wrong = 0, expected_bytes = 0;
  int count = make_table(seed, largest, &total);
  int64_t bytes = (int64_t)dmuon_dtype_bytes(dtype);
  unsigned char *buffer = malloc((size_t)(total * bytes)),
                *expected = malloc((size_t)(total * bytes));
  memset(buffer, 0xA5, (size_t)(total * bytes));
  memset(expected, 0xA5, (size_t)(total * bytes));
  for (int s = 0; s < count; s++) {
    for (int64_t i = table[s].offset * bytes; i < (table[s].offset + table[s].count) * bytes; i++) {
      expected[i] = (unsigned char)mix((uint64_t)(i + seed));
      if (table[s].root == tap_rank) buffer[i] = expected[i];
    }
    if (table[s].root != tap_rank) expected_bytes += table[s].payload * bytes;
  }
  comm->chunk_bytes = chunk_bytes;
  int64_t before = comm->counters.bytes;
  DMuonErrorCode code = comm->ops->gather_segments(queue, comm, count, table, dtype, buffer);
  if (!code) code = sync_queue();
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  wrong += code != 0;
  wrong += comm->counters.bytes - before != expected_bytes;
  wrong += memcmp(buffer, expected, (size_t)(total * bytes)) != 0;
  free(buffer), free(expected);
  return wrong;
}

static const struct {
  DMuonDType in, sum;
} types[] = {{DMUON_FLOAT32, DMUON_FLOAT32},
             {DMUON_FLOAT64, DMUON_FLOAT64},
             {DMUON_BFLOAT16, DMUON_FLOAT32},
             {DMUON_FLOAT16, DMUON_FLOAT32},
             {DMUON_FLOAT32, DMUON_FLOAT64}};

static void test_small(const char *mode) {
  int64_t wrong = 0;
  for (int t = 0; t < 5; t++) {
    for (int k = 0; k < 8; k++) {
      int64_t chunk = k % 3 == 0 ? 160 : k % 3 == 1 ? 1000 : 4 << 20;
      wrong += reduce_once(k + 50 * t, k < 6 ? 300 : 3000, types[t].in, types[t].sum, chunk,
                           k % 4 == 3 ? -3 : 0, k % 2 ? 1 : 7);
    }
  }
  tap_is_int(wrong, 0, "%s: reductions of all types, direct and as a tree", mode);
  wrong = 0;
  for (int k = 0; k < 20; k++)
    wrong += gather_once(k, k < 15 ? 300 : 5000, k % 2 ? DMUON_FLOAT32 : DMUON_BFLOAT16,
                         k % 3 == 0   ? 16
                         : k % 3 == 1 ? 1000
                                      : 4 << 20);
  tap_is_int(wrong, 0, "%s: segments gathered", mode);
}

static void test_large(const char *mode) {
  tap_is_int(reduce_once(2, 800000, DMUON_FLOAT32, DMUON_FLOAT32, 1 << 20, 0, tap_size), 0,
             "%s: large reductions", mode);
  tap_is_int(reduce_once(9, 800000, DMUON_BFLOAT16, DMUON_FLOAT32, 4 << 20, 0, 1), 0,
             "%s: large reductions of bf16", mode);
  tap_is_int(gather_once(5, 800000, DMUON_FLOAT32, 300000), 0, "%s: large segments gathered", mode);
}

/* Many operations issued before any is waited for, of both kinds. */
static void test_pipelined(const char *mode) {
  enum { OPERATIONS = 30, N = 2000 };
  float *buffer = malloc(sizeof *buffer * N * OPERATIONS),
        *out = malloc(sizeof *out * N * OPERATIONS);
  dmuon_segment segments[OPERATIONS];
  DMuonErrorCode code = DMUON_SUCCESS;
  int64_t wrong = 0;
  comm->chunk_bytes = 1024;
  comm->fanin = 32;
  for (int k = 0; k < OPERATIONS && !code; k++) {
    float *in = buffer + k * N;
    for (int64_t i = 0; i < N; i++) in[i] = (float)value(tap_rank, i, k);
    segments[k] = (dmuon_segment){k % tap_size, 0, N - k * 60, N - k * 60};
    if (k % 3 == 2) {
      code = comm->ops->broadcast(queue, comm, k % tap_size, N, DMUON_FLOAT32, in);
      continue;
    }
    dmuon_reduce args = {.segment_count = 1,
                         .segments = &segments[k],
                         .in = in,
                         .in_dtype = DMUON_FLOAT32,
                         .out = out + k * N,
                         .sum_dtype = DMUON_FLOAT32,
                         .divisor = 1};
    code = comm->ops->reduce_segments(queue, comm, &args);
  }
  if (!code) code = sync_queue();
  for (int k = 0; k < OPERATIONS && !code; k++) {
    if (k % 3 == 2) {
      for (int64_t i = 0; i < N; i++)
        wrong += buffer[k * N + i] != (float)value(k % tap_size, i, k);
    } else if (k % tap_size == tap_rank) {
      for (int64_t i = 0; i < segments[k].count; i++)
        wrong += out[k * N + i] != reference_f32(0, tap_size, i, k, DMUON_FLOAT32, 0);
    }
  }
  tap_ok(!code && !wrong, "%s: thirty operations under way at once", mode);
  free(buffer), free(out);
}

static void test_equal_parts(const char *mode) {
  int64_t wrong = 0;
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int64_t n = 1; n <= 100000 && !code; n *= 100) {
    float *mine = malloc(sizeof *mine * (size_t)n), *all = malloc(sizeof *all * (size_t)n * 8);
    for (int root = 0; root < tap_size && !code; root++) {
      comm->chunk_bytes = n > 10 ? 4096 * 3 : 4;
      for (int64_t i = 0; i < n; i++) mine[i] = (float)(tap_rank * 1000 + i % 1000);
      code = comm->ops->gather(queue, comm, root, n, DMUON_FLOAT32, mine,
                               tap_rank == root ? all : NULL);
      if (!code) code = sync_queue();
      for (int64_t i = 0; i < n * tap_size && tap_rank == root && !code; i++)
        wrong += all[i] != (float)(i / n * 1000 + i % n % 1000);
      for (int64_t i = 0; i < n * tap_size && tap_rank == root; i++) all[i] += 1;
      if (!code)
        code = comm->ops->scatter(queue, comm, root, n, DMUON_FLOAT32,
                                  tap_rank == root ? all : NULL, mine);
      if (!code) code = sync_queue();
      for (int64_t i = 0; i < n && !code; i++)
        wrong += mine[i] != (float)(tap_rank * 1000 + i % 1000 + 1);
    }
    free(mine), free(all);
  }
  tap_ok(!code && !wrong, "%s: gather and scatter of equal parts, every root", mode);

  wrong = 0;
  for (int way = 0; way < 2; way++) {
    for (int64_t n = 1; n <= 20000 && !code; n = n * 11 + 1) {
      double *x = malloc(sizeof *x * (size_t)n);
      comm->fanin = way ? 1 : 32;
      comm->chunk_bytes = 8000;
      for (int64_t i = 0; i < n; i++) x[i] = value(tap_rank, i, 5);
      code = comm->ops->all_reduce(queue, comm, n, DMUON_FLOAT64, x);
      if (!code) code = sync_queue();
      for (int64_t i = 0; i < n && !code; i++)
        wrong += x[i] != reference_f64(0, tap_size, i, 5, DMUON_FLOAT64, 0);
      free(x);
    }
  }
  tap_ok(!code && !wrong, "%s: all_reduce, both ways", mode);
}

static void test_special(const char *mode) {
  float in[4] = {FLT_MAX, NAN, INFINITY, 1}, out[4] = {0};
  if (tap_rank != tap_size / 2) in[1] = 1, in[2] = 2;
  dmuon_segment segment = {tap_size - 1, 0, 4, 4};
  comm->chunk_bytes = 4 << 20;
  int64_t wrong = 0;
  for (int way = 0; way < 2; way++) {
    comm->fanin = way ? 1 : 32;
    dmuon_reduce args = {.segment_count = 1,
                         .segments = &segment,
                         .in = in,
                         .in_dtype = DMUON_FLOAT32,
                         .out = out,
                         .sum_dtype = DMUON_FLOAT32,
                         .prescale = -3,
                         .divisor = tap_size * 0.125};
    DMuonErrorCode code = comm->ops->reduce_segments(queue, comm, &args);
    if (!code) code = sync_queue();
    wrong += code != 0;
    if (tap_rank != tap_size - 1) continue;
    wrong += out[0] != FLT_MAX || !isnan(out[1]) || !isinf(out[2]) || out[3] != 1;
    args.prescale = 0; /* a finite sum, a quotient that is none */
    args.divisor = 0.25;
  }
  tap_is_int(wrong, 0, "%s: the mean of the largest values is finite, NaN and infinity pass", mode);
  float big[2] = {FLT_MAX / 16, -FLT_MAX / 16}, quotient[2] = {0};
  dmuon_reduce args = {.segment_count = 1,
                       .segments = &(dmuon_segment){0, 0, 2, 2},
                       .in = big,
                       .in_dtype = DMUON_FLOAT32,
                       .out = quotient,
                       .sum_dtype = DMUON_FLOAT32,
                       .divisor = 1.0 / 64};
  DMuonErrorCode code = comm->ops->reduce_segments(queue, comm, &args);
  if (!code) code = sync_queue();
  tap_ok(!code && (tap_rank || (quotient[0] == FLT_MAX && quotient[1] == -FLT_MAX)),
         "%s: a quotient that overflows becomes the largest finite value", mode);
}

static void test_memory(void) {
  int64_t in_use = context.memory.bytes;
  comm->chunk_bytes = 4 << 20;
  comm->fanin = 32;
  DMuonErrorCode code = comm->ops->reserve(comm, 800000, DMUON_FLOAT32);
  if (!code) code = device->ops->reserve(device, 100);
  int64_t reserved = context.memory.allocations;
  int partial_sums = 0;
  while (1 << partial_sums < tap_size) partial_sums++;
  tap_ok(context.memory.bytes - in_use <= (partial_sums + 4) * ((int64_t)4 << 20),
         "memory of a reduction: the logarithm of the ranks, and a few chunks");
  int64_t wrong = reduce_once(4, 700000, DMUON_FLOAT32, DMUON_FLOAT32, 4 << 20, 0, 1);
  /* the tree's buffers are fewer or as many from 8 ranks on; below, it may take more once */
  wrong += reduce_once(4, 700000, DMUON_FLOAT32, DMUON_FLOAT32, 4 << 20, 0, 1);
  int64_t after = context.memory.allocations;
  wrong += reduce_once(5, 700000, DMUON_FLOAT32, DMUON_FLOAT32, 4 << 20, 0, 1);
  wrong += gather_once(6, 700000, DMUON_FLOAT32, 4 << 20);
  tap_ok(!code && !wrong && context.memory.allocations == after && after - reserved <= 1,
         "operations allocate nothing");
}

static void run(const char *mode, int deferred, uint64_t seed) {
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &bootstrap);
  int order[64];
  for (int i = 0; i < tap_size; i++) order[i] = tap_size - 1 - i;
  if (!code) code = dmuon_bootstrap_split(bootstrap, 1, tap_size, 1, order);
  if (!code) code = dmuon_host_device_create(&context, deferred, seed, &device);
  if (!code) code = dmuon_host_device_join_process(device);
  if (!code) dmuon_host_device_set_timeout(device, 30);
  if (!code)
    code = dmuon_host_comm_ops.create(device, bootstrap, DMUON_AXIS_SHARD, DMUON_ROLE_FIRST, &comm);
  if (!code) code = device->ops->queue_create(device, 0, &queue);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  if (!tap_ok(!code, "%s: set up", mode)) return;
  tap_ok(comm->size == tap_size && comm->rank == tap_size - 1 - tap_rank, "%s: order", mode);
  int rank = tap_rank; /* the tests below count in ranks of the axis */
  tap_rank = comm->rank;
  test_small(mode);
  test_large(mode);
  test_pipelined(mode);
  test_equal_parts(mode);
  test_special(mode);
  if (!deferred) test_memory();
  tap_rank = rank;
  device->ops->queue_destroy(queue);
  comm->ops->free(comm);
  device->ops->destroy(device);
  tap_ok(!dmuon_bootstrap_check(bootstrap), "%s: unbroken", mode);
  dmuon_bootstrap_destroy(&bootstrap);
  tap_is_int(context.memory.bytes, 0, "%s: nothing is left in memory", mode);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  dmuon_context_init(&context);
  run("eager", 0, 0);
  run("deferred", 1, 42);
  dmuon_context_free(&context);
  return tap_mpi_done();
}
