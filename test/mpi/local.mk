# Client programs: how codes of several kinds use the library.
client_tests = \
  test/mpi/client_pipeline.np4 \
  test/mpi/client_moe.np4 \
  test/mpi/client_loop.np4
check_PROGRAMS += $(client_tests)
TESTS += $(client_tests)
CORE_TESTS += $(client_tests)
test_mpi_client_pipeline_np4_SOURCES = test/mpi/client_pipeline.c
test_mpi_client_pipeline_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_client_moe_np4_SOURCES = test/mpi/client_moe.c
test_mpi_client_moe_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_client_loop_np4_SOURCES = test/mpi/client_loop.c
test_mpi_client_loop_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm

# The examples, run.
example_tests = \
  test/mpi/ex_hello.sh \
  test/mpi/train_cli.sh \
  test/mpi/train_hash4.sh \
  test/mpi/train_hash8.sh \
  test/mpi/train_deferred.sh \
  test/mpi/train_losses.sh
TESTS += $(example_tests)
CORE_TESTS += test/mpi/train_hash4.sh
EXTRA_DIST += $(example_tests) test/mpi/train_common.sh test/mpi/hash_reference.sh

# The registry put together over ranks.
check_PROGRAMS += test/mpi/model_agree.npall
TESTS += test/mpi/model_agree.npall
CORE_TESTS += test/mpi/model_agree.npall
test_mpi_model_agree_npall_SOURCES = test/mpi/model_agree.c
