# src/mesh: sizes and places of ranks, device, communicators.
libdmuon_core_la_SOURCES += src/mesh/agreement.c src/mesh/backends.c src/mesh/backends.h \
  src/mesh/layout.c src/mesh/layout.h src/mesh/mesh.c src/mesh/mesh.h src/mesh/setup.c \
  src/mesh/view.c
