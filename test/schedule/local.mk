# The order of a step.
check_PROGRAMS += test/schedule/engine_schedule.t
TESTS += test/schedule/engine_schedule.t
CORE_TESTS += test/schedule/engine_schedule.t
test_schedule_engine_schedule_t_SOURCES = test/schedule/engine_schedule.c

# Planned and recorded runs: the verifier, and the faults that it must find.
trace_tests = \
  test/schedule/trace_verify.t \
  test/schedule/trace_step.t \
  test/schedule/trace_sharded.t \
  test/schedule/trace_plan.t \
  test/schedule/trace_record.np4
check_PROGRAMS += $(trace_tests)
TESTS += $(trace_tests)
test_schedule_trace_step_t_SOURCES = test/schedule/trace_step.c test/schedule/rehearsal.c \
  test/schedule/rehearsal.h test/schedule/planted.c test/schedule/planted.h
test_schedule_trace_sharded_t_SOURCES = test/schedule/trace_sharded.c test/schedule/cases.c \
  test/schedule/cases.h test/schedule/rehearsal.c \
  test/schedule/rehearsal.h test/schedule/planted.c test/schedule/planted.h
test_schedule_trace_plan_t_SOURCES = test/schedule/trace_plan.c test/schedule/rehearsal.c \
  test/schedule/rehearsal.h
test_schedule_trace_record_np4_SOURCES = test/schedule/trace_record.c test/schedule/cases.c \
  test/schedule/cases.h test/schedule/rehearsal.c test/schedule/rehearsal.h
test_schedule_trace_verify_t_SOURCES = test/schedule/trace_verify.c
EXTRA_DIST += tools/update_golden \
  test/schedule/golden/accumulate.txt \
  test/schedule/golden/all_gather.txt \
  test/schedule/golden/evaluate.txt \
  test/schedule/golden/recompute.txt \
  test/schedule/golden/sharded_adamw.txt \
  test/schedule/golden/skipped_group.txt \
  test/schedule/golden/sync.txt \
  test/schedule/golden/z2.txt \
  test/schedule/golden/z3_prefetch0.txt \
  test/schedule/golden/z3_prefetch1.txt \
  test/schedule/golden/z3_prefetch2.txt
