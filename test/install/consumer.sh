#!/bin/sh
# The installed tree: programs that know nothing of the source tree find the library by pkg-config,
# link with it shared and static, in C, C++ and Fortran, and run, also after the tree was moved.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
here=$abs_top_srcdir/test/install
launch="${CONFIG_SHELL:-/bin/sh} $abs_top_srcdir/test/launch.sh"
[ -n "$PKG_CONFIG" ] || skip_all "no pkg-config"

unset MAKEFLAGS MFLAGS MAKELEVEL
${MAKE:-make} -C "$abs_top_builddir" install DESTDIR="$work/stage" >"$work/log" 2>&1 </dev/null
ok $? "make install" "$work/log"
pc=$(find "$work/stage" -name libdmuon.pc)
[ -n "$pc" ]
ok $? "libdmuon.pc is installed"
configured=$(sed -n 's/^prefix=//p' "$pc")
# The tree moves away from where it was installed.
mv "$work/stage$configured" "$work/moved"
pc=$(find "$work/moved" -name libdmuon.pc)
libdir=${pc%/pkgconfig/libdmuon.pc}
find_library() {
  PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH} $PKG_CONFIG --define-variable=prefix="$work/moved" \
    --define-variable=libdir="$libdir" --define-variable=includedir="$work/moved/include" "$@" libdmuon
}
version=$(find_library --modversion)
[ "$version" = "$(sed -n 's/^version=//p' "$abs_top_srcdir/VERSION")" ]
ok $? "pkg-config knows the version of the file VERSION"
find "$work/moved/include" -name '*.h' | sed "s,^$work/moved/include/,," | LC_ALL=C sort >"$work/installed"
public_headers | sed "s,^$abs_top_srcdir/include/,," | LC_ALL=C sort | diff - "$work/installed" >"$work/log"
ok $? "every public header is installed, and no other" "$work/log"

# consumer DESCRIPTION PROGRAM: runs it on two ranks
consumer() {
  LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} $launch 2 "$2" >"$work/log" 2>&1
  grep -q 'consumer: 2 ranks agree' "$work/log"
  ok $? "$1" "$work/log"
}
# build DESCRIPTION PROGRAM COMMAND...
build() {
  what=$1 program=$2
  shift 2
  "$@" >"$work/log" 2>&1
  status=$?
  if [ $status -ne 0 ] || [ -z "$MPIRUN" ]; then
    ok $status "$what builds" "$work/log"
  else
    consumer "$what builds, and runs on two ranks" "$work/$program"
  fi
}

if [ -f "$libdir/libdmuon.so" ]; then
  # shellcheck disable=SC2046,SC2086
  build "C program, shared library" shared $CC $CFLAGS -o "$work/shared" "$here/consumer.c" $(find_library --cflags --libs)
  if has_compiler "$MPICXX" cpp 'int main() { return 0; }'; then
    # shellcheck disable=SC2046,SC2086
    build "C++ program, shared library" cxx $MPICXX -O1 $DMUON_SANITIZE -x c++ "$here/consumer.c" -x none -o "$work/cxx" $(find_library --cflags --libs)
  else
    skip "C++ program, shared library" "no C++ compiler behind the MPI wrapper"
  fi
  if [ -z "$DMUON_SANITIZE" ] && has_compiler "$MPIFC" f90 'program p
use mpi
end program'; then
    # shellcheck disable=SC2046,SC2086
    build "Fortran program, shared library" fortran sh -c 'cd "$1"; shift; "$@"' sh "$work" $MPIFC -O1 -o "$work/fortran" "$here/consumer.f90" $(find_library --libs)
  else
    skip "Fortran program, shared library" "no Fortran compiler that can use mpi, or a sanitized build"
  fi
fi
if [ -f "$libdir/libdmuon.a" ]; then
  # The archive by name, so that the shared library beside it is not taken.
  static=$(find_library --static --libs | sed "s,-ldmuon,$libdir/libdmuon.a,")
  # shellcheck disable=SC2046,SC2086
  build "C program, static library" static $CC $CFLAGS -o "$work/static" "$here/consumer.c" $(find_library --cflags) $static
fi

finish
