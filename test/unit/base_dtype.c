/* Conversions, against a reference that knows only what a 16-bit pattern means (sign, exponent,
 * fraction, through ldexp) and looks for the nearest one by bisection over all of them. */
#include "tap.h"

#include "base/dtype.h"
#include "base/random.h"

/* The two formats, by the bits of their fraction: fp16 has 10, bf16 has 7. */
typedef struct {
  int fraction_bits, bias;
  uint16_t infinity;
  double top; /* the value that would follow the largest finite one */
} format;

static const format fp16 = {10, 15, 0x7c00, 65536}, bf16 = {7, 127, 0x7f80, 0x1p128};

static double value_of(const format *f, uint16_t x) {
  int exponent = (x & 0x7fff) >> f->fraction_bits;
  int fraction = x & ((1 << f->fraction_bits) - 1);
  double magnitude;
  if ((x & 0x7fff) >= f->infinity) {
    magnitude = fraction ? NAN : INFINITY;
  } else if (exponent == 0) {
    magnitude = ldexp(fraction, 1 - f->bias - f->fraction_bits);
  } else {
    magnitude = ldexp((1 << f->fraction_bits) + fraction, exponent - f->bias - f->fraction_bits);
  }
  return x & 0x8000 ? -magnitude : magnitude;
}

/* As value_of, but the infinity is where the next power of two would be: rounding looks at it. */
static double rung(const format *f, uint16_t x) {
  return x == f->infinity ? f->top : value_of(f, x);
}

static uint16_t nearest(const format *f, double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0, low = 0, high = f->infinity;
  double magnitude = fabs(x);
  if (magnitude >= f->top) return sign | f->infinity;
  while (high - low > 1) { /* rung(low) <= magnitude < rung(high) */
    uint16_t middle = (uint16_t)((low + high) / 2);
    if (rung(f, middle) <= magnitude) {
      low = middle;
    } else {
      high = middle;
    }
  }
  /* The differences are exact: their operands are near each other, or few bits wide. */
  double below = magnitude - rung(f, low), above = rung(f, high) - magnitude;
  if (below == above) return sign | (low & 1 ? high : low);
  return sign | (below < above ? low : high);
}

static int same_value(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b && !signbit(a) == !signbit(b);
}

static int is_nan16(const format *f, uint16_t x) {
  return (x & 0x7fff) > f->infinity;
}

/* All 65536 patterns, to fp32, to fp64, and back from both. */
static void test_patterns(const format *f, DMuonDType dtype, float (*widen)(uint16_t),
                          uint16_t (*narrow)(float)) {
  static uint16_t all[65536], back[65536];
  static float singles[65536];
  static double doubles[65536];
  const char *name = dmuon_dtype_name(dtype);
  int wide = 0, back_one = 0, cast = 0, back_single = 0, back_double = 0, element = 0;
  for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  dmuon_dtype_cast(65536, DMUON_FLOAT32, singles, dtype, all);
  dmuon_dtype_cast(65536, DMUON_FLOAT64, doubles, dtype, all);
  for (int i = 0; i < 65536; i++) {
    double expected = value_of(f, all[i]);
    wide += !same_value(widen(all[i]), expected);
    cast += !same_value(singles[i], expected) || !same_value(doubles[i], expected);
    element += !same_value(dmuon_dtype_get(dtype, all, i), expected);
    uint16_t again = narrow(widen(all[i]));
    back_one +=
        is_nan16(f, all[i]) ? !is_nan16(f, again) || ((again ^ all[i]) & 0x8000) : again != all[i];
  }
  dmuon_dtype_cast(65536, dtype, back, DMUON_FLOAT32, singles);
  for (int i = 0; i < 65536; i++) {
    back_single += is_nan16(f, all[i]) ? !is_nan16(f, back[i]) : back[i] != all[i];
  }
  dmuon_dtype_cast(65536, dtype, back, DMUON_FLOAT64, doubles);
  for (int i = 0; i < 65536; i++) {
    back_double += is_nan16(f, all[i]) ? !is_nan16(f, back[i]) : back[i] != all[i];
  }
  tap_is_int(wide, 0, "%s to fp32: all patterns", name);
  tap_is_int(cast, 0, "%s cast to fp32 and fp64: all patterns", name);
  tap_is_int(element, 0, "%s read one by one: all patterns", name);
  tap_is_int(back_one, 0, "%s to fp32 and back is the same, NaN with its sign", name);
  tap_is_int(back_single, 0, "%s cast there and back by fp32 is the same", name);
  tap_is_int(back_double, 0, "%s cast there and back by fp64 is the same", name);
}

