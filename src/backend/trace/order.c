/* The issue orders of all ranks have a common order: the graph whose nodes are the operations of
 * all communicators, with an edge between each two that some rank issues one after the other, has
 * no circle. Communicators through rows of the mesh that hold the same classes in the same places
 * are one node list; an order of those is one of all. The other way round a circle among them may,
 * in principle, be none of the ranks': then a finding says too much, never too little. */
#include <stdio.h>
#include <string.h>

#include "backend/trace/sequences.h"
#include "base/hash.h"
#include "base/sort.h"

enum { COMMS = 6 }; /* axis and role */

typedef struct {
  int64_t to;
  int64_t position; /* of a rank that issues it so */
} edge;

typedef struct {
  dmuon_memory *memory;
  const dmuon_trace_set *set;
  int ranks;
  uint64_t *row_hash[3]; /* by position: which classes its row along the axis holds */
  int *kind[3];          /* by position: the position that stands for all such rows */
  int64_t *base[3];      /* by position: the first node of each role, where it stands for its row */
  int64_t nodes, edges;
  int64_t *first_edge; /* [nodes + 1] */
  edge *edge_list;
  int64_t *waits; /* edges into a node from nodes not yet in order */
} graph;

typedef struct {
  uint64_t hash;
  int64_t position;
} keyed;

static int by_hash(const void *a, const void *b, void *context) {
  const keyed *x = a, *y = b;
  (void)context;
  return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* value[i] = the first position with the same hash. */
static DMuonErrorCode stand_in(dmuon_memory *memory, int count, const uint64_t *hash, int *value) {
  keyed *list = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, count, sizeof *list, &list));
  for (int i = 0; i < count; i++) list[i] = (keyed){hash[i], i};
  DMuonErrorCode code = dmuon_sort(memory, list, count, sizeof *list, by_hash, NULL);
  for (int i = 0, head = 0; !code && i < count; i++) {
    if (list[i].hash != list[head].hash) head = i;
    value[list[i].position] = (int)list[head].position;
  }
  dmuon_memory_free(list);
  return code;
}

static DMuonErrorCode find_kinds(graph *g) {
  const int *sizes = g->set->sizes;
  for (int axis = 0; axis < 3; axis++) {
    DMUON_TRY(dmuon_memory_alloc(g->memory, g->ranks, sizeof(uint64_t), &g->row_hash[axis]));
    DMUON_TRY(dmuon_memory_alloc(g->memory, g->ranks, sizeof(int), &g->kind[axis]));
    DMUON_TRY(
        dmuon_memory_alloc(g->memory, 2 * (int64_t)g->ranks, sizeof(int64_t), &g->base[axis]));
    for (int p = 0; p < g->ranks; p++) {
      const int head = dmuon_trace_position(sizes, p, axis, 0);
      uint64_t hash = DMUON_HASH_SEED;
      if (p != head) {
        g->row_hash[axis][p] = g->row_hash[axis][head];
        continue;
      }
      for (int at = 0; at < sizes[axis]; at++)
        hash = dmuon_hash_int(hash, g->set->class_of[dmuon_trace_position(sizes, head, axis, at)]);
      g->row_hash[axis][p] = hash;
    }
    DMUON_TRY(stand_in(g->memory, g->ranks, g->row_hash[axis], g->kind[axis]));
  }
  return DMUON_SUCCESS;
}

/* Ranks of one class in rows of the same kinds issue the same edges: one of them is enough. */
static DMuonErrorCode choose_ranks(graph *g, int **stands) {
  uint64_t *hash = NULL;
  DMUON_TRY(dmuon_memory_alloc(g->memory, g->ranks, sizeof **stands, stands));
  DMUON_TRY(dmuon_memory_alloc(g->memory, g->ranks, sizeof *hash, &hash));
  for (int p = 0; p < g->ranks; p++) {
    hash[p] = dmuon_hash_int(DMUON_HASH_SEED, g->set->class_of[p]);
    for (int axis = 0; axis < 3; axis++) hash[p] = dmuon_hash_int(hash[p], g->kind[axis][p]);
  }
  DMuonErrorCode code = stand_in(g->memory, g->ranks, hash, *stands);
  dmuon_memory_free(hash);
  return code;
}

static int64_t length_of(const dmuon_trace *trace, int axis, int role) {
  int64_t n = 0;
  for (int64_t i = 0; i < trace->record_count; i++)
    n += dmuon_trace_is_on(trace, &trace->records[i], axis, role);
  return n;
}

