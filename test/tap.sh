# The test protocol for shell tests: ". test/tap.sh", then ok, skip, finish. Also the surroundings a
# test needs when it is started by hand rather than by make.
tap_count=0
tap_failed=0
: "${abs_top_srcdir:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${abs_top_builddir:=$(pwd)}"
: "${CC:=mpicc}" "${AWK:=awk}" "${NM:=nm}" "${PKG_CONFIG:=pkg-config}"
: "${MPICXX:=}" "${MPIFC:=}" "${MPIRUN:=}" "${CFLAGS:=}" "${DMUON_MPI_CFLAGS:=}" "${DMUON_SANITIZE:=}"

# ok STATUS DESCRIPTION [FILE]: passes when STATUS is 0, else shows the file as diagnostics.
ok() {
  tap_count=$((tap_count + 1))
  if [ "$1" -eq 0 ]; then
    echo "ok $tap_count - $2"
  else
    echo "not ok $tap_count - $2"
    tap_failed=$((tap_failed + 1))
    if [ -n "${3:-}" ] && [ -f "$3" ]; then sed 's/^/# /' "$3"; fi
  fi
}

skip() {
  tap_count=$((tap_count + 1))
  echo "ok $tap_count - $1 # SKIP $2"
}

skip_all() {
  echo "1..0 # SKIP $1"
  exit 0
}

finish() {
  echo "1..$tap_count"
  [ $tap_failed -eq 0 ]
  exit $?
}

# A directory of the test's own, gone at exit.
scratch() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/dmuon-test.XXXXXX") || exit 1
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
}

# Whether the wrapper for C++ or Fortran has a compiler behind it: has_compiler COMMAND SUFFIX SOURCE
has_compiler() {
  [ -n "$1" ] || return 1
  printf '%s\n' "$3" >"$work/probe.$2"
  (cd "$work" && $1 -c "probe.$2" -o probe.o) >/dev/null 2>&1
}

# Public headers, as paths.
public_headers() {
  find "$abs_top_srcdir/include" -name '*.h' | LC_ALL=C sort
}
