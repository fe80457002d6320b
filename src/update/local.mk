libdmuon_core_la_SOURCES += \
	src/update/pieces.c src/update/pieces.h \
	src/update/rule.c src/update/rule.h \
	src/update/update.c src/update/update.h
