/* The order in which a root adds up contributions, and the levels of partial sums, against the
 * association written down from its definition: sums are expressions here, compared as texts. */
#include "backend/cuda/sum_plan.h"

#include <stdlib.h>
#include <string.h>

#include "tap.h"

/* An expression as the set of its nodes: a sum is named by a number that does not depend on the
 * order of its two sides. */
typedef uint64_t name;

static name mix(uint64_t x) {
  x ^= x >> 31, x *= UINT64_C(0x9e3779b97f4a7c15), x ^= x >> 29, x *= UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}
static name leaf(int rank) {
  return mix((uint64_t)rank + 1);
}
static name sum(name a, name b) {
  return mix(a + b) ^ mix(mix(a) + mix(b));
}
static name reference(int low, int high) {
  int power = 1;
  if (high - low == 1) return leaf(low);
  while (power * 2 < high - low) power *= 2;
  return sum(reference(low, low + power), reference(low + power, high));
}

/* Positions [low, high) of a block. */
static int add_block(const dmuon_sum_block *block, int low, int high, name *out) {
  if (high - low == 1) {
    *out = block->rank[low] < 0 ? 0 : leaf(block->rank[low]);
    return block->rank[low] >= 0;
  }
  name a = 0, b = 0;
  int has_a = add_block(block, low, (low + high) / 2, &a);
  int has_b = add_block(block, (low + high) / 2, high, &b);
  *out = has_a && has_b ? sum(a, b) : has_a ? a : b;
  return has_a || has_b;
}

static int64_t check_blocks(int size, int root) {
  name place[DMUON_SUM_PLACES] = {0}, whole = 0;
  int64_t wrong = 0;
  int ends = 0, seen = 0;
  for (int b = 0; b < dmuon_sum_blocks(size); b++) {
    dmuon_sum_block block;
    name value = 0;
    if (!dmuon_sum_block_plan(size, root, b, &block)) continue;
    wrong += !add_block(&block, 0, DMUON_SUM_WIDTH, &value);
    for (int i = 0; i < DMUON_SUM_WIDTH; i++) {
      if (block.rank[i] < 0) continue;
      seen++;
      wrong += dmuon_sum_block_of(block.rank[i], root) != b;
      wrong += (block.rank[i] ^ root) % DMUON_SUM_WIDTH != i;
    }
    for (int i = 0; i < block.merge_count; i++) value = sum(place[block.merge[i]], value);
    wrong += block.store >= dmuon_sum_places(size);
    if (block.store < 0) {
      whole = value;
      ends++;
    } else {
      place[block.store] = value;
    }
  }
  return wrong + (whole != reference(0, size)) + (ends != 1) + (seen != size);
}

/* All ranks go through the levels; what one sends at a level the other takes at the same. */
static int64_t check_levels(int size, int root) {
  name *held = malloc(sizeof *held * (size_t)size);
  int64_t wrong = 0;
  for (int r = 0; r < size; r++) held[r] = leaf(r);
  for (int level = 0; level < dmuon_sum_levels(size); level++) {
    for (int r = 0; r < size; r++) {
      dmuon_sum_edge edge = dmuon_sum_edge_plan(r, size, root, level);
      if (edge.kind == DMUON_EDGE_NONE) continue;
      dmuon_sum_edge back = dmuon_sum_edge_plan(edge.peer, size, root, level);
      wrong += back.kind == edge.kind || back.kind == DMUON_EDGE_NONE || back.peer != r;
      wrong += back.is_leaf != edge.is_leaf;
      if (edge.kind != DMUON_EDGE_RECEIVE) continue;
      wrong += edge.is_leaf != (held[edge.peer] == leaf(edge.peer));
      held[r] = sum(held[r], held[edge.peer]);
    }
  }
  wrong += held[root] != reference(0, size);
  free(held);
  return wrong;
}

int main(void) {
  int64_t blocks = 0, levels = 0;
  for (int size = 1; size <= 70; size++)
    for (int root = 0; root < size; root++)
      blocks += check_blocks(size, root), levels += check_levels(size, root);
  tap_is_int(blocks, 0, "every root of up to 70 ranks adds up in the one association");
  tap_is_int(levels, 0, "and so do partial sums, level by level");
  const int large[] = {127, 128, 129, 700, 2047, 2048};
  blocks = levels = 0;
  for (int i = 0; i < 6; i++)
    for (int root = i; root < large[i]; root += 97)
      blocks += check_blocks(large[i], root), levels += check_levels(large[i], root);
  tap_is_int(blocks + levels, 0, "large communicators");
  tap_is_int(dmuon_sum_places(8), 0, "up to eight ranks: no partial sum waits");
  return tap_done();
}
