# What a user gets: headers, symbols, an installed tree. And the laws the sources keep.
install_tests = \
  test/install/configure.sh \
  test/install/source_laws.sh \
  test/install/option_reference.sh \
  test/install/headers.sh \
  test/install/symbols.sh \
  test/install/consumer.sh
TESTS += $(install_tests)
CORE_TESTS += test/install/headers.sh test/install/symbols.sh
EXTRA_DIST += $(install_tests) test/install/consumer.c test/install/consumer.f90
