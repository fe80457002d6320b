# Trees, agreement, and the way from the user's communicator to the library's own.
libdmuon_core_la_SOURCES += \
  src/comm/agree.c src/comm/agree.h \
  src/comm/bootstrap.c src/comm/bootstrap.h src/comm/bootstrap_private.h \
  src/comm/bootstrap_axis.c \
  src/comm/bootstrap_bell.c src/comm/bootstrap_bell.h \
  src/comm/bootstrap_cache.c \
  src/comm/bootstrap_link.c src/comm/bootstrap_link.h \
  src/comm/bootstrap_process.c src/comm/bootstrap_process.h \
  src/comm/check.h \
  src/comm/comm.h \
  src/comm/count.h \
  src/comm/module.h \
  src/comm/tree.c src/comm/tree.h
