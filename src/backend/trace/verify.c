/* All checks together, and the list of what they found. */
#include "backend/trace/verify.h"

#include <string.h>

const char *const dmuon_trace_kind_names[DMUON_TRACE_KINDS] = {
    [DMUON_TRACE_RACE_READ] = "read too early", [DMUON_TRACE_RACE_OVERWRITE] = "overwritten in use",
    [DMUON_TRACE_RACE_FREE] = "freed in use",   [DMUON_TRACE_UNDEFINED] = "read without content",
    [DMUON_TRACE_TWICE] = "done twice",         [DMUON_TRACE_SEQUENCE] = "ranks differ",
    [DMUON_TRACE_CIRCLE] = "no common order",   [DMUON_TRACE_FORGOTTEN] = "trace not whole",
};

dmuon_trace_finding *dmuon_trace_report_add(dmuon_trace_report *report, dmuon_trace_kind kind,
                                            int64_t position) {
  const int64_t at =
      report->count < DMUON_TRACE_FINDINGS ? report->count : DMUON_TRACE_FINDINGS - 1;
  dmuon_trace_finding *finding = &report->findings[at];
  report->count++;
  *finding = (dmuon_trace_finding){
      .kind = kind, .position = position, .first = -1, .second = -1, .buffer = -1};
  return finding;
}

void dmuon_trace_report_print(const dmuon_trace_report *report, dmuon_text *text) {
  for (int64_t i = 0; i < report->count && i < DMUON_TRACE_FINDINGS; i++) {
    const dmuon_trace_finding *f = &report->findings[i];
    dmuon_text_add(text, "rank %lld, %s: %s\n", (long long)f->position,
                   dmuon_trace_kind_names[f->kind], f->text);
  }
  if (report->count > DMUON_TRACE_FINDINGS)
    dmuon_text_add(text, "and %lld more\n", (long long)(report->count - DMUON_TRACE_FINDINGS));
}

DMuonErrorCode dmuon_trace_verify(dmuon_memory *memory, const dmuon_trace_set *set,
                                  dmuon_trace_report *report) {
  const int ranks = set->sizes[0] * set->sizes[1] * set->sizes[2];
  memset(report, 0, sizeof *report);
  for (int c = 0; c < set->class_count; c++) {
    int position = 0;
    while (position < ranks && set->class_of[position] != c) position++;
    if (position == ranks) continue;
    DMUON_TRY(dmuon_trace_verify_rank(memory, set->classes[c], position, report));
  }
  DMUON_TRY(dmuon_trace_verify_sequences(memory, set, report));
  DMUON_TRY(dmuon_trace_verify_order(memory, set, report));
  return DMUON_SUCCESS;
}
