# The host's device: task engine, BLAS, element loops.
libdmuon_core_la_SOURCES += \
  src/backend/host/blas.c \
  src/backend/host/buffer.c \
  src/backend/host/device.c \
  src/backend/host/engine.c src/backend/host/engine.h src/backend/host/engine_internal.h \
  src/backend/host/host.h \
  src/backend/host/loops.c \
  src/backend/host/norm.c \
  src/backend/host/queue.c \
  src/backend/host/tasks.h \
  src/backend/host/update_loops.c

# The host's communicators.
libdmuon_core_la_SOURCES += \
  src/backend/host/comm.c src/backend/host/comm_state.h \
  src/backend/host/comm_ops.c src/backend/host/comm_operation.h \
  src/backend/host/comm_reduce.c \
  src/backend/host/comm_spread.c \
  src/backend/host/join.c \
  src/backend/host/sum.c src/backend/host/sum.h \
  src/backend/host/transfer.c src/backend/host/transfer.h
