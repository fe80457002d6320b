/* The bodies of the kernels against the host's loops, bit for bit: random numbers of every size,
 * subnormal and huge ones, infinities and NaN, in every mix of types, from aligned and odd
 * addresses. (Of NaN only that it is one is compared.) */
#include "config.h"

#include "tap.h"

#include "cuda_device.h"

#include "backend/host/host.h"
#include "base/random.h"

enum { N = 3000, SHIFT = 3 }; /* SHIFT: elements an odd array begins late */

typedef struct {
  dmuon_context context;
  dmuon_device *device;
  const DMuonDeviceOps *ops;
  dmuon_queue *queue;
  void *pool; /* arrays of N + 8 doubles each */
  void *told;
} side;

enum { ARRAYS = 6 };
static side sides[2]; /* host, cuda */
static char *content[2][ARRAYS];
static uint64_t key;
static const DMuonDType all_dtypes[] = {DMUON_FLOAT32, DMUON_FLOAT64, DMUON_BFLOAT16,
                                        DMUON_FLOAT16};
#define ROOM ((int64_t)(N + 8) * 8)

static void must(DMuonErrorCode code) {
  if (!code) return;
  tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(0, "an operation failed");
  exit(1);
}

static void open_side(side *s, int cuda) {
  dmuon_context_init(&s->context);
  must(cuda ? cuda_device_try(&s->context, -1, &s->device)
            : dmuon_host_device_create(&s->context, 0, 0, &s->device));
  s->ops = s->device->ops;
  must(s->ops->queue_create(s->device, 0, &s->queue));
  must(s->ops->alloc(s->device, ARRAYS * ROOM, &s->pool));
  must(s->ops->alloc_host(s->device, 64, &s->told));
}

static void close_side(side *s) {
  must(s->ops->queue_sync(s->queue));
  s->ops->free(s->device, s->pool);
  s->ops->free_host(s->device, s->told);
  s->ops->queue_destroy(s->queue);
  s->ops->destroy(s->device);
  tap_is_int(s->context.memory.bytes, 0, "everything was freed");
  dmuon_context_free(&s->context);
}

static void *at(const side *s, int array, DMuonDType dtype, int odd) {
  return dmuon_dtype_at((char *)s->pool + array * ROOM, odd ? SHIFT : 0, dtype);
}

/* A pattern of bits, mostly finite: any exponent, or near 1, or something special. */
static uint64_t pattern(DMuonDType dtype, uint64_t i) {
  static const double special[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0.5, 2, 65504};
  const uint64_t random = dmuon_random_bits(5, key, i);
  uint64_t bits = random;
  double value = 0;
  switch (random >> 59) {
    case 0:
      value = special[random % 10];
      break;
    case 1:
      value = (random & 1 ? -1 : 1) * dmuon_dtype_largest(dtype);
      break;
    case 2:
    case 3:
    case 4:
    case 5:
      return bits; /* as it comes: mostly far from 1, NaN among it */
    default:
      value = 4 * dmuon_random_uniform(6, key, i) - 2;
  }
  dmuon_dtype_set(dtype, &bits, 0, value);
  return bits;
}

static void fill(int array, DMuonDType dtype, int positive) {
  const size_t bytes = dmuon_dtype_bytes(dtype);
  char *data = content[0][array];
  key++;
  for (int64_t i = 0; i < N + 8; i++) {
    uint64_t bits = pattern(dtype, (uint64_t)i);
    if (positive) bits &= UINT64_MAX >> 1 >> (64 - 8 * bytes);
    memcpy(data + (size_t)i * bytes, &bits, bytes);
  }
  for (int s = 0; s < 2; s++)
    must(sides[s].ops->copy(sides[s].queue, (char *)sides[s].pool + array * ROOM, data,
                            (int64_t)bytes * (N + 8)));
}

static int same(DMuonDType dtype, const char *a, const char *b, int64_t i) {
  const size_t bytes = dmuon_dtype_bytes(dtype);
  if (!memcmp(a + (size_t)i * bytes, b + (size_t)i * bytes, bytes)) return 1;
  return isnan(dmuon_dtype_get(dtype, a, i)) && isnan(dmuon_dtype_get(dtype, b, i));
}

/* Whether both sides hold the same, all of the array; what does not is shown once. */
static int compare(int array, DMuonDType dtype) {
  const int64_t bytes = (int64_t)dmuon_dtype_bytes(dtype) * (N + 8);
  for (int s = 0; s < 2; s++) {
    must(sides[s].ops->copy(sides[s].queue, content[s][array], (char *)sides[s].pool + array * ROOM,
                            bytes));
    must(sides[s].ops->queue_sync(sides[s].queue));
  }
  for (int64_t i = 0; i < N + 8; i++) {
    if (same(dtype, content[0][array], content[1][array], i)) continue;
    tap_diag("element %d: host %.17g, cuda %.17g", (int)i,
             dmuon_dtype_get(dtype, content[0][array], i),
             dmuon_dtype_get(dtype, content[1][array], i));
    return 0;
  }
  return 1;
}

