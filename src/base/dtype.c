/* Conversions between the storage types.
 *
 * Decides the rounding, which is the same for one element and for a million: to nearest, ties to
 * even, once, from the source's own precision; overflow to infinity, gradual underflow, NaN to a
 * quiet NaN with its sign and leading payload bits. Everything is written without branches on the
 * data and without tables, so that each loop of dmuon_dtype_cast is one the compiler can vectorise.
 * The C code alone defines the values: no instruction set is asked for. */
#include "base/dtype.h"

#include <float.h>
#include <string.h>

static const struct {
  const char *name;
  size_t bytes;
  double largest;
} dtypes[] = {
    [DMUON_FLOAT32] = {"fp32", 4, FLT_MAX},
    [DMUON_FLOAT64] = {"fp64", 8, DBL_MAX},
    [DMUON_BFLOAT16] = {"bf16", 2, 0x1.fep127},
    [DMUON_FLOAT16] = {"fp16", 2, 65504},
};

int dmuon_dtype_is_valid(DMuonDType dtype) {
  return (int)dtype >= 0 && (size_t)dtype < sizeof dtypes / sizeof dtypes[0];
}

size_t dmuon_dtype_bytes(DMuonDType dtype) {
  return dmuon_dtype_is_valid(dtype) ? dtypes[dtype].bytes : 0;
}

double dmuon_dtype_largest(DMuonDType dtype) {
  return dmuon_dtype_is_valid(dtype) ? dtypes[dtype].largest : 0;
}

const char *dmuon_dtype_name(DMuonDType dtype) {
  return dmuon_dtype_is_valid(dtype) ? dtypes[dtype].name : "unknown dtype";
}

DMuonErrorCode dmuon_dtype_parse(const char *text, DMuonDType *dtype) {
  static const struct {
    const char *text;
    DMuonDType dtype;
  } names[] = {
      {"fp32", DMUON_FLOAT32}, {"float32", DMUON_FLOAT32}, {"f32", DMUON_FLOAT32},
      {"fp64", DMUON_FLOAT64}, {"float64", DMUON_FLOAT64}, {"double", DMUON_FLOAT64},
      {"f64", DMUON_FLOAT64},  {"bf16", DMUON_BFLOAT16},   {"bfloat16", DMUON_BFLOAT16},
      {"fp16", DMUON_FLOAT16}, {"float16", DMUON_FLOAT16}, {"half", DMUON_FLOAT16},
  };
  if (!text || !dtype) DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of a dtype is NULL");
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (!strcmp(text, names[i].text)) {
      *dtype = names[i].dtype;
      return DMUON_SUCCESS;
    }
  }
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "'%s' is no dtype; there are fp32, fp64, bf16, fp16", text);
}

DMuonDType dmuon_dtype_wide(DMuonDType dtype) {
  return dtype == DMUON_FLOAT64 ? DMUON_FLOAT64 : DMUON_FLOAT32;
}

static inline uint32_t bits_of_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float f32_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint64_t bits_of_f64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline double f64_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* condition ? yes : no by masks: both sides are computed for every element, which with ?: compilers
 * avoid where a side is floating-point arithmetic, and then do not vectorise. */
static inline uint32_t select32(int condition, uint32_t yes, uint32_t no) {
  uint32_t mask = 0 - (uint32_t)condition;
  return (yes & mask) | (no & ~mask);
}

static inline uint64_t select64(int condition, uint64_t yes, uint64_t no) {
  uint64_t mask = 0 - (uint64_t)condition;
  return (yes & mask) | (no & ~mask);
}

/* bf16 is the upper half of fp32: adding just under half a unit of the last place that stays, and
 * the parity of that place, carries exactly when rounding goes up, into the exponent where needed.
 */
static inline float bf16_to_f32(uint16_t x) {
  return f32_of_bits((uint32_t)x << 16);
}

