# src/topo: what the machine is.
libdmuon_core_la_SOURCES += \
  src/topo/arrange.c \
  src/topo/bind.h \
  src/topo/bytes.c src/topo/bytes.h \
  src/topo/describe.c src/topo/describe.h \
  src/topo/describe_print.c \
  src/topo/detect.c src/topo/detect.h \
  src/topo/hwloc.c \
  src/topo/links.c src/topo/links.h \
  src/topo/machine.c src/topo/machine.h \
  src/topo/nvml.c \
  src/topo/pci.c src/topo/pci.h \
  src/topo/sources.h \
  src/topo/summary.c src/topo/summary.h \
  src/topo/summary_merge.c \
  src/topo/sysfs.c
