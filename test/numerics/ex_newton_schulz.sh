#!/bin/sh
# The example on one matrix: its rows are far from orthonormal before, and nearly so after.
. "$abs_top_srcdir/test/tap.sh"
scratch
example="$abs_top_builddir/examples/ex03_newton_schulz"

# near TABLE LOW HIGH OFF: row norms within [LOW, HIGH], products of rows below OFF
near() {
  "$example" 24 96 "$1" >"$work/log" 2>&1 &&
    awk -v low="$2" -v high="$3" -v off="$4" '
      # before|after  squared row norms L to H   largest product of two rows P
      $1 == "before" { before = $NF > 10 * off }
      $1 == "after" { after = $5 >= low && $7 <= high && $NF <= off }
      END { exit !(before && after) }' "$work/log"
  ok $? "$1: orthonormal rows after, not before" "$work/log"
}
near polar_express 0.6 1.3 0.3
near deepseekv4 0.999 1.002 0.002

"$example" 24 96 jordam >"$work/log" 2>&1
[ $? -eq 1 ] && grep "did you mean 'jordan'" "$work/log" >/dev/null
ok $? "a table that does not exist is an error that names the nearest" "$work/log"
"$example" 96 24 >"$work/log" 2>&1
[ $? -eq 2 ] && grep usage "$work/log" >/dev/null
ok $? "more rows than columns: usage" "$work/log"
finish
