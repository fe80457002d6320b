/* The random stream against the published test vectors of Philox, its moments; and the hash. */
#include "tap.h"

#include "base/hash.h"
#include "base/random.h"

static void test_vectors(void) {
  /* The first two words of each; of Random123's kat_vectors, philox4x32 with 10 rounds. */
  tap_ok(dmuon_random_bits(0, 0, 0) == UINT64_C(0xe169c58d6627e8d5), "all zeros");
  tap_ok(dmuon_random_bits(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_C(0x41c83b0e408f276d),
         "all ones");
  tap_ok(dmuon_random_bits(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e),
                           UINT64_C(0x85a308d3243f6a88)) == UINT64_C(0x94fdccebd16cfe09),
         "digits of pi");
}

static void test_moments(void) {
  enum { COUNT = 200000 };
  double sum = 0, square = 0, fourth = 0, normal = 0, least = 1, largest = 0, pairs = 0;
  double bins[10] = {0}, last = 0;
  for (uint64_t i = 0; i < COUNT; i++) {
    double u = dmuon_random_uniform(17, 3, i), z = dmuon_random_normal(17, 4, i);
    sum += u;
    if (u < least) least = u;
    if (u > largest) largest = u;
    if (u >= 0 && u < 1) bins[(int)(10 * u)]++;
    normal += z;
    square += z * z;
    fourth += z * z * z * z;
    pairs += z * last;
    last = z;
  }
  /* Bounds of five standard deviations of each estimate. */
  double root = sqrt((double)COUNT), chi = 0;
  for (int b = 0; b < 10; b++)
    chi += (bins[b] - COUNT / 10) * (bins[b] - COUNT / 10) / (COUNT / 10);
  tap_ok(least >= 0 && least < 1e-3 && largest < 1 && largest > 1 - 1e-3, "uniform in [0, 1)");
  tap_is_near(sum / COUNT, 0.5, 5 * 0.2887 / root, "uniform mean");
  tap_ok(chi < 40, "uniform over ten bins: chi square %g of 9 degrees", chi);
  tap_is_near(normal / COUNT, 0, 5 / root, "normal mean");
  tap_is_near(square / COUNT, 1, 5 * sqrt(2) / root, "normal variance");
  tap_is_near(fourth / COUNT, 3, 5 * sqrt(96) / root, "normal fourth moment");
  tap_is_near(pairs / COUNT, 0, 5 / root, "neighbours are independent");
  tap_ok(dmuon_random_bits(1, 2, 3) != dmuon_random_bits(1, 3, 2) &&
             dmuon_random_bits(1, 2, 3) != dmuon_random_bits(2, 2, 3),
         "seed, key and index all count");
}

static void test_hash(void) {
  const uint64_t seed = DMUON_HASH_SEED;
  uint64_t ab_c = dmuon_hash_string(dmuon_hash_string(seed, "ab"), "c");
  uint64_t a_bc = dmuon_hash_string(dmuon_hash_string(seed, "a"), "bc");
  tap_ok(ab_c != a_bc, "strings have ends");
  tap_ok(ab_c == dmuon_hash_string(dmuon_hash_string(seed, "ab"), "c"), "the same again");
  tap_ok(dmuon_hash_bytes(seed, "a\0", 1) != dmuon_hash_bytes(seed, "a\0", 2), "zeros count");
  tap_ok(dmuon_hash_real(seed, 0.0) == dmuon_hash_real(seed, -0.0), "-0 is 0");
  tap_ok(dmuon_hash_real(seed, 1.0) != dmuon_hash_real(seed, -1.0), "-1 is not 1");
  tap_ok(dmuon_hash_int(dmuon_hash_int(seed, 1), 2) != dmuon_hash_int(dmuon_hash_int(seed, 2), 1),
         "the order counts");
  unsigned char data[33] = {0}, shifted[40];
  int wrong = 0;
  uint64_t base = dmuon_hash_bytes(seed, data, sizeof data);
  for (int bit = 0; bit < 33 * 8; bit++) {
    data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    uint64_t flipped = base ^ dmuon_hash_bytes(seed, data, sizeof data);
    int changed = 0;
    for (; flipped; flipped >>= 1) changed += flipped & 1;
    wrong += changed < 10 || changed > 54;
    data[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  tap_is_int(wrong, 0, "each bit of the input changes about half of the hash");
  memcpy(shifted + 1, data, sizeof data);
  tap_ok(dmuon_hash_bytes(seed, shifted + 1, sizeof data) == base, "alignment does not count");
}

int main(void) {
  test_vectors();
  test_moments();
  test_hash();
  return tap_done();
}
