# src/model: the parameters: names, shapes, routes, groups, meshes; the registry all ranks share.
libdmuon_core_la_SOURCES += \
  src/model/arrays.c src/model/arrays.h \
  src/model/list.c src/model/list.h \
  src/model/matrix.c \
  src/model/merge.c \
  src/model/model.c src/model/model.h \
  src/model/model_rules.c \
  src/model/names.c src/model/names.h \
  src/model/param.c src/model/param.h \
  src/model/registry.h \
  src/model/rules.c src/model/rules.h \
  src/model/setup.c \
  src/model/view.c
