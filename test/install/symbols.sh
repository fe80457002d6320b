#!/bin/sh
# What the shared library exports (the declared functions, all of them and nothing else), what it
# imports (nothing that ends or talks over its caller), and that it keeps no state of its own.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
library=$abs_top_builddir/.libs/libdmuon.so
[ -f "$library" ] || skip_all "no shared library in this build"

$NM -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' | grep -vE '^(_init|_fini|__asan|__odr_asan|__ubsan|_edata|_end|__bss_start)' |
  LC_ALL=C sort -u >"$work/exported"
# Declarations: DMUON_API, then the first name before a parenthesis.
# shellcheck disable=SC2046
cat $(public_headers) | sed '/^ *#/d' | tr '\n' ' ' | sed 's:/\*\([^*]\|\*[^/]\)*\*/: :g' | tr ';{}' '\n\n\n' |
  sed -n 's/.*DMUON_API[^(]*[^A-Za-z0-9_]\([A-Za-z_][A-Za-z0-9_]*\) *(.*/\1/p' | LC_ALL=C sort -u >"$work/declared"

[ -s "$work/declared" ]
ok $? "the headers declare functions"
grep -v '^DMuon' "$work/exported" >"$work/log"
[ ! -s "$work/log" ]
ok $? "every exported name begins with DMuon" "$work/log"
comm -23 "$work/exported" "$work/declared" >"$work/log"
[ ! -s "$work/log" ]
ok $? "every exported function is declared in a public header" "$work/log"
comm -13 "$work/exported" "$work/declared" >"$work/log"
[ ! -s "$work/log" ]
ok $? "every declared function is exported" "$work/log"

if [ -n "$DMUON_SANITIZE" ]; then
  skip "imports" "sanitizers import what they need"
  skip "state" "sanitizers keep state of their own"
  finish
fi

$NM -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
  grep -E '^(_*(exit|Exit|abort|assert_fail|assert)|quick_exit|atexit|raise|kill|signal|sigaction|system|fork|(__)?v?(f|d|s)?printf(_chk)?|f?puts|f?putc|putchar|perror|psignal|stderr|MPI_(Abort|Barrier|Wait|Waitall|Waitany|Waitsome|Init|Init_thread|Finalize))$' >"$work/log"
if grep -q DMUON_DEBUG.1 "$abs_top_builddir/config.h"; then
  grep -v -E 'assert' "$work/log" >"$work/log2"
  mv "$work/log2" "$work/log"
fi
[ ! -s "$work/log" ]
ok $? "it imports nothing that ends the program, prints or waits without a limit" "$work/log"

if command -v objdump >/dev/null 2>&1; then
  # Objects in .data and .bss; thread-local ones and relocated constants have sections of their own.
  objdump -t "$abs_top_builddir/.libs/libdmuon_core.a" 2>/dev/null |
    awk '/[ \t]O[ \t]+\.(data|bss)(\.[A-Za-z_])?/ && !/\.data\.rel\.ro/ { print $NF }' | grep -v keyval >"$work/log"
  [ ! -s "$work/log" ]
  ok $? "no global mutable state but MPI keyvals" "$work/log"
else
  skip "no global mutable state" "no objdump"
fi

finish
