# What is installed beside the library to be read, and the page that is made from its tables.
dist_doc_DATA += README.md INSTALL.md CHANGES.md COPYING doc/design.md doc/options.md doc/benchmarks.md

check_PROGRAMS += doc/option_reference
doc_option_reference_SOURCES = doc/option_reference.c
option-reference: doc/option_reference
	doc/option_reference > $(srcdir)/doc/options.md
.PHONY: option-reference