/* Narrowing: between each two neighbours the middle (the tie) and its next doubles and floats. */
static void test_ties(const format *f, DMuonDType dtype, uint16_t (*narrow)(float)) {
  const char *name = dmuon_dtype_name(dtype);
  int wrong_single = 0, wrong_double = 0, wrong_set = 0;
  for (int i = 0; i < f->infinity; i++) {
    double middle = (rung(f, (uint16_t)i) + rung(f, (uint16_t)(i + 1))) / 2;
    for (int side = -1; side <= 1; side++) {
      for (int sign = -1; sign <= 1; sign += 2) {
        double wide = sign * (side ? nextafter(middle, side * INFINITY) : middle);
        float single =
            sign * (side ? nextafterf((float)middle, (float)(side * INFINITY)) : (float)middle);
        uint16_t got, set;
        dmuon_dtype_cast(1, dtype, &got, DMUON_FLOAT64, &wide);
        dmuon_dtype_set(dtype, &set, 0, wide);
        wrong_double += got != nearest(f, wide);
        wrong_set += set != nearest(f, wide);
        wrong_single += narrow(single) != nearest(f, single);
      }
    }
  }
  tap_is_int(wrong_double, 0, "fp64 to %s at and beside every tie: one rounding", name);
  tap_is_int(wrong_set, 0, "set one by one: the same for %s", name);
  tap_is_int(wrong_single, 0, "fp32 to %s at and beside every tie", name);
}

static void test_random(const format *f, DMuonDType dtype, uint16_t (*narrow)(float)) {
  enum { COUNT = 400000 };
  const char *name = dmuon_dtype_name(dtype);
  int wrong_single = 0, wrong_double = 0, wrong_near = 0;
  for (int i = 0; i < COUNT; i++) {
    uint64_t bits = dmuon_random_bits(1, (uint64_t)dtype, (uint64_t)i);
    uint32_t low = (uint32_t)bits;
    float single;
    double wide, near = ldexp(dmuon_random_uniform(2, (uint64_t)dtype, (uint64_t)i) - 0.5,
                              (int)(bits % 45) - 27); /* where fp16 has its numbers */
    uint16_t got;
    memcpy(&single, &low, sizeof single);
    memcpy(&wide, &bits, sizeof wide);
    got = narrow(single);
    wrong_single += isnan(single) ? !is_nan16(f, got) : got != nearest(f, single);
    dmuon_dtype_cast(1, dtype, &got, DMUON_FLOAT64, &wide);
    wrong_double += isnan(wide) ? !is_nan16(f, got) : got != nearest(f, wide);
    dmuon_dtype_cast(1, dtype, &got, DMUON_FLOAT64, &near);
    wrong_near += got != nearest(f, near) || narrow((float)near) != nearest(f, (float)near);
  }
  tap_is_int(wrong_single, 0, "random patterns of fp32 to %s", name);
  tap_is_int(wrong_double, 0, "random patterns of fp64 to %s", name);
  tap_is_int(wrong_near, 0, "random numbers of its range to %s", name);
}

