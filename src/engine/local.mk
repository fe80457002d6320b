libdmuon_core_la_SOURCES += \
	src/engine/groups.c src/engine/groups.h \
	src/engine/layout.c \
	src/engine/lend.c src/engine/lend.h \
	src/engine/lend_grads.c src/engine/lend_setup.c src/engine/lend_turn.c src/engine/lend_values.c \
	src/engine/life.c src/engine/life.h \
	src/engine/order.c src/engine/order.h \
	src/engine/packing.c src/engine/packing.h \
	src/engine/plan.c src/engine/plan.h src/engine/plan_memory.c \
	src/engine/pool.c src/engine/pool.h \
	src/engine/runtime.c src/engine/runtime.h \
	src/engine/schedule.c src/engine/schedule.h
