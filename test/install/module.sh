#!/bin/sh
# A backend in a file of its own: a library built with it works without what it needs, and says what is
# missing when it is asked for; a library built without it says so.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
hello=$abs_top_builddir/examples/ex01_hello
[ -x "$hello" ] || skip_all "no example in this build"
launch="${CONFIG_SHELL:-/bin/sh} $abs_top_srcdir/test/launch.sh 1"
[ -n "$MPIRUN" ] || launch=

# says DESCRIPTION WORDS [VARIABLE=VALUE]: the example asked for CUDA fails, and its message has the words
says() {
  what=$1 words=$2
  shift 2
  env -u DMUON_MODULE_PATH "$@" $launch "$hello" -dmuon_device cuda >"$work/log" 2>&1 </dev/null
  [ $? -ne 0 ] && grep -q "$words" "$work/log"
  ok $? "$what" "$work/log"
}

$launch "$hello" >"$work/log" 2>&1 </dev/null
ok $? "the host's path works" "$work/log"
if ! grep -q 'define HAVE_CUDA' "$abs_top_builddir/config.h"; then
  says "built without CUDA: it says so" 'backend cuda is not compiled in' LC_ALL=C
  finish
fi
if [ -f "$abs_top_builddir/.libs/libdmuon_cuda.so" ]; then
  says "no module where one was looked for" 'there is no /nonexistent/libdmuon_cuda.so' DMUON_MODULE_PATH=/nonexistent
  mkdir "$work/not"
  echo "no library" >"$work/not/libdmuon_cuda.so"
  says "a module that is none" "cannot be loaded: $work/not/libdmuon_cuda.so" DMUON_MODULE_PATH="$work/not"
  cp "$abs_top_builddir/.libs/libdmuon.so" "$work/not/libdmuon_cuda.so"
  says "another library in its place" 'is not its module: it has no dmuon_cuda_module' DMUON_MODULE_PATH="$work/not"
fi
if [ -e /proc/driver/nvidia ] || [ -e /dev/nvidiactl ]; then
  skip "no driver: it says so" "a driver is here"
else
  says "no driver: it says so" 'driver' LC_ALL=C
fi
finish
