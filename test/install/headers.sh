#!/bin/sh
# Every public header compiles alone, in C and in C++, without a warning, and includes nothing but
# public headers, mpi.h and the standard's own.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
warnings="-Wall -Wextra -Werror -pedantic"

has_compiler "$MPICXX" cpp 'int main() { return 0; }' || MPICXX=

for header in $(public_headers); do
  name=${header#"$abs_top_srcdir/include/"}
  # twice: the guard holds
  printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" >"$work/one.c"
  cp "$work/one.c" "$work/one.cpp"
  # shellcheck disable=SC2086
  $CC $DMUON_MPI_CFLAGS -std=c11 $warnings -I"$abs_top_srcdir/include" -c "$work/one.c" -o "$work/one.o" >"$work/log" 2>&1
  ok $? "<$name> alone in C" "$work/log"
  if [ -n "$MPICXX" ]; then
    # The long gone C++ bindings of MPI would add warnings of their own.
    # shellcheck disable=SC2086
    $MPICXX -std=c++11 $warnings -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -I"$abs_top_srcdir/include" \
      -c "$work/one.cpp" -o "$work/one.o" >"$work/log" 2>&1
    ok $? "<$name> alone in C++" "$work/log"
  else
    skip "<$name> alone in C++" "no C++ compiler behind the MPI wrapper"
  fi
done

public_headers | xargs grep -n '# *include' |
  grep -vE '<(dmuon/[a-z_]+\.h|mpi\.h|stddef\.h|stdint\.h)>' >"$work/log"
[ ! -s "$work/log" ]
ok $? "public headers include nothing of the library's inside" "$work/log"

finish
