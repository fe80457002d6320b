/* Faults planted in the trace of one kind of rank, and whether the verifier finds them. For tests.
 */
#ifndef TEST_SCHEDULE_PLANTED_H
#define TEST_SCHEDULE_PLANTED_H

#include "rehearsal.h"

/* A copy of the whole plan in which one rank, `position`, has a trace of its own. */
typedef struct {
  const rehearsal *from;
  int position;
  dmuon_trace trace; /* to be spoilt */
  int *class_of;
  const dmuon_trace **list;
  dmuon_trace_report report;
} planted;

DMuonErrorCode planted_begin(const rehearsal *from, int position, planted *fault);
void planted_end(planted *fault);
/* Lets all be verified; the number of findings. */
DMuonErrorCode planted_verify(planted *fault);

/* The n-th record (from 0) of an operation, at or behind `from`, on a queue of this name (NULL:
 * any); -1: none. */
int64_t planted_find(const dmuon_trace *trace, dmuon_trace_operation operation, const char *queue,
                     int64_t from, int n);
/* The record `from` comes to stand at `to`, the others move up. */
void planted_move(dmuon_trace *trace, int64_t from, int64_t to);
/* Record `at` happens again right behind itself. */
DMuonErrorCode planted_repeat(dmuon_trace *trace, int64_t at);
/* Drops one wait after the other. waits, missed: [waiting queue * queues + queue waited for],
 * counted up: how many there are, and how many the verifier misses when they are gone. A wait for
 * an event that was not recorded yet is none. */
DMuonErrorCode planted_drop_waits(dmuon_memory *memory, const dmuon_trace *trace, int queues,
                                  int *waits, int *missed);

#endif