/* Nodes: as many a kind of row and role as its longest member issues. */
static DMuonErrorCode number_nodes(graph *g) {
  int64_t *length = NULL;
  DMUON_TRY(
      dmuon_memory_alloc(g->memory, (int64_t)g->set->class_count * COMMS, sizeof *length, &length));
  for (int c = 0; c < g->set->class_count; c++)
    for (int k = 0; k < COMMS; k++)
      length[c * COMMS + k] = length_of(g->set->classes[c], k / 2, k % 2);
  for (int axis = 0; axis < 3; axis++)
    for (int p = 0; p < g->ranks; p++) {
      if (g->kind[axis][p] != p) continue;
      for (int role = 0; role < 2; role++) {
        int64_t most = 0;
        for (int at = 0; at < g->set->sizes[axis]; at++) {
          const int member = dmuon_trace_position(g->set->sizes, p, axis, at);
          const int64_t n = length[g->set->class_of[member] * COMMS + 2 * axis + role];
          if (n > most) most = n;
        }
        g->base[axis][2 * p + role] = g->nodes;
        g->nodes += most;
      }
    }
  dmuon_memory_free(length);
  return DMUON_SUCCESS;
}

/* The edges of one rank: counted, or with `fill` stored. */
static void walk(graph *g, int position, int64_t *next_edge) {
  const dmuon_trace *trace = g->set->classes[g->set->class_of[position]];
  int64_t issued[COMMS] = {0}, before = -1;
  for (int64_t i = 0; i < trace->record_count; i++) {
    const dmuon_trace_record *r = &trace->records[i];
    if (!dmuon_trace_is_collective((int)r->operation)) continue;
    const dmuon_trace_comm *comm = &trace->comms[r->comm];
    const int k = (int)(2 * comm->axis + comm->role);
    if (comm->axis > 2) continue;
    const int64_t node =
        g->base[comm->axis][2 * g->kind[comm->axis][position] + comm->role] + issued[k]++;
    if (before >= 0 && next_edge) {
      g->edge_list[next_edge[before]++] = (edge){node, position};
      g->waits[node]++;
    } else if (before >= 0) {
      g->first_edge[before + 1]++;
    }
    before = node;
  }
}

static DMuonErrorCode make_edges(graph *g) {
  int *stands = NULL;
  int64_t *next = NULL;
  DMuonErrorCode code = choose_ranks(g, &stands);
  if (!code)
    code = dmuon_memory_alloc(g->memory, g->nodes + 1, sizeof *g->first_edge, &g->first_edge);
  if (!code) code = dmuon_memory_alloc(g->memory, g->nodes + 1, sizeof *next, &next);
  if (!code) code = dmuon_memory_alloc(g->memory, g->nodes + 1, sizeof *g->waits, &g->waits);
  if (!code) {
    for (int p = 0; p < g->ranks; p++)
      if (stands[p] == p) walk(g, p, NULL);
    for (int64_t n = 0; n < g->nodes; n++) g->first_edge[n + 1] += g->first_edge[n];
    g->edges = g->first_edge[g->nodes];
    code = dmuon_memory_alloc(g->memory, g->edges, sizeof *g->edge_list, &g->edge_list);
  }
  if (!code) {
    memcpy(next, g->first_edge, (size_t)(g->nodes + 1) * sizeof *next);
    for (int p = 0; p < g->ranks; p++)
      if (stands[p] == p) walk(g, p, next);
  }
  dmuon_memory_free(next);
  dmuon_memory_free(stands);
  return code;
}

/* What a node is on the rank that issues it: "operation 3 of shard/unshard". */
static void describe_node(const graph *g, int64_t node, int position, char *text, size_t bytes) {
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++) {
      const int64_t base = g->base[axis][2 * g->kind[axis][position] + role];
      const dmuon_trace *trace = g->set->classes[g->set->class_of[position]];
      const dmuon_trace_comm comm = {.axis = axis, .role = role};
      if (node < base || node >= base + length_of(trace, axis, role)) continue;
      snprintf(text, bytes, "operation %lld of %s", (long long)(node - base),
               dmuon_trace_comm_name(&comm));
      return;
    }
  snprintf(text, bytes, "an operation");
}

/* The shortest circle through `start` among nodes that still wait: from[n] is the node before n on
 * it. Returns its length, 0: there is none. list: room for all nodes. */
