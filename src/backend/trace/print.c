/* A trace as text that a person reads and a test compares: no addresses, no times, no numbers that
 * change when something is put in between. Arithmetic that follows on one queue is one line: which
 * operations, and what they read and wrote together. */
#include <stdio.h>
#include <string.h>

#include <dmuon/types.h>

#include "backend/trace/verify.h"

const char *dmuon_trace_describe(const dmuon_trace *trace, int64_t record, char *buffer,
                                 size_t bytes) {
  const dmuon_trace_record *r = &trace->records[record];
  char name[64];
  if (r->queue >= 0)
    snprintf(buffer, bytes, "#%lld %s on queue %s", (long long)record,
             dmuon_trace_names[r->operation], dmuon_trace_queue_name(trace, r->queue, name));
  else
    snprintf(buffer, bytes, "#%lld %s", (long long)record, dmuon_trace_names[r->operation]);
  return buffer;
}

static int is_arithmetic(const dmuon_trace_record *r) {
  return r->operation >= DMUON_TRACE_ZERO && r->operation <= DMUON_TRACE_ADAMW;
}

typedef struct {
  int64_t buffer, begin, end;
} span;
enum { MOST_SPANS = 64 };
typedef struct {
  int count, forgotten;
  span list[MOST_SPANS];
} spans;

/* One span a buffer. */
static void note_span(spans *s, const dmuon_trace_access *access) {
  int i = 0;
  while (i < s->count && s->list[i].buffer != access->buffer) i++;
  if (i == MOST_SPANS) {
    s->forgotten++;
    return;
  }
  if (i == s->count) {
    s->list[s->count++] = (span){access->buffer, access->begin, access->end};
    return;
  }
  if (access->begin < s->list[i].begin) s->list[i].begin = access->begin;
  if (access->end > s->list[i].end) s->list[i].end = access->end;
}

/* By its label alone, where it has one. */
static const char *short_name(const dmuon_trace *trace, int64_t buffer, char *name) {
  const int64_t label = trace->buffers[buffer].label;
  return label >= 0 ? trace->text + label : dmuon_trace_buffer_name(trace, buffer, name);
}

static void print_spans(const dmuon_trace *trace, const spans *s, const char *word,
                        dmuon_text *text) {
  char name[128];
  for (int i = 0; i < s->count; i++)
    dmuon_text_add(text, "%s%s [%lld,%lld)", i ? ", " : word,
                   short_name(trace, s->list[i].buffer, name), (long long)s->list[i].begin,
                   (long long)s->list[i].end);
  if (s->forgotten) dmuon_text_add(text, " and more");
}

/* What records [first, end) read and write, after the line's head. */
static void print_memory(const dmuon_trace *trace, int64_t first, int64_t end, dmuon_text *text) {
  spans reads = {0}, writes = {0};
  for (int64_t i = first; i < end; i++) {
    const dmuon_trace_record *r = &trace->records[i];
    for (int64_t k = 0; k < r->access_count; k++) {
      const dmuon_trace_access *access = &trace->accesses[r->first_access + k];
      note_span(access->is_write ? &writes : &reads, access);
    }
  }
  print_spans(trace, &reads, "; reads ", text);
  print_spans(trace, &writes, "; writes ", text);
}

/* "pack x3, muon_momentum, syrk x10". */
static void print_counts(const dmuon_trace *trace, int64_t first, int64_t end, dmuon_text *text) {
  int64_t count[DMUON_TRACE_OPERATIONS] = {0};
  const char *separator = "";
  for (int64_t i = first; i < end; i++) count[trace->records[i].operation]++;
  for (int64_t i = first; i < end; i++) {
    const int64_t operation = trace->records[i].operation;
    if (count[operation] == 0) continue;
    dmuon_text_add(text, "%s%s", separator, dmuon_trace_names[operation]);
    if (count[operation] > 1) dmuon_text_add(text, " x%lld", (long long)count[operation]);
    count[operation] = 0;
    separator = ", ";
  }
}

