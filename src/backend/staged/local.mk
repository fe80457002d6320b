# Communication of any device through host memory.
libdmuon_core_la_SOURCES += \
  src/backend/staged/comm.c src/backend/staged/comm_state.h \
  src/backend/staged/operations.c \
  src/backend/staged/rounds.c \
  src/backend/staged/staged.h