#define BOTH(call)                          \
  for (int side_ = 0; side_ < 2; side_++) { \
    side *s = &sides[side_];                \
    must(call);                             \
  }

static void test_cast_and_pack(void) {
  int cast = 1, pack = 1, found = 1;
  for (int x = 0; x < 64; x++) {
    const DMuonDType to = all_dtypes[x / 16], a = all_dtypes[x / 4 % 4], b = all_dtypes[x % 4];
    const int odd = x % 3 == 1, odd_to = x % 5 == 2;
    fill(0, a, 0), fill(1, b, 0), fill(2, to, 0);
    if (x % 4 == 0) {
      BOTH(s->ops->cast(s->queue, N, at(s, 2, to, odd_to), to, at(s, 0, a, odd), a));
      cast &= compare(2, to);
    }
    for (int which = 1; which < 4; which++) {
      for (int i = 0; i < 2; i++) {
        side *s = &sides[i];
        const dmuon_pack args = {N,  at(s, 2, to, odd_to),
                                 to, which & 1 ? at(s, 0, a, odd) : NULL,
                                 a,  which & 2 ? at(s, 1, b, 0) : NULL,
                                 b};
        must(s->ops->pack(s->queue, &args));
        must(s->ops->find_nonfinite(s->queue, &args, s->told, NULL));
        must(s->ops->queue_sync(s->queue));
      }
      pack &= compare(2, to);
      found &= *(int64_t *)sides[0].told == *(int64_t *)sides[1].told;
    }
  }
  tap_ok(cast, "casts");
  tap_ok(pack, "packs, of every three types");
  tap_ok(found, "the first element that is not finite");
}

static void test_vectors(void) {
  int axpby = 1, divide = 1, diagonal = 1;
  for (int x = 0; x < 16; x++) {
    const DMuonDType dtype = all_dtypes[x % 4];
    const int odd = x / 4 % 2;
    const double beta = x / 8 ? -1.7 : 0;
    fill(0, dtype, 0), fill(1, dtype, 0);
    BOTH(s->ops->axpby(s->queue, N, dtype, 0.3, at(s, 0, dtype, 0), beta, at(s, 1, dtype, odd)));
    axpby &= compare(1, dtype);
    BOTH(s->ops->add_diagonal(s->queue, dtype, 50, 0.375, at(s, 0, dtype, odd), 53));
    diagonal &= compare(0, dtype);
    if (x % 4 > 1) continue;
    BOTH(s->ops->divide(s->queue, N, dtype, x % 8 == 0 ? 3 : 0.1, at(s, 1, dtype, odd)));
    divide &= compare(1, dtype);
  }
  tap_ok(axpby, "axpby");
  tap_ok(divide, "division");
  tap_ok(diagonal, "the diagonal");
}

static void test_matrices(void) {
  static const int64_t sizes[][2] = {{1, 2999}, {2999, 1}, {53, 56}, {40, 70}, {33, 64}};
  int copy = 1;
  for (int x = 0; x < 160; x++) {
    const DMuonDType from = all_dtypes[x % 4], to = all_dtypes[x / 4 % 4];
    const int64_t rows = sizes[x % 5][0], cols = sizes[x % 5][1];
    const int transpose = x / 16 % 2, divided = x / 32 % 5, gap = cols > 1 && x % 3 == 0;
    if (rows * (cols + gap) > N || cols * (rows + gap) > N) continue;
    fill(0, from, 0), fill(1, to, 0);
    for (int i = 0; i < 2; i++) {
      side *s = &sides[i];
      dmuon_norm *norm = s->told;
      *norm = divided == 2   ? (dmuon_norm){0, 0}
              : divided == 3 ? (dmuon_norm){INFINITY, 0}
                             : (dmuon_norm){2.5, 3};
      const dmuon_copy_matrix args = {rows,
                                      cols,
                                      at(s, 0, from, 0),
                                      cols + gap,
                                      from,
                                      at(s, 1, to, x % 7 == 1),
                                      (transpose ? rows : cols) + gap,
                                      to,
                                      transpose,
                                      x % 2 ? 1 : 0.7,
                                      divided ? norm : NULL};
      must(s->ops->copy_matrix(s->queue, &args));
      must(s->ops->queue_sync(s->queue));
    }
    copy &= compare(1, to);
  }
  tap_ok(copy, "copies of matrices");
}

