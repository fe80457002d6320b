# src/mesh: the machine, sizes and places of ranks, device, communicators.
libdmuon_core_la_SOURCES += src/mesh/agreement.c src/mesh/backends.c src/mesh/backends.h \
  src/mesh/cost.c src/mesh/cost.h \
  src/mesh/device_agree.c src/mesh/device_agree.h src/mesh/device_choice.c src/mesh/device_choice.h \
  src/mesh/layout.c src/mesh/layout.h src/mesh/links.c \
  src/mesh/links.h src/mesh/memory.c src/mesh/mesh.c src/mesh/mesh.h src/mesh/module.c \
  src/mesh/module.h src/mesh/place.c src/mesh/place.h src/mesh/setup.c src/mesh/site.c \
  src/mesh/site.h src/mesh/split.c src/mesh/split.h src/mesh/topology.c src/mesh/view.c \
  src/mesh/view_machine.c src/mesh/view_machine.h
