# The order of a step.
check_PROGRAMS += test/schedule/engine_schedule.t
TESTS += test/schedule/engine_schedule.t
CORE_TESTS += test/schedule/engine_schedule.t
test_schedule_engine_schedule_t_SOURCES = test/schedule/engine_schedule.c
