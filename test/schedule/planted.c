/* Spoiling a copy of a trace in one place. */
#include "planted.h"

#include <string.h>

static dmuon_memory memory;

DMuonErrorCode planted_begin(const rehearsal *from, int position, planted *fault) {
  memset(fault, 0, sizeof *fault);
  fault->from = from;
  fault->position = position;
  DMUON_TRY(dmuon_trace_copy(&memory, &from->traces[from->class_of[position]], &fault->trace));
  DMUON_TRY(dmuon_memory_alloc(&memory, from->ranks, sizeof(int), &fault->class_of));
  DMUON_TRY(dmuon_memory_alloc(&memory, from->class_count + 1, sizeof *fault->list, &fault->list));
  memcpy(fault->class_of, from->class_of, (size_t)from->ranks * sizeof(int));
  memcpy(fault->list, from->list, (size_t)from->class_count * sizeof *fault->list);
  fault->list[from->class_count] = &fault->trace;
  fault->class_of[position] = from->class_count;
  return DMUON_SUCCESS;
}

void planted_end(planted *fault) {
  dmuon_trace_free(&fault->trace);
  dmuon_memory_free(fault->class_of);
  dmuon_memory_free(fault->list);
}

DMuonErrorCode planted_verify(planted *fault) {
  const dmuon_trace_set set = {.sizes = {fault->from->sizes[0], fault->from->sizes[1], 1},
                               .class_count = fault->from->class_count + 1,
                               .classes = fault->list,
                               .class_of = fault->class_of};
  return dmuon_trace_verify(&memory, &set, &fault->report);
}

int64_t planted_find(const dmuon_trace *trace, dmuon_trace_operation operation, const char *queue,
                     int64_t from, int n) {
  char name[64];
  for (int64_t i = from; i < trace->record_count; i++) {
    const dmuon_trace_record *r = &trace->records[i];
    if (r->operation != (int64_t)operation) continue;
    if (queue && strcmp(dmuon_trace_queue_name(trace, r->queue, name), queue) != 0) continue;
    if (n-- == 0) return i;
  }
  return -1;
}

void planted_move(dmuon_trace *trace, int64_t from, int64_t to) {
  const dmuon_trace_record moved = trace->records[from];
  for (int64_t i = from; i < to; i++) trace->records[i] = trace->records[i + 1];
  for (int64_t i = from; i > to; i--) trace->records[i] = trace->records[i - 1];
  trace->records[to] = moved;
}

DMuonErrorCode planted_repeat(dmuon_trace *trace, int64_t at) {
  DMUON_TRY(dmuon_trace_grow(trace->memory, &trace->records, trace->record_count,
                             &trace->record_room, sizeof *trace->records));
  trace->records[trace->record_count++] = trace->records[at];
  planted_move(trace, trace->record_count - 1, at + 1);
  return DMUON_SUCCESS;
}

/* The queue that recorded the event last before record `at`, or -1. */
static int64_t recorder(const dmuon_trace *trace, int64_t at) {
  for (int64_t i = at - 1; i >= 0; i--)
    if (trace->records[i].operation == DMUON_TRACE_RECORD &&
        trace->records[i].event == trace->records[at].event)
      return trace->records[i].queue;
  return -1;
}

DMuonErrorCode planted_drop_waits(dmuon_memory *own, const dmuon_trace *trace, int queues,
                                  int *waits, int *missed) {
  static dmuon_trace_report report;
  dmuon_trace copy;
  DMUON_TRY(dmuon_trace_copy(own, trace, &copy));
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int64_t i = 0; !code && i < copy.record_count; i++) {
    dmuon_trace_record *r = &copy.records[i];
    if (r->operation != DMUON_TRACE_WAIT) continue;
    const int64_t awaited = recorder(&copy, i);
    if (awaited < 0 || awaited >= queues || r->queue >= queues) continue;
    memset(&report, 0, sizeof report);
    r->operation = DMUON_TRACE_NOTHING;
    code = dmuon_trace_verify_rank(own, &copy, 0, &report);
    r->operation = DMUON_TRACE_WAIT;
    waits[r->queue * queues + awaited]++;
    if (report.count > 0) missed[r->queue * queues + awaited]++;
  }
  dmuon_trace_free(&copy);
  return code;
}
