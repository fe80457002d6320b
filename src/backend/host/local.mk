# The host's device: task engine, BLAS, element loops.
libdmuon_core_la_SOURCES += \
  src/backend/host/blas.c \
  src/backend/host/device.c \
  src/backend/host/engine.c src/backend/host/engine.h src/backend/host/engine_internal.h \
  src/backend/host/host.h \
  src/backend/host/loops.c \
  src/backend/host/norm.c \
  src/backend/host/queue.c \
  src/backend/host/tasks.h \
  src/backend/host/update_loops.c
