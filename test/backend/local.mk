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

# The communication seam: through host memory against the host's own; the order of sums on a device.
backend_comm_tests = \
  test/backend/staged.npall \
  test/backend/sum_plan.t
check_PROGRAMS += $(backend_comm_tests)
TESTS += $(backend_comm_tests)
CORE_TESTS += $(backend_comm_tests)
test_backend_staged_npall_SOURCES = test/backend/staged.c test/backend/comm_conformance.h
test_backend_sum_plan_t_SOURCES = test/backend/sum_plan.c src/backend/cuda/sum_plan.c
test_backend_sum_plan_t_CPPFLAGS = $(AM_CPPFLAGS)

# Which tiles a symmetric product has on a GPU: decided without one.
check_PROGRAMS += test/backend/blas_tiles.t
TESTS += test/backend/blas_tiles.t
CORE_TESTS += test/backend/blas_tiles.t
test_backend_blas_tiles_t_SOURCES = test/backend/blas_tiles.c src/backend/cuda/blas_tiles.c
test_backend_blas_tiles_t_CPPFLAGS = $(AM_CPPFLAGS)

# The CUDA backend over the double.
if DMUON_DOUBLE
backend_cuda_tests = \
  test/backend/cuda_bits.t \
  test/backend/cuda_comm.npall \
  test/backend/cuda_giving_up.np3 \
  test/backend/cuda_conformance.t
check_PROGRAMS += $(backend_cuda_tests)
TESTS += $(backend_cuda_tests)
CUDA_TESTS += $(backend_cuda_tests)
test_backend_cuda_bits_t_SOURCES = test/backend/cuda_bits.c test/backend/cuda_device.h
test_backend_cuda_bits_t_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
test_backend_cuda_bits_t_LDADD = $(double_libs)
test_backend_cuda_bits_t_LDFLAGS = $(double_ldflags)
test_backend_cuda_comm_npall_SOURCES = test/backend/cuda_comm.c test/backend/comm_conformance.h
test_backend_cuda_comm_npall_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
test_backend_cuda_comm_npall_LDADD = $(double_libs)
test_backend_cuda_comm_npall_LDFLAGS = $(double_ldflags)
test_backend_cuda_giving_up_np3_SOURCES = test/backend/cuda_giving_up.c
test_backend_cuda_giving_up_np3_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
test_backend_cuda_giving_up_np3_LDADD = $(double_libs)
test_backend_cuda_giving_up_np3_LDFLAGS = $(double_ldflags)
test_backend_cuda_conformance_t_SOURCES = test/backend/cuda_conformance.c test/backend/cuda_device.h \
  test/backend/device_conformance.h test/backend/device_extremes.h
test_backend_cuda_conformance_t_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS) -I$(top_srcdir)/test/double
test_backend_cuda_conformance_t_LDADD = $(double_libs)
test_backend_cuda_conformance_t_LDFLAGS = $(double_ldflags)
endif
