/* The recorder: what a traced device writes its operations into. It knows which address is which
 * buffer and gives numbers to queues and events in the order of their making. It has memory of its
 * own, so that counts of a mesh's allocations do not see it. */
#ifndef DMUON_BACKEND_TRACE_LOG_H
#define DMUON_BACKEND_TRACE_LOG_H

#include "backend/trace/record.h"
#include "comm/comm.h"

typedef struct {
  dmuon_memory memory;
  dmuon_trace trace;
  int64_t limit;    /* records kept; what comes after is only counted */
  int64_t *by_base; /* buffer numbers, by address */
  int64_t by_base_room, by_base_count;
  uint64_t next_address; /* of virtual memory */
  int64_t live_queues, live_events, live_buffers;
  int64_t bytes, peak_bytes; /* of buffers in use */
  dmuon_comm *comms[8];      /* by number */
} dmuon_trace_log;

void dmuon_trace_log_init(dmuon_trace_log *log, int64_t limit);
void dmuon_trace_log_free(dmuon_trace_log *log);
/* Forgets the records. Numbers start anew when no queue, event and buffer is left. */
void dmuon_trace_log_reset(dmuon_trace_log *log);

/* Numbers. */
DMuonErrorCode dmuon_trace_log_queue(dmuon_trace_log *log, int64_t *number);
int64_t dmuon_trace_log_event(dmuon_trace_log *log);
int64_t dmuon_trace_log_comm(dmuon_trace_log *log, dmuon_comm *comm);
/* A buffer comes at ptr (0: where the log says; *ptr is set), or goes. */
DMuonErrorCode dmuon_trace_log_alloc(dmuon_trace_log *log, int64_t bytes, void **ptr);
/* The address lies in a buffer that was allocated (not in memory of the caller's). */
int dmuon_trace_log_holds(const dmuon_trace_log *log, const void *ptr);
void dmuon_trace_log_forget(dmuon_trace_log *log, const void *ptr);
DMuonErrorCode dmuon_trace_log_label(dmuon_trace_log *log, const void *ptr, const char *text);
DMuonErrorCode dmuon_trace_log_name_queue(dmuon_trace_log *log, int64_t queue, const char *text);

/* One more record; accesses and pieces added next belong to it. *record: NULL beyond the limit. */
DMuonErrorCode dmuon_trace_log_add(dmuon_trace_log *log, dmuon_trace_operation operation,
                                   int64_t queue, dmuon_trace_record **record);
DMuonErrorCode dmuon_trace_log_access(dmuon_trace_log *log, const void *ptr, int64_t bytes,
                                      int is_write, int64_t padding);
DMuonErrorCode dmuon_trace_log_piece(dmuon_trace_log *log, int64_t from, int64_t to, int64_t offset,
                                     int64_t count);
DMuonErrorCode dmuon_trace_log_note(dmuon_trace_log *log, const char *text);

#endif
