/* The association of sums and the trees of messages: the plans of all ranks together, carried out
 * by hand, give the association of a binary counter, for every size and root. Partial sums are
 * strings of the kind "((0+1)+2)". */
#include "comm/tree.h"
#include "tap.h"

#define MAX 70
#define TEXT 1024

static char sum[MAX][TEXT];

static void join(char *out, const char *a, const char *b) {
  char text[2 * TEXT + 8];
  snprintf(text, sizeof text, "(%s+%s)", a, b);
  snprintf(out, TEXT, "%.*s", TEXT - 1, text);
}

/* The definition: equal sizes on top of the stack are added as soon as they meet. */
static void counter(int n, char *out) {
  static char stack[MAX][TEXT];
  int size[MAX], depth = 0;
  for (int i = 0; i < n; i++) {
    snprintf(stack[depth], TEXT, "%d", i);
    size[depth++] = 1;
    while (depth > 1 && size[depth - 1] == size[depth - 2]) {
      depth--;
      join(stack[depth - 1], stack[depth - 1], stack[depth]);
      size[depth - 1] *= 2;
    }
  }
  while (depth > 1) {
    depth--;
    join(stack[depth - 1], stack[depth - 1], stack[depth]);
  }
  snprintf(out, TEXT, "%s", stack[0]);
}

/* The stream of the direct way: odd contributions go straight onto the topmost partial sum. */
static int streamed(int n, char *out) {
  static char stack[MAX][TEXT];
  int depth = 0, deepest = 0;
  for (int i = 0; i < n; i++) {
    int merges = dmuon_counter_merges(i);
    char own[16];
    snprintf(own, sizeof own, "%d", i);
    if (merges > 0) {
      join(stack[depth - 1], stack[depth - 1], own);
      merges--;
    } else {
      snprintf(stack[depth++], TEXT, "%s", own);
    }
    if (depth > deepest) deepest = depth;
    for (; merges > 0; merges--, depth--)
      join(stack[depth - 2], stack[depth - 2], stack[depth - 1]);
  }
  for (; depth > 1; depth--) join(stack[depth - 2], stack[depth - 2], stack[depth - 1]);
  snprintf(out, TEXT, "%s", stack[0]);
  return deepest;
}

/* Evaluates rank's partial sum by asking its peers for theirs. Counts what goes wrong. */
static int evaluate(int rank, int n, int root, int from, int as_leaf, int depth) {
  dmuon_tree_sum plan;
  dmuon_tree_sum_plan(rank, n, root, &plan);
  int wrong = depth > DMUON_TREE_DEPTH;
  wrong += plan.parent != from;                 /* both sides of an edge agree on it */
  wrong += from >= 0 && as_leaf != !plan.count; /* and on what travels */
  char mine[TEXT];
  snprintf(mine, TEXT, "%d", rank);
  for (int i = 0; i < plan.count && !wrong; i++) {
    wrong += evaluate(plan.peer[i], n, root, rank, plan.peer_is_leaf[i], depth + 1);
    if (plan.peer[i] < rank) {
      join(mine, sum[plan.peer[i]], mine);
    } else {
      join(mine, mine, sum[plan.peer[i]]);
    }
  }
  snprintf(sum[rank], TEXT, "%s", mine);
  return wrong;
}

static int spreads(int n, int root) {
  int parent[MAX], reached[MAX] = {0}, order[MAX], count = 0, wrong = 0;
  for (int rank = 0; rank < n; rank++) {
    dmuon_tree_spread plan;
    dmuon_tree_spread_plan(rank, n, root, &plan);
    parent[rank] = plan.parent;
  }
  wrong += parent[root] != -1;
  reached[root] = 1, order[count++] = root;
  for (int i = 0; i < count; i++) {
    dmuon_tree_spread plan;
    dmuon_tree_spread_plan(order[i], n, root, &plan);
    for (int k = 0; k < plan.count; k++) {
      int child = plan.child[k];
      if (child < 0 || child >= n || reached[child] || parent[child] != order[i]) return 1;
      reached[child] = 1, order[count++] = child;
    }
  }
  return wrong + (count != n);
}

int main(void) {
  char expected[TEXT], text[TEXT];
  counter(6, text);
  tap_is_string(text, "(((0+1)+(2+3))+(4+5))", "a counter over 6");
  counter(7, text);
  tap_is_string(text, "(((0+1)+(2+3))+((4+5)+6))", "a counter over 7");

  int wrong_stream = 0, wrong_depth = 0, wrong_tree = 0, wrong_spread = 0, wrong_xor = 0;
  for (int n = 1; n <= MAX; n++) {
    counter(n, expected);
    int deepest = streamed(n, text);
    wrong_stream += strcmp(text, expected) != 0;
    wrong_depth += deepest > dmuon_counter_depth(n);
    for (int root = 0; root < n; root++) {
      wrong_tree += evaluate(root, n, root, -1, 0, 0) || strcmp(sum[root], expected) != 0;
      wrong_spread += spreads(n, root);
      if (n & (n - 1)) continue;
      for (int rank = 0; rank < n; rank++) { /* binomial on rank XOR root */
        dmuon_tree_sum plan;
        dmuon_tree_sum_plan(rank, n, root, &plan);
        int place = rank ^ root;
        int above = place ? (place & (place - 1)) ^ root : -1;
        wrong_xor += plan.parent != above;
      }
    }
  }
  tap_is_int(wrong_stream, 0, "the stream has the counter's association, 1 to %d", MAX);
  tap_is_int(wrong_depth, 0, "and no more partial sums than said");
  tap_is_int(wrong_tree, 0, "the tree of messages has it too, for every root");
  tap_is_int(wrong_xor, 0, "powers of two: the binomial tree on rank XOR root");
  tap_is_int(wrong_spread, 0, "spreading reaches every rank once, for every root");
  tap_is_int(dmuon_counter_depth(32), 5, "32 contributions need 5 partial sums");
  return tap_done();
}
