/* Keeps the slots of a mesh in a tournament, a binary tree whose nodes know the best slot below
 * them.
 *
 * A load added to one slot changes that slot against all, and its column against other columns; it
 * changes nothing between two other slots of the column. So the nodes to play again are those above
 * the slot and those above the two ends of its column. The best slot outside a given set is found
 * by opening nodes best first; only nodes whose winner is excluded are opened further, and excluded
 * slots, just loaded by the same group, are seldom near the top. */
#include "partition/slots.h"

DMuonErrorCode dmuon_slots_init(dmuon_memory *memory, int replicate, int shard, int balance,
                                dmuon_slots *slots) {
  dmuon_slots made = {.replicate = replicate,
                      .shard = shard,
                      .count = replicate * shard,
                      .balance = balance && replicate > 1,
                      .leaves = 1};
  while (made.leaves < made.count) made.leaves *= 2;
  DMuonErrorCode code = dmuon_memory_alloc(memory, made.count, sizeof *made.cost, &made.cost);
  if (!code) code = dmuon_memory_alloc(memory, made.count, sizeof *made.size, &made.size);
  if (!code) code = dmuon_memory_alloc(memory, shard, sizeof *made.column_cost, &made.column_cost);
  if (!code) code = dmuon_memory_alloc(memory, shard, sizeof *made.column_size, &made.column_size);
  if (!code) code = dmuon_memory_alloc(memory, 2 * (int64_t)made.leaves, sizeof(int), &made.winner);
  if (!code) code = dmuon_memory_alloc(memory, made.count, sizeof(int), &made.marked);
  if (!code) code = dmuon_memory_alloc(memory, made.leaves, sizeof(int), &made.frontier);
  if (code) {
    dmuon_slots_free(&made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *slots = made;
  dmuon_slots_rebuild(slots);
  return DMUON_SUCCESS;
}

void dmuon_slots_free(dmuon_slots *slots) {
  dmuon_memory_release(&slots->cost);
  dmuon_memory_release(&slots->size);
  dmuon_memory_release(&slots->column_cost);
  dmuon_memory_release(&slots->column_size);
  dmuon_memory_release(&slots->winner);
  dmuon_memory_release(&slots->marked);
  dmuon_memory_release(&slots->frontier);
}

int dmuon_slots_better(const dmuon_slots *slots, int a, int b) {
  int s = a / slots->replicate, t = b / slots->replicate;
  if (slots->balance && slots->column_cost[s] != slots->column_cost[t])
    return slots->column_cost[s] < slots->column_cost[t];
  if (slots->cost[a] != slots->cost[b]) return slots->cost[a] < slots->cost[b];
  if (slots->balance && slots->column_size[s] != slots->column_size[t])
    return slots->column_size[s] < slots->column_size[t];
  if (slots->size[a] != slots->size[b]) return slots->size[a] < slots->size[b];
  return a < b;
}

static void play(dmuon_slots *slots, int node) {
  int a = slots->winner[2 * node], b = slots->winner[2 * node + 1];
  slots->winner[node] = b < 0 || (a >= 0 && dmuon_slots_better(slots, a, b)) ? a : b;
}

void dmuon_slots_rebuild(dmuon_slots *slots) {
  for (int s = 0; s < slots->shard; s++) {
    slots->column_cost[s] = 0;
    slots->column_size[s] = 0;
    for (int r = 0; r < slots->replicate; r++) {
      slots->column_cost[s] += slots->cost[s * slots->replicate + r];
      slots->column_size[s] += slots->size[s * slots->replicate + r];
    }
  }
  for (int i = 0; i < slots->leaves; i++)
    slots->winner[slots->leaves + i] = i < slots->count ? i : -1;
  for (int node = slots->leaves - 1; node > 0; node--) play(slots, node);
}

void dmuon_slots_add(dmuon_slots *slots, int slot, double cost, int64_t size) {
  int column = slot / slots->replicate;
  slots->cost[slot] += cost;
  slots->size[slot] += size;
  slots->column_cost[column] += cost;
  slots->column_size[column] += size;
  int left = slots->leaves + column * slots->replicate, right = left + slots->replicate - 1;
  int at = slots->leaves + slot;
  /* The three paths rise together, so that a node is played after both its children. */
  while (at > 1) {
    left /= 2, at /= 2, right /= 2;
    play(slots, left);
    if (at != left) play(slots, at);
    if (right != at) play(slots, right);
  }
}

/* The frontier is a heap of tree nodes, the one with the best winner on top. */
static int node_better(const dmuon_slots *slots, int a, int b) {
  return dmuon_slots_better(slots, slots->winner[a], slots->winner[b]);
}

static void frontier_push(dmuon_slots *slots, int *count, int node) {
  if (slots->winner[node] < 0) return;
  int *heap = slots->frontier, i = (*count)++;
  while (i > 0 && node_better(slots, node, heap[(i - 1) / 2])) {
    heap[i] = heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  heap[i] = node;
}

static int frontier_pop(dmuon_slots *slots, int *count) {
  int *heap = slots->frontier, top = heap[0], last = heap[--*count], i = 0;
  for (int child; (child = 2 * i + 1) < *count; i = child) {
    if (child + 1 < *count && node_better(slots, heap[child + 1], heap[child])) child++;
    if (!node_better(slots, heap[child], last)) break;
    heap[i] = heap[child];
  }
  if (*count > 0) heap[i] = last;
  return top;
}

int dmuon_slots_best(dmuon_slots *slots, int excluded_count, const int *excluded) {
  if (excluded_count == 0 || excluded_count >= slots->count) return slots->winner[1];
  slots->mark++;
  for (int i = 0; i < excluded_count; i++) slots->marked[excluded[i]] = slots->mark;
  int count = 0;
  frontier_push(slots, &count, 1);
  while (count > 0) {
    int node = frontier_pop(slots, &count), best = slots->winner[node];
    if (slots->marked[best] != slots->mark) return best;
    while (node < slots->leaves) {
      /* Follow the excluded winner down to its leaf, keeping the other side of each match. */
      int child = slots->winner[2 * node] == best ? 2 * node : 2 * node + 1;
      frontier_push(slots, &count, child ^ 1);
      node = child;
    }
  }
  return slots->winner[1];
}
