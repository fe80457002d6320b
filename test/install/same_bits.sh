#!/bin/sh
# Two builds, each with the launcher that it was configured with, give the same parameters: the hash of
# the standard small run. Meant for one processor and one BLAS under two MPIs, so not a part of
# "make check":
#   sh test/install/same_bits.sh BUILD-DIRECTORY BUILD-DIRECTORY [RANKS]
. "${abs_top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}/test/tap.sh"
[ $# -ge 2 ] || { echo "usage: $0 BUILD-DIRECTORY BUILD-DIRECTORY [RANKS]" >&2; exit 2; }
scratch
ranks=${3:-4}

# setting BUILD NAME: a variable of its Makefile
setting() { sed -n "s/^$2 = //p" "$1/Makefile" | head -n 1; }

# hash_of NUMBER BUILD [OPTION...]: prints the hash; why there is none is in $work/log.NUMBER
hash_of() {
  hash_log=$work/log.$1 hash_build=$(cd "$2" && pwd) || return
  shift 2
  MPIRUN=$(setting "$hash_build" MPIRUN) abs_top_srcdir=$abs_top_srcdir abs_top_builddir=$hash_build \
    sh "$abs_top_srcdir/test/mpi/hash_reference.sh" "$ranks" "$@" 2>"$hash_log" </dev/null
}

for build in "$1" "$2"; do
  [ -x "$build/examples/train_gpt" ] && [ -n "$(setting "$build" MPIRUN)" ]
  ok $? "$build has the example and a launcher"
done

# compare WHAT OPTION...
compare() {
  what=$1
  shift
  one=$(hash_of 1 "$first" "$@")
  two=$(hash_of 2 "$second" "$@")
  cat "$work/log.1" "$work/log.2" >"$work/log"
  echo "$(setting "$first" MPIRUN): $one, $(setting "$second" MPIRUN): $two" >>"$work/log"
  printf '%s\n' "$one" | grep -Eq '^[0-9a-f]{16}$' && [ "$one" = "$two" ]
  ok $? "$what on $ranks ranks: the same bits" "$work/log"
}
first=$1 second=$2
compare "the standard small run"
compare "sums in other places, asynchronous" -dmuon_replicate 2 -dmuon_replicate_async 1 -dmuon_reduce_fanin 1
finish
