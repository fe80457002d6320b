/* Who adds what to what: the blocks of a root that gets all contributions, and the levels of the
 * tree along which partial sums travel. */
#include "backend/cuda/sum_plan.h"

static int power_above(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

int dmuon_sum_width(int size) {
  return power_above(size) < DMUON_SUM_WIDTH ? power_above(size) : DMUON_SUM_WIDTH;
}

int dmuon_sum_blocks(int size) {
  return (power_above(size) + DMUON_SUM_WIDTH - 1) / DMUON_SUM_WIDTH;
}

int dmuon_sum_places(int size) {
  int places = 0;
  for (int blocks = dmuon_sum_blocks(size); blocks > 1; blocks /= 2) places++;
  return places;
}

int dmuon_sum_block_of(int rank, int root) {
  return (rank ^ root) / DMUON_SUM_WIDTH;
}

/* Whether any rank stands in node `index` of the tree over blocks of root, `height` above them: its
 * positions are ranks [low, low + width), in some order. */
static int is_peopled(int size, int root, int index, int height) {
  const int width = DMUON_SUM_WIDTH << height;
  const int low = (root ^ (index * width)) & ~(width - 1);
  return low < size;
}

/* The way up from block b as far as all below is added up; the partial sums met are taken off the
 * stack, level[i] being the height of what waits at place i. Returns the height. */
static int climb(int size, int root, int b, int *depth, int *level, dmuon_sum_block *block) {
  int height = 0;
  for (; DMUON_SUM_WIDTH << height < power_above(size); height++) {
    const int index = b >> height;
    if (index % 2) {
      if (*depth == 0 || level[*depth - 1] != height) continue; /* nobody on the left */
      (*depth)--;
      if (block) block->merge[block->merge_count++] = *depth;
    } else if (is_peopled(size, root, index + 1, height)) {
      break;
    }
  }
  return height;
}

int dmuon_sum_block_plan(int size, int root, int number, dmuon_sum_block *block) {
  int depth = 0, level[DMUON_SUM_PLACES];
  if (number >= dmuon_sum_blocks(size) || !is_peopled(size, root, number, 0)) return 0;
  for (int b = 0; b < number; b++) {
    if (!is_peopled(size, root, b, 0)) continue;
    const int height = climb(size, root, b, &depth, level, 0);
    level[depth++] = height;
  }
  block->number = number;
  block->merge_count = 0;
  const int height = climb(size, root, number, &depth, level, block);
  block->store = DMUON_SUM_WIDTH << height < power_above(size) ? depth : -1;
  for (int i = 0; i < DMUON_SUM_WIDTH; i++) {
    const int rank = root ^ (number * DMUON_SUM_WIDTH + i);
    block->rank[i] = rank < size ? rank : -1;
  }
  return 1;
}

int dmuon_sum_levels(int size) {
  int levels = 0;
  while (levels < 31 && 1 << levels < size) levels++;
  return levels;
}

dmuon_sum_edge dmuon_sum_edge_plan(int rank, int size, int root, int level) {
  const dmuon_sum_edge none = {DMUON_EDGE_NONE, -1, 0};
  int low = 0, high = size;
  while (high - low > 1) {
    const int split = dmuon_tree_split(low, high), is_right = rank >= split;
    const int mine_low = is_right ? split : low, mine_high = is_right ? high : split;
    if (split - low == 1 << level) {
      const int other_low = is_right ? low : split, other_high = is_right ? split : high;
      const int host = dmuon_tree_host(low, high, root);
      if (dmuon_tree_host(mine_low, mine_high, root) != rank) return none;
      if (host == rank)
        return (dmuon_sum_edge){DMUON_EDGE_RECEIVE, dmuon_tree_host(other_low, other_high, root),
                                other_high - other_low == 1};
      return (dmuon_sum_edge){DMUON_EDGE_SEND, host, mine_high - mine_low == 1};
    }
    low = mine_low;
    high = mine_high;
  }
  return none;
}
