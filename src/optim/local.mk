libdmuon_core_la_SOURCES += \
	src/optim/ballot.c src/optim/ballot.h \
	src/optim/live.c \
	src/optim/optimizer.h \
	src/optim/settings.c \
	src/optim/setup.c \
	src/optim/state.c \
	src/optim/step.c \
	src/optim/view.c \
	src/optim/vote.c src/optim/vote.h