/* Every pair on arrays of awkward lengths equals element by element, and writes nothing beyond. */
static void test_pairs(void) {
  double source[67], expected[67], got[67];
  unsigned char from[67 * 8], to[68 * 8];
  for (int i = 0; i < 67; i++) source[i] = 100 * dmuon_random_normal(3, 0, (uint64_t)i);
  source[3] = INFINITY;
  source[4] = -0.0;
  for (int s = 0; s < 4; s++) {
    for (int d = 0; d < 4; d++) {
      int wrong = 0;
      size_t bytes = dmuon_dtype_bytes((DMuonDType)d);
      for (int n = 0; n <= 67; n += n < 20 ? 1 : 47) {
        memset(to, 0xab, sizeof to);
        dmuon_dtype_cast(n, (DMuonDType)s, from, DMUON_FLOAT64, source);
        dmuon_dtype_cast(n, (DMuonDType)d, to, (DMuonDType)s, from);
        for (int i = 0; i < n; i++) {
          double element = dmuon_dtype_get((DMuonDType)s, from, i);
          unsigned char one[8];
          dmuon_dtype_set((DMuonDType)d, one, 0, element);
          expected[i] = dmuon_dtype_get((DMuonDType)d, one, 0);
          got[i] = dmuon_dtype_get((DMuonDType)d, to, i);
          wrong += !same_value(expected[i], got[i]);
        }
        for (size_t i = (size_t)n * bytes; i < sizeof to; i++) wrong += to[i] != 0xab;
      }
      tap_is_int(wrong, 0, "%s to %s", dmuon_dtype_name((DMuonDType)s),
                 dmuon_dtype_name((DMuonDType)d));
    }
  }
}

static void test_golden(void) {
  tap_is_int(dmuon_f32_to_fp16(65519.996f), 0x7bff, "just below the tie to infinity");
  tap_is_int(dmuon_f32_to_fp16(65520.0f), 0x7c00, "the tie to infinity");
  tap_is_int(dmuon_f32_to_fp16(0x1p-25f), 0x0000, "half the least denormal goes to 0");
  tap_is_int(dmuon_f32_to_fp16(0x1.8p-24f), 0x0002, "1.5 least denormals go to 2");
  tap_is_int(dmuon_f32_to_fp16(-0x1.004p0f), 0xbc01, "fp16 next to -1");
  tap_is_int(dmuon_f32_to_bf16(1.00390625f), 0x3f80, "bf16 tie to even, down");
  tap_is_int(dmuon_f32_to_bf16(1.01171875f), 0x3f82, "bf16 tie to even, up");
  tap_is_int(dmuon_f32_to_bf16(3.4028235e38f), 0x7f80, "the largest fp32 overflows bf16");
  tap_ok(isnan(dmuon_bf16_to_f32(dmuon_f32_to_bf16(NAN))), "NaN stays NaN in bf16");
  tap_ok(isnan(dmuon_fp16_to_f32(dmuon_f32_to_fp16(NAN))), "NaN stays NaN in fp16");
  uint32_t thin = 0x7f800001;
  float single;
  memcpy(&single, &thin, sizeof single);
  tap_ok(isnan(dmuon_bf16_to_f32(dmuon_f32_to_bf16(single))), "a NaN of one low bit in bf16");
  tap_ok(isnan(dmuon_fp16_to_f32(dmuon_f32_to_fp16(single))), "a NaN of one low bit in fp16");
  /* 1 + 2^-8 + 2^-40: through fp32 it would be the tie, and go down. */
  double twice = 1 + 0x1p-8 + 0x1p-40;
  uint16_t got;
  dmuon_dtype_cast(1, DMUON_BFLOAT16, &got, DMUON_FLOAT64, &twice);
  tap_is_int(got, 0x3f81, "fp64 to bf16 rounds once");
  twice = 1 + 0x1p-11 + 0x1p-40;
  dmuon_dtype_cast(1, DMUON_FLOAT16, &got, DMUON_FLOAT64, &twice);
  tap_is_int(got, 0x3c01, "fp64 to fp16 rounds once");
}

