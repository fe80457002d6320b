# Ranks that do not say the same of a model.
check_PROGRAMS += test/fault/model_disagree.np4
TESTS += test/fault/model_disagree.np4
CORE_TESTS += test/fault/model_disagree.np4
test_fault_model_disagree_np4_SOURCES = test/fault/model_disagree.c

# A rank that does not come.
check_PROGRAMS += test/fault/comm_timeout.np3
TESTS += test/fault/comm_timeout.np3
CORE_TESTS += test/fault/comm_timeout.np3
test_fault_comm_timeout_np3_SOURCES = test/fault/comm_timeout.c

# src/mesh, src/partition
check_PROGRAMS += test/fault/mesh_misuse.np4
TESTS += test/fault/mesh_misuse.np4
CORE_TESTS += test/fault/mesh_misuse.np4
test_fault_mesh_misuse_np4_SOURCES = test/fault/mesh_misuse.c

# A step that must not take place, or cannot: all ranks say the same and go on.
step_fault_tests = \
  test/fault/step_nonfinite.np4 \
  test/fault/step_disagree.np4 \
  test/fault/step_alloc.np3 \
  test/fault/step_late.np2 \
  test/fault/step_mixed.np3 \
  test/fault/step_stopped.np4 \
  test/fault/step_frozen.np2
check_PROGRAMS += $(step_fault_tests)
TESTS += $(step_fault_tests)
CORE_TESTS += test/fault/step_late.np2 test/fault/step_mixed.np3 test/fault/step_nonfinite.np4 test/fault/step_disagree.np4 test/fault/step_frozen.np2
test_fault_step_nonfinite_np4_SOURCES = test/fault/step_nonfinite.c \
  test/step_case.c test/step_case.h test/reference.c test/reference.h
test_fault_step_disagree_np4_SOURCES = test/fault/step_disagree.c \
  test/step_case.c test/step_case.h test/reference.c test/reference.h
test_fault_step_mixed_np3_SOURCES = test/fault/step_mixed.c
test_fault_step_late_np2_SOURCES = test/fault/step_late.c
test_fault_step_alloc_np3_SOURCES = test/fault/step_alloc.c
test_fault_step_stopped_np4_SOURCES = test/fault/step_stopped.c \
  test/step_case.c test/step_case.h test/reference.c test/reference.h
test_fault_step_frozen_np2_SOURCES = test/fault/step_frozen.c

# A rank that gives up: the others hear at once, and all go on.
check_PROGRAMS += test/fault/mesh_revoke.np4
TESTS += test/fault/mesh_revoke.np4
CORE_TESTS += test/fault/mesh_revoke.np4
test_fault_mesh_revoke_np4_SOURCES = test/fault/mesh_revoke.c \
  test/step_case.c test/step_case.h test/reference.c test/reference.h

# Ranks that meet in calls of different kinds.
check_PROGRAMS += test/fault/calls_mixed.np3
TESTS += test/fault/calls_mixed.np3
CORE_TESTS += test/fault/calls_mixed.np3
test_fault_calls_mixed_np3_SOURCES = test/fault/calls_mixed.c \
  test/step_case.c test/step_case.h test/reference.c test/reference.h

# Brackets and passes in the wrong place.
check_PROGRAMS += test/fault/lend_misuse.np4
TESTS += test/fault/lend_misuse.np4
CORE_TESTS += test/fault/lend_misuse.np4
test_fault_lend_misuse_np4_SOURCES = test/fault/lend_misuse.c test/step_lent.c test/step_lent.h \
  test/step_case.c test/step_case.h test/reference.c test/reference.h
check_PROGRAMS += test/fault/lend_alloc.np3
TESTS += test/fault/lend_alloc.np3
test_fault_lend_alloc_np3_SOURCES = test/fault/lend_alloc.c
