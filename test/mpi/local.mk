# Client programs: how codes of several kinds use the library.
client_tests = \
  test/mpi/client_pipeline.np4 \
  test/mpi/client_pipeline_many.np4 \
  test/mpi/client_moe.np4 \
  test/mpi/client_loop.np4 \
  test/mpi/client_loop_sharded.np4
check_PROGRAMS += $(client_tests)
TESTS += $(client_tests)
CORE_TESTS += $(client_tests)
test_mpi_client_pipeline_np4_SOURCES = test/mpi/client_pipeline.c
test_mpi_client_pipeline_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_client_pipeline_many_np4_SOURCES = test/mpi/client_pipeline_many.c
test_mpi_client_pipeline_many_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_client_moe_np4_SOURCES = test/mpi/client_moe.c
test_mpi_client_moe_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_client_loop_np4_SOURCES = test/mpi/client_loop.c
test_mpi_client_loop_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_client_loop_sharded_np4_SOURCES = test/mpi/client_loop_sharded.c
test_mpi_client_loop_sharded_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm

# The examples, run.
example_tests = \
  test/mpi/ex_hello.sh \
  test/mpi/ex_topology.sh \
  test/mpi/ex_hsdp.sh \
  test/mpi/train_cli.sh \
  test/mpi/train_hash4.sh \
  test/mpi/train_hash8.sh \
  test/mpi/train_deferred.sh \
  test/mpi/train_losses.sh \
  test/mpi/train_sharded.sh \
  test/mpi/train_passes.sh \
  test/mpi/train_bf16.sh \
  test/mpi/train_uneven.sh \
  test/mpi/train_bytes.sh
TESTS += $(example_tests)
CORE_TESTS += test/mpi/train_hash4.sh test/mpi/train_passes.sh
EXTRA_DIST += $(example_tests) test/mpi/train_common.sh test/mpi/train_table.sh \
  test/mpi/hash_reference.sh

# The registry put together over ranks.
check_PROGRAMS += test/mpi/model_agree.npall
TESTS += test/mpi/model_agree.npall
CORE_TESTS += test/mpi/model_agree.npall
test_mpi_model_agree_npall_SOURCES = test/mpi/model_agree.c

# src/comm and the communicators of the host.
comm_tests = \
  test/mpi/comm_agree.npall \
  test/mpi/comm_bootstrap.np4 \
  test/mpi/comm_segments.npall
check_PROGRAMS += $(comm_tests)
TESTS += $(comm_tests)
CORE_TESTS += $(comm_tests)
test_mpi_comm_agree_npall_SOURCES = test/mpi/comm_agree.c
test_mpi_comm_bootstrap_np4_SOURCES = test/mpi/comm_bootstrap.c
test_mpi_comm_segments_npall_SOURCES = test/mpi/comm_segments.c

# src/mesh
mesh_machine_tests = test/mpi/mesh_basic.npall test/mpi/topology.np8
check_PROGRAMS += $(mesh_machine_tests)
TESTS += $(mesh_machine_tests)
CORE_TESTS += $(mesh_machine_tests)
test_mpi_mesh_basic_npall_SOURCES = test/mpi/mesh_basic.c
test_mpi_topology_np8_SOURCES = test/mpi/topology.c

# The optimizer's step.
step_case_sources = test/step_case.c test/step_case.h test/reference.c test/reference.h
step_tests = \
  test/mpi/step_reference.npall \
  test/mpi/step_live.npall \
  test/mpi/step_identity2.np2 \
  test/mpi/step_identity.np4 \
  test/mpi/step_identity6.np6 \
  test/mpi/step_identity8.np8
check_PROGRAMS += $(step_tests)
TESTS += $(step_tests)
CORE_TESTS += test/mpi/step_reference.npall test/mpi/step_identity.np4
test_mpi_step_reference_npall_SOURCES = test/mpi/step_reference.c $(step_case_sources)
test_mpi_step_live_npall_SOURCES = test/mpi/step_live.c $(step_case_sources)
test_mpi_step_identity2_np2_SOURCES = test/mpi/step_identity.c $(step_case_sources)
test_mpi_step_identity_np4_SOURCES = test/mpi/step_identity.c $(step_case_sources)
test_mpi_step_identity8_np8_SOURCES = test/mpi/step_identity.c $(step_case_sources)

test_mpi_step_identity6_np6_SOURCES = test/mpi/step_identity.c $(step_case_sources)

# One optimizer on several meshes; more ranks than matrices; whom a rank talks to. The last one is
# linked with the library's objects, so that its wrappers of MPI are called.
mesh_tests = \
  test/mpi/step_meshes.np4 \
  test/mpi/step_meshes6.np6 \
  test/mpi/step_many.np16 \
  test/mpi/step_peers.np8
check_PROGRAMS += $(mesh_tests)
TESTS += $(mesh_tests)
CORE_TESTS += test/mpi/step_meshes.np4 test/mpi/step_peers.np8
test_mpi_step_meshes_np4_SOURCES = test/mpi/step_meshes.c $(step_case_sources)
test_mpi_step_meshes6_np6_SOURCES = test/mpi/step_meshes.c $(step_case_sources)
test_mpi_step_many_np16_SOURCES = test/mpi/step_many.c test/reference.c test/reference.h
test_mpi_step_peers_np8_SOURCES = test/mpi/step_peers.c $(step_case_sources)

