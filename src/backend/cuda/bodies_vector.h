/* What the bodies of kernels are written in, for nvcc and a plain C++ compiler alike: number
 * formats and their rounding, vectors of DMUON_VECTOR elements in loads and stores of 16 bytes
 * where the address allows, and loops over the threads of a block (DMUON_EACH; on a GPU: is the
 * thread). */
#ifndef DMUON_BACKEND_CUDA_BODIES_VECTOR_H
#define DMUON_BACKEND_CUDA_BODIES_VECTOR_H

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

#endif