static int norms_equal(DMuonDType dtype, int64_t rows, int64_t cols, int64_t ld) {
  BOTH(s->ops->norm(s->queue, dtype, rows, cols, at(s, 0, dtype, 0), ld, s->told));
  BOTH(s->ops->queue_sync(s->queue));
  const dmuon_norm *host = sides[0].told, *cuda = sides[1].told;
  if (host->exponent == cuda->exponent &&
      (host->sum == cuda->sum || (isnan(host->sum) && isnan(cuda->sum))))
    return 1;
  tap_diag("%lld x %lld in %s: host %.17g 2^%lld, cuda %.17g 2^%lld", (long long)rows,
           (long long)cols, dmuon_dtype_name(dtype), host->sum, (long long)host->exponent,
           cuda->sum, (long long)cuda->exponent);
  return 0;
}

static void fill_finite(int array, DMuonDType dtype) {
  const size_t bytes = dmuon_dtype_bytes(dtype);
  fill(array, dtype, 0);
  for (int64_t i = 0; i < N + 8; i++) {
    double value = dmuon_dtype_get(dtype, content[0][array], i);
    if (!isfinite(value)) dmuon_dtype_set(dtype, content[0][array], i, 1e-3);
  }
  for (int s = 0; s < 2; s++)
    must(sides[s].ops->copy(sides[s].queue, (char *)sides[s].pool + array * ROOM, content[0][array],
                            (int64_t)bytes * (N + 8)));
}

static void test_norms(void) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {1, 15, 15},   {1, 513, 513}, {1, 3000, 3000},
                                     {3000, 1, 1}, {7, 100, 104}, {3, 600, 700}, {50, 17, 60},
                                     {0, 5, 5},    {5, 0, 3},     {1000, 2, 3}};
  int equal = 1;
  for (int x = 0; x < 44; x++) {
    fill_finite(0, all_dtypes[x % 4]);
    equal &= norms_equal(all_dtypes[x % 4], sizes[x / 4][0], sizes[x / 4][1], sizes[x / 4][2]);
    fill(0, all_dtypes[x % 4], 0);
    equal &= norms_equal(all_dtypes[x % 4], sizes[x / 4][0], sizes[x / 4][1], sizes[x / 4][2]);
  }
  tap_ok(equal, "norms");
}

/* So large that blocks take more chunks than they add up at once: 2200000 rows of one element. */
static void test_large_norm(void) {
  const int64_t rows = 2200000;
  float *x = malloc((size_t)rows * sizeof *x);
  void *array[2];
  for (int64_t i = 0; i < rows; i++) x[i] = (float)dmuon_random_uniform(7, 7, (uint64_t)i);
  for (int i = 0; i < 2; i++) {
    side *s = &sides[i];
    must(s->ops->alloc(s->device, rows * 4, &array[i]));
    must(s->ops->copy(s->queue, array[i], x, rows * 4));
    must(s->ops->norm(s->queue, DMUON_FLOAT32, rows, 1, array[i], 1, s->told));
    must(s->ops->queue_sync(s->queue));
    s->ops->free(s->device, array[i]);
  }
  const dmuon_norm *host = sides[0].told, *cuda = sides[1].told;
  tap_ok(host->sum == cuda->sum && host->sum > 1e5, "a norm of %d chunks", (int)rows);
  free(x);
}

static const DMuonDType mixes[][4] = {
    /* gradient, state, weight, value */
    {DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32},
    {DMUON_BFLOAT16, DMUON_FLOAT32, DMUON_FLOAT32, DMUON_BFLOAT16},
    {DMUON_FLOAT16, DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT16},
    {DMUON_FLOAT64, DMUON_FLOAT64, DMUON_FLOAT64, DMUON_FLOAT32},
    {DMUON_FLOAT32, DMUON_BFLOAT16, DMUON_BFLOAT16, DMUON_BFLOAT16},
    {DMUON_BFLOAT16, DMUON_FLOAT16, DMUON_FLOAT16, DMUON_BFLOAT16},
};