# What the library leaves alone: on ranks, and without a launcher.
surroundings_tests = \
  test/mpi/surroundings.np3 \
  test/mpi/surroundings1.t
check_PROGRAMS += $(surroundings_tests)
TESTS += $(surroundings_tests)
CORE_TESTS += $(surroundings_tests)
test_mpi_surroundings_np3_SOURCES = test/mpi/surroundings.c $(step_case_sources)
test_mpi_surroundings_np3_LDADD = libdmuon_core.la -ldl
test_mpi_surroundings1_t_SOURCES = test/mpi/surroundings.c $(step_case_sources)
test_mpi_surroundings1_t_LDADD = libdmuon_core.la -ldl

# Which threads may call.
thread_tests = \
  test/mpi/threads_funneled.np3 \
  test/mpi/threads_serialized.np3
check_PROGRAMS += $(thread_tests)
TESTS += $(thread_tests)
CORE_TESTS += $(thread_tests)
test_mpi_threads_funneled_np3_SOURCES = test/mpi/threads_funneled.c test/mpi/threads.h
test_mpi_threads_funneled_np3_LDADD = libdmuon_core.la -lpthread
test_mpi_threads_serialized_np3_SOURCES = test/mpi/threads_serialized.c test/mpi/threads.h
test_mpi_threads_serialized_np3_LDADD = libdmuon_core.la -lpthread

# What is left of a life.
check_PROGRAMS += test/mpi/life_many.np2
TESTS += test/mpi/life_many.np2
test_mpi_life_many_np2_SOURCES = test/mpi/life_many.c

# Parameters in the library's memory.
step_lent_sources = test/step_lent.c test/step_lent.h $(step_case_sources)
lend_tests = \
  test/mpi/lend_order.np4 \
  test/mpi/lend_identity1.t \
  test/mpi/lend_identity2.np2 \
  test/mpi/lend_identity.np4 \
  test/mpi/lend_identity8.np8
check_PROGRAMS += $(lend_tests)
TESTS += $(lend_tests)
CORE_TESTS += test/mpi/lend_identity.np4 test/mpi/lend_order.np4
VALGRIND_TESTS += test/mpi/lend_identity1.t
test_mpi_lend_identity1_t_SOURCES = test/mpi/lend_identity.c $(step_lent_sources)
test_mpi_lend_identity2_np2_SOURCES = test/mpi/lend_identity.c $(step_lent_sources)
test_mpi_lend_identity_np4_SOURCES = test/mpi/lend_identity.c $(step_lent_sources)
test_mpi_lend_identity8_np8_SOURCES = test/mpi/lend_identity.c $(step_lent_sources)
test_mpi_lend_order_np4_SOURCES = test/mpi/lend_order.c $(step_lent_sources)

# Lent parameters on several meshes.
check_PROGRAMS += test/mpi/lend_meshes.np4
TESTS += test/mpi/lend_meshes.np4
CORE_TESTS += test/mpi/lend_meshes.np4
test_mpi_lend_meshes_np4_SOURCES = test/mpi/lend_meshes.c

# The step is as planned: bytes, memory.
plan_tests = \
  test/mpi/step_bytes.npall \
  test/mpi/step_memory.np4 \
  test/mpi/step_together.np2
check_PROGRAMS += $(plan_tests)
TESTS += $(plan_tests)
CORE_TESTS += test/mpi/step_bytes.npall
test_mpi_step_bytes_npall_SOURCES = test/mpi/step_bytes.c
test_mpi_step_memory_np4_SOURCES = test/mpi/step_memory.c
test_mpi_step_together_np2_SOURCES = test/mpi/step_together.c

# The whole optimizer on the double of CUDA.
EXTRA_DIST += test/mpi/cuda_train.sh test/mpi/cuda_topology.sh test/mpi/cuda_transport.sh
if DMUON_DOUBLE
cuda_step_tests = test/mpi/cuda_train.sh test/mpi/cuda_topology.sh test/mpi/cuda_transport.sh test/mpi/cuda_skip.np4 \
  test/mpi/cuda_issue.np4 test/mpi/cuda_memory.np4
check_PROGRAMS += test/mpi/cuda_skip.np4 test/mpi/cuda_issue.np4 test/mpi/cuda_memory.np4
TESTS += $(cuda_step_tests)
CUDA_TESTS += $(cuda_step_tests)
test_mpi_cuda_skip_np4_SOURCES = test/mpi/cuda_skip.c
test_mpi_cuda_skip_np4_LDADD = libdmuon.la $(MPI_LIBS) -lm
test_mpi_cuda_issue_np4_SOURCES = test/mpi/cuda_issue.c
test_mpi_cuda_issue_np4_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
test_mpi_cuda_issue_np4_LDADD = $(double_libs) $(MPI_LIBS) -lm
test_mpi_cuda_issue_np4_LDFLAGS = $(double_ldflags)
test_mpi_cuda_memory_np4_SOURCES = test/mpi/step_memory.c
test_mpi_cuda_memory_np4_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_DEVICE='"cuda"' -DTEST_SIDE=80
test_mpi_cuda_memory_np4_LDADD = $(double_libs) $(MPI_LIBS) -lm
test_mpi_cuda_memory_np4_LDFLAGS = $(double_ldflags)
else
EXTRA_DIST += test/mpi/cuda_skip.c test/mpi/cuda_issue.c
endif

# Communication through host memory, without any other device.
EXTRA_DIST += test/mpi/staged_train.sh
TESTS += test/mpi/staged_train.sh