static void test_nonfinite(void) {
  static double doubles[5000];
  static unsigned char data[5000 * 8];
  for (int d = 0; d < 4; d++) {
    DMuonDType dtype = (DMuonDType)d;
    int wrong = 0;
    static const int at[] = {0, 1, 63, 1023, 1024, 2500, 4999};
    for (int i = 0; i < 5000; i++) doubles[i] = i & 1 ? 65504 : -0.0;
    dmuon_dtype_cast(5000, dtype, data, DMUON_FLOAT64, doubles);
    wrong += dmuon_dtype_find_nonfinite(5000, dtype, data) != -1;
    for (int k = 6; k >= 0; k--) {
      dmuon_dtype_set(dtype, data, at[k], k % 3 == 0 ? NAN : k % 3 == 1 ? INFINITY : -INFINITY);
      wrong += dmuon_dtype_find_nonfinite(5000, dtype, data) != at[k];
      wrong += dmuon_dtype_find_nonfinite(at[k], dtype, data) != -1;
    }
    wrong += dmuon_dtype_find_nonfinite(0, dtype, data) != -1;
    tap_is_int(wrong, 0, "the first element of %s that is not finite", dmuon_dtype_name(dtype));
  }
}

static void test_names(void) {
  static const struct {
    const char *text;
    DMuonDType dtype;
    size_t bytes;
  } names[] = {
      {"fp32", DMUON_FLOAT32, 4}, {"float32", DMUON_FLOAT32, 4}, {"f32", DMUON_FLOAT32, 4},
      {"fp64", DMUON_FLOAT64, 8}, {"float64", DMUON_FLOAT64, 8}, {"double", DMUON_FLOAT64, 8},
      {"f64", DMUON_FLOAT64, 8},  {"bf16", DMUON_BFLOAT16, 2},   {"bfloat16", DMUON_BFLOAT16, 2},
      {"fp16", DMUON_FLOAT16, 2}, {"float16", DMUON_FLOAT16, 2}, {"half", DMUON_FLOAT16, 2}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    DMuonDType dtype = DMUON_FLOAT32;
    tap_ok(!dmuon_dtype_parse(names[i].text, &dtype) && dtype == names[i].dtype &&
               dmuon_dtype_bytes(dtype) == names[i].bytes && dmuon_dtype_is_valid(dtype),
           "%s", names[i].text);
  }
  DMuonDType kept = DMUON_FLOAT16;
  tap_is_int(dmuon_dtype_parse("int8", &kept), DMUON_ERR_ARGUMENT, "no such dtype");
  tap_is_int(kept, DMUON_FLOAT16, "leaves the output");
  tap_is_int(dmuon_dtype_parse(NULL, &kept), DMUON_ERR_ARGUMENT, "NULL");
  tap_ok(!dmuon_dtype_is_valid((DMuonDType)4) && !dmuon_dtype_is_valid((DMuonDType)-1), "no more");
  tap_is_int(dmuon_dtype_wide(DMUON_BFLOAT16), DMUON_FLOAT32, "bf16 is summed in fp32");
  tap_is_int(dmuon_dtype_wide(DMUON_FLOAT16), DMUON_FLOAT32, "fp16 too");
  tap_is_int(dmuon_dtype_wide(DMUON_FLOAT32), DMUON_FLOAT32, "fp32 itself");
  tap_is_int(dmuon_dtype_wide(DMUON_FLOAT64), DMUON_FLOAT64, "fp64 itself");
}

int main(void) {
  test_patterns(&fp16, DMUON_FLOAT16, dmuon_fp16_to_f32, dmuon_f32_to_fp16);
  test_patterns(&bf16, DMUON_BFLOAT16, dmuon_bf16_to_f32, dmuon_f32_to_bf16);
  test_ties(&fp16, DMUON_FLOAT16, dmuon_f32_to_fp16);
  test_ties(&bf16, DMUON_BFLOAT16, dmuon_f32_to_bf16);
  test_random(&fp16, DMUON_FLOAT16, dmuon_f32_to_fp16);
  test_random(&bf16, DMUON_BFLOAT16, dmuon_f32_to_bf16);
  test_pairs();
  test_golden();
  test_nonfinite();
  test_names();
  return tap_done();
}
