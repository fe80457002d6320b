/* The hash: words of eight bytes, each mixed in by the finaliser of splitmix64 (Steele, Lea, Flood:
 * Fast splittable pseudorandom number generators, OOPSLA 2014), which is a bijection of the state
 * for each word, so that a difference once made is never lost to a later equal word. */
#include "base/hash.h"

#include <string.h>

static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

uint64_t dmuon_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *p = data;
  uint64_t word;
  hash = mix(hash ^ (uint64_t)bytes); /* so that the zeros that fill up the last word count */
  for (; bytes >= 8; bytes -= 8, p += 8) {
    memcpy(&word, p, 8);
    hash = mix(hash ^ word);
  }
  if (bytes > 0) {
    word = 0;
    memcpy(&word, p, bytes);
    hash = mix(hash ^ word);
  }
  return hash;
}

uint64_t dmuon_hash_string(uint64_t hash, const char *text) {
  return dmuon_hash_bytes(hash, text, strlen(text) + 1);
}

uint64_t dmuon_hash_int(uint64_t hash, int64_t value) {
  return dmuon_hash_bytes(hash, &value, sizeof value);
}

uint64_t dmuon_hash_real(uint64_t hash, double value) {
  if (value == 0) value = 0; /* one zero */
  return dmuon_hash_bytes(hash, &value, sizeof value);
}
