# src/base: errors, memory, dtypes, text, options: what every room stands on.
libdmuon_core_la_SOURCES += \
  src/base/context.c src/base/context.h \
  src/base/dtype.c src/base/dtype.h \
  src/base/error.c src/base/error.h \
  src/base/glob.c src/base/glob.h \
  src/base/hash.c src/base/hash.h \
  src/base/json.c src/base/json.h \
  src/base/log.c src/base/log.h \
  src/base/memory.c src/base/memory.h \
  src/base/object.c src/base/object.h \
  src/base/option_value.c \
  src/base/options.c src/base/options.h \
  src/base/options_apply.c \
  src/base/options_entry.h \
  src/base/options_report.c \
  src/base/random.c src/base/random.h \
  src/base/sort.c src/base/sort.h \
  src/base/text.c src/base/text.h \
  src/base/version.c \
  src/base/visible.h