/* "shard/unshard of 4, bf16: 1024 from 0, 2048 from 1". */
static void print_collective(const dmuon_trace *trace, const dmuon_trace_record *r,
                             dmuon_text *text) {
  const dmuon_trace_comm *comm = &trace->comms[r->comm];
  enum { MOST = 8 };
  const int reduces = r->operation == DMUON_TRACE_REDUCE_SEGMENTS;
  dmuon_text_add(text, "%s %s, rank %lld of %lld, %s:", dmuon_trace_names[r->operation],
                 dmuon_trace_comm_name(comm), (long long)comm->rank, (long long)comm->size,
                 r->dtype >= 0 ? dmuon_dtype_name((DMuonDType)r->dtype) : "bytes");
  if (r->piece_count == 0) dmuon_text_add(text, " nothing");
  for (int64_t i = 0; i < r->piece_count && i < MOST; i++) {
    const dmuon_trace_piece *p = &trace->pieces[r->first_piece + i];
    dmuon_text_add(text, "%s %lld", i ? "," : "", (long long)p->count);
    if (p->from >= 0) dmuon_text_add(text, " %s %lld", reduces ? "to" : "from", (long long)p->from);
    if (p->to >= 0) dmuon_text_add(text, " to %lld", (long long)p->to);
  }
  if (r->piece_count > MOST)
    dmuon_text_add(text, " and %lld more", (long long)(r->piece_count - MOST));
}

/* The queue that last recorded the event before record `at`. */
static int64_t recorder(const dmuon_trace *trace, int64_t at, int64_t event) {
  for (int64_t i = at - 1; i >= 0; i--)
    if (trace->records[i].operation == DMUON_TRACE_RECORD && trace->records[i].event == event)
      return trace->records[i].queue;
  return -1;
}

static void print_one(const dmuon_trace *trace, int64_t index, dmuon_text *text) {
  const dmuon_trace_record *r = &trace->records[index];
  char name[64];
  switch ((dmuon_trace_operation)r->operation) {
    case DMUON_TRACE_RECORD:
      dmuon_text_add(text, "records event %lld", (long long)r->event);
      return;
    case DMUON_TRACE_WAIT:
    case DMUON_TRACE_EVENT_SYNC: {
      const int64_t queue = recorder(trace, index, r->event);
      dmuon_text_add(text, "waits for event %lld", (long long)r->event);
      if (queue >= 0)
        dmuon_text_add(text, " of %s", dmuon_trace_queue_name(trace, queue, name));
      else
        dmuon_text_add(text, ", never recorded");
      return;
    }
    case DMUON_TRACE_QUEUE_SYNC:
      dmuon_text_add(text, "waits for all of %s", dmuon_trace_queue_name(trace, r->queue, name));
      return;
    case DMUON_TRACE_LEND:
      dmuon_text_add(text, "lends: the caller comes behind this queue");
      return;
    case DMUON_TRACE_RECLAIM:
      dmuon_text_add(text, "reclaims what the caller had");
      break;
    default:
      if (dmuon_trace_is_collective((int)r->operation))
        print_collective(trace, r, text);
      else
        dmuon_text_add(text, "%s", dmuon_trace_names[r->operation]);
  }
  print_memory(trace, index, index + 1, text);
}

void dmuon_trace_print(const dmuon_trace *trace, int64_t first, int64_t end, dmuon_text *text) {
  char name[64];
  for (int64_t i = first; i < end;) {
    const dmuon_trace_record *r = &trace->records[i];
    int64_t next = i + 1;
    const int64_t queue = r->operation == DMUON_TRACE_QUEUE_SYNC ? -1 : r->queue;
    while (is_arithmetic(r) && next < end && is_arithmetic(&trace->records[next]) &&
           trace->records[next].queue == r->queue)
      next++;
    if (r->operation == DMUON_TRACE_NOTE) {
      dmuon_text_add(text, "-- %s\n", trace->text + r->text);
    } else if (r->operation != DMUON_TRACE_NOTHING) {
      dmuon_text_add(text, "%-16s ", dmuon_trace_queue_name(trace, queue, name));
      if (next == i + 1) print_one(trace, i, text);
      if (next > i + 1) print_counts(trace, i, next, text);
      if (next > i + 1) print_memory(trace, i, next, text);
      dmuon_text_add(text, "\n");
    }
    i = next;
  }
  if (trace->forgotten && end == trace->record_count)
    dmuon_text_add(text, "and %lld operations that were not kept\n", (long long)trace->forgotten);
}
