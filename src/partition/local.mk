# src/partition: who owns which parameter.
libdmuon_core_la_SOURCES += src/partition/assign.c src/partition/assign.h src/partition/cost.c \
  src/partition/partition.c src/partition/partition.h src/partition/plan.c src/partition/seconds.c src/partition/slots.c \
  src/partition/slots.h src/partition/units.c src/partition/units.h src/partition/view.c
