/* In which order a rank adds up what the others send, so that the association is that of
 * comm/tree.h to the bit, whoever the root is, and every rank sends one contribution and gets one
 * at a time. Pure: no communication, no memory.
 *
 * The association is a perfect binary tree over ranks 0, 1, 2, ... whose missing leaves are
 * dropped. Relative to a root, position p is rank root XOR p: that swaps the sides of some
 * additions, which does not show in the bits, and nothing else. So a root takes positions in order,
 * eight at a time; at each position all roots have different partners. */
#ifndef DMUON_BACKEND_CUDA_SUM_PLAN_H
#define DMUON_BACKEND_CUDA_SUM_PLAN_H

#include "comm/tree.h"

enum {
  DMUON_SUM_WIDTH = 8,   /* contributions of a block */
  DMUON_SUM_PLACES = 8,  /* partial sums that wait at most */
  DMUON_SUM_MOST = 2048, /* so many ranks at most */
};

/* Eight positions, added as ((0+1)+(2+3))+((4+5)+(6+7)) without those of nobody; then the partial
 * sums at merge[0], merge[1], ... are added, and the result is kept at place store, or is the whole
 * sum (-1). */
typedef struct {
  int number;
  int rank[DMUON_SUM_WIDTH]; /* whose contribution; -1: nobody's */
  int merge_count, merge[DMUON_SUM_PLACES];
  int store;
} dmuon_sum_block;

/* How many positions a block has at most, how many blocks every root goes through, and how many
 * partial sums wait meanwhile. */
int dmuon_sum_width(int size);
int dmuon_sum_blocks(int size);
int dmuon_sum_places(int size);
/* The block of root at which rank contributes. */
int dmuon_sum_block_of(int rank, int root);
/* Block `number` of root; 0 when nobody contributes to it: nothing is to be done. */
int dmuon_sum_block_plan(int size, int root, int number, dmuon_sum_block *block);

/* What rank does at one level of the tree along which partial sums of many ranks travel (level 0
 * joins two ranks); as dmuon_tree_sum_plan says, with the levels at which all ranks meet. */
typedef enum { DMUON_EDGE_NONE = 0, DMUON_EDGE_SEND, DMUON_EDGE_RECEIVE } dmuon_edge_kind;
typedef struct {
  dmuon_edge_kind kind;
  int peer;
  int is_leaf; /* a bare contribution travels */
} dmuon_sum_edge;
int dmuon_sum_levels(int size);
dmuon_sum_edge dmuon_sum_edge_plan(int rank, int size, int root, int level);

#endif
