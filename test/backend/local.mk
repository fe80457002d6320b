# The seam's operations against naive references, and the host's task engine.
backend_device_tests = \
  test/backend/device_conformance.t \
  test/backend/host_engine.t
check_PROGRAMS += $(backend_device_tests)
TESTS += $(backend_device_tests)
CORE_TESTS += $(backend_device_tests)
VALGRIND_TESTS += test/backend/host_engine.t
test_backend_device_conformance_t_SOURCES = test/backend/device_conformance.c \
  test/backend/device_conformance.h test/backend/device_extremes.h
test_backend_host_engine_t_SOURCES = test/backend/host_engine.c
