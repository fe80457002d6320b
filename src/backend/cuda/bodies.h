/* What the kernels do, as inline functions that nvcc and a plain C++ compiler both take. Decides the
 * arithmetic: the formulas and the rounding of the host's loops, to the bit: in double, rounded once
 * where a value is stored (a conversion, or a sum of fp32 numbers stored in fp32, is the same
 * without the detour). Contraction into fused multiply-adds must be off.
 *
 * An element loop takes DMUON_VECTOR elements at a time, in loads and stores of 16 bytes where the
 * address allows. A reduction has one association, a function of the size alone, and its threads
 * meet between phases: DMUON_EACH runs over the threads of a block (on a GPU: is the thread). */
#ifndef DMUON_BACKEND_CUDA_BODIES_H
#define DMUON_BACKEND_CUDA_BODIES_H

#include <float.h>
#include <math.h>
#include <string.h>
#include <time.h>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif
#include <vector_types.h>

#include "backend/cuda/kernels.h"

#ifdef __CUDACC__
#define DMUON_BODY __host__ __device__ static inline
#else
#define DMUON_BODY static inline
#endif

#ifdef __CUDA_ARCH__
#define DMUON_UNROLL _Pragma("unroll")
#define DMUON_EACH(t, threads) for (int t = (int)threadIdx.x, t##_once = 1; t##_once; t##_once = 0)
#define DMUON_SYNC() __syncthreads()
#else
#define DMUON_UNROLL
#define DMUON_EACH(t, threads) for (int t = 0; t < (threads); t++)
#define DMUON_SYNC() ((void)0)
#endif

/* ---- patterns and conversions -------------------------------------------------------------- */

DMUON_BODY uint32_t dmuon_bits32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

DMUON_BODY float dmuon_float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

DMUON_BODY uint64_t dmuon_bits64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

DMUON_BODY double dmuon_double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

DMUON_BODY float dmuon_widen_bf16(uint16_t x) {
  return dmuon_float_of((uint32_t)x << 16);
}

DMUON_BODY uint16_t dmuon_narrow_bf16(float x) {
  uint32_t bits = dmuon_bits32(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

DMUON_BODY float dmuon_widen_fp16(uint16_t x) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(x));
#else
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
  uint32_t bits = (rest << 13) + ((uint32_t)(127 - 15) << 23);
  if (rest < 0x400) bits = dmuon_bits32((float)(int32_t)rest * 0x1p-24f);
  if (rest >= 0x7c00) bits = (rest << 13) | 0x7f800000;
  return dmuon_float_of(sign | bits);
#endif
}

