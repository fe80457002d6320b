/* Writing a trace. An address is looked up in a table ordered by address; one that no alloc made is
 * memory of the caller, whose arrays are told apart by what is seen of them. */
#include "backend/trace/log.h"

#include <string.h>

/* Virtual memory begins where no processor has addresses of a program. */
#define FIRST_ADDRESS (UINT64_C(1) << 56)
enum { GAP = 4096 };

void dmuon_trace_log_init(dmuon_trace_log *log, int64_t limit) {
  *log = (dmuon_trace_log){.limit = limit, .next_address = FIRST_ADDRESS};
  log->trace.memory = &log->memory;
}

void dmuon_trace_log_free(dmuon_trace_log *log) {
  dmuon_trace_free(&log->trace);
  dmuon_memory_release(&log->by_base);
  log->by_base_room = log->by_base_count = 0;
}

void dmuon_trace_log_reset(dmuon_trace_log *log) {
  dmuon_trace *t = &log->trace;
  t->record_count = t->access_count = t->piece_count = t->forgotten = 0;
  if (log->live_queues || log->live_events || log->live_buffers) return;
  t->buffer_count = t->queue_count = t->event_count = t->text_length = 0;
  log->by_base_count = 0;
  log->next_address = FIRST_ADDRESS;
  log->peak_bytes = 0;
}

static DMuonErrorCode keep_text(dmuon_trace_log *log, const char *text, int64_t *where) {
  dmuon_trace *t = &log->trace;
  const int64_t bytes = (int64_t)strlen(text) + 1;
  for (int64_t at = 0; at < t->text_length; at += (int64_t)strlen(t->text + at) + 1)
    if (strcmp(t->text + at, text) == 0) {
      *where = at;
      return DMUON_SUCCESS;
    }
  while (t->text_length + bytes > t->text_room)
    DMUON_TRY(dmuon_trace_grow(&log->memory, &t->text, t->text_room, &t->text_room, 1));
  memcpy(t->text + t->text_length, text, (size_t)bytes);
  *where = t->text_length;
  t->text_length += bytes;
  return DMUON_SUCCESS;
}

/* ---- numbers ------------------------------------------------------------------------------- */

DMuonErrorCode dmuon_trace_log_queue(dmuon_trace_log *log, int64_t *number) {
  dmuon_trace *t = &log->trace;
  DMUON_TRY(dmuon_trace_grow(&log->memory, &t->queue_labels, t->queue_count, &t->queue_room,
                             sizeof *t->queue_labels));
  t->queue_labels[t->queue_count] = -1;
  *number = t->queue_count++;
  log->live_queues++;
  return DMUON_SUCCESS;
}

int64_t dmuon_trace_log_event(dmuon_trace_log *log) {
  log->live_events++;
  return log->trace.event_count++;
}

int64_t dmuon_trace_log_comm(dmuon_trace_log *log, dmuon_comm *comm) {
  dmuon_trace *t = &log->trace;
  int64_t i = 0;
  while (i < t->comm_count && log->comms[i] != comm) i++;
  if (i == (int64_t)(sizeof t->comms / sizeof t->comms[0])) return 0;
  if (i == t->comm_count) t->comm_count++;
  log->comms[i] = comm;
  t->comms[i] = (dmuon_trace_comm){comm->axis, comm->role, comm->rank, comm->size};
  return i;
}

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t address_of(const void *ptr) {
  return (uint64_t)(uintptr_t)ptr;
}

