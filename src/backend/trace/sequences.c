/* All ranks of every communicator issue the same sequence of operations: equal in what is done,
 * with which roots, counts and types. Sequences of equal ranks are compared once, by a hash; only
 * where hashes differ are operations looked at. */
#include <stdio.h>

#include <dmuon/types.h>

#include "backend/trace/sequences.h"
#include "base/hash.h"

uint64_t dmuon_trace_signature(const dmuon_trace *trace, const dmuon_trace_record *record) {
  uint64_t hash = dmuon_hash_int(DMUON_HASH_SEED, record->operation);
  hash = dmuon_hash_int(hash, record->dtype);
  hash = dmuon_hash_int(hash, record->sum_dtype);
  hash = dmuon_hash_int(hash, record->prescale);
  hash = dmuon_hash_int(hash, record->piece_count);
  for (int64_t i = 0; i < record->piece_count; i++) {
    const dmuon_trace_piece *piece = &trace->pieces[record->first_piece + i];
    hash = dmuon_hash_int(hash, piece->from);
    hash = dmuon_hash_int(hash, piece->to);
    hash = dmuon_hash_int(hash, piece->count);
  }
  return hash;
}

int dmuon_trace_is_on(const dmuon_trace *trace, const dmuon_trace_record *record, int axis,
                      int role) {
  if (!dmuon_trace_is_collective((int)record->operation)) return 0;
  const dmuon_trace_comm *comm = &trace->comms[record->comm];
  return comm->axis == axis && comm->role == role;
}

int dmuon_trace_position(const int sizes[3], int position, int axis, int at) {
  const int stride = axis == 2 ? 1 : axis == 1 ? sizes[2] : sizes[1] * sizes[2];
  const int own = position / stride % sizes[axis];
  return position + (at - own) * stride;
}

typedef struct {
  uint64_t hash;
  int64_t count;
} summary;

static summary summarise(const dmuon_trace *trace, int axis, int role) {
  summary s = {.hash = DMUON_HASH_SEED};
  for (int64_t i = 0; i < trace->record_count; i++) {
    if (!dmuon_trace_is_on(trace, &trace->records[i], axis, role)) continue;
    s.hash = dmuon_hash_int(s.hash, (int64_t)dmuon_trace_signature(trace, &trace->records[i]));
    s.count++;
  }
  return s;
}

/* The next operation of the communicator from record `at` on; record_count: there is none. */
static int64_t next_of(const dmuon_trace *trace, int64_t at, int axis, int role) {
  while (at < trace->record_count && !dmuon_trace_is_on(trace, &trace->records[at], axis, role))
    at++;
  return at;
}

/* What two operations differ in. */
static int compare(const dmuon_trace *a, const dmuon_trace_record *x, const dmuon_trace *b,
                   const dmuon_trace_record *y, char *text, size_t bytes) {
  if (x->operation != y->operation) return snprintf(text, bytes, "another operation");
  if (x->dtype != y->dtype || x->sum_dtype != y->sum_dtype || x->prescale != y->prescale)
    return snprintf(text, bytes, "another type or scale");
  if (x->piece_count != y->piece_count)
    return snprintf(text, bytes, "%lld pieces against %lld", (long long)x->piece_count,
                    (long long)y->piece_count);
  for (int64_t i = 0; i < x->piece_count; i++) {
    const dmuon_trace_piece *p = &a->pieces[x->first_piece + i];
    const dmuon_trace_piece *q = &b->pieces[y->first_piece + i];
    if (p->from != q->from || p->to != q->to)
      return snprintf(text, bytes, "piece %lld has root %lld against %lld", (long long)i,
                      (long long)p->from, (long long)q->from);
    if (p->count != q->count)
      return snprintf(text, bytes, "piece %lld has %lld elements against %lld", (long long)i,
                      (long long)p->count, (long long)q->count);
  }
  return 0;
}

static int64_t length_of(const dmuon_trace *trace, int axis, int role) {
  int64_t n = 0;
  for (int64_t i = 0; i < trace->record_count; i++)
    n += dmuon_trace_is_on(trace, &trace->records[i], axis, role);
  return n;
}

