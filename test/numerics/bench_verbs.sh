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
"$bench" ns -shape 24x96 -repeat 1 -dtype bf16 -ns_dtype bf16 -json "$work/ns.json" >"$work/log" 2>&1 &&
  grep '"ns_dtype": "bf16"' "$work/ns.json" >/dev/null
ok $? "ns iterating in bf16" "$work/log"

for shape in 24x96 96x24 16x16; do
  "$bench" ns -choices "$work/choices.json" -shape $shape -repeat 1 -dmuon_device host >"$work/log" 2>&1 || break
done
grep "table of choices.*2 shapes" "$work/log" >/dev/null &&
  [ "$(grep -c '"variant": "\(gram\|direct\)"' "$work/choices.json")" -eq 2 ]
ok $? "ns -choices: two shapes measured, one of them twice, and kept in a file" "$work/log"
echo '{"dmuon_ns_choices": 1, "entries": [{"small": 24}]}' >"$work/choices.json"
"$bench" ns -choices "$work/choices.json" -shape 24x96 >"$work/log" 2>&1
[ $? -eq 1 ] && grep 'entry 0: "big" is missing' "$work/log" >/dev/null
ok $? "ns -choices: a wrong file is refused" "$work/log"

# The owner of a 256 KiB matrix needs at least its state, and more than those that own nothing.
if [ -n "$MPIRUN" ]; then
  for ranks in 1 3; do
    sh "$abs_top_srcdir/test/launch.sh" $ranks "$bench" memory -shape 256x256 \
      -newton_schulz_steps 1 -dmuon_shard 1 -json "$work/memory.json" >"$work/log" 2>&1 &&
      tr ',' '\n' <"$work/memory.json" | sed 's/[{}]//g' | awk -v ranks=$ranks '
        /"ranks"/ { good = $2 == ranks }
        /"library_peak_bytes"/ { owner = $2 }
        /"process_peak_bytes"/ { process = $2 }
        /"others_library_peak_bytes"/ { others = $2 }
        END { exit !(good && owner >= 2 * 262144 && (ranks == 1) == (others == 0) &&
                     others < owner && process >= owner) }'
    ok $? "memory on $ranks ranks" "$work/log"
  done
else
  skip "memory on 1 and 3 ranks" "no MPI launcher"
fi

# The share of the optimizer and the sweep of learning rates, on a network of nearly nothing.
if [ -n "$MPIRUN" ]; then
  small="-layers 1 -width 16 -heads 2 -context 16 -batch 4"
  # shellcheck disable=SC2086
  RANKS=2 STEPS=2 sh "$abs_top_srcdir/tools/bench_share.sh" "$abs_top_builddir" $small >"$work/log" 2>&1 &&
    awk '$1 == "muon" || $1 == "adamw" { n++; if (!($3 + 0 > 0 && $3 + 0 < 100)) bad = 1 }
         END { exit !(n == 2 && !bad) }' "$work/log"
  ok $? "share of the optimizer" "$work/log"
  # shellcheck disable=SC2086
  RANKS=1 STEPS=12 SEEDS="1 2" ADAMW_RATES="1e-9 0.01" MUON_RATES="1e-9 0.02" LOSSES="5.6 0.1" \
    sh "$abs_top_srcdir/tools/bench_sweep.sh" "$abs_top_builddir" $small >"$work/log" 2>&1 &&
    grep "best at the end: adamw 0.01, muon 0.02" "$work/log" >/dev/null &&
    awk '$1 == "5.6" { first = $5 > 4 && $6 > 4 && $10 > 4 && $11 > 4 && $NF > 0 }
         $1 == "0.1" { last = $4 == "-" && $NF == "-" }
         END { exit !(first && last) }' "$work/log"
  ok $? "sweep of learning rates" "$work/log"
else
  skip "share and sweep" "no MPI launcher"
fi

"$bench" ns -shape 24 >"$work/log" 2>&1
[ $? -eq 2 ]
ok $? "a wrong argument is refused" "$work/log"
finish
