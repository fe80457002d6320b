/* The four storage types: sizes, names, and exact conversions (round to nearest even, NaN stays
 * NaN, overflow to infinity). fp64 -> fp16/bf16 rounds once, not through fp32. */
#ifndef DMUON_BASE_DTYPE_H
#define DMUON_BASE_DTYPE_H

#include <stdint.h>

#include "base/error.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

int dmuon_dtype_is_valid(DMuonDType dtype);
size_t dmuon_dtype_bytes(DMuonDType dtype);
double dmuon_dtype_largest(DMuonDType dtype);   /* finite value */
const char *dmuon_dtype_name(DMuonDType dtype); /* "fp32", "fp64", "bf16", "fp16" */
/* Reads fp32|float32|f32, fp64|float64|double|f64, bf16|bfloat16, fp16|float16|half. */
DMuonErrorCode dmuon_dtype_parse(const char *text, DMuonDType *dtype);
/* At least fp32: what sums, masters and states are kept in by default. */
DMuonDType dmuon_dtype_wide(DMuonDType dtype);

float dmuon_bf16_to_f32(uint16_t x);
uint16_t dmuon_f32_to_bf16(float x);
float dmuon_fp16_to_f32(uint16_t x);
uint16_t dmuon_f32_to_fp16(float x);

/* dst[i] = src[i] over n elements, any pair of types; dst and src do not overlap, or are equal
 * with equal types. Written so that the compiler vectorises each pair
 * (fp64 to 16 bits only where 64-bit compares exist, from SSE4.2 on). */
void dmuon_dtype_cast(int64_t n, DMuonDType dst_dtype, void *dst, DMuonDType src_dtype,
                      const void *src);
/* Of count elements. */
static inline int64_t dmuon_dtype_span(int64_t count, DMuonDType dtype) {
  return count * (int64_t)dmuon_dtype_bytes(dtype);
}
/* The element at index of an array; const or not as its array is, like strchr. */
static inline void *dmuon_dtype_at(const void *base, int64_t index, DMuonDType dtype) {
  return (char *)(uintptr_t)base + index * (int64_t)dmuon_dtype_bytes(dtype);
}
/* One element, as double. */
double dmuon_dtype_get(DMuonDType dtype, const void *data, int64_t index);
void dmuon_dtype_set(DMuonDType dtype, void *data, int64_t index, double value);
/* The first element that is not finite, or -1. */
int64_t dmuon_dtype_find_nonfinite(int64_t n, DMuonDType dtype, const void *data);

DMUON_VISIBLE_END

#endif