static int is_same(const dmuon_trace *a, int64_t i, const dmuon_trace *b, int64_t k) {
  char how[96];
  return compare(a, &a->records[i], b, &b->records[k], how, sizeof how) == 0;
}

/* Operation n is on one of the ranks alone: record i of the first, or record k of the other. */
static void name_missing(const dmuon_trace *a, int64_t i, const dmuon_trace *b, int64_t k,
                         int on_first, const char *name, int64_t n, int position, int other,
                         dmuon_trace_finding *f) {
  char what[128];
  f->first = on_first ? i : -1;
  f->second = on_first ? -1 : k;
  snprintf(f->text, sizeof f->text,
           "%s: operation %lld, %s, is issued by rank %d and missing on rank %d", name,
           (long long)n,
           on_first ? dmuon_trace_describe(a, i, what, sizeof what)
                    : dmuon_trace_describe(b, k, what, sizeof what),
           on_first ? position : other, on_first ? other : position);
}

/* Two ranks of one communicator differ: says where first. */
static void name_difference(const dmuon_trace_set *set, int axis, int role, int position, int other,
                            dmuon_trace_report *report) {
  const dmuon_trace *a = set->classes[set->class_of[position]];
  const dmuon_trace *b = set->classes[set->class_of[other]];
  const dmuon_trace_comm comm = {.axis = axis, .role = role};
  dmuon_trace_finding *f = dmuon_trace_report_add(report, DMUON_TRACE_SEQUENCE, other);
  char left[128], right[128], how[96] = "";
  int64_t i = next_of(a, 0, axis, role), k = next_of(b, 0, axis, role);
  for (int64_t n = 0;; n++) {
    const int ends_a = i == a->record_count, ends_b = k == b->record_count;
    const char *name = dmuon_trace_comm_name(&comm);
    if (ends_a && ends_b) return;
    if (ends_a || ends_b) {
      name_missing(a, i, b, k, ends_b, name, n, position, other, f);
      return;
    }
    if (compare(a, &a->records[i], b, &b->records[k], how, sizeof how)) {
      /* One rank goes on where the other is: what lies between is missing there. */
      const int64_t after_i = next_of(a, i + 1, axis, role),
                    after_k = next_of(b, k + 1, axis, role);
      const int64_t more = length_of(a, axis, role) - length_of(b, axis, role);
      const int left_out = more > 0 && after_i < a->record_count && is_same(a, after_i, b, k);
      const int too_much = more < 0 && after_k < b->record_count && is_same(a, i, b, after_k);
      if (left_out || too_much) {
        name_missing(a, i, b, k, left_out, name, n, position, other, f);
        return;
      }
      f->first = i;
      f->second = k;
      snprintf(f->text, sizeof f->text, "%s: operation %lld is %s on rank %d, %s on rank %d: %s",
               name, (long long)n, dmuon_trace_describe(a, i, left, sizeof left), position,
               dmuon_trace_describe(b, k, right, sizeof right), other, how);
      return;
    }
    i = next_of(a, i + 1, axis, role);
    k = next_of(b, k + 1, axis, role);
  }
}

/* Every rank against the first of its communicator. */
static void compare_all(const dmuon_trace_set *set, int axis, int role, const summary *of_class,
                        dmuon_trace_report *report) {
  const int ranks = set->sizes[0] * set->sizes[1] * set->sizes[2];
  for (int position = 0; position < ranks; position++) {
    const int head = dmuon_trace_position(set->sizes, position, axis, 0);
    const summary *mine = &of_class[set->class_of[position]];
    const summary *first = &of_class[set->class_of[head]];
    if (mine->hash == first->hash && mine->count == first->count) continue;
    name_difference(set, axis, role, head, position, report);
  }
}

DMuonErrorCode dmuon_trace_verify_sequences(dmuon_memory *memory, const dmuon_trace_set *set,
                                            dmuon_trace_report *report) {
  summary *of_class = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, set->class_count, sizeof *of_class, &of_class));
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++) {
      for (int c = 0; c < set->class_count; c++)
        of_class[c] = summarise(set->classes[c], axis, role);
      compare_all(set, axis, role, of_class, report);
    }
  dmuon_memory_free(of_class);
  return DMUON_SUCCESS;
}
