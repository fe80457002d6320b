# Benchmarks.
bin_PROGRAMS += tools/dmuon_bench
tools_dmuon_bench_SOURCES = tools/dmuon_bench.c tools/bench.h tools/bench_ns.c tools/bench_accuracy.c \
  tools/bench_choices.c tools/bench_memory.c tools/bench_overlap.c tools/spectra.h
tools_dmuon_bench_LDADD = libdmuon.la $(BLAS_LIBS) $(MPI_LIBS) -lm
tools_dmuon_bench_LDFLAGS =
# With train_gpt: the optimizer's share of a step, and Muon against AdamW.
EXTRA_DIST += tools/bench_train.sh tools/bench_share.sh tools/bench_sweep.sh
