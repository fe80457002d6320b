# The trace backend and its verifier.
libdmuon_core_la_SOURCES += \
  src/backend/trace/comm.c \
  src/backend/trace/device.c src/backend/trace/device_state.h \
  src/backend/trace/happens.c \
  src/backend/trace/log.c src/backend/trace/log.h \
  src/backend/trace/operations.c \
  src/backend/trace/order.c \
  src/backend/trace/print.c \
  src/backend/trace/record.c src/backend/trace/record.h \
  src/backend/trace/sequences.c src/backend/trace/sequences.h \
  src/backend/trace/shadow.c src/backend/trace/shadow.h \
  src/backend/trace/trace.h \
  src/backend/trace/verify.c src/backend/trace/verify.h
