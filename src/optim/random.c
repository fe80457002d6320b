/* Random numbers for initial values: a stream a name, each number a function of its place. */
#include <dmuon/optimizer.h>

#include "base/hash.h"
#include "base/random.h"

static uint64_t key_of(const char *name) {
  return dmuon_hash_string(DMUON_HASH_SEED, name ? name : "");
}

double DMuonRandomUniform(uint64_t seed, const char *name, int64_t index) {
  return dmuon_random_uniform(seed, key_of(name), (uint64_t)index);
}

double DMuonRandomNormal(uint64_t seed, const char *name, int64_t index) {
  return dmuon_random_normal(seed, key_of(name), (uint64_t)index);
}
