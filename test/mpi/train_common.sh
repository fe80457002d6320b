# What the scripts that run examples/train_gpt share; sourced by them.
#
#   train RANKS [OPTION...]  runs it; what it printed is in $work/run.log, its results in $json
#   result NAME              a value of the results: a number, a word, or a whole list
#   point STATUS WHAT...     a point of the test: good when STATUS is 0; shows the run's end if not
#   same A B WHAT...         a point: the two words are equal and not empty
#   losses FILE              the losses of the last run, one a line
#   near A B LIMIT WHAT...   a point: 20 losses each in two files, relative differences within LIMIT
#
# DMUON_TEST_NIGHTLY, non-empty: $nightly is set, and tests run their long lists.
set -u
. "$abs_top_srcdir/test/tap.sh"
[ -n "$MPIRUN" ] || skip_all "no MPI launcher: configure with MPIRUN=..."
nightly=${DMUON_TEST_NIGHTLY:-}
unset DMUON_TEST_NIGHTLY # not an option of the library
scratch
json=$work/run.json

# A text of the source tree: the same on every machine.
own_text="-text $abs_top_srcdir/COPYING"
# The standard small run, and a smaller one for tables of many.
small="-layers 2 -width 32 -context 16 -batch 168 -steps 20 $own_text"
tiny="-layers 2 -width 32 -context 8 -batch 56 -steps 20 $own_text"

train() {
  train_ranks=$1
  shift
  rm -f "$json"
  sh "$abs_top_srcdir/test/launch.sh" "$train_ranks" "$abs_top_builddir/examples/train_gpt" \
    -progress lines -json "$json" "$@" >"$work/run.log" 2>&1
}

result() {
  [ -f "$json" ] || return 0
  sed -n 's/.*"'"$1"'": *\(\[[^]]*\]\|"[^"]*"\|[-+0-9.e]*\).*/\1/p' "$json" | tr -d '"' | head -n 1
}

point() {
  point_status=$1
  shift
  tail -n 15 "$work/run.log" >"$work/end" 2>/dev/null
  ok "$point_status" "$*" "$work/end"
}

same() {
  if [ -n "$1" ] && [ "$1" = "$2" ]; then same_status=0; else same_status=1; fi
  same_a=$1 same_b=$2
  shift 2
  point "$same_status" "$@"
  [ "$same_status" -eq 0 ] || echo "# \"$same_a\" against \"$same_b\""
}

losses() {
  result loss | tr -d '[] ' | tr ',' '\n' >"$1"
}

near() {
  near_a=$1 near_b=$2 near_limit=$3
  shift 3
  paste "$near_a" "$near_b" | $AWK -v limit="$near_limit" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d; if (NF == 2) n++ }
    END { printf "%.2g", worst; exit !(n == 20 && NR == 20 && worst <= limit) }' >"$work/near"
  point $? "$* (relative difference $(cat "$work/near"))"
}