/* How many buffers of the table begin at or below the address. */
static int64_t below(const dmuon_trace_log *log, uint64_t address) {
  int64_t low = 0, high = log->by_base_count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (log->trace.buffers[log->by_base[middle]].base <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void take_out(dmuon_trace_log *log, int64_t at) {
  log->by_base_count--;
  memmove(log->by_base + at, log->by_base + at + 1,
          (size_t)(log->by_base_count - at) * sizeof *log->by_base);
}

static DMuonErrorCode add_buffer(dmuon_trace_log *log, uint64_t base, int64_t bytes, int is_callers,
                                 int64_t *number) {
  dmuon_trace *t = &log->trace;
  DMUON_TRY(dmuon_trace_grow(&log->memory, &t->buffers, t->buffer_count, &t->buffer_room,
                             sizeof *t->buffers));
  DMUON_TRY(dmuon_trace_grow(&log->memory, &log->by_base, log->by_base_count, &log->by_base_room,
                             sizeof *log->by_base));
  const int64_t at = below(log, base);
  memmove(log->by_base + at + 1, log->by_base + at,
          (size_t)(log->by_base_count - at) * sizeof *log->by_base);
  log->by_base[at] = *number = t->buffer_count++;
  log->by_base_count++;
  t->buffers[*number] =
      (dmuon_trace_buffer){.base = base, .bytes = bytes, .is_callers = is_callers, .label = -1};
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_log_alloc(dmuon_trace_log *log, int64_t bytes, void **ptr) {
  int64_t number;
  if (bytes < 0 || bytes > INT64_MAX / 2)
    DMUON_FAIL(DMUON_ERR_MEMORY, "a buffer of %lld bytes was asked for", (long long)bytes);
  uint64_t base = address_of(*ptr);
  if (!base) {
    base = log->next_address;
    log->next_address += ((uint64_t)bytes + GAP - 1) / GAP * GAP + GAP;
  }
  /* Whatever lay there before is gone. */
  int64_t at = below(log, base + (uint64_t)bytes);
  while (at > 0) {
    const dmuon_trace_buffer *old = &log->trace.buffers[log->by_base[at - 1]];
    if (old->base + (uint64_t)old->bytes <= base && old->base != base) break;
    take_out(log, --at);
  }
  DMUON_TRY(add_buffer(log, base, bytes, 0, &number));
  log->live_buffers++;
  log->bytes += bytes;
  if (log->bytes > log->peak_bytes) log->peak_bytes = log->bytes;
  *ptr = (void *)(uintptr_t)base;
  dmuon_trace_record *record;
  DMUON_TRY(dmuon_trace_log_add(log, DMUON_TRACE_ALLOC, -1, &record));
  return dmuon_trace_log_access(log, *ptr, bytes, 1, 0);
}

void dmuon_trace_log_forget(dmuon_trace_log *log, const void *ptr) {
  const int64_t at = below(log, address_of(ptr)) - 1;
  dmuon_trace_buffer *b = at >= 0 ? &log->trace.buffers[log->by_base[at]] : NULL;
  if (!b || b->base != address_of(ptr) || b->is_callers || b->is_freed) return;
  b->is_freed = 1;
  log->live_buffers--;
  log->bytes -= b->bytes;
  if (b->base < FIRST_ADDRESS) take_out(log, at); /* malloc may lend it again to anybody */
}

int dmuon_trace_log_holds(const dmuon_trace_log *log, const void *ptr) {
  const int64_t at = below(log, address_of(ptr)) - 1;
  if (at < 0) return 0;
  const dmuon_trace_buffer *b = &log->trace.buffers[log->by_base[at]];
  return !b->is_callers && address_of(ptr) - b->base < (uint64_t)b->bytes;
}

/* The buffer that holds the address; an array of the caller's when there is none. */
static DMuonErrorCode find(dmuon_trace_log *log, uint64_t address, int64_t bytes, int64_t *number) {
  const int64_t at = below(log, address) - 1;
  if (at >= 0) {
    dmuon_trace_buffer *b = &log->trace.buffers[log->by_base[at]];
    const uint64_t offset = address - b->base;
    if (offset < (uint64_t)b->bytes || offset == 0) {
      *number = log->by_base[at];
      if (b->is_callers && (int64_t)offset + bytes > b->bytes) b->bytes = (int64_t)offset + bytes;
      return DMUON_SUCCESS;
    }
  }
  return add_buffer(log, address, bytes, 1, number);
}

DMuonErrorCode dmuon_trace_log_label(dmuon_trace_log *log, const void *ptr, const char *text) {
  int64_t number;
  DMUON_TRY(find(log, address_of(ptr), 0, &number));
  return keep_text(log, text, &log->trace.buffers[number].label);
}

DMuonErrorCode dmuon_trace_log_name_queue(dmuon_trace_log *log, int64_t queue, const char *text) {
  return keep_text(log, text, &log->trace.queue_labels[queue]);
}

/* ---- records ------------------------------------------------------------------------------- */

DMuonErrorCode dmuon_trace_log_add(dmuon_trace_log *log, dmuon_trace_operation operation,
                                   int64_t queue, dmuon_trace_record **record) {
  dmuon_trace *t = &log->trace;
  *record = NULL;
  if (t->record_count >= log->limit) {
    t->forgotten++;
    return DMUON_SUCCESS;
  }
  DMUON_TRY(dmuon_trace_grow(&log->memory, &t->records, t->record_count, &t->record_room,
                             sizeof *t->records));
  t->records[t->record_count] = (dmuon_trace_record){.operation = operation,
                                                     .queue = queue,
                                                     .event = -1,
                                                     .comm = -1,
                                                     .first_access = t->access_count,
                                                     .first_piece = t->piece_count,
                                                     .dtype = -1,
                                                     .sum_dtype = -1,
                                                     .text = -1};
  *record = &t->records[t->record_count++];
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_log_access(dmuon_trace_log *log, const void *ptr, int64_t bytes,
                                      int is_write, int64_t padding) {
  dmuon_trace *t = &log->trace;
  int64_t buffer;
  if (t->forgotten || bytes <= 0 || !ptr) return DMUON_SUCCESS;
  DMUON_TRY(find(log, address_of(ptr), bytes, &buffer));
  const int64_t begin = (int64_t)(address_of(ptr) - t->buffers[buffer].base);
  dmuon_trace_record *record = &t->records[t->record_count - 1];
  if (record->access_count > 0) {
    dmuon_trace_access *last = &t->accesses[t->access_count - 1];
    if (last->buffer == buffer && last->is_write == is_write && last->end == begin) {
      last->end += bytes;
      last->padding += padding;
      return DMUON_SUCCESS;
    }
  }
  DMUON_TRY(dmuon_trace_grow(&log->memory, &t->accesses, t->access_count, &t->access_room,
                             sizeof *t->accesses));
  t->accesses[t->access_count++] =
      (dmuon_trace_access){buffer, begin, begin + bytes, is_write, padding};
  record->access_count++;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_log_piece(dmuon_trace_log *log, int64_t from, int64_t to, int64_t offset,
                                     int64_t count) {
  dmuon_trace *t = &log->trace;
  if (t->forgotten) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_trace_grow(&log->memory, &t->pieces, t->piece_count, &t->piece_room,
                             sizeof *t->pieces));
  t->pieces[t->piece_count++] = (dmuon_trace_piece){from, to, offset, count};
  t->records[t->record_count - 1].piece_count++;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_log_note(dmuon_trace_log *log, const char *text) {
  dmuon_trace_record *record;
  DMUON_TRY(dmuon_trace_log_add(log, DMUON_TRACE_NOTE, -1, &record));
  if (record) DMUON_TRY(keep_text(log, text, &record->text));
  return DMUON_SUCCESS;
}