static int64_t circle_through(const graph *g, int64_t start, int64_t *from, int64_t *list) {
  int64_t done = 0, count = 0;
  for (int64_t n = 0; n < g->nodes; n++) from[n] = -1;
  list[count++] = start;
  while (done < count && from[start] < 0) {
    const int64_t n = list[done++];
    for (int64_t e = g->first_edge[n]; e < g->first_edge[n + 1]; e++) {
      const int64_t to = g->edge_list[e].to;
      if (g->waits[to] == 0 || from[to] >= 0) continue;
      from[to] = n;
      list[count++] = to;
    }
  }
  int64_t length = from[start] >= 0;
  for (int64_t n = from[start]; length && n != start; n = from[n]) length++;
  return length;
}

static const edge *edge_from(const graph *g, int64_t from, int64_t to) {
  int64_t e = g->first_edge[from];
  while (g->edge_list[e].to != to) e++;
  return &g->edge_list[e];
}

/* The shortest circle is the best hint; a few hundred places to look from are enough. */
static void name_circle(graph *g, int64_t *from, int64_t *list, dmuon_trace_report *report) {
  enum { LOOKS = 400 };
  int64_t best = -1, shortest = INT64_MAX;
  int looks = 0;
  for (int64_t n = 0; n < g->nodes && looks < LOOKS; n++) {
    if (g->waits[n] == 0) continue;
    const int64_t length = circle_through(g, n, from, list);
    looks += length > 0;
    if (length == 0 || length >= shortest) continue;
    best = n;
    shortest = length;
  }
  if (best < 0) return;
  circle_through(g, best, from, list);
  dmuon_trace_finding *f = dmuon_trace_report_add(report, DMUON_TRACE_CIRCLE, -1);
  int length = snprintf(f->text, sizeof f->text, "no common order:");
  int64_t at = best;
  do {
    /* All that one rank issues in a row is one link. */
    const int64_t position = edge_from(g, from[at], at)->position;
    int64_t before = from[at];
    char a[64], b[64];
    while (before != best && edge_from(g, from[before], before)->position == position)
      before = from[before];
    describe_node(g, before, (int)position, a, sizeof a);
    describe_node(g, at, (int)position, b, sizeof b);
    if (f->position < 0) f->position = position;
    if (length < (int)sizeof f->text)
      length +=
          snprintf(f->text + length, sizeof f->text - (size_t)length,
                   "%s rank %d issues %s before %s", at == best ? "" : ";", (int)position, a, b);
    at = before;
  } while (at != best);
}

/* Takes away what waits for nothing, again and again; what is left waits in circles. */
static DMuonErrorCode find_circle(graph *g, dmuon_trace_report *report) {
  int64_t *list = NULL, count = 0, done = 0;
  DMUON_TRY(dmuon_memory_alloc(g->memory, g->nodes + 1, sizeof *list, &list));
  for (int64_t n = 0; n < g->nodes; n++)
    if (g->waits[n] == 0) list[count++] = n;
  while (done < count) {
    const int64_t n = list[done++];
    for (int64_t e = g->first_edge[n]; e < g->first_edge[n + 1]; e++)
      if (--g->waits[g->edge_list[e].to] == 0) list[count++] = g->edge_list[e].to;
  }
  if (count < g->nodes) {
    int64_t *from = NULL;
    DMuonErrorCode code = dmuon_memory_alloc(g->memory, g->nodes + 1, sizeof *from, &from);
    if (!code) name_circle(g, from, list, report);
    dmuon_memory_free(from);
    dmuon_memory_free(list);
    return code;
  }
  dmuon_memory_free(list);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_verify_order(dmuon_memory *memory, const dmuon_trace_set *set,
                                        dmuon_trace_report *report) {
  graph g = {.memory = memory, .set = set, .ranks = set->sizes[0] * set->sizes[1] * set->sizes[2]};
  DMuonErrorCode code = find_kinds(&g);
  if (!code) code = number_nodes(&g);
  if (!code) code = make_edges(&g);
  if (!code) code = find_circle(&g, report);
  for (int axis = 0; axis < 3; axis++) {
    dmuon_memory_free(g.row_hash[axis]);
    dmuon_memory_free(g.kind[axis]);
    dmuon_memory_free(g.base[axis]);
  }
  dmuon_memory_free(g.first_edge);
  dmuon_memory_free(g.edge_list);
  dmuon_memory_free(g.waits);
  return code;
}
