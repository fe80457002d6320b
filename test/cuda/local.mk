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
endif
EXTRA_DIST += test/cuda/d_cuda.cpp
