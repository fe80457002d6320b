# The examples see the public headers and the public library only.
examples_libs = libdmuon.la $(BLAS_LIBS) $(MPI_LIBS) -lm
noinst_PROGRAMS += examples/ex01_hello examples/train_gpt
examples_ex01_hello_SOURCES = examples/ex01_hello.c
examples_ex01_hello_LDADD = $(examples_libs)
examples_train_gpt_SOURCES = examples/train_gpt.c examples/train.h examples/replicated.c \
  examples/sharded.c examples/results.c examples/ranks.c examples/ranks.h examples/gpt.c \
  examples/gpt.h examples/text.c examples/text.h examples/settings.c examples/settings.h \
  examples/report.c examples/report.h
examples_train_gpt_LDADD = $(examples_libs)
noinst_PROGRAMS += examples/ex03_newton_schulz
examples_ex03_newton_schulz_SOURCES = examples/ex03_newton_schulz.c
examples_ex03_newton_schulz_LDADD = $(examples_libs)
noinst_PROGRAMS += examples/ex02_partition
examples_ex02_partition_SOURCES = examples/ex02_partition.c
examples_ex02_partition_LDADD = $(examples_libs)
noinst_PROGRAMS += examples/ex05_hsdp
examples_ex05_hsdp_SOURCES = examples/ex05_hsdp.c
examples_ex05_hsdp_LDADD = $(examples_libs)
