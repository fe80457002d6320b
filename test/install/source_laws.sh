#!/bin/sh
# The laws of the source tree: the include graph and what may be called where (tools/include_table),
# that the check itself can find a breach of each kind, and that no two tests share a log.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch

"$abs_top_srcdir/tools/check_includes" "$abs_top_srcdir" >"$work/found" 2>&1
ok $? "sources keep to the include graph and to the places for MPI, BLAS, environment and output" "$work/found"

# ---- planted faults: each line must be found in the file it is put into
mkdir -p "$work/tree"
(cd "$abs_top_srcdir" && find include src examples tools \( -name '*.[ch]' -o -name include_table \) -type f) |
  while read -r file; do
    mkdir -p "$work/tree/${file%/*}"
    cp "$abs_top_srcdir/$file" "$work/tree/$file"
    chmod u+w "$work/tree/$file"
  done
"$abs_top_srcdir/tools/check_includes" "$work/tree" >/dev/null 2>&1
clean=$?
planted() {
  mkdir -p "$work/tree/${1%/*}"
  printf '%s\n' "$2" >"$work/tree/$1"
  "$abs_top_srcdir/tools/check_includes" "$work/tree" >"$work/found" 2>&1
  status=$?
  rm "$work/tree/$1"
  if [ "$3" = found ]; then
    [ $status -eq 1 ] && grep "^$1:" "$work/found" | grep -F "$4" >/dev/null
  else
    [ $status -eq $clean ] && ! grep "^$1:" "$work/found" >/dev/null
  fi
  ok $? "$5" "$work/found"
}
planted src/base/planted.c '#include "comm/comm.h"' found 'src/base may not include' "an include that looks up"
planted src/ns/planted.c '#include "backend/host/host.h"' found 'src/ns may not include' "a backend seen from above"
planted src/base/planted.c '#include <dmuon/mesh.h>' found 'src/base may not include' "a public header with MPI in base"
planted src/engine/planted.c '#include <mpi.h>' found '<mpi.h> belongs in' "mpi.h out of place"
planted src/ns/planted.c '#include "mesh/backends.h"' found 'belongs in src/mesh' "the list of backends seen from above"
planted src/ns/planted.c '#include <cblas.h>' found '<cblas.h> belongs in' "cblas.h out of place"
planted src/mesh/planted.c '#include <hwloc.h>' found '<hwloc.h> belongs in' "hwloc.h out of place"
planted src/mesh/planted.c 'void *f(void) { return dlopen("x", 1); }' found 'dlopen' "a library opened out of place"
planted examples/planted.c '#include "mesh/mesh.h"' found 'examples may not include' "an example that looks inside"
planted src/attic/planted.c 'int x;' found 'no room' "a directory the table does not know"
planted src/mesh/planted.c 'int f(void) { return MPI_Waitall(0, 0, 0); }' found 'MPI_Waitall' "MPI_Waitall"
planted src/mesh/planted.c 'int f(void) { return MPI_Barrier(c); }' found 'MPI_Barrier' "MPI_Barrier"
planted src/mesh/planted.c 'int f(void) { return MPI_Allgatherv(c); }' found 'MPI_Allgatherv' "a vector collective"
planted src/mesh/planted.c 'void *f(void) { return MPI_COMM_WORLD; }' found 'MPI_COMM_WORLD' "MPI_COMM_WORLD"
planted src/mesh/planted.c 'char *f(void) { return getenv("X"); }' found 'getenv' "getenv out of place"
planted src/mesh/planted.c 'void f(void) { printf("x"); }' found 'printf' "printf"
planted src/mesh/planted.c 'void f(void) { exit(1); }' found 'exit' "exit"
planted src/mesh/planted.c 'void *f(void) { return malloc(1); }' found 'malloc' "malloc out of place"
planted src/mesh/planted.c '/* exit(1) printf( */ const char *s = "abort()"; int f(struct t *x) { return x->free(1); } // getenv(' \
  clean '' "comments, strings and members are no calls"

# ---- tests whose names differ in the extension alone would write one log
find "$abs_top_srcdir" -name local.mk -exec cat {} + | tr ' \t' '\n\n' |
  grep -E '^(test|examples|tools)/.*\.(t|np[0-9]+|npall|sh)$' | LC_ALL=C sort -u |
  sed 's/\.[^.]*$//' | uniq -d >"$work/found"
[ ! -s "$work/found" ]
ok $? "no two tests share a base name" "$work/found"

finish
