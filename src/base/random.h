/* A counter-based random stream: value i of stream (seed, key) is a pure function of the three, so
 * any rank can draw any part of it. */
#ifndef DMUON_BASE_RANDOM_H
#define DMUON_BASE_RANDOM_H

#include <stdint.h>

uint64_t dmuon_random_bits(uint64_t seed, uint64_t key, uint64_t index);
double dmuon_random_uniform(uint64_t seed, uint64_t key, uint64_t index); /* in [0, 1) */
double dmuon_random_normal(uint64_t seed, uint64_t key, uint64_t index);

#endif
