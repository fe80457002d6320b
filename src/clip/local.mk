libdmuon_core_la_SOURCES += src/clip/clip.c src/clip/clip.h
