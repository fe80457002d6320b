# The CUDA backend as a client sees it, on the test double; and what is run on a real GPU.
if DMUON_DOUBLE
check_PROGRAMS += test/cuda/cuda_client.npall
TESTS += test/cuda/cuda_client.npall
CUDA_TESTS += test/cuda/cuda_client.npall
test_cuda_cuda_client_npall_SOURCES =
test_cuda_cuda_client_npall_LDADD = test/cuda/d_cuda.lo test/double/libcuda_double.la libdmuon.la \
  $(MPI_LIBS) -lstdc++ -lm
test_cuda_cuda_client_npall_LDFLAGS = $(AM_LDFLAGS) -Wl,-u,dmuon_cuda_module
test/cuda/d_cuda.lo: test/cuda/d_cuda.cpp $(dmuon_double_headers)
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(dmuon_double_compile) -c -o $@ $(srcdir)/test/cuda/d_cuda.cpp
MOSTLYCLEANFILES += test/cuda/d_cuda.lo test/cuda/d_cuda.o test/cuda/.libs/d_cuda.o
endif
EXTRA_DIST += test/cuda/d_cuda.cpp
# For a machine with a GPU: built and run by gpu_check.sh alone.
EXTRA_DIST += test/cuda/gpu_check.sh test/cuda/pack.sh
if DMUON_CUDA_MODULE
gpu_libs = libcuda_backend.la $(dmuon_cuda_kernels:.cu=.lo) libdmuon_core.la $(CUDA_LIBS) -lm
gpu_ldflags = $(AM_LDFLAGS) -Wl,-u,dmuon_cuda_module $(CUDA_RPATH)
gpu_cppflags = $(AM_CPPFLAGS) $(CUDA_CFLAGS) -I$(top_srcdir)/test/backend -I$(top_srcdir)/tools
gpu_programs = test/cuda/gpu_conformance test/cuda/gpu_bits test/cuda/gpu_comm test/cuda/gpu_bench
EXTRA_PROGRAMS += $(gpu_programs)
CLEANFILES += $(gpu_programs)
test_cuda_gpu_conformance_SOURCES = test/cuda/gpu_conformance.c
test_cuda_gpu_conformance_CPPFLAGS = $(gpu_cppflags)
test_cuda_gpu_conformance_LDADD = $(gpu_libs)
test_cuda_gpu_conformance_LDFLAGS = $(gpu_ldflags)
test_cuda_gpu_bits_SOURCES = test/backend/cuda_bits.c
test_cuda_gpu_bits_CPPFLAGS = $(gpu_cppflags)
test_cuda_gpu_bits_LDADD = $(gpu_libs)
test_cuda_gpu_bits_LDFLAGS = $(gpu_ldflags)
test_cuda_gpu_comm_SOURCES = test/backend/cuda_comm.c
test_cuda_gpu_comm_CPPFLAGS = $(gpu_cppflags)
test_cuda_gpu_comm_LDADD = $(gpu_libs)
test_cuda_gpu_comm_LDFLAGS = $(gpu_ldflags)
test_cuda_gpu_bench_SOURCES = test/cuda/gpu_bench.c
test_cuda_gpu_bench_CPPFLAGS = $(gpu_cppflags)
test_cuda_gpu_bench_LDADD = $(gpu_libs)
test_cuda_gpu_bench_LDFLAGS = $(gpu_ldflags)
gpu-programs:
	$(MAKE) $(AM_MAKEFLAGS) all
	$(MAKE) $(AM_MAKEFLAGS) $(gpu_programs)
endif
