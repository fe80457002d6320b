/* Shapes of trees over the ranks of a communicator, as pure functions of rank, root and size: the
 * one association that sums have, where each of its nodes is evaluated when partial sums travel,
 * and the tree along which a root's data spreads. No communication here. */
#ifndef DMUON_COMM_TREE_H
#define DMUON_COMM_TREE_H

#include <stdint.h>

#include "base/visible.h"

DMUON_VISIBLE_BEGIN

#define DMUON_TREE_DEPTH 32 /* levels of any of these trees over at most 2^31 ranks */

/* The association is that of a binary counter that is fed contributions 0, 1, ... in order: the sum
 * of [low, high) splits behind the largest power of two less than its length, so 7 contributions
 * are ((0+1)+(2+3))+((4+5)+6). */
int dmuon_tree_split(int low, int high); /* first rank of the right part; high - low >= 2 */

/* Feeding the counter: how many pairwise additions follow contribution index (from 0), each of the
 * two topmost partial sums of the stack. After the last of size contributions the rest is added
 * from the top down. */
int dmuon_counter_merges(int64_t index);
/* How many partial sums are on the stack at most when contribution index (odd ones straight onto
 * the topmost) is taken in, for any index below size. */
int dmuon_counter_depth(int size);

/* The rank that evaluates the sum of [low, high) for root: a rank of [low, high), root itself when
 * it is inside. For powers of two this is the binomial tree on rank XOR root. */
int dmuon_tree_host(int low, int high, int root);

/* What rank does in the sum over size ranks to root: it begins with its own contribution; takes in
 * the partial sums of `count` peers one after another; then sends what it has to parent (-1 at
 * root). On which side a peer's sum stands does not matter to the bits of one addition. */
typedef struct {
  int count;
  int parent;
  int peer[DMUON_TREE_DEPTH];
  int peer_is_leaf[DMUON_TREE_DEPTH]; /* it sends its bare contribution, not a partial sum */
} dmuon_tree_sum;
void dmuon_tree_sum_plan(int rank, int size, int root, dmuon_tree_sum *plan);

/* How root's data reaches rank, and to whom rank passes it on: straight from root up to a few
 * ranks, above that a binomial tree relative to root, the largest subtrees first. */
typedef struct {
  int parent; /* -1 at root */
  int count;
  int child[DMUON_TREE_DEPTH];
} dmuon_tree_spread;
#define DMUON_SPREAD_DIRECT 4
void dmuon_tree_spread_plan(int rank, int size, int root, dmuon_tree_spread *plan);

DMUON_VISIBLE_END

#endif
