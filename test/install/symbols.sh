#!/bin/sh
# What the shared library exports (the declared functions, all of them and nothing else), what it
# imports (nothing that ends or talks over its caller), and that it keeps no state of its own. The same
# of a backend's module, and that the library exports just what that calls.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
library=$abs_top_builddir/.libs/libdmuon.so
module=$abs_top_builddir/.libs/libdmuon_cuda.so
[ -f "$library" ] || skip_all "no shared library in this build"

# exports FILE: names, without what linkers and sanitizers add
exports() {
  $NM -D --defined-only "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
    grep -vE '^(_init|_fini|__asan|__odr_asan|__ubsan|_edata|_end|__bss_start)' | LC_ALL=C sort -u
}

exports "$library" >"$work/all"
: >"$work/private"
[ ! -f "$module" ] || grep '^dmuon_' "$abs_top_srcdir/src/private.sym" | LC_ALL=C sort -u >"$work/private"
comm -23 "$work/all" "$work/private" >"$work/exported"
# Declarations: DMUON_API, then the first name before a parenthesis.
# shellcheck disable=SC2046
cat $(public_headers) | sed '/^ *#/d' | tr '\n' ' ' | sed 's:/\*\([^*]\|\*[^/]\)*\*/: :g' | tr ';{}' '\n\n\n' |
  sed -n 's/.*DMUON_API[^(]*[^A-Za-z0-9_]\([A-Za-z_][A-Za-z0-9_]*\) *(.*/\1/p' | LC_ALL=C sort -u >"$work/declared"

[ -s "$work/declared" ]
ok $? "the headers declare functions"
grep -v '^DMuon' "$work/exported" >"$work/log"
[ ! -s "$work/log" ]
ok $? "every exported name begins with DMuon, or is one for modules" "$work/log"
comm -23 "$work/exported" "$work/declared" >"$work/log"
[ ! -s "$work/log" ]
ok $? "every exported function is declared in a public header" "$work/log"
comm -13 "$work/exported" "$work/declared" >"$work/log"
[ ! -s "$work/log" ]
ok $? "every declared function is exported" "$work/log"

if [ -f "$module" ]; then
  exports "$module" >"$work/log"
  [ "$(cat "$work/log")" = dmuon_cuda_module ]
  ok $? "the module exports one object" "$work/log"
  $NM -D --undefined-only "$module" | awk '{ sub(/@.*/, "", $NF); print $NF }' | grep '^dmuon_' | LC_ALL=C sort -u >"$work/called"
  comm -13 "$work/called" "$work/private" >"$work/log"
  [ ! -s "$work/log" ]
  ok $? "src/private.sym has nothing that no module calls" "$work/log"
fi

if [ -n "$DMUON_SANITIZE" ]; then
  skip "imports" "sanitizers import what they need"
  skip "state" "sanitizers keep state of their own"
  finish
fi

{
  $NM -D --undefined-only "$library"
  [ ! -f "$module" ] || $NM -u "$abs_top_builddir/.libs/libcuda_backend.a" 2>/dev/null
} | awk '{ sub(/@.*/, "", $NF); print $NF }' |
  grep -E '^(_*(exit|Exit|abort|assert_fail|assert)|quick_exit|atexit|raise|kill|signal|sigaction|system|fork|(__)?v?(f|d|s)?printf(_chk)?|f?puts|f?putc|putchar|perror|psignal|stderr|MPI_(Abort|Barrier|Wait|Waitall|Waitany|Waitsome|Init|Init_thread|Finalize))$' >"$work/log"
if grep -q DMUON_DEBUG.1 "$abs_top_builddir/config.h"; then
  grep -v -E 'assert' "$work/log" >"$work/log2"
  mv "$work/log2" "$work/log"
fi
[ ! -s "$work/log" ]
ok $? "it imports nothing that ends the program, prints or waits without a limit" "$work/log"

if command -v objdump >/dev/null 2>&1; then
  # Objects in .data and .bss; thread-local ones and relocated constants have sections of their own.
  for archive in "$abs_top_builddir"/.libs/libdmuon_core.a "$abs_top_builddir"/.libs/libcuda_backend.a; do
    [ ! -f "$archive" ] || objdump -t "$archive" 2>/dev/null
  done |
    awk '/[ \t]O[ \t]+\.(data|bss)(\.[A-Za-z_])?/ && !/\.data\.rel\.ro/ { print $NF }' | grep -v keyval >"$work/log"
  [ ! -s "$work/log" ]
  ok $? "no global mutable state but MPI keyvals" "$work/log"
else
  skip "no global mutable state" "no objdump"
fi

finish
