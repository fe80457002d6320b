/* Bodies of the kernels that make one number of many: norms, the first element that is not finite,
 * whether any flag is set. See bodies.h. */
#ifndef DMUON_BACKEND_CUDA_BODIES_REDUCE_H
#define DMUON_BACKEND_CUDA_BODIES_REDUCE_H

#include "backend/cuda/bodies_loops.h"

/* The sum of n numbers into the first, pairwise: neighbours, then pairs, and so on. */
DMUON_BODY void dmuon_tree_add(double *x, int n, int threads) {
  for (int width = 1; width < n; width *= 2) {
    DMUON_EACH(t, threads) {
      for (int i = 2 * width * t; i + width < n; i += 2 * width * threads)
        x[i] = x[i] + x[i + width];
    }
    DMUON_SYNC();
  }
}

/* Sums of whole subtrees in order, pairwise as a binary counter counts: level i of the counter is
 * taken where bit i of *count is set. */
DMUON_BODY void dmuon_counter_add(double *level, double *count, double value) {
  int i = 0;
  for (uint64_t taken = (uint64_t)*count; taken & 1; taken >>= 1) value = level[i++] + value;
  level[i] = value;
  *count = *count + 1;
}

DMUON_BODY double dmuon_counter_total(const double *level, const double *count) {
  double total = 0;
  int any = 0;
  for (int i = 0; i < 63; i++) {
    if (!((uint64_t)*count >> i & 1)) continue;
    total = any ? level[i] + total : level[i];
    any = 1;
  }
  return total;
}

/* Lane j of a chunk: its elements j, j + 16, ..., one after the other. */
DMUON_BODY double dmuon_lane(const dmuon_norm_args *a, int64_t chunk, int64_t per_row, int lane,
                             double factor) {
  const int64_t row = chunk / per_row, col = (chunk - row * per_row) * DMUON_CHUNK;
  const int64_t left = a->cols - col;
  const int count = left < DMUON_CHUNK ? (int)left : DMUON_CHUNK;
  const char *x = dmuon_at(a->x, row * a->ld + col, a->dtype);
  double sum = 0;
  if (a->largest) {
    for (int i = lane; i < count; i += DMUON_LANES) {
      double value = fabs(dmuon_get<double>(x, i, a->dtype));
      sum = value > sum && value <= DBL_MAX ? value : sum;
    }
    return sum;
  }
  DMUON_UNROLL
  for (int k = 0; k < DMUON_CHUNK / DMUON_LANES; k++) {
    int i = lane + k * DMUON_LANES;
    if (i >= count) break;
    double value = dmuon_get<double>(x, i, a->dtype) * factor;
    sum = sum + value * value;
  }
  return sum;
}

DMUON_BODY void dmuon_norm_store(const dmuon_norm_args *a, double total) {
  if (a->largest) {
    int exponent = 0;
    if (total > 0) (void)frexp(total, &exponent);
    *a->exponent = exponent < -1000 ? -1000 : exponent;
    return;
  }
  a->norm->sum = total;
  a->norm->exponent = a->exponent ? (int64_t)*a->exponent : 0;
}

DMUON_BODY void dmuon_tree_most(double *x, int n, int threads) {
  for (int width = 1; width < n; width *= 2) {
    DMUON_EACH(t, threads) {
      for (int i = 2 * width * t; i + width < n; i += 2 * width * threads)
        x[i] = x[i + width] > x[i] ? x[i + width] : x[i];
    }
    DMUON_SYNC();
  }
}

/* shared: [0, DMUON_GROUP) sums of chunks; a lane a thread; levels of the counter, and its
 * count. */