static inline uint16_t f32_to_bf16(float x) {
  uint32_t bits = bits_of_f32(x);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* fp16: exponents move by 127 - 15; a denormal is its 10 bits times 2^-24, a normal fp32. */
static inline float fp16_to_f32(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
  uint32_t normal = (rest << 13) + ((uint32_t)(127 - 15) << 23);
  uint32_t special = (rest << 13) | 0x7f800000;
  uint32_t tiny = bits_of_f32((float)(int32_t)rest * 0x1p-24f);
  uint32_t bits = select32(rest < 0x400, tiny, normal);
  return f32_of_bits(sign | select32(rest >= 0x7c00, special, bits));
}

/* Below 2^-14 the last place of the result is 2^-24, which is that of numbers in [0.5, 1) in fp32:
 * adding 0.5 lets the hardware round there, and the difference of the patterns is the result. */
static inline uint16_t f32_to_fp16(float x) {
  uint32_t bits = bits_of_f32(x), rest = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
  uint32_t normal = (rest - ((uint32_t)(127 - 15) << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
  uint32_t tiny = bits_of_f32(f32_of_bits(rest) + 0.5f) - bits_of_f32(0.5f);
  uint32_t quiet = 0x7e00 | ((rest >> 13) & 0x3ff);
  uint32_t result = select32(rest < 0x38800000, tiny, normal); /* 2^-14 */
  result = select32(rest >= 0x47800000, 0x7c00, result);       /* 2^16 */
  result = select32(rest > 0x7f800000, quiet, result);
  return (uint16_t)(sign | result);
}

/* From fp64 by the same two devices, so that there is one rounding. Denormals of bf16 are multiples
 * of 2^-133, the last place of 2^-81 in fp64; those of fp16, of 2^-24, that of 2^28. */
static inline uint16_t f64_to_bf16(double x) {
  uint64_t bits = bits_of_f64(x), rest = bits & UINT64_C(0x7fffffffffffffff);
  uint64_t sign = (bits >> 48) & 0x8000;
  uint64_t normal =
      (rest - ((uint64_t)(1023 - 127) << 52) + ((UINT64_C(1) << 44) - 1) + ((rest >> 45) & 1)) >>
      45;
  uint64_t tiny = bits_of_f64(f64_of_bits(rest) + 0x1p-81) - bits_of_f64(0x1p-81);
  uint64_t quiet = 0x7fc0 | ((rest >> 45) & 0x7f);
  uint64_t result = select64(rest < ((uint64_t)(1023 - 126) << 52), tiny, normal);
  result = select64(rest >= ((uint64_t)(1023 + 128) << 52), 0x7f80, result);
  result = select64(rest > UINT64_C(0x7ff0000000000000), quiet, result);
  return (uint16_t)(sign | result);
}

static inline uint16_t f64_to_fp16(double x) {
  uint64_t bits = bits_of_f64(x), rest = bits & UINT64_C(0x7fffffffffffffff);
  uint64_t sign = (bits >> 48) & 0x8000;
  uint64_t normal =
      (rest - ((uint64_t)(1023 - 15) << 52) + ((UINT64_C(1) << 41) - 1) + ((rest >> 42) & 1)) >> 42;
  uint64_t tiny = bits_of_f64(f64_of_bits(rest) + 0x1p28) - bits_of_f64(0x1p28);
  uint64_t quiet = 0x7e00 | ((rest >> 42) & 0x3ff);
  uint64_t result = select64(rest < ((uint64_t)(1023 - 14) << 52), tiny, normal);
  result = select64(rest >= ((uint64_t)(1023 + 16) << 52), 0x7c00, result);
  result = select64(rest > UINT64_C(0x7ff0000000000000), quiet, result);
  return (uint16_t)(sign | result);
}

float dmuon_bf16_to_f32(uint16_t x) {
  return bf16_to_f32(x);
}

uint16_t dmuon_f32_to_bf16(float x) {
  return f32_to_bf16(x);
}

float dmuon_fp16_to_f32(uint16_t x) {
  return fp16_to_f32(x);
}

uint16_t dmuon_f32_to_fp16(float x) {
  return f32_to_fp16(x);
}

#define DEFINE_CAST(name, dst_type, src_type, expression)                     \
  static void name(int64_t n, void *restrict dst, const void *restrict src) { \
    dst_type *restrict d = dst;                                               \
    const src_type *restrict s = src;                                         \
    for (int64_t i = 0; i < n; i++) d[i] = (expression);                      \
  }

DEFINE_CAST(cast_f32_f64, double, float, (double)s[i])
DEFINE_CAST(cast_f32_bf16, uint16_t, float, f32_to_bf16(s[i]))
DEFINE_CAST(cast_f32_fp16, uint16_t, float, f32_to_fp16(s[i]))
DEFINE_CAST(cast_f64_f32, float, double, (float)s[i])
DEFINE_CAST(cast_f64_bf16, uint16_t, double, f64_to_bf16(s[i]))
DEFINE_CAST(cast_f64_fp16, uint16_t, double, f64_to_fp16(s[i]))
DEFINE_CAST(cast_bf16_f32, float, uint16_t, bf16_to_f32(s[i]))
DEFINE_CAST(cast_bf16_f64, double, uint16_t, (double)bf16_to_f32(s[i]))
DEFINE_CAST(cast_bf16_fp16, uint16_t, uint16_t, f32_to_fp16(bf16_to_f32(s[i])))
DEFINE_CAST(cast_fp16_f32, float, uint16_t, fp16_to_f32(s[i]))
DEFINE_CAST(cast_fp16_f64, double, uint16_t, (double)fp16_to_f32(s[i]))
DEFINE_CAST(cast_fp16_bf16, uint16_t, uint16_t, f32_to_bf16(fp16_to_f32(s[i])))

typedef void (*cast_function)(int64_t n, void *restrict dst, const void *restrict src);

/* [from][to]; NULL on the diagonal. */
static const cast_function casts[4][4] = {
    [DMUON_FLOAT32] = {[DMUON_FLOAT64] = cast_f32_f64,
                       [DMUON_BFLOAT16] = cast_f32_bf16,
                       [DMUON_FLOAT16] = cast_f32_fp16},
    [DMUON_FLOAT64] = {[DMUON_FLOAT32] = cast_f64_f32,
                       [DMUON_BFLOAT16] = cast_f64_bf16,
                       [DMUON_FLOAT16] = cast_f64_fp16},
    [DMUON_BFLOAT16] = {[DMUON_FLOAT32] = cast_bf16_f32,
                        [DMUON_FLOAT64] = cast_bf16_f64,
                        [DMUON_FLOAT16] = cast_bf16_fp16},
    [DMUON_FLOAT16] = {[DMUON_FLOAT32] = cast_fp16_f32,
                       [DMUON_FLOAT64] = cast_fp16_f64,
                       [DMUON_BFLOAT16] = cast_fp16_bf16},
};

void dmuon_dtype_cast(int64_t n, DMuonDType dst_dtype, void *dst, DMuonDType src_dtype,
                      const void *src) {
  if (n <= 0) return;
  if (dst_dtype != src_dtype) {
    casts[src_dtype][dst_dtype](n, dst, src);
  } else if (dst != src) {
    memcpy(dst, src, (size_t)n * dtypes[src_dtype].bytes);
  }
}

double dmuon_dtype_get(DMuonDType dtype, const void *data, int64_t index) {
  switch (dtype) {
    case DMUON_FLOAT32:
      return (double)((const float *)data)[index];
    case DMUON_FLOAT64:
      return ((const double *)data)[index];
    case DMUON_BFLOAT16:
      return (double)bf16_to_f32(((const uint16_t *)data)[index]);
    case DMUON_FLOAT16:
      return (double)fp16_to_f32(((const uint16_t *)data)[index]);
  }
  return 0;
}

void dmuon_dtype_set(DMuonDType dtype, void *data, int64_t index, double value) {
  switch (dtype) {
    case DMUON_FLOAT32:
      ((float *)data)[index] = (float)value;
      break;
    case DMUON_FLOAT64:
      ((double *)data)[index] = value;
      break;
    case DMUON_BFLOAT16:
      ((uint16_t *)data)[index] = f64_to_bf16(value);
      break;
    case DMUON_FLOAT16:
      ((uint16_t *)data)[index] = f64_to_fp16(value);
      break;
  }
}

/* An element is not finite when its exponent bits are all set. Blocks are first asked as a whole,
 * without an exit inside, then the one that said yes is searched. */
#define DEFINE_FIND(name, word, exponent)                   \
  static int64_t name(int64_t n, const void *data) {        \
    const word *x = data;                                   \
    for (int64_t begin = 0; begin < n; begin += 1024) {     \
      int64_t end = n - begin < 1024 ? n : begin + 1024;    \
      word found = 0;                                       \
      for (int64_t i = begin; i < end; i++) {               \
        found |= (word)((x[i] & (exponent)) == (exponent)); \
      }                                                     \
      for (int64_t i = begin; found && i < end; i++) {      \
        if ((x[i] & (exponent)) == (exponent)) return i;    \
      }                                                     \
    }                                                       \
    return -1;                                              \
  }

/* The patterns are read as integers, which C allows for no array of floats. */
typedef uint32_t __attribute__((may_alias)) alias32;
typedef uint64_t __attribute__((may_alias)) alias64;
typedef uint16_t __attribute__((may_alias)) alias16;

DEFINE_FIND(find_f32, alias32, 0x7f800000u)
DEFINE_FIND(find_f64, alias64, UINT64_C(0x7ff0000000000000))
DEFINE_FIND(find_bf16, alias16, 0x7f80)
DEFINE_FIND(find_fp16, alias16, 0x7c00)

int64_t dmuon_dtype_find_nonfinite(int64_t n, DMuonDType dtype, const void *data) {
  switch (dtype) {
    case DMUON_FLOAT32:
      return find_f32(n, data);
    case DMUON_FLOAT64:
      return find_f64(n, data);
    case DMUON_BFLOAT16:
      return find_bf16(n, data);
    case DMUON_FLOAT16:
      return find_fp16(n, data);
  }
  return -1;
}
