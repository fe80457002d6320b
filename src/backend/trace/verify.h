/* What a set of traces proves, or what is missing. Pure: from records to findings.
 *
 * One rank alone (happens.c): by vector clocks over its queues, the host thread and the caller,
 * that no buffer is read before its data arrived, overwritten or freed while in use, read when
 * nothing was written. Edges: same queue; record to wait; the host's syncs, and issuing (an
 * operation comes after what the host had seen by then); lend and reclaim for the caller, who works
 * on a device's own stream and orders the queue he lends from alone. All ranks (sequences.c): on
 * every communicator all ranks issue the same operations with the same roots, counts and types; and
 * (order.c) the issue orders of all ranks over all communicators have a common order, so that none
 * waits for another in a circle. Ranks that do the same are one class and looked at once. */
#ifndef DMUON_BACKEND_TRACE_VERIFY_H
#define DMUON_BACKEND_TRACE_VERIFY_H

#include "backend/trace/record.h"
#include "base/text.h"

typedef enum {
  DMUON_TRACE_RACE_READ = 0,  /* read, the write before it not waited for */
  DMUON_TRACE_RACE_OVERWRITE, /* written, a read or write before it not waited for */
  DMUON_TRACE_RACE_FREE,      /* freed in use, or used when freed */
  DMUON_TRACE_UNDEFINED,      /* read, never written or discarded */
  DMUON_TRACE_TWICE,          /* discarded twice, or brought twice with no reader between */
  DMUON_TRACE_SEQUENCE,       /* ranks of a communicator issue different operations */
  DMUON_TRACE_CIRCLE,         /* no common order */
  DMUON_TRACE_FORGOTTEN,      /* the trace is not whole */
  DMUON_TRACE_KINDS
} dmuon_trace_kind;

extern const char *const dmuon_trace_kind_names[DMUON_TRACE_KINDS];

typedef struct {
  dmuon_trace_kind kind;
  int64_t position;      /* of the rank, (r*G + s)*T + t */
  int64_t first, second; /* records; -1: none */
  int64_t buffer;        /* or -1 */
  char text[600];        /* what, where, what is missing */
} dmuon_trace_finding;

/* The first few findings; `count` counts them all. */
enum { DMUON_TRACE_FINDINGS = 32 };
typedef struct {
  int64_t count;
  dmuon_trace_finding findings[DMUON_TRACE_FINDINGS];
} dmuon_trace_report;

/* Traces of all ranks: of the rank at each position, its class. Communicators run along the axes of
 * sizes. */
typedef struct {
  int sizes[3]; /* by DMuonAxis */
  int class_count;
  const dmuon_trace *const *classes;
  const int *class_of; /* [product of sizes] */
} dmuon_trace_set;

/* One rank. */
DMuonErrorCode dmuon_trace_verify_rank(dmuon_memory *memory, const dmuon_trace *trace,
                                       int64_t position, dmuon_trace_report *report);
DMuonErrorCode dmuon_trace_verify_sequences(dmuon_memory *memory, const dmuon_trace_set *set,
                                            dmuon_trace_report *report);
DMuonErrorCode dmuon_trace_verify_order(dmuon_memory *memory, const dmuon_trace_set *set,
                                        dmuon_trace_report *report);
/* All of it. report: zeroed by this. */
DMuonErrorCode dmuon_trace_verify(dmuon_memory *memory, const dmuon_trace_set *set,
                                  dmuon_trace_report *report);

/* A place for one more finding; a spare one when there are enough. */
dmuon_trace_finding *dmuon_trace_report_add(dmuon_trace_report *report, dmuon_trace_kind kind,
                                            int64_t position);
/* The findings, a line each. */
void dmuon_trace_report_print(const dmuon_trace_report *report, dmuon_text *text);

/* Records [first, end) for people: a line an operation, arithmetic that follows on one queue in one
 * line. */
void dmuon_trace_print(const dmuon_trace *trace, int64_t first, int64_t end, dmuon_text *text);
/* "#12 copy on queue compute" */
const char *dmuon_trace_describe(const dmuon_trace *trace, int64_t record, char *buffer,
                                 size_t bytes);

#endif
