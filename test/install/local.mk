# What a user gets: headers, symbols, an installed tree. And the laws the sources keep.
install_tests = \
  test/install/configure.sh \
  test/install/source_laws.sh \
  test/install/option_reference.sh \
  test/install/headers.sh \
  test/install/symbols.sh \
  test/install/module.sh \
  test/install/consumer.sh
TESTS += $(install_tests)
CORE_TESTS += test/install/headers.sh test/install/symbols.sh test/install/module.sh
EXTRA_DIST += $(install_tests) test/install/consumer.c test/install/consumer.f90
# Run by .ci/run, not by make check: a clone set up and trained; two builds against each other.
EXTRA_DIST += test/install/fresh_clone.sh test/install/same_bits.sh
