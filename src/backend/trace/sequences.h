/* Which operations belong to which communicator, and who else is in it. Internal to the verifier.
 */
#ifndef DMUON_BACKEND_TRACE_SEQUENCES_H
#define DMUON_BACKEND_TRACE_SEQUENCES_H

#include "backend/trace/verify.h"

/* What must be equal on all ranks of a collective operation. */
uint64_t dmuon_trace_signature(const dmuon_trace *trace, const dmuon_trace_record *record);
/* The record is an operation on the communicator of axis and role. */
int dmuon_trace_is_on(const dmuon_trace *trace, const dmuon_trace_record *record, int axis,
                      int role);
/* The position of rank `at` of the communicator along axis through position. */
int dmuon_trace_position(const int sizes[3], int position, int axis, int at);

#endif