DMUON_BODY uint16_t dmuon_narrow_fp16(float x) {
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(x));
#else
  uint32_t bits = dmuon_bits32(x), rest = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
  uint32_t result = (rest - ((uint32_t)(127 - 15) << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
  if (rest < 0x38800000) /* below 2^-14: 0.5 + x rounds where fp16 does */
    result = dmuon_bits32(dmuon_float_of(rest) + 0.5f) - dmuon_bits32(0.5f);
  if (rest >= 0x47800000) result = 0x7c00;
  if (rest > 0x7f800000) result = 0x7e00 | ((rest >> 13) & 0x3ff);
  return (uint16_t)(sign | result);
#endif
}

/* To fp32 with rounding to odd: cut off, and the last bit set where something was. Rounded again,
 * to at most 22 bits, that is the number rounded once. */
DMUON_BODY float dmuon_odd(double x) {
  float nearest = (float)x;
  double back = (double)nearest;
  uint32_t bits = dmuon_bits32(nearest);
  if (back == x) return nearest;
  if (fabs(back) > fabs(x)) bits--;
  return dmuon_float_of(bits | 1);
}

DMUON_BODY uint16_t dmuon_to_bf16(float x) {
  return dmuon_narrow_bf16(x);
}
DMUON_BODY uint16_t dmuon_to_bf16(double x) {
  return dmuon_narrow_bf16(dmuon_odd(x));
}
DMUON_BODY uint16_t dmuon_to_fp16(float x) {
  return dmuon_narrow_fp16(x);
}
DMUON_BODY uint16_t dmuon_to_fp16(double x) {
  return dmuon_narrow_fp16(dmuon_odd(x));
}

DMUON_BODY int64_t dmuon_bytes_of(DMuonDType dtype) {
  return dtype == DMUON_FLOAT64 ? 8 : dtype == DMUON_FLOAT32 ? 4 : 2;
}

DMUON_BODY double dmuon_largest_of(DMuonDType dtype) {
  return dtype == DMUON_FLOAT64    ? DBL_MAX
         : dtype == DMUON_FLOAT32  ? (double)FLT_MAX
         : dtype == DMUON_BFLOAT16 ? 0x1.fep127
                                   : 65504.0;
}

DMUON_BODY const char *dmuon_at(const void *data, int64_t index, DMuonDType dtype) {
  return (const char *)data + index * dmuon_bytes_of(dtype);
}

/* One element; T is float or double. */
template <typename T>
DMUON_BODY T dmuon_get(const void *data, int64_t i, DMuonDType dtype) {
  switch (dtype) {
    case DMUON_FLOAT32:
      return (T)((const float *)data)[i];
    case DMUON_FLOAT64:
      return (T)((const double *)data)[i];
    case DMUON_BFLOAT16:
      return (T)dmuon_widen_bf16(((const uint16_t *)data)[i]);
    case DMUON_FLOAT16:
      return (T)dmuon_widen_fp16(((const uint16_t *)data)[i]);
  }
  return 0;
}

template <typename T>
DMUON_BODY void dmuon_set(void *data, int64_t i, DMuonDType dtype, T x) {
  switch (dtype) {
    case DMUON_FLOAT32:
      ((float *)data)[i] = (float)x;
      break;
    case DMUON_FLOAT64:
      ((double *)data)[i] = (double)x;
      break;
    case DMUON_BFLOAT16:
      ((uint16_t *)data)[i] = dmuon_to_bf16(x);
      break;
    case DMUON_FLOAT16:
      ((uint16_t *)data)[i] = dmuon_to_fp16(x);
      break;
  }
}

/* ---- vectors --------------------------------------------------------------------------------- */

DMUON_BODY void dmuon_load16(uint32_t *words, const void *from) {
#ifdef __CUDA_ARCH__
  uint4 v = *(const uint4 *)from;
  words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
#else
  memcpy(words, from, 16);
#endif
}

DMUON_BODY void dmuon_store16(void *to, const uint32_t *words) {
#ifdef __CUDA_ARCH__
  uint4 v;
  v.x = words[0], v.y = words[1], v.z = words[2], v.w = words[3];
  *(uint4 *)to = v;
#else
  memcpy(to, words, 16);
#endif
}

/* Elements [i, i + count), count <= DMUON_VECTOR; the rest of x becomes 0. */
template <typename T>
DMUON_BODY void dmuon_load8(T x[DMUON_VECTOR], const void *data, int64_t i, int count,
                            DMuonDType dtype) {
  const char *from = dmuon_at(data, i, dtype);
  if (count < DMUON_VECTOR || (uintptr_t)from % 16 != 0) {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = j < count ? dmuon_get<T>(data, i + j, dtype) : 0;
    return;
  }
  uint32_t w[16];
  dmuon_load16(w, from);
  if (dtype == DMUON_FLOAT32) {
    dmuon_load16(w + 4, from + 16);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) x[j] = (T)dmuon_float_of(w[j]);
  } else if (dtype == DMUON_FLOAT64) {
    DMUON_UNROLL
    for (int k = 1; k < 4; k++) dmuon_load16(w + 4 * k, from + 16 * k);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++)
      x[j] = (T)dmuon_double_of(w[2 * j] | (uint64_t)w[2 * j + 1] << 32);
  } else if (dtype == DMUON_BFLOAT16) {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++)
      x[j] = (T)dmuon_widen_bf16((uint16_t)(w[j / 2] >> (j % 2 * 16)));
  } else {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++)
      x[j] = (T)dmuon_widen_fp16((uint16_t)(w[j / 2] >> (j % 2 * 16)));
  }
}

