/* What a trace consists of: one record an operation, in the order in which one rank issued them,
 * with the bytes that each reads and writes. No addresses: memory is named by numbered buffers. The
 * recorder's own tables (who is which buffer) are in log.h; what the records prove in verify.h. */
#ifndef DMUON_BACKEND_TRACE_RECORD_H
#define DMUON_BACKEND_TRACE_RECORD_H

#include "base/dtype.h"
#include "base/memory.h"

typedef enum {
  DMUON_TRACE_NOTHING = 0, /* a record taken out */
  /* The host thread, at once. */
  DMUON_TRACE_ALLOC,
  DMUON_TRACE_FREE,
  DMUON_TRACE_QUEUE_SYNC,
  DMUON_TRACE_EVENT_SYNC, /* or a test that said done */
  DMUON_TRACE_TOUCH,      /* the caller's own reads or writes, in the host thread */
  DMUON_TRACE_NOTE,       /* what follows belongs to */
  /* Order between queues, and between them and the caller. */
  DMUON_TRACE_RECORD,
  DMUON_TRACE_WAIT,
  DMUON_TRACE_LEND,
  DMUON_TRACE_RECLAIM,
  /* Work on memory. */
  DMUON_TRACE_DISCARD,
  DMUON_TRACE_ZERO,
  DMUON_TRACE_COPY,
  DMUON_TRACE_CAST,
  DMUON_TRACE_PACK,
  DMUON_TRACE_COPY_MATRIX,
  DMUON_TRACE_GEMM,
  DMUON_TRACE_SYRK,
  DMUON_TRACE_GEMM_SYMMETRIC,
  DMUON_TRACE_AXPBY,
  DMUON_TRACE_DIVIDE,
  DMUON_TRACE_ADD_DIAGONAL,
  DMUON_TRACE_NORM,
  DMUON_TRACE_FIND_NONFINITE,
  DMUON_TRACE_DECIDE,
  DMUON_TRACE_MUON_MOMENTUM,
  DMUON_TRACE_MUON_APPLY,
  DMUON_TRACE_ADAMW,
  /* Communication. */
  DMUON_TRACE_GATHER_SEGMENTS,
  DMUON_TRACE_REDUCE_SEGMENTS,
  DMUON_TRACE_MOVE_SEGMENTS,
  DMUON_TRACE_BROADCAST,
  DMUON_TRACE_ALL_REDUCE,
  DMUON_TRACE_GATHER,
  DMUON_TRACE_SCATTER,
  DMUON_TRACE_OPERATIONS
} dmuon_trace_operation;

extern const char *const dmuon_trace_names[DMUON_TRACE_OPERATIONS];

static inline int dmuon_trace_is_collective(int operation) {
  return operation >= DMUON_TRACE_GATHER_SEGMENTS;
}

typedef struct {
  int64_t operation;
  int64_t queue; /* number, or -1: the host thread */
  int64_t event; /* number, or -1 */
  int64_t comm;  /* number, or -1 */
  int64_t first_access, access_count;
  int64_t first_piece, piece_count; /* of a collective */
  int64_t dtype, sum_dtype;         /* DMuonDType, or -1 */
  int64_t prescale;
  int64_t text; /* of a note: where it begins in the trace's text; else -1 */
} dmuon_trace_record;

/* Bytes of a buffer that an operation reads or writes. */
typedef struct {
  int64_t buffer;
  int64_t begin, end;
  int64_t is_write;
  int64_t padding; /* so many of the bytes read may mean nothing */
} dmuon_trace_access;

/* A segment (to: -1) or a piece that moves, or the root and count of the other collectives. */
typedef struct {
  int64_t from, to;
  int64_t offset, count; /* elements */
} dmuon_trace_piece;

typedef struct {
  uint64_t base;
  int64_t bytes;
  int64_t is_callers; /* memory that no alloc made; its extent is what was seen */
  int64_t is_freed;
  int64_t label; /* in the trace's text, or -1 */
} dmuon_trace_buffer;

/* A communicator that operations were issued on: an axis and a role. */
typedef struct {
  int64_t axis, role, rank, size;
} dmuon_trace_comm;

typedef struct {
  dmuon_memory *memory;
  int64_t record_count, record_room;
  dmuon_trace_record *records;
  int64_t access_count, access_room;
  dmuon_trace_access *accesses;
  int64_t piece_count, piece_room;
  dmuon_trace_piece *pieces;
  int64_t buffer_count, buffer_room;
  dmuon_trace_buffer *buffers;
  int64_t queue_count, queue_room;
  int64_t *queue_labels; /* in the text, or -1 */
  int64_t event_count;
  int64_t comm_count;
  dmuon_trace_comm comms[8];
  int64_t text_length, text_room;
  char *text;        /* labels, each ended by a NUL */
  int64_t forgotten; /* operations that did not fit into the limit */
} dmuon_trace;

void dmuon_trace_free(dmuon_trace *trace);
DMuonErrorCode dmuon_trace_copy(dmuon_memory *memory, const dmuon_trace *from, dmuon_trace *to);
/* Leaves nothing but the collectives: what is compared between ranks. */
DMuonErrorCode dmuon_trace_strip(dmuon_trace *trace);
/* Room for one more of a list of `count`: a place for it, zeroed. */
DMuonErrorCode dmuon_trace_grow(dmuon_memory *memory, void *list, int64_t count, int64_t *room,
                                size_t element_bytes);

/* "queue 3" or its name. buffer: at least 64. */
const char *dmuon_trace_queue_name(const dmuon_trace *trace, int64_t queue, char *buffer);
/* "buffer 3 (values, slot 0)". buffer: at least 128. */
const char *dmuon_trace_buffer_name(const dmuon_trace *trace, int64_t index, char *buffer);
/* "shard/unshard". */
const char *dmuon_trace_comm_name(const dmuon_trace_comm *comm);

#endif
