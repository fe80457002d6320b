/* Decides the sizes of the axes that were left open, and which rank sits at which position, so that
 * the groups that talk most stay inside islands (split.h) whatever placement the launcher used. It
 * talks to nobody: which ranks share an island is given. */
#include "mesh/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/sort.h"

static const char *const axis_names[3] = {"replicate", "shard", "tp"};

void dmuon_layout_pretend_nodes(int size, int64_t node_size, int *node) {
  for (int i = 0; i < size; i++) node[i] = (int)(i - i % node_size);
}

static int greatest_common_divisor(int a, int b) {
  while (b) {
    int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

DMuonErrorCode dmuon_layout_survey(dmuon_memory *memory, int size, const int *domain,
                                   dmuon_layout_domains *domains) {
  int *ranks = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, size, sizeof *ranks, &ranks));
  for (int i = 0; i < size; i++) ranks[domain[i]]++;
  dmuon_layout_domains found = {0};
  for (int i = 0; i < size; i++) {
    if (!ranks[i]) continue;
    found.divisor = greatest_common_divisor(found.divisor, ranks[i]);
    if (!found.count || ranks[i] < found.smallest) found.smallest = ranks[i];
    if (ranks[i] > found.largest) found.largest = ranks[i];
    found.count++;
  }
  dmuon_memory_free(ranks);
  *domains = found;
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_wanted(const int64_t want[3]) {
  for (int a = 0; a < 3; a++)
    if (want[a] != DMUON_DECIDE && (want[a] < 1 || want[a] > INT32_MAX))
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is %lld, must be at least 1, or DMUON_DECIDE",
                 axis_names[a], (long long)want[a]);
  return DMUON_SUCCESS;
}

/* "shard 3 x tp 2", the axes that were given, with their product. */
static int64_t say_given(const int64_t want[3], char *buffer, size_t bytes) {
  int64_t product = 1;
  size_t length = 0;
  buffer[0] = 0;
  for (int a = 0; a < 3; a++) {
    if (want[a] == DMUON_DECIDE || length >= bytes) continue;
    length += (size_t)snprintf(buffer + length, bytes - length, "%s%s %lld", length ? " x " : "",
                               axis_names[a], (long long)want[a]);
    product = product > INT64_MAX / want[a] ? INT64_MAX : product * want[a];
  }
  return product;
}

DMuonErrorCode dmuon_layout_sizes(int size, const dmuon_layout_domains *islands,
                                  const int64_t want[3], int sizes[3],
                                  dmuon_size_reason reasons[3]) {
  DMUON_TRY(check_wanted(want));
  char given[96];
  int64_t product = say_given(want, given, sizeof given);
  if (want[0] >= 0 && want[1] >= 0 && want[2] >= 0) {
    if (product != size)
      DMUON_FAIL(DMUON_ERR_SETUP, "%s = %lld ranks, the communicator has %d", given,
                 (long long)product, size);
  } else if (size % product) {
    DMUON_FAIL(DMUON_ERR_SETUP, "%s = %lld ranks does not divide the communicator's %d", given,
               (long long)product, size);
  }
  int out[3];
  dmuon_size_reason why[3] = {0};
  int rest = (int)(size / product);
  int open_shard = want[1] < 0, open_replicate = want[0] < 0, open_tp = want[2] < 0;
  for (int a = 0; a < 3; a++) out[a] = want[a] < 0 ? 1 : (int)want[a];
  if (open_shard && open_replicate) {
    /* Of an island's ranks tp takes its part; a tp group larger than one leaves shards of one. */
    int room = islands->divisor % out[2] ? 1 : islands->divisor / out[2];
    out[1] = greatest_common_divisor(rest, room);
    out[0] = rest / out[1];
    why[1] = islands->smallest == islands->largest ? DMUON_SIZE_ISLAND : DMUON_SIZE_COMMON;
    why[0] = DMUON_SIZE_REST;
  } else if (open_shard) {
    out[1] = rest;
    why[1] = DMUON_SIZE_REST;
  } else if (open_replicate) {
    out[0] = rest;
    why[0] = DMUON_SIZE_REST;
  } else if (open_tp) {
    out[2] = rest;
  }
  if (open_tp) why[2] = open_shard || open_replicate ? DMUON_SIZE_ONE : DMUON_SIZE_REST;
  memcpy(sizes, out, sizeof out);
  memcpy(reasons, why, sizeof why);
  return DMUON_SUCCESS;
}

/* Ranks by their domains from the outermost to the innermost, then by number. */
typedef struct {
  int levels;
  const int *const *level;
} by_domain;

static int compare_places(const void *a, const void *b, void *context) {
  const by_domain *order = context;
  const int i = *(const int *)a, j = *(const int *)b;
  for (int k = order->levels - 1; k >= 0; k--)
    if (order->level[k][i] != order->level[k][j]) return order->level[k][i] - order->level[k][j];
  return i - j;
}

/* Ranks in the order of their domains; those with a place have given up theirs here. */
typedef struct {
  const int *const *level;
  int *member; /* [size], -1: has its place */
  int *rank_at, placed;
} order_work;