template <typename T>
DMUON_BODY void dmuon_store8(const T x[DMUON_VECTOR], void *data, int64_t i, int count,
                             DMuonDType dtype) {
  char *to = (char *)data + i * dmuon_bytes_of(dtype);
  if (count < DMUON_VECTOR || (uintptr_t)to % 16 != 0) {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++)
      if (j < count) dmuon_set<T>(data, i + j, dtype, x[j]);
    return;
  }
  uint32_t w[16];
  if (dtype == DMUON_FLOAT32) {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) w[j] = dmuon_bits32((float)x[j]);
    dmuon_store16(to + 16, w + 4);
  } else if (dtype == DMUON_FLOAT64) {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) {
      uint64_t bits = dmuon_bits64((double)x[j]);
      w[2 * j] = (uint32_t)bits, w[2 * j + 1] = (uint32_t)(bits >> 32);
    }
    DMUON_UNROLL
    for (int k = 1; k < 4; k++) dmuon_store16(to + 16 * k, w + 4 * k);
  } else if (dtype == DMUON_BFLOAT16) {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR / 2; j++)
      w[j] = dmuon_to_bf16(x[2 * j]) | (uint32_t)dmuon_to_bf16(x[2 * j + 1]) << 16;
  } else {
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR / 2; j++)
      w[j] = dmuon_to_fp16(x[2 * j]) | (uint32_t)dmuon_to_fp16(x[2 * j + 1]) << 16;
  }
  dmuon_store16(to, w);
}

DMUON_BODY int dmuon_count_at(int64_t i, int64_t n) {
  return n - i < DMUON_VECTOR ? (int)(n - i) : DMUON_VECTOR;
}

/* Vectors of a thread: those at i of n elements. */
#define DMUON_EACH_VECTOR(i, n) \
  for (int64_t i = thread * DMUON_VECTOR; i < (n); i += threads * DMUON_VECTOR)

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

/* ---- reductions ------------------------------------------------------------------------------ */

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

/* shared: [0, DMUON_GROUP) sums of chunks; a lane a thread; levels of the counter, and its count. */
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

/* ---- small things ---------------------------------------------------------------------------- */

DMUON_BODY void dmuon_body_decide(const dmuon_decide_args *a, int64_t thread, int64_t threads) {
  (void)threads;
  if (thread != 0) return;
  float any = 0;
  for (int64_t i = 0; i < a->count; i++) any = a->flags[i] != 0 ? 1 : any;
  *a->any = any;
  if (a->skipped && any != 0) *a->skipped = *a->skipped + 1;
}

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

/* ---- update rules ---------------------------------------------------------------------------- */

DMUON_BODY int dmuon_is_skipped(const float *skip) {
  return skip && *skip != 0;
}

