/* A 64-bit hash for comparing plans and options between ranks (not against an adversary). The
 * value depends on bytes alone, so it is the same on every machine of one endianness. */
#ifndef DMUON_BASE_HASH_H
#define DMUON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define DMUON_HASH_SEED UINT64_C(0x9e3779b97f4a7c15)

uint64_t dmuon_hash_bytes(uint64_t hash, const void *data, size_t bytes);
uint64_t dmuon_hash_string(uint64_t hash,
                           const char *text); /* with its end, so "ab","c" != "a","bc" */
uint64_t dmuon_hash_int(uint64_t hash, int64_t value);
uint64_t dmuon_hash_real(uint64_t hash, double value); /* -0 as 0 */

#endif
