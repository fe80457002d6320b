
# src/base
base_unit_tests = \
  test/unit/base_dtype.t \
  test/unit/base_error.t \
  test/unit/base_glob.t \
  test/unit/base_memory.t \
  test/unit/base_options.t \
  test/unit/base_random.t \
  test/unit/base_sort.t \
  test/unit/base_text.t
check_PROGRAMS += $(base_unit_tests)
TESTS += $(base_unit_tests)
CORE_TESTS += $(base_unit_tests)
VALGRIND_TESTS += test/unit/base_memory.t test/unit/base_options.t test/unit/base_text.t
test_unit_base_dtype_t_SOURCES = test/unit/base_dtype.c
test_unit_base_error_t_SOURCES = test/unit/base_error.c
test_unit_base_glob_t_SOURCES = test/unit/base_glob.c
test_unit_base_memory_t_SOURCES = test/unit/base_memory.c
test_unit_base_options_t_SOURCES = test/unit/base_options.c
test_unit_base_random_t_SOURCES = test/unit/base_random.c
test_unit_base_sort_t_SOURCES = test/unit/base_sort.c
test_unit_base_text_t_SOURCES = test/unit/base_text.c

# src/engine, src/optim, src/update, src/clip
step_unit_tests = test/unit/engine_plan.t test/unit/optim_ballot.t test/unit/update_rule.t
check_PROGRAMS += $(step_unit_tests)
TESTS += $(step_unit_tests)
CORE_TESTS += $(step_unit_tests)
test_unit_engine_plan_t_SOURCES = test/unit/engine_plan.c
test_unit_optim_ballot_t_SOURCES = test/unit/optim_ballot.c
test_unit_update_rule_t_SOURCES = test/unit/update_rule.c

# src/model
model_unit_tests = \
  test/unit/model_matrix.t \
  test/unit/model_merge.t \
  test/unit/model_names.t \
  test/unit/model_plan.t \
  test/unit/model_rules.t
check_PROGRAMS += $(model_unit_tests)
TESTS += $(model_unit_tests)
CORE_TESTS += $(model_unit_tests)
VALGRIND_TESTS += test/unit/model_merge.t test/unit/model_plan.t
test_unit_model_matrix_t_SOURCES = test/unit/model_matrix.c
test_unit_model_merge_t_SOURCES = test/unit/model_merge.c
test_unit_model_names_t_SOURCES = test/unit/model_names.c
test_unit_model_plan_t_SOURCES = test/unit/model_plan.c
test_unit_model_rules_t_SOURCES = test/unit/model_rules.c
EXTRA_DIST += test/data/shapes/fno2d.txt test/data/shapes/gpt2-124m.txt \
  test/data/shapes/minilm-l6.txt test/data/shapes/mixtral-8x7b.txt test/data/shapes/vit-l16.txt

# src/comm
check_PROGRAMS += test/unit/comm_tree.t
TESTS += test/unit/comm_tree.t
CORE_TESTS += test/unit/comm_tree.t
test_unit_comm_tree_t_SOURCES = test/unit/comm_tree.c

# src/ns
ns_unit_tests = test/unit/ns_restarts.t test/unit/ns_tables.t
check_PROGRAMS += $(ns_unit_tests)
TESTS += $(ns_unit_tests)
CORE_TESTS += $(ns_unit_tests)
VALGRIND_TESTS += test/unit/ns_restarts.t
test_unit_ns_restarts_t_SOURCES = test/unit/ns_restarts.c
test_unit_ns_tables_t_SOURCES = test/unit/ns_tables.c

# src/mesh, src/partition
mesh_unit_tests = \
  test/unit/mesh_layout.t \
  test/unit/split_machines.t \
  test/unit/split_places.t \
  test/unit/partition_examples.t \
  test/unit/partition_object.t \
  test/unit/partition_properties.t
check_PROGRAMS += $(mesh_unit_tests)
TESTS += $(mesh_unit_tests) test/unit/ex02.sh
CORE_TESTS += $(mesh_unit_tests)
VALGRIND_TESTS += test/unit/mesh_layout.t test/unit/partition_examples.t \
  test/unit/split_machines.t test/unit/split_places.t
test_unit_mesh_layout_t_SOURCES = test/unit/mesh_layout.c
test_unit_split_machines_t_SOURCES = test/unit/split_machines.c
test_unit_split_places_t_SOURCES = test/unit/split_places.c
test_unit_partition_examples_t_SOURCES = test/unit/partition_examples.c
test_unit_partition_object_t_SOURCES = test/unit/partition_object.c
test_unit_partition_properties_t_SOURCES = test/unit/partition_properties.c
EXTRA_DIST += test/unit/ex02.sh test/data/shapes/fno2d.txt test/data/shapes/gpt2-124m.txt \
  test/data/shapes/llama3.2-1b.txt

# The pure parts of src/engine.
engine_unit_tests = \
  test/unit/engine_layout.t \
  test/unit/engine_life.t \
  test/unit/engine_order.t
check_PROGRAMS += $(engine_unit_tests)
TESTS += $(engine_unit_tests)
CORE_TESTS += $(engine_unit_tests)
VALGRIND_TESTS += test/unit/engine_layout.t
test_unit_engine_layout_t_SOURCES = test/unit/engine_layout.c
test_unit_engine_life_t_SOURCES = test/unit/engine_life.c
test_unit_engine_order_t_SOURCES = test/unit/engine_order.c

# src/topo
topo_unit_tests = \
  test/unit/topo_describe.t \
  test/unit/topo_detect.t \
  test/unit/topo_nvml.t \
  test/unit/topo_summary.t
check_PROGRAMS += $(topo_unit_tests)
TESTS += $(topo_unit_tests)
CORE_TESTS += $(topo_unit_tests)
VALGRIND_TESTS += test/unit/topo_summary.t
test_unit_topo_describe_t_SOURCES = test/unit/topo_describe.c
test_unit_topo_detect_t_SOURCES = test/unit/topo_detect.c
test_unit_topo_nvml_t_SOURCES = test/unit/topo_nvml.c
test_unit_topo_summary_t_SOURCES = test/unit/topo_summary.c
# What topo_nvml opens as the driver's library.
if ENABLE_SHARED
check_LTLIBRARIES += test/unit/fake_nvml.la
test_unit_fake_nvml_la_SOURCES = test/unit/fake_nvml.c
test_unit_fake_nvml_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)/test/unit
test_unit_fake_nvml_la_CFLAGS = $(AM_CFLAGS) -fvisibility=hidden
endif
EXTRA_DIST += test/data/topo/README test/data/topo/made-hgx-h100.xml \
  test/data/topo/nvidiaDGX2.xml test/data/topo/one-gpu-one-hca.xml

# src/mesh: how devices talk to each other.
check_PROGRAMS += test/unit/mesh_transport.t
TESTS += test/unit/mesh_transport.t
CORE_TESTS += test/unit/mesh_transport.t
VALGRIND_TESTS += test/unit/mesh_transport.t
test_unit_mesh_transport_t_SOURCES = test/unit/mesh_transport.c
