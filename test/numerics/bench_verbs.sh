#!/bin/sh
# The benchmark program runs and writes what it says; its times are not judged here.
. "$abs_top_srcdir/test/tap.sh"
scratch
bench="$abs_top_builddir/tools/dmuon_bench"

for dtype in fp32 fp64 bf16; do
  "$bench" ns -shape 24x96 -dtype $dtype -repeat 2 -json "$work/ns.json" >"$work/log" 2>&1 &&
    grep "\"shape\": \[24, 96\], \"dtype\": \"$dtype\"" "$work/ns.json" >/dev/null &&
    grep '"speedup": [0-9]' "$work/ns.json" >/dev/null
  ok $? "ns in $dtype" "$work/log"
done
"$bench" ns -shape 24x96 -repeat 1 >"$work/log" 2>&1
awk '/results differ by/ { good = $4 < 1e-4 } END { exit !good }' "$work/log"
ok $? "library and plain form compute the same" "$work/log"

"$bench" accuracy -shape 16x32 -json "$work/accuracy.json" >"$work/log" 2>&1 &&
  awk '$2 == "gram" || $2 == "direct" {
         n++
         bound["fp64"] = 1e-12; bound["fp32"] = 5e-5
         if ($3 in bound && $4 > bound[$3]) bad = 1
       }
       END { exit !(n == 40 && !bad) }' "$work/log"
ok $? "accuracy: five spectra, eight configurations" "$work/log"
[ "$(grep -c '"spectrum"' "$work/accuracy.json")" -eq 40 ]
ok $? "and as JSON" "$work/accuracy.json"
"$bench" ns -shape 24 >"$work/log" 2>&1
[ $? -eq 2 ]
ok $? "a wrong argument is refused" "$work/log"
finish