static void test_momentum(void) {
  int equal = 1;
  for (int x = 0; x < 6 * 16; x++) {
    const DMuonDType *mix = mixes[x / 16];
    fill(0, mix[0], 0), fill(1, mix[1], 0), fill(2, mix[2], 0), fill(3, mix[1], 0);
    for (int i = 0; i < 2; i++) {
      side *s = &sides[i];
      const dmuon_muon_momentum args = {
          .n = N,
          .form = x & 1 ? DMUON_MOMENTUM_EMA : DMUON_MOMENTUM_HEAVY_BALL,
          .nesterov = x >> 1 & 1,
          .first = x >> 2 & 1,
          .mu = 0.95,
          .grad_scale = 0.7,
          .l2 = x >> 3 & 1 ? 0.1 : 0,
          .grad = at(s, 0, mix[0], x % 3 == 0),
          .grad_dtype = mix[0],
          .momentum = at(s, 1, mix[1], 0),
          .momentum_dtype = mix[1],
          .weight = at(s, 2, mix[2], 0),
          .weight_dtype = mix[2],
          .update = at(s, 3, mix[1], x % 5 == 0),
      };
      must(s->ops->muon_momentum(s->queue, &args));
    }
    equal &= compare(1, mix[1]) && compare(3, mix[1]);
  }
  tap_ok(equal, "momentum and update, every form");
}

static void test_apply(void) {
  int equal = 1;
  for (int x = 0; x < 6 * 6 * 2; x++) {
    const DMuonDType *mix = mixes[x / 12];
    fill(0, mix[1], 0), fill(1, mix[2], 0), fill(2, mix[3], 0);
    for (int i = 0; i < 2; i++) {
      side *s = &sides[i];
      const int in_place = x % 2 && mix[2] == mix[3];
      const dmuon_muon_apply args = {
          .n = N,
          .decay = (dmuon_decay)(x / 2 % 6),
          .lr = 0.02,
          .weight_decay = 0.1,
          .update = at(s, 0, mix[1], x % 5 == 0),
          .update_dtype = mix[1],
          .weight = at(s, 1, mix[2], 0),
          .weight_dtype = mix[2],
          .value = in_place ? at(s, 1, mix[2], 0) : at(s, 2, mix[3], x % 3 == 0),
          .value_dtype = mix[3],
      };
      must(s->ops->muon_apply(s->queue, &args));
    }
    equal &= compare(1, mix[2]) && compare(2, mix[3]);
  }
  tap_ok(equal, "weight and value, every decay");
}

static void test_adamw(void) {
  int equal = 1;
  for (int x = 0; x < 6 * 8; x++) {
    const DMuonDType *mix = mixes[x / 8];
    const int skips = x % 4; /* 0: no flag; 1: clear; 2: clear, some skipped before; 3: set */
    fill(0, mix[0], 0), fill(1, mix[1], 0), fill(2, mix[1], 1), fill(3, mix[2], 0);
    fill(4, mix[3], 0);
    const float flag = skips == 3 ? 1 : 0;
    const int64_t before = skips == 2 ? 4 : 0;
    int64_t after[2];
    for (int i = 0; i < 2; i++) {
      side *s = &sides[i];
      char *small = (char *)s->pool + 5 * ROOM;
      must(s->ops->copy(s->queue, small, &flag, sizeof flag));
      must(s->ops->copy(s->queue, small + 8, &before, sizeof before));
      const dmuon_adamw args = {
          .n = N,
          .step = 7,
          .lr = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = x % 8 < 4 ? 1e-8 : 0,
          .weight_decay = 0.1,
          .grad_scale = 0.5,
          .grad = at(s, 0, mix[0], x % 3 == 0),
          .grad_dtype = mix[0],
          .exp_avg = at(s, 1, mix[1], 0),
          .exp_avg_sq = at(s, 2, mix[1], 0),
          .state_dtype = mix[1],
          .weight = at(s, 3, mix[2], 0),
          .weight_dtype = mix[2],
          .value = at(s, 4, mix[3], x % 5 == 0),
          .value_dtype = mix[3],
          .skip = skips ? (const float *)(const void *)small : NULL,
          .skipped = skips ? (int64_t *)(void *)(small + 8) : NULL,
      };
      must(s->ops->adamw(s->queue, &args));
      must(s->ops->copy(s->queue, &after[i], small + 8, sizeof after[i]));
      must(s->ops->queue_sync(s->queue));
    }
    equal &= compare(1, mix[1]) && compare(2, mix[1]) && compare(3, mix[2]) && compare(4, mix[3]);
    equal &= after[0] == after[1] && after[0] == (skips == 3 ? 1 : before);
  }
  tap_ok(equal, "AdamW, with and without skipped steps");
}

int main(void) {
  tap_plan(0);
  open_side(&sides[0], 0);
  open_side(&sides[1], 1);
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < ARRAYS; i++) content[s][i] = calloc(1, (size_t)ROOM);
  test_cast_and_pack();
  test_vectors();
  test_matrices();
  test_norms();
  test_large_norm();
  test_momentum();
  test_apply();
  test_adamw();
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < ARRAYS; i++) free(content[s][i]);
  close_side(&sides[0]);
  close_side(&sides[1]);
  return tap_done();
}
