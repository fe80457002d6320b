# The test double: CPU implementations of what the CUDA backend calls, linked with the backend's own
# objects instead of CUDA, cuBLAS and NCCL. Never installed. C++ (nvcc needs a compiler for it anyway),
# since the bodies of the kernels are what nvcc compiles too.
dmuon_double_sources = test/double/state.cpp test/double/memory.cpp test/double/stream.cpp \
  test/double/cublas.cpp test/double/nccl.cpp test/double/nccl_comms.cpp test/double/nccl_messages.cpp \
  test/double/kernels.cpp
dmuon_double_headers = test/double/double.h test/double/state.h test/double/nccl_state.h

EXTRA_DIST += $(dmuon_double_sources) $(dmuon_double_headers)
if DMUON_DOUBLE
dmuon_double_compile = $(LIBTOOL) $(AM_V_lt) --tag=CC --tag=disable-static --mode=compile $(CXX) -std=c++17 \
  -O3 -g -ffp-contract=off -fvisibility=hidden -fno-exceptions -fno-rtti $(CXX_WARNINGS) $(dmuon_sanitize_flags) \
  -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(AM_CPPFLAGS) $(CUDA_CFLAGS)
dmuon_double_objects = $(dmuon_double_sources:.cpp=.lo)
$(dmuon_double_objects) test/double/double_faults.lo: %.lo: %.cpp $(dmuon_double_headers) $(filter %.h,$(dmuon_cuda_sources))
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(dmuon_double_compile) -c -o $@ $<
MOSTLYCLEANFILES += $(dmuon_double_objects) test/double/double_faults.lo
# For tests of internals: X_LDADD = $(double_libs), X_LDFLAGS = $(double_ldflags).
double_libs = test/double/libcuda_double.la libdmuon_core.la -lstdc++
double_ldflags = $(AM_LDFLAGS) -Wl,-u,dmuon_cuda_module
check_LTLIBRARIES += test/double/libcuda_double.la
test_double_libcuda_double_la_SOURCES =
test_double_libcuda_double_la_LIBADD = libcuda_backend.la $(dmuon_double_objects)
# For any client: DMUON_MODULE_PATH=test/double/.libs, and -dmuon_device cuda.
check_LTLIBRARIES += test/double/libdmuon_cuda.la
test_double_libdmuon_cuda_la_SOURCES =
test_double_libdmuon_cuda_la_LIBADD = test/double/libcuda_double.la libdmuon.la $(MPI_LIBS) -lstdc++
test_double_libdmuon_cuda_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)/test/double \
  -export-symbols-regex '^dmuon_cuda_module$$' $(DMUON_LDFLAGS) $(dmuon_sanitize_flags)

# Faults planted in a small program: the double finds each and names it.
check_PROGRAMS += test/double/double_faults
test_double_double_faults_SOURCES =
test_double_double_faults_LDADD = test/double/double_faults.lo $(dmuon_double_objects) $(MPI_LIBS) -lstdc++
TESTS += test/double/double_faults.sh
CUDA_TESTS += test/double/double_faults.sh
endif
EXTRA_DIST += test/double/README.md test/double/double_faults.cpp test/double/double_faults.sh
