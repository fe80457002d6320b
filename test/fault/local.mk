# test/fault: nothing to build yet.

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
