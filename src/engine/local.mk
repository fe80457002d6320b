libdmuon_core_la_SOURCES += \
	src/engine/packing.c src/engine/packing.h \
	src/engine/runtime.c src/engine/runtime.h \
	src/engine/schedule.c src/engine/schedule.h
