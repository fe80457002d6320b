/* The schedules that are planned and judged, each with a name: modes, kinds of passes, routes. */
#ifndef TEST_SCHEDULE_CASES_H
#define TEST_SCHEDULE_CASES_H

#include "rehearsal.h"

/* A note before all that a drive repeats: golden texts end there. */
#define CASE_AGAIN "again"

typedef struct {
  const char *name;
  int is_golden; /* its text on rank 0 is kept in golden/NAME.txt */
  const char *options[4];
  DMuonErrorCode (*adapt_model)(DMuonModel model);
  DMuonErrorCode (*drive)(DMuonOptimizer opt, int rank); /* NULL: rehearsal_train */
  int has_odd_rank, odd_rank;
  int may_waste; /* what was brought may be dropped unread: a pass given up, step after step */
} schedule_case;

extern const schedule_case schedule_cases[];
extern const int schedule_case_count;

/* The plan of a case on a mesh: four small layers. */
rehearsal_plan schedule_plan(const schedule_case *c, int replicate, int shard);

#endif
