# The backward pass of the example.
check_PROGRAMS += test/numerics/gpt_gradient.t
TESTS += test/numerics/gpt_gradient.t
test_numerics_gpt_gradient_t_SOURCES = test/numerics/gpt_gradient.c examples/gpt.c examples/gpt.h
test_numerics_gpt_gradient_t_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/examples
test_numerics_gpt_gradient_t_LDADD = $(BLAS_LIBS) -lm

# Newton-Schulz: accuracy and known results; its example and its benchmark, run.
ns_numerics_tests = test/numerics/ns_accuracy.t test/numerics/ns_batch.t test/numerics/ns_cases.t \
  test/numerics/ns_choices.t test/numerics/ns_options.np2
ns_numerics_scripts = test/numerics/ex_newton_schulz.sh test/numerics/bench_verbs.sh
check_PROGRAMS += $(ns_numerics_tests)
TESTS += $(ns_numerics_tests) $(ns_numerics_scripts)
CORE_TESTS += test/numerics/ns_batch.t test/numerics/ns_cases.t test/numerics/ns_choices.t \
  test/numerics/ns_options.np2
VALGRIND_TESTS += test/numerics/ns_batch.t test/numerics/ns_cases.t test/numerics/ns_choices.t
EXTRA_DIST += $(ns_numerics_scripts)
test_numerics_ns_accuracy_t_SOURCES = test/numerics/ns_accuracy.c tools/spectra.h
test_numerics_ns_accuracy_t_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tools
test_numerics_ns_batch_t_SOURCES = test/numerics/ns_batch.c
test_numerics_ns_choices_t_SOURCES = test/numerics/ns_choices.c
test_numerics_ns_cases_t_SOURCES = test/numerics/ns_cases.c
test_numerics_ns_options_np2_SOURCES = test/numerics/ns_options.c

# Known numbers of the update rules.
check_PROGRAMS += test/numerics/update_golden.np1
TESTS += test/numerics/update_golden.np1
CORE_TESTS += test/numerics/update_golden.np1
VALGRIND_TESTS += test/numerics/update_golden.np1
test_numerics_update_golden_np1_SOURCES = test/numerics/update_golden.c

# Newton-Schulz with the CUDA backend, on the test double.
if DMUON_DOUBLE
check_PROGRAMS += test/numerics/cuda_newton_schulz.np2
TESTS += test/numerics/cuda_newton_schulz.np2
CUDA_TESTS += test/numerics/cuda_newton_schulz.np2
test_numerics_cuda_newton_schulz_np2_SOURCES = test/numerics/cuda_newton_schulz.c tools/spectra.h
test_numerics_cuda_newton_schulz_np2_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS) -I$(top_srcdir)/tools
test_numerics_cuda_newton_schulz_np2_LDADD = $(double_libs) $(MPI_LIBS) -lm
test_numerics_cuda_newton_schulz_np2_LDFLAGS = $(double_ldflags)
endif