DMUON_BODY void dmuon_body_norm(const dmuon_norm_args *a, int64_t block, int64_t blocks,
                                int threads, double *shared) {
  double *sums = shared, *lanes = sums + DMUON_GROUP, *level = lanes + threads;
  double *count = level + 63;
  const int64_t per_row = (a->cols + DMUON_CHUNK - 1) / DMUON_CHUNK;
  const int64_t all = a->finish ? a->count : a->rows * per_row;
  const int64_t first = a->finish ? 0 : block * a->group;
  const int64_t last = a->finish || first + a->group > all ? all : first + a->group;
  const int at_once = threads / DMUON_LANES;
  const double factor =
      a->exponent && !a->largest && !a->finish ? ldexp(1.0, -(int)*a->exponent) : 1.0;
  DMUON_EACH(t, threads) {
    if (t == 0) *count = 0;
  }
  DMUON_SYNC();
  for (int64_t at = first; at < last; at += DMUON_GROUP) {
    const int n = last - at < DMUON_GROUP ? (int)(last - at) : DMUON_GROUP;
    if (a->finish) {
      DMUON_EACH(t, threads) {
        for (int i = t; i < n; i += threads) sums[i] = a->partials[at + i];
      }
      DMUON_SYNC();
    } else {
      for (int turn = 0; turn < n; turn += at_once) {
        DMUON_EACH(t, threads) {
          int i = turn + t / DMUON_LANES;
          if (i < n) lanes[t] = dmuon_lane(a, at + i, per_row, t % DMUON_LANES, factor);
        }
        DMUON_SYNC();
        DMUON_EACH(t, threads) {
          int i = turn + t / DMUON_LANES;
          if (i < n && t % DMUON_LANES == 0) {
            double lane[DMUON_LANES];
            DMUON_UNROLL
            for (int j = 0; j < DMUON_LANES; j++) lane[j] = lanes[t + j];
            DMUON_UNROLL
            for (int width = DMUON_LANES / 2; width > 0; width /= 2)
              for (int j = 0; j < width; j++)
                lane[j] = !a->largest                 ? lane[j] + lane[j + width]
                          : lane[j + width] > lane[j] ? lane[j + width]
                                                      : lane[j];
            sums[i] = lane[0];
          }
        }
        DMUON_SYNC();
      }
    }
    if (a->largest)
      dmuon_tree_most(sums, n, threads);
    else
      dmuon_tree_add(sums, n, threads);
    DMUON_EACH(t, threads) {
      if (t == 0 && !a->largest) dmuon_counter_add(level, count, sums[0]);
      if (t == 0 && a->largest) {
        level[0] = *count == 0 || sums[0] > level[0] ? sums[0] : level[0];
        *count = 1;
      }
    }
    DMUON_SYNC();
  }
  DMUON_EACH(t, threads) {
    if (t != 0) continue;
    double total = dmuon_counter_total(level, count);
    if (a->finish || blocks == 1)
      dmuon_norm_store(a, total);
    else
      a->partials[block] = total;
  }
}

DMUON_BODY int dmuon_is_finite_as(double x, DMuonDType dtype) {
  switch (dtype) {
    case DMUON_FLOAT32:
      return (dmuon_bits32((float)x) & 0x7f800000u) != 0x7f800000u;
    case DMUON_FLOAT64:
      return isfinite(x) != 0;
    case DMUON_BFLOAT16:
      return (dmuon_to_bf16(x) & 0x7f80) != 0x7f80;
    case DMUON_FLOAT16:
      return (dmuon_to_fp16(x) & 0x7c00) != 0x7c00;
  }
  return 1;
}

DMUON_BODY int64_t dmuon_find_in(const dmuon_pack *p, int64_t thread, int64_t threads) {
  DMUON_EACH_VECTOR(i, p->n) {
    double x[DMUON_VECTOR];
    int count = dmuon_count_at(i, p->n), found = -1;
    dmuon_pack_load<double>(x, p, i, count);
    DMUON_UNROLL
    for (int j = DMUON_VECTOR - 1; j >= 0; j--)
      if (j < count && !dmuon_is_finite_as(x[j], p->dst_dtype)) found = j;
    if (found >= 0) return i + found;
  }
  return INT64_MAX;
}

DMUON_BODY void dmuon_body_find_nonfinite(const dmuon_find_args *a, int64_t block, int64_t blocks,
                                          int threads, double *shared) {
  int64_t *least = (int64_t *)(void *)shared;
  DMUON_EACH(t, threads) {
    int64_t mine = INT64_MAX;
    if (a->finish) {
      for (int64_t i = t; i < a->count; i += threads)
        mine = a->partials[i] < mine ? a->partials[i] : mine;
    } else {
      mine = dmuon_find_in(&a->pack, block * threads + t, blocks * threads);
    }
    least[t] = mine;
  }
  DMUON_SYNC();
  for (int width = threads / 2; width > 0; width /= 2) {
    DMUON_EACH(t, threads) {
      if (t < width) least[t] = least[t + width] < least[t] ? least[t + width] : least[t];
    }
    DMUON_SYNC();
  }
  DMUON_EACH(t, threads) {
    if (t != 0) continue;
    if (a->finish || blocks == 1) {
      *a->index = least[0] == INT64_MAX ? -1 : least[0];
      if (a->flag && least[0] != INT64_MAX) *a->flag = 1;
    } else {
      a->partials[block] = least[0];
    }
  }
}

/* One block: each thread looks at every so many flags. */
DMUON_BODY void dmuon_body_decide(const dmuon_decide_args *a, int64_t block, int64_t blocks,
                                  int threads, double *shared) {
  (void)block, (void)blocks;
  DMUON_EACH(t, threads) {
    double any = 0;
    for (int64_t i = t; i < a->count; i += threads) any = a->flags[i] != 0 ? 1 : any;
    shared[t] = any;
  }
  DMUON_SYNC();
  dmuon_tree_most(shared, threads, threads);
  DMUON_EACH(t, threads) {
    if (t != 0) continue;
    *a->any = (float)shared[0];
    if (a->skipped && shared[0] != 0) *a->skipped = *a->skipped + 1;
  }
}

#endif
