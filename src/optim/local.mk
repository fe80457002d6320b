libdmuon_core_la_SOURCES += \
	src/optim/ballot.c src/optim/ballot.h \
	src/optim/group.c \
	src/optim/invariants.c \
	src/optim/live.c \
	src/optim/many.c \
	src/optim/optimizer.h \
	src/optim/pass.c src/optim/pass.h \
	src/optim/random.c \
	src/optim/settings.c \
	src/optim/setup.c src/optim/setup_parts.c \
	src/optim/state.c \
	src/optim/step.c src/optim/step.h src/optim/step_info.c \
	src/optim/stream.c \
	src/optim/verdict.c src/optim/verdict.h \
	src/optim/view.c src/optim/view.h src/optim/view_plan.c \
	src/optim/vote.c src/optim/vote.h \
	src/optim/whole.c src/optim/whole.h
