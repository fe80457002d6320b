# src/device: the execution seam and norms with an exponent.
libdmuon_core_la_SOURCES += src/device/device.c src/device/device.h
