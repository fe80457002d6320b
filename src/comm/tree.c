/* The association of sums and the trees of messages, computed from rank, root and size. What
 * travels along them, and when, is decided by who asks. */
#include "comm/tree.h"

/* The largest power of two that is at most n >= 1. */
static int power_below(int n) {
  int power = 1;
  while (power <= n / 2) power *= 2;
  return power;
}

int dmuon_tree_split(int low, int high) {
  return low + power_below(high - low - 1);
}

int dmuon_counter_merges(int64_t index) {
  int merges = 0;
  for (int64_t n = index + 1; n % 2 == 0; n /= 2) merges++;
  return merges;
}

int dmuon_counter_depth(int size) {
  int depth = 1;
  while (depth < 31 && (1 << depth) < size) depth++;
  return depth;
}

int dmuon_tree_host(int low, int high, int root) {
  if (root >= low && root < high) return root;
  /* Blocks that are no power of two are evaluated where their left part is. Taking the low bits of
   * root spreads the work of different roots over different ranks. */
  return low + (root & (power_below(high - low) - 1));
}

void dmuon_tree_sum_plan(int rank, int size, int root, dmuon_tree_sum *plan) {
  /* Walk down from the whole to this rank, then take the way back up. */
  int low[DMUON_TREE_DEPTH + 1], high[DMUON_TREE_DEPTH + 1], depth = 0;
  low[0] = 0, high[0] = size;
  while (high[depth] - low[depth] > 1) {
    int split = dmuon_tree_split(low[depth], high[depth]);
    low[depth + 1] = rank < split ? low[depth] : split;
    high[depth + 1] = rank < split ? split : high[depth];
    depth++;
  }
  plan->count = 0;
  plan->parent = -1;
  while (depth-- > 0) {
    int host = dmuon_tree_host(low[depth], high[depth], root);
    if (host != rank) {
      plan->parent = host;
      return;
    }
    int split = dmuon_tree_split(low[depth], high[depth]), left = rank >= split;
    int other_low = left ? low[depth] : split, other_high = left ? split : high[depth];
    plan->peer[plan->count] = dmuon_tree_host(other_low, other_high, root);
    plan->peer_is_leaf[plan->count] = other_high - other_low == 1;
    plan->count++;
  }
}

void dmuon_tree_spread_plan(int rank, int size, int root, dmuon_tree_spread *plan) {
  plan->count = 0;
  plan->parent = -1;
  if (size <= DMUON_SPREAD_DIRECT) {
    if (rank != root) {
      plan->parent = root;
      return;
    }
    for (int i = 1; i < size; i++) plan->child[plan->count++] = (root + i) % size;
    return;
  }
  int64_t place = ((int64_t)rank - root + size) % size, bit = 1;
  while (bit < size && !(place & bit)) bit *= 2;
  if (place) plan->parent = (int)((place - bit + root) % size);
  for (bit /= 2; bit >= 1; bit /= 2) {
    if (place + bit < size) plan->child[plan->count++] = (int)((place + bit + root) % size);
  }
}
