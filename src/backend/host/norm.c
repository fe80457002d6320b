/* The Frobenius norm of a matrix on the host. It decides the association of the sum of squares, a
 * function of rows and columns alone: chunks of a row in 16 interleaved partial sums, the chunks
 * pairwise through a binary counter. And the scale: squares of fp32, fp16 and bf16 numbers and
 * their sums fit into double as they are; fp64 elements are first multiplied by a power of two that
 * brings the largest near 1. */
#include "backend/host/tasks.h"

#include <math.h>

enum { LANES = 16, LEVELS = 64, LEAST_EXPONENT = -1000 };

/* Partial sums waiting for their other half; bit i of count says that level i is taken. */
typedef struct {
  double level[LEVELS];
  uint64_t count;
} counter;

static void counter_add(counter *c, double value) {
  int i = 0;
  for (uint64_t taken = c->count; taken & 1; taken >>= 1) value = c->level[i++] + value;
  c->level[i] = value;
  c->count++;
}

static double counter_total(const counter *c) {
  double total = 0;
  int any = 0;
  for (int i = 0; i < LEVELS; i++) {
    if (!(c->count >> i & 1)) continue;
    total = any ? c->level[i] + total : c->level[i];
    any = 1;
  }
  return total;
}

static double chunk_sum(int64_t count, const double *x, double factor) {
  double lane[LANES] = {0};
  int64_t whole = count / LANES * LANES;
  for (int64_t i = 0; i < whole; i += LANES)
    for (int j = 0; j < LANES; j++) {
      double value = x[i + j] * factor;
      lane[j] += value * value;
    }
  for (int64_t i = whole; i < count; i++) {
    double value = x[i] * factor;
    lane[i - whole] += value * value;
  }
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int j = 0; j < width; j++) lane[j] += lane[j + width];
  return lane[0];
}

/* Not finite elements do not count: they show in the sum. */
static double chunk_largest(int64_t count, const double *x) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double value = fabs(x[i]);
    largest = value > largest && value <= 0x1.fffffffffffffp+1023 ? value : largest;
  }
  return largest;
}

/* One sweep: the sum of squares times factor^2 into *sums, or (sums NULL) the largest element. */
static DMuonErrorCode sweep(dmuon_host_engine *engine, const dmuon_host_norm *n, double factor,
                            counter *sums, double *largest) {
  int64_t since_poll = 0;
  for (int64_t i = 0; i < n->rows; i++) {
    for (int64_t j = 0; j < n->cols; j += DMUON_HOST_CHUNK) {
      double room[DMUON_HOST_CHUNK];
      int64_t count = n->cols - j < DMUON_HOST_CHUNK ? n->cols - j : DMUON_HOST_CHUNK;
      const void *from = dmuon_dtype_at(n->x, i * n->ld + j, n->dtype);
      const double *x = from;
      if (n->dtype != DMUON_FLOAT64) {
        dmuon_dtype_cast(count, DMUON_FLOAT64, room, n->dtype, from);
        x = room;
      }
      if (sums) {
        counter_add(sums, chunk_sum(count, x, factor));
      } else {
        double here = chunk_largest(count, x);
        if (here > *largest) *largest = here;
      }
    }
    since_poll += n->cols;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode norm_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_norm *n = args;
  int exponent = 0;
  *done = 1;
  if (n->dtype == DMUON_FLOAT64) {
    double largest = 0;
    DMUON_TRY(sweep(engine, n, 1, NULL, &largest));
    if (largest > 0) frexp(largest, &exponent);
    if (exponent < LEAST_EXPONENT) exponent = LEAST_EXPONENT;
  }
  counter sums = {.count = 0};
  DMUON_TRY(sweep(engine, n, ldexp(1, -exponent), &sums, NULL));
  n->norm->sum = counter_total(&sums);
  n->norm->exponent = exponent;
  return DMUON_SUCCESS;
}

const dmuon_host_task_class dmuon_host_norm_task = {.name = "norm", .advance = norm_advance};
