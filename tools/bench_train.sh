# What the benchmarks with train_gpt share, to be sourced. It wants $build, the build directory, and
# runs as the tests do (test/launch.sh). From the environment: RANKS, MPIRUN (default: the build's).
top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$build" 2>/dev/null && pwd) && [ -x "$build/examples/train_gpt" ] || {
  echo "$0: no examples/train_gpt in the build directory ${build:-given}" >&2
  exit 1
}
MPIRUN=${MPIRUN:-$(sed -n 's/^MPIRUN = //p' "$build/Makefile")}
DMUON_TEST_TIMEOUT=${DMUON_TEST_TIMEOUT:-3600}
abs_top_builddir=$build
export MPIRUN DMUON_TEST_TIMEOUT abs_top_builddir
: "${AWK:=awk}"
work=$(mktemp -d "${TMPDIR:-/tmp}/dmuon-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# train NAME ARGUMENT...: a run, its results in $work/NAME.json
train() {
  name=$1
  shift
  sh "$top/test/launch.sh" "$RANKS" "$build/examples/train_gpt" -progress lines \
    -json "$work/$name.json" "$@" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    echo "$0: train_gpt $* failed" >&2
    exit 1
  }
}

# number NAME KEY: the number under a key of $work/NAME.json
number() {
  sed -n "s/.*\"$2\": \([-0-9.e+]*\).*/\1/p" "$work/$1.json"
}
