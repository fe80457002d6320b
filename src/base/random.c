/* Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC
 * 2011): the counter is (index, key), the cipher key is the seed; a block of 128 bits belongs to
 * each index. Normal numbers by Box and Muller from the two halves of the block. */
#include "base/random.h"

#include <math.h>

static void philox(uint64_t seed, uint64_t key, uint64_t index, uint64_t out[2]) {
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
  uint32_t c2 = (uint32_t)key, c3 = (uint32_t)(key >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)UINT32_C(0xd2511f53) * c0, b = (uint64_t)UINT32_C(0xcd9e8d57) * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += UINT32_C(0x9e3779b9);
    k1 += UINT32_C(0xbb67ae85);
  }
  out[0] = c0 | (uint64_t)c1 << 32;
  out[1] = c2 | (uint64_t)c3 << 32;
}

uint64_t dmuon_random_bits(uint64_t seed, uint64_t key, uint64_t index) {
  uint64_t block[2];
  philox(seed, key, index, block);
  return block[0];
}

double dmuon_random_uniform(uint64_t seed, uint64_t key, uint64_t index) {
  return (double)(dmuon_random_bits(seed, key, index) >> 11) * 0x1p-53;
}

double dmuon_random_normal(uint64_t seed, uint64_t key, uint64_t index) {
  uint64_t block[2];
  philox(seed, key, index, block);
  double u = ((double)(block[0] >> 11) + 1) * 0x1p-53; /* in (0, 1]: its logarithm is finite */
  double v = (double)(block[1] >> 11) * 0x1p-53;
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