/* Whole chunks of members[from, to), a domain of level k: of its inner domains each, then of what
 * they leave over. */
static void take_chunks(order_work *w, const int *sorted, int k, int from, int to, int chunk) {
  for (int at = from, end; k > 0 && at < to; at = end) {
    const int domain = w->level[k - 1][sorted[at]];
    for (end = at; end < to && w->level[k - 1][sorted[end]] == domain;) end++;
    take_chunks(w, sorted, k - 1, at, end, chunk);
  }
  int left = 0;
  for (int at = from; at < to; at++) left += w->member[at] >= 0;
  for (int at = from, take = left - left % chunk; take > 0; at++) {
    if (w->member[at] < 0) continue;
    w->rank_at[w->placed++] = w->member[at];
    w->member[at] = -1;
    take--;
  }
}

DMuonErrorCode dmuon_layout_order(dmuon_memory *memory, int size, int level_count,
                                  const int *const levels[], const int sizes[3], int *rank_at) {
  by_domain order = {level_count, levels};
  order_work w = {.level = levels, .rank_at = rank_at};
  int *sorted = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, size, sizeof *sorted, &sorted);
  if (!code) code = dmuon_memory_alloc(memory, size, sizeof *w.member, &w.member);
  for (int i = 0; i < size && !code; i++) sorted[i] = i;
  if (!code) code = dmuon_sort(memory, sorted, size, sizeof *sorted, compare_places, &order);
  if (!code) {
    memcpy(w.member, sorted, (size_t)size * sizeof *sorted);
    const int chunks[3] = {sizes[1] * sizes[2], sizes[2], 1}, top = level_count - 1;
    for (int c = 0; c < 3; c++)
      for (int at = 0, end; at < size; at = end) {
        for (end = at; end < size && levels[top][sorted[end]] == levels[top][sorted[at]];) end++;
        take_chunks(&w, sorted, top, at, end, chunks[c]);
      }
  }
  dmuon_memory_free(sorted);
  dmuon_memory_free(w.member);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_layout_from_coords(int size, const int (*coords)[3], const int64_t want[3],
                                        int sizes[3], dmuon_size_reason reasons[3], int *rank_at) {
  DMUON_TRY(check_wanted(want));
  int64_t out[3] = {1, 1, 1};
  for (int i = 0; i < size; i++) {
    if ((coords[i][0] < 0) != (coords[0][0] < 0))
      DMUON_FAIL(DMUON_ERR_SETUP, "rank %d gave coordinates, rank %d did not; all must, or none",
                 coords[0][0] < 0 ? i : 0, coords[0][0] < 0 ? 0 : i);
    for (int a = 0; a < 3; a++)
      if (coords[i][a] + (int64_t)1 > out[a]) out[a] = coords[i][a] + (int64_t)1;
  }
  for (int a = 0; a < 3; a++) {
    if (want[a] == DMUON_DECIDE) continue;
    for (int i = 0; i < size && out[a] > want[a]; i++)
      if (coords[i][a] >= want[a])
        DMUON_FAIL(DMUON_ERR_SETUP, "rank %d says %s coordinate %d, the axis has %lld", i,
                   axis_names[a], coords[i][a], (long long)want[a]);
    out[a] = want[a];
  }
  if (out[0] > size || out[1] > size || out[2] > size || out[0] * out[1] > size ||
      out[0] * out[1] * out[2] != size)
    DMUON_FAIL(
        DMUON_ERR_SETUP,
        "the coordinates span replicate %lld x shard %lld x tp %lld, the communicator has %d "
        "ranks: they do not form a full grid",
        (long long)out[0], (long long)out[1], (long long)out[2], size);
  for (int p = 0; p < size; p++) rank_at[p] = -1;
  for (int i = 0; i < size; i++) {
    int64_t p = (coords[i][0] * out[1] + coords[i][1]) * out[2] + coords[i][2];
    if (rank_at[p] >= 0)
      DMUON_FAIL(DMUON_ERR_SETUP, "ranks %d and %d both say coordinates (%d, %d, %d)", rank_at[p],
                 i, coords[i][0], coords[i][1], coords[i][2]);
    rank_at[p] = i;
  }
  for (int a = 0; a < 3; a++) {
    sizes[a] = (int)out[a];
    reasons[a] = want[a] == DMUON_DECIDE ? DMUON_SIZE_COORDS : DMUON_SIZE_GIVEN;
  }
  return DMUON_SUCCESS;
}

dmuon_layout_crossing dmuon_layout_crossings(const int *domain, const int sizes[3],
                                             const int *rank_at, int axis) {
  const int strides[3] = {sizes[1] * sizes[2], sizes[2], 1};
  int size = sizes[0] * sizes[1] * sizes[2], stride = strides[axis];
  dmuon_layout_crossing found = {.groups = size / sizes[axis]};
  for (int p = 0; p < size; p++) {
    if (p / stride % sizes[axis]) continue; /* not the first of its group */
    for (int k = 1; k < sizes[axis]; k++)
      if (domain[rank_at[p + k * stride]] != domain[rank_at[p]]) {
        found.crossing++;
        break;
      }
  }
  return found;
}
