# Newton-Schulz: coefficients, restarts, plans, execution, the public object.
libdmuon_core_la_SOURCES += \
  src/ns/choice.c \
  src/ns/choice.h \
  src/ns/measure.c \
  src/ns/newton_schulz.c \
  src/ns/ns.h \
  src/ns/plan.c \
  src/ns/poly.c \
  src/ns/recipe.c \
  src/ns/restarts.c \
  src/ns/run.c \
  src/ns/tables.c \
  src/ns/view.c