DMUON_BODY double dmuon_within(double x, double limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

/* Each result is kept to what can be stored, provided that all that is read is finite; differences
 * are kept to what a double holds. */
DMUON_BODY void dmuon_momentum_of(const dmuon_muon_momentum *a, double largest, double g, double w,
                                  double *b, double *u) {
  const double mu = a->mu;
  const int finite = isfinite(g) && isfinite(w) && isfinite(*b);
  const double most = finite ? DBL_MAX : (double)INFINITY;
  const double limit = finite ? largest : (double)INFINITY;
  double gradient = dmuon_within(a->grad_scale * g, most);
  if (a->l2 != 0) gradient = dmuon_within(gradient + dmuon_within(a->l2 * w, most), most);
  if (a->form == DMUON_MOMENTUM_EMA) {
    *b = dmuon_within(
        a->first ? (1 - mu) * gradient : *b + (1 - mu) * dmuon_within(gradient - *b, most), limit);
    *u = a->nesterov ? dmuon_within(gradient + mu * dmuon_within(*b - gradient, most), limit) : *b;
  } else {
    *b = dmuon_within(a->first ? gradient : mu * *b + gradient, limit);
    *u = a->nesterov ? dmuon_within(gradient + mu * *b, limit) : *b;
  }
}

DMUON_BODY void dmuon_body_muon_momentum(const dmuon_muon_momentum *a, int64_t thread,
                                         int64_t threads) {
  if (dmuon_is_skipped(a->skip)) {
    const double zeros[DMUON_VECTOR] = {0};
    DMUON_EACH_VECTOR(i, a->n) {
      dmuon_store8<double>(zeros, a->update, i, dmuon_count_at(i, a->n), a->momentum_dtype);
    }
    return;
  }
  const double largest = dmuon_largest_of(a->momentum_dtype);
  DMUON_EACH_VECTOR(i, a->n) {
    double g[DMUON_VECTOR], w[DMUON_VECTOR] = {0}, b[DMUON_VECTOR] = {0}, u[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(g, a->grad, i, count, a->grad_dtype);
    if (a->l2 != 0) dmuon_load8<double>(w, a->weight, i, count, a->weight_dtype);
    if (!a->first) dmuon_load8<double>(b, a->momentum, i, count, a->momentum_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) dmuon_momentum_of(a, largest, g[j], w[j], &b[j], &u[j]);
    dmuon_store8<double>(b, a->momentum, i, count, a->momentum_dtype);
    dmuon_store8<double>(u, a->update, i, count, a->momentum_dtype);
  }
}

/* A weight as it is stored, from double: and the value, cast from that. */
DMUON_BODY void dmuon_store_weight(const double w[DMUON_VECTOR], int64_t i, int count, void *weight,
                                   DMuonDType weight_dtype, void *value, DMuonDType value_dtype) {
  const int publish = value && value != weight;
  if (weight_dtype == DMUON_FLOAT64) {
    dmuon_store8<double>(w, weight, i, count, weight_dtype);
    if (publish) dmuon_store8<double>(w, value, i, count, value_dtype);
    return;
  }
  float stored[DMUON_VECTOR];
  DMUON_UNROLL
  for (int j = 0; j < DMUON_VECTOR; j++)
    stored[j] = weight_dtype == DMUON_FLOAT32    ? (float)w[j]
                : weight_dtype == DMUON_BFLOAT16 ? dmuon_widen_bf16(dmuon_to_bf16(w[j]))
                                                 : dmuon_widen_fp16(dmuon_to_fp16(w[j]));
  dmuon_store8<float>(stored, weight, i, count, weight_dtype);
  if (publish) dmuon_store8<float>(stored, value, i, count, value_dtype);
}

/* A step that is skipped: the values of the weights as they are, and one more on the count. */
DMUON_BODY void dmuon_skip_step(int64_t n, const void *weight, DMuonDType weight_dtype, void *value,
                                DMuonDType value_dtype, int64_t *skipped, int64_t thread,
                                int64_t threads) {
  const dmuon_cast_args cast = {n, value, weight, value_dtype, weight_dtype};
  if (value && value != weight) dmuon_body_cast(&cast, thread, threads);
  if (skipped && thread == 0) *skipped = *skipped + 1;
}

DMUON_BODY double dmuon_decay_factor(const dmuon_muon_apply *a) {
  switch (a->decay) {
    case DMUON_DECAY_DECOUPLED:
    case DMUON_DECAY_CAUTIOUS:
      return 1 - a->lr * a->weight_decay;
    case DMUON_DECAY_INDEPENDENT:
      return 1 - a->weight_decay;
    case DMUON_DECAY_PALM:
      return 1 - a->lr * a->lr * a->weight_decay;
    case DMUON_DECAY_L2:
    case DMUON_DECAY_NONE:
      break;
  }
  return 1;
}

DMUON_BODY void dmuon_body_muon_apply(const dmuon_muon_apply *a, int64_t thread, int64_t threads) {
  if (dmuon_is_skipped(a->skip)) {
    dmuon_skip_step(a->n, a->weight, a->weight_dtype, a->value, a->value_dtype, a->skipped, thread,
                    threads);
    return;
  }
  const double factor = dmuon_decay_factor(a), lr = a->lr;
  const int cautious = a->decay == DMUON_DECAY_CAUTIOUS;
  DMUON_EACH_VECTOR(i, a->n) {
    double w[DMUON_VECTOR], u[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(w, a->weight, i, count, a->weight_dtype);
    dmuon_load8<double>(u, a->update, i, count, a->update_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) {
      /* w * u >= 0 without the product, which may underflow. */
      int decays = !cautious || (w[j] >= 0 && u[j] >= 0) || (w[j] <= 0 && u[j] <= 0);
      w[j] = (decays ? factor * w[j] : w[j]) - lr * u[j];
    }
    dmuon_store_weight(w, i, count, a->weight, a->weight_dtype, a->value, a->value_dtype);
  }
}

DMUON_BODY void dmuon_body_adamw(const dmuon_adamw_args *args, int64_t thread, int64_t threads) {
  const dmuon_adamw *a = &args->adamw;
  if (dmuon_is_skipped(a->skip)) {
    dmuon_skip_step(a->n, a->weight, a->weight_dtype, a->value, a->value_dtype, a->skipped, thread,
                    threads);
    return;
  }
  double step_size = args->step_size, root_factor = args->root_factor;
  if (a->skipped && *a->skipped != 0) {
    const double t = (double)(a->step - *a->skipped);
    step_size = a->lr / (1 - pow(a->beta1, t));
    root_factor = 1 / sqrt(1 - pow(a->beta2, t));
  }
  const double factor = 1 - a->lr * a->weight_decay, largest = dmuon_largest_of(a->state_dtype);
  const double root_of_largest = sqrt(largest), b1 = a->beta1, b2 = a->beta2, eps = a->eps;
  DMUON_EACH_VECTOR(i, a->n) {
    double g[DMUON_VECTOR], m[DMUON_VECTOR], v[DMUON_VECTOR], p[DMUON_VECTOR];
    int count = dmuon_count_at(i, a->n);
    dmuon_load8<double>(g, a->grad, i, count, a->grad_dtype);
    dmuon_load8<double>(m, a->exp_avg, i, count, a->state_dtype);
    dmuon_load8<double>(v, a->exp_avg_sq, i, count, a->state_dtype);
    dmuon_load8<double>(p, a->weight, i, count, a->weight_dtype);
    DMUON_UNROLL
    for (int j = 0; j < DMUON_VECTOR; j++) {
      const int finite = isfinite(g[j]) && isfinite(v[j]);
      const double gradient =
          dmuon_within(a->grad_scale * g[j], finite ? root_of_largest : (double)INFINITY);
      m[j] = b1 * m[j] + (1 - b1) * gradient;
      v[j] = dmuon_within(b2 * v[j] + (1 - b2) * gradient * gradient,
                          finite ? largest : (double)INFINITY);
      const double divisor = sqrt(v[j]) * root_factor + eps;
      p[j] = factor * p[j] - (divisor == 0 ? 0 : step_size * m[j] / divisor);
    }
    dmuon_store8<double>(m, a->exp_avg, i, count, a->state_dtype);
    dmuon_store8<double>(v, a->exp_avg_sq, i, count, a->state_dtype);
    dmuon_store_weight(p, i, count, a->weight, a->weight_dtype, a->value, a->value_dtype);
  }
}

#endif
