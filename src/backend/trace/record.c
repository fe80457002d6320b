/* Traces as data: their life, and the names of things in them. */
#include "backend/trace/record.h"

#include <stdio.h>
#include <string.h>

#include <dmuon/types.h>

const char *const dmuon_trace_names[DMUON_TRACE_OPERATIONS] = {
    [DMUON_TRACE_NOTHING] = "nothing",
    [DMUON_TRACE_ALLOC] = "alloc",
    [DMUON_TRACE_FREE] = "free",
    [DMUON_TRACE_QUEUE_SYNC] = "queue_sync",
    [DMUON_TRACE_EVENT_SYNC] = "event_sync",
    [DMUON_TRACE_TOUCH] = "touch",
    [DMUON_TRACE_NOTE] = "note",
    [DMUON_TRACE_RECORD] = "record",
    [DMUON_TRACE_WAIT] = "wait",
    [DMUON_TRACE_LEND] = "lend",
    [DMUON_TRACE_RECLAIM] = "reclaim",
    [DMUON_TRACE_DISCARD] = "discard",
    [DMUON_TRACE_ZERO] = "zero",
    [DMUON_TRACE_COPY] = "copy",
    [DMUON_TRACE_CAST] = "cast",
    [DMUON_TRACE_PACK] = "pack",
    [DMUON_TRACE_COPY_MATRIX] = "copy_matrix",
    [DMUON_TRACE_GEMM] = "gemm",
    [DMUON_TRACE_SYRK] = "syrk",
    [DMUON_TRACE_GEMM_SYMMETRIC] = "gemm_symmetric",
    [DMUON_TRACE_AXPBY] = "axpby",
    [DMUON_TRACE_DIVIDE] = "divide",
    [DMUON_TRACE_ADD_DIAGONAL] = "add_diagonal",
    [DMUON_TRACE_NORM] = "norm",
    [DMUON_TRACE_FIND_NONFINITE] = "find_nonfinite",
    [DMUON_TRACE_DECIDE] = "decide",
    [DMUON_TRACE_MUON_MOMENTUM] = "muon_momentum",
    [DMUON_TRACE_MUON_APPLY] = "muon_apply",
    [DMUON_TRACE_ADAMW] = "adamw",
    [DMUON_TRACE_GATHER_SEGMENTS] = "gather_segments",
    [DMUON_TRACE_REDUCE_SEGMENTS] = "reduce_segments",
    [DMUON_TRACE_MOVE_SEGMENTS] = "move_segments",
    [DMUON_TRACE_BROADCAST] = "broadcast",
    [DMUON_TRACE_ALL_REDUCE] = "all_reduce",
    [DMUON_TRACE_GATHER] = "gather",
    [DMUON_TRACE_SCATTER] = "scatter",
};

DMuonErrorCode dmuon_trace_grow(dmuon_memory *memory, void *list, int64_t count, int64_t *room,
                                size_t element_bytes) {
  if (count < *room) return DMUON_SUCCESS;
  const int64_t more = 2 * *room + 64;
  DMUON_TRY(dmuon_memory_resize(memory, list, *room, more, element_bytes));
  *room = more;
  return DMUON_SUCCESS;
}

void dmuon_trace_free(dmuon_trace *trace) {
  dmuon_memory_free(trace->records);
  dmuon_memory_free(trace->accesses);
  dmuon_memory_free(trace->pieces);
  dmuon_memory_free(trace->buffers);
  dmuon_memory_free(trace->queue_labels);
  dmuon_memory_free(trace->text);
  *trace = (dmuon_trace){.memory = trace->memory};
}

/* *to = the first count elements of from, as a block of its own. */
static DMuonErrorCode copy_list(dmuon_memory *memory, const void *from, int64_t count,
                                size_t element_bytes, int64_t *room, void *to) {
  void *made = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, count, element_bytes, &made));
  if (count > 0) memcpy(made, from, (size_t)count * element_bytes);
  *room = count;
  *(void **)to = made;
  return DMUON_SUCCESS;
}

static DMuonErrorCode copy_lists(dmuon_memory *memory, const dmuon_trace *from, dmuon_trace *to) {
  DMUON_TRY(copy_list(memory, from->records, from->record_count, sizeof *to->records,
                      &to->record_room, &to->records));
  DMUON_TRY(copy_list(memory, from->accesses, from->access_count, sizeof *to->accesses,
                      &to->access_room, &to->accesses));
  DMUON_TRY(copy_list(memory, from->pieces, from->piece_count, sizeof *to->pieces, &to->piece_room,
                      &to->pieces));
  DMUON_TRY(copy_list(memory, from->buffers, from->buffer_count, sizeof *to->buffers,
                      &to->buffer_room, &to->buffers));
  DMUON_TRY(copy_list(memory, from->queue_labels, from->queue_count, sizeof *to->queue_labels,
                      &to->queue_room, &to->queue_labels));
  return copy_list(memory, from->text, from->text_length, 1, &to->text_room, &to->text);
}

DMuonErrorCode dmuon_trace_copy(dmuon_memory *memory, const dmuon_trace *from, dmuon_trace *to) {
  dmuon_trace made = *from;
  made.memory = memory;
  made.records = NULL;
  made.accesses = NULL;
  made.pieces = NULL;
  made.buffers = NULL;
  made.queue_labels = NULL;
  made.text = NULL;
  DMuonErrorCode code = copy_lists(memory, from, &made);
  if (code)
    dmuon_trace_free(&made);
  else
    *to = made;
  return code;
}

DMuonErrorCode dmuon_trace_strip(dmuon_trace *trace) {
  int64_t kept = 0;
  for (int64_t i = 0; i < trace->record_count; i++) {
    if (!dmuon_trace_is_collective((int)trace->records[i].operation)) continue;
    trace->records[kept] = trace->records[i];
    trace->records[kept].first_access = trace->records[kept].access_count = 0;
    kept++;
  }
  trace->record_count = kept;
  dmuon_memory_release(&trace->accesses);
  dmuon_memory_release(&trace->buffers);
  trace->access_count = trace->access_room = trace->buffer_count = trace->buffer_room = 0;
  DMUON_TRY(dmuon_memory_resize(trace->memory, &trace->records, trace->record_room, kept,
                                sizeof *trace->records));
  trace->record_room = kept;
  return DMUON_SUCCESS;
}

const char *dmuon_trace_queue_name(const dmuon_trace *trace, int64_t queue, char *buffer) {
  if (queue < 0) return "host";
  if (trace->queue_labels[queue] >= 0)
    snprintf(buffer, 64, "%s", trace->text + trace->queue_labels[queue]);
  else
    snprintf(buffer, 64, "queue %lld", (long long)queue);
  return buffer;
}

const char *dmuon_trace_buffer_name(const dmuon_trace *trace, int64_t index, char *buffer) {
  const dmuon_trace_buffer *b = &trace->buffers[index];
  const char *kind = b->is_callers ? "caller's array" : "buffer";
  if (b->label >= 0)
    snprintf(buffer, 128, "%s %lld (%s)", kind, (long long)index, trace->text + b->label);
  else
    snprintf(buffer, 128, "%s %lld", kind, (long long)index);
  return buffer;
}

const char *dmuon_trace_comm_name(const dmuon_trace_comm *comm) {
  static const char *const names[4][2] = {{"replicate/publish", "replicate/reduce"},
                                          {"shard/unshard", "shard/reduce"},
                                          {"tp", "tp"},
                                          {"whole", "whole"}};
  return names[comm->axis & 3][comm->role & 1];
}
