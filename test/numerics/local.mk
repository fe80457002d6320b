# The backward pass of the example.
check_PROGRAMS += test/numerics/gpt_gradient.t
TESTS += test/numerics/gpt_gradient.t
test_numerics_gpt_gradient_t_SOURCES = test/numerics/gpt_gradient.c examples/gpt.c examples/gpt.h
test_numerics_gpt_gradient_t_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/examples
test_numerics_gpt_gradient_t_LDADD = $(BLAS_LIBS) -lm
