/* Bodies of the kernels that go over elements of vectors and matrices. See bodies.h. */
#ifndef DMUON_BACKEND_CUDA_BODIES_LOOPS_H
#define DMUON_BACKEND_CUDA_BODIES_LOOPS_H

#include "backend/cuda/bodies_vector.h"

/* ---- vectors to vectors ---------------------------------------------------------------------- */

template <typename T>
DMUON_BODY void dmuon_cast_all(const dmuon_cast_args *a, int64_t thread, int64_t threads) {
  DMUON_EACH_VECTOR(i, a->n) {
    T x[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<T>(x, a->src, i, count, a->src_dtype);
    dmuon_store8<T>(x, a->dst, i, count, a->dst_dtype);
  }
}

DMUON_BODY void dmuon_body_cast(const dmuon_cast_args *a, int64_t thread, int64_t threads) {
  if (a->src_dtype == DMUON_FLOAT64)
    dmuon_cast_all<double>(a, thread, threads);
  else
    dmuon_cast_all<float>(a, thread, threads);
}

/* Whether addend + src may be added in T = float. */
DMUON_BODY int dmuon_pack_is_narrow(const dmuon_pack *p) {
  if ((p->addend && p->addend_dtype == DMUON_FLOAT64) || (p->src && p->src_dtype == DMUON_FLOAT64))
    return 0;
  return !p->addend || !p->src || p->dst_dtype == DMUON_FLOAT32;
}

template <typename T>
DMUON_BODY void dmuon_pack_load(T x[DMUON_VECTOR], const dmuon_pack *p, int64_t i, int count) {
  if (p->addend && p->src) {
    T y[DMUON_VECTOR];
    dmuon_load8<T>(x, p->addend, i, count, p->addend_dtype);
    dmuon_load8<T>(y, p->src, i, count, p->src_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = x[j] + y[j];
  } else if (p->addend) {
    dmuon_load8<T>(x, p->addend, i, count, p->addend_dtype);
  } else if (p->src) {
    dmuon_load8<T>(x, p->src, i, count, p->src_dtype);
  } else {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = 0;
  }
}

template <typename T>
DMUON_BODY void dmuon_pack_all(const dmuon_pack *p, int64_t thread, int64_t threads) {
  DMUON_EACH_VECTOR(i, p->n) {
    T x[DMUON_VECTOR];
    int count = dmuon_count_at(i, p->n);
    dmuon_pack_load<T>(x, p, i, count);
    dmuon_store8<T>(x, p->dst, i, count, p->dst_dtype);
  }
}

DMUON_BODY void dmuon_body_pack(const dmuon_pack *p, int64_t thread, int64_t threads) {
  if (dmuon_pack_is_narrow(p))
    dmuon_pack_all<float>(p, thread, threads);
  else
    dmuon_pack_all<double>(p, thread, threads);
}

DMUON_BODY void dmuon_body_axpby(const dmuon_axpby_args *a, int64_t thread, int64_t threads) {
  const double alpha = a->alpha, beta = a->beta;
  DMUON_EACH_VECTOR(i, a->n) {
    double x[DMUON_VECTOR], y[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(x, a->x, i, count, a->dtype);
    if (beta != 0) {
      dmuon_load8<double>(y, a->y, i, count, a->dtype);
      DMUON_UNROLL
      for (int j = 0; j < DMUON_VECTOR; j++) y[j] = alpha * x[j] + beta * y[j];
    } else {
      DMUON_UNROLL
      for (int j = 0; j < DMUON_VECTOR; j++) y[j] = alpha * x[j];
    }
    dmuon_store8<double>(y, a->y, i, count, a->dtype);
  }
}

/* A finite number whose quotient overflows becomes the largest finite one. The quotient of a float
 * by a double, rounded to float, is rounded as the host's is. */
DMUON_BODY double dmuon_divided(double x, double divisor, DMuonDType dtype) {
  double quotient = x / divisor;
  if (dtype == DMUON_FLOAT64)
    return isinf(quotient) && !isinf(x) ? copysign(DBL_MAX, quotient) : quotient;
  float narrow = (float)quotient;
  return isinf(narrow) && !isinf(x) ? copysign((double)FLT_MAX, quotient) : (double)narrow;
}

DMUON_BODY void dmuon_body_divide(const dmuon_divide_args *a, int64_t thread, int64_t threads) {
  if (a->divisor == 1) return;
  DMUON_EACH_VECTOR(i, a->n) {
    double x[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(x, a->x, i, count, a->dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = dmuon_divided(x[j], a->divisor, a->dtype);
    dmuon_store8<double>(x, a->x, i, count, a->dtype);
  }
}

DMUON_BODY void dmuon_body_add_diagonal(const dmuon_diagonal_args *a, int64_t thread,
                                        int64_t threads) {
  for (int64_t i = thread; i < a->m; i += threads) {
    int64_t at = i * a->ld + i;
    dmuon_set<double>(a->c, at, a->dtype, dmuon_get<double>(a->c, at, a->dtype) + a->alpha);
  }
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* Division by a norm sqrt(sum) * 2^exponent: the power of two first, as a factor, so that neither a
 * reciprocal nor the norm itself, which may be beyond the range of double, is ever formed. */
typedef struct {
  int plain, constant;
  double value, alpha, factor, root;
} dmuon_scaling;

DMUON_BODY dmuon_scaling dmuon_scaling_of(const dmuon_copy_matrix_args *a) {
  const dmuon_norm *divide = a->matrix.divide;
  dmuon_scaling s = {a->matrix.alpha == 1 && !divide, 0, 0, a->matrix.alpha, 1, 1};
  if (a->constant) {
    s.plain = 0, s.constant = 1;
    return s;
  }
  if (!divide) return s;
  double sum = divide->sum;
  s.constant = sum == 0 || !isfinite(sum);
  s.value = sum == 0 ? 0 : sum - sum;
  if (s.constant) return s;
  s.factor = ldexp(1.0, (int)-divide->exponent);
  s.root = sqrt(sum);
  return s;
}

DMUON_BODY double dmuon_scaled(const dmuon_scaling *s, double x) {
  if (s->plain) return x;
  if (s->constant) return s->value;
  if (s->factor == 1 && s->root == 1) return s->alpha * x;
  return s->alpha * (x * s->factor / s->root);
}

/* Vector number `at` of rows of so many each. */
DMUON_BODY void dmuon_body_copy_matrix(const dmuon_copy_matrix_args *a, int64_t thread,
                                       int64_t threads) {
  const dmuon_copy_matrix *m = &a->matrix;
  const dmuon_scaling s = dmuon_scaling_of(a);
  const int64_t per_row = (m->cols + DMUON_VECTOR - 1) / DMUON_VECTOR, all = m->rows * per_row;
  for (int64_t at = thread; at < all; at += threads) {
    const int64_t row = m->rows == 1 ? 0 : at / per_row, col = (at - row * per_row) * DMUON_VECTOR;
    const char *src = dmuon_at(m->src, row * m->src_ld, m->src_dtype);
    char *dst = (char *)m->dst + row * m->dst_ld * dmuon_bytes_of(m->dst_dtype);
    int count = dmuon_count_at(col, m->cols);
    if (s.plain && m->src_dtype != DMUON_FLOAT64) {
      float x[DMUON_VECTOR];
      dmuon_load8<float>(x, src, col, count, m->src_dtype);
      dmuon_store8<float>(x, dst, col, count, m->dst_dtype);
      continue;
    }
    double x[DMUON_VECTOR];
    if (!s.constant) dmuon_load8<double>(x, src, col, count, m->src_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = s.constant ? s.value : dmuon_scaled(&s, x[j]);
    dmuon_store8<double>(x, dst, col, count, m->dst_dtype);
  }
}

/* A tile through shared memory, so that both sides are read and written along their rows. */
DMUON_BODY void dmuon_body_transpose(const dmuon_copy_matrix_args *a, int64_t block, int64_t blocks,
                                     int threads, double *shared) {
  const dmuon_copy_matrix *m = &a->matrix;
  const dmuon_scaling s = dmuon_scaling_of(a);
  const int64_t across = (m->cols + DMUON_TILE - 1) / DMUON_TILE;
  const int64_t all = across * ((m->rows + DMUON_TILE - 1) / DMUON_TILE);
  for (int64_t tile = block; tile < all; tile += blocks) {
    const int64_t row = tile / across * DMUON_TILE, col = tile % across * DMUON_TILE;
    DMUON_EACH(t, threads) {
      for (int k = t; k < DMUON_TILE * DMUON_TILE; k += threads) {
        int64_t i = k / DMUON_TILE, j = k % DMUON_TILE;
        if (row + i >= m->rows || col + j >= m->cols) continue;
        double x = dmuon_get<double>(m->src, (row + i) * m->src_ld + col + j, m->src_dtype);
        shared[i * (DMUON_TILE + 1) + j] = dmuon_scaled(&s, x);
      }
    }
    DMUON_SYNC();
    DMUON_EACH(t, threads) {
      for (int k = t; k < DMUON_TILE * DMUON_TILE; k += threads) {
        int64_t j = k / DMUON_TILE, i = k % DMUON_TILE;
        if (row + i >= m->rows || col + j >= m->cols) continue;
        dmuon_set<double>(m->dst, (col + j) * m->dst_ld + row + i, m->dst_dtype,
                          shared[i * (DMUON_TILE + 1) + j]);
      }
    }
    DMUON_SYNC();
  }
}

/* Row i of the lower triangle with number k = i (i + 1) / 2 + j. */
DMUON_BODY int64_t dmuon_triangle_row(int64_t k) {
  int64_t i = (int64_t)((sqrt(8.0 * (double)k + 1.0) - 1.0) / 2.0);
  while (i * (i + 1) / 2 > k) i--;
  while ((i + 1) * (i + 2) / 2 <= k) i++;
  return i;
}

template <typename W>
DMUON_BODY void dmuon_mirror_tile(const dmuon_mirror_args *a, W *c, int64_t row, int64_t col,
                                  int threads, W *room) {
  DMUON_EACH(t, threads) {
    for (int k = t; k < DMUON_TILE * DMUON_TILE; k += threads) {
      int64_t i = k / DMUON_TILE, j = k % DMUON_TILE;
      if (row + i < a->m && col + j < row + i)
        room[i * (DMUON_TILE + 1) + j] = c[(row + i) * a->ld + col + j];
    }
  }
  DMUON_SYNC();
  DMUON_EACH(t, threads) {
    for (int k = t; k < DMUON_TILE * DMUON_TILE; k += threads) {
      int64_t j = k / DMUON_TILE, i = k % DMUON_TILE;
      if (row + i < a->m && col + j < row + i)
        c[(col + j) * a->ld + row + i] = room[i * (DMUON_TILE + 1) + j];
    }
  }
  DMUON_SYNC();
}

DMUON_BODY void dmuon_body_mirror(const dmuon_mirror_args *a, int64_t block, int64_t blocks,
                                  int threads, double *shared) {
  const int64_t rows = (a->m + DMUON_TILE - 1) / DMUON_TILE, each = rows * (rows + 1) / 2;
  for (int64_t tile = block; tile < each * a->count; tile += blocks) {
    const int64_t matrix = tile / each, k = tile % each, i = dmuon_triangle_row(k);
    const int64_t row = i * DMUON_TILE, col = (k - i * (i + 1) / 2) * DMUON_TILE;
    char *c = (char *)a->c + matrix * a->stride * dmuon_bytes_of(a->dtype);
    if (a->dtype == DMUON_FLOAT64)
      dmuon_mirror_tile<uint64_t>(a, (uint64_t *)(void *)c, row, col, threads,
                                  (uint64_t *)(void *)shared);
    else if (a->dtype == DMUON_FLOAT32)
      dmuon_mirror_tile<uint32_t>(a, (uint32_t *)(void *)c, row, col, threads,
                                  (uint32_t *)(void *)shared);
    else
      dmuon_mirror_tile<uint16_t>(a, (uint16_t *)(void *)c, row, col, threads,
                                  (uint16_t *)(void *)shared);
  }
}

DMUON_BODY void dmuon_body_tiles(const dmuon_tiles_args *a, int64_t thread, int64_t threads) {
  const int64_t each = a->tiles * (a->tiles + 1) / 2;
  for (int64_t at = thread; at < each * a->count; at += threads) {
    const int64_t matrix = at / each, k = at % each, i = dmuon_triangle_row(k);
    const int64_t j = k - i * (i + 1) / 2;
    a->a_out[at] = a->a + matrix * a->a_stride + i * a->a_step;
    a->b_out[at] = a->b + matrix * a->b_stride + j * a->b_step;
    a->c_out[at] = a->c + matrix * a->c_stride + i * a->c_row + j * a->c_col;
  }
}
/* ---- small things ---------------------------------------------------------------------------- */

DMUON_BODY double dmuon_clock(void) {
#ifdef __CUDA_ARCH__
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return (double)nanoseconds * 1e-9;
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

DMUON_BODY void dmuon_body_stamp(const dmuon_stamp_args *a, int64_t thread, int64_t threads) {
  (void)threads;
  if (thread == 0) *a->seconds = dmuon_clock();
}

#endif
