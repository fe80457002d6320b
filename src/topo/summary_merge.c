/* Two summaries into one, without decoding a kind: their bytes are compared and copied. */
#include <string.h>

#include "base/hash.h"
#include "topo/bytes.h"
#include "topo/summary.h"

/* A kind's bytes, and what they hash to. */
typedef struct {
  const unsigned char *data;
  int64_t length;
  uint64_t hash;
} kind_bytes;

/* Kinds found so far, each once, with a table of places by hash (open addressing; 0: free, else
 * place + 1). */
typedef struct {
  kind_bytes *kinds;
  int *table;
  int64_t count, slots; /* slots: a power of two, above twice the kinds there can be */
} kind_set;

static int find_or_add(kind_set *set, kind_bytes kind) {
  int64_t slot = (int64_t)(kind.hash & (uint64_t)(set->slots - 1));
  for (; set->table[slot]; slot = (slot + 1) & (set->slots - 1)) {
    const kind_bytes *other = &set->kinds[set->table[slot] - 1];
    if (other->hash == kind.hash && other->length == kind.length &&
        memcmp(other->data, kind.data, (size_t)kind.length) == 0) {
      return set->table[slot] - 1;
    }
  }
  set->kinds[set->count] = kind;
  set->table[slot] = (int)++set->count;
  return (int)set->count - 1;
}

/* One of the two: its reader behind the head, and where its kinds went. */
typedef struct {
  dmuon_reader r;
  char source[64], lost[128];
  int kinds;
  int *map;
} side;

static DMuonErrorCode open_side(side *s, const void *data, int64_t bytes) {
  *s = (side){.r = {.data = data, .length = bytes}};
  DMUON_TRY(dmuon_get_head(&s->r, s->source, s->lost));
  uint64_t kinds = dmuon_get(&s->r, DMUON_MACHINE_NODES);
  if (kinds > (uint64_t)(s->r.length - s->r.at)) s->r.bad = 1;
  s->kinds = (int)kinds;
  return s->r.bad ? dmuon_reader_check(&s->r) : DMUON_SUCCESS;
}

static DMuonErrorCode take_kinds(side *s, kind_set *set) {
  for (int k = 0; k < s->kinds; k++) {
    uint64_t length = dmuon_get(&s->r, INT32_MAX);
    kind_bytes kind = {.data = dmuon_get_bytes(&s->r, length), .length = (int64_t)length};
    if (!kind.data) return dmuon_reader_check(&s->r);
    kind.hash = dmuon_hash_bytes(DMUON_HASH_SEED, kind.data, (size_t)length);
    s->map[k] = find_or_add(set, kind);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode take_runs(side *s, dmuon_runs *runs) {
  dmuon_run run;
  while (dmuon_get_run(&s->r, s->kinds, &run)) {
    run.kind = s->map[run.kind];
    dmuon_put_run(runs, run);
  }
  return dmuon_reader_check(&s->r);
}

static DMuonErrorCode write_merged(dmuon_memory *memory, side *a, side *b, kind_set *set,
                                   void **out, int64_t *out_bytes) {
  dmuon_writer w = {.memory = memory};
  dmuon_runs runs = {.out = &w};
  DMUON_TRY(take_kinds(a, set));
  DMUON_TRY(take_kinds(b, set));
  dmuon_machine_note(a->source, sizeof a->source, b->source);
  dmuon_machine_note(a->lost, sizeof a->lost, b->lost);
  dmuon_put(&w, DMUON_SUMMARY_VERSION);
  dmuon_put_text(&w, a->source);
  dmuon_put_text(&w, a->lost);
  dmuon_put(&w, (uint64_t)set->count);
  for (int64_t k = 0; k < set->count; k++) {
    dmuon_put(&w, (uint64_t)set->kinds[k].length);
    dmuon_put_bytes(&w, set->kinds[k].data, set->kinds[k].length);
  }
  DMuonErrorCode code = take_runs(a, &runs);
  b->r.nodes = a->r.nodes;
  if (!code) code = take_runs(b, &runs);
  if (code) {
    dmuon_memory_free(w.data);
    return code;
  }
  dmuon_end_runs(&runs);
  return dmuon_writer_finish(&w, out, out_bytes);
}

static DMuonErrorCode make_room(dmuon_memory *memory, side *a, side *b, kind_set *set) {
  int64_t kinds = (int64_t)a->kinds + b->kinds;
  set->slots = 4;
  while (set->slots <= 2 * kinds) set->slots *= 2;
  DMUON_TRY(dmuon_memory_alloc(memory, kinds, sizeof *set->kinds, &set->kinds));
  DMUON_TRY(dmuon_memory_alloc(memory, set->slots, sizeof *set->table, &set->table));
  DMUON_TRY(dmuon_memory_alloc(memory, a->kinds, sizeof *a->map, &a->map));
  DMUON_TRY(dmuon_memory_alloc(memory, b->kinds, sizeof *b->map, &b->map));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_summary_merge(dmuon_memory *memory, const void *a, int64_t a_bytes,
                                   const void *b, int64_t b_bytes, void **out, int64_t *out_bytes,
                                   void *context) {
  side first, second;
  kind_set set = {0};
  (void)context;
  DMUON_TRY(open_side(&first, a, a_bytes));
  DMUON_TRY(open_side(&second, b, b_bytes));
  DMuonErrorCode code = make_room(memory, &first, &second, &set);
  if (!code) code = write_merged(memory, &first, &second, &set, out, out_bytes);
  dmuon_memory_free(set.kinds);
  dmuon_memory_free(set.table);
  dmuon_memory_free(first.map);
  dmuon_memory_free(second.map);
  return code;
}
