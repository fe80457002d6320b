# The order of a step.
check_PROGRAMS += test/schedule/engine_schedule.t
TESTS += test/schedule/engine_schedule.t
CORE_TESTS += test/schedule/engine_schedule.t
test_schedule_engine_schedule_t_SOURCES = test/schedule/engine_schedule.c

# Planned and recorded runs: the verifier, and the faults that it must find.
trace_tests = test/schedule/trace_step.t
check_PROGRAMS += $(trace_tests)
TESTS += $(trace_tests)
test_schedule_trace_step_t_SOURCES = test/schedule/trace_step.c test/schedule/rehearsal.c \
  test/schedule/rehearsal.h test/schedule/planted.c test/schedule/planted.h
