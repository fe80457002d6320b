#!/bin/sh
# The example of the two-level mesh: what it prints on 4 ranks on each mesh, and on 8.
. "$abs_top_srcdir/test/mpi/train_common.sh"

# hsdp RANKS OPTION...: what it prints goes to $work/run.log
hsdp() {
  hsdp_ranks=$1
  shift
  sh "$abs_top_srcdir/test/launch.sh" "$hsdp_ranks" "$abs_top_builddir/examples/ex05_hsdp" "$@" \
    >"$work/run.log" 2>&1
}
losses() {
  sed -n 's/^step *\([0-9]*\)  loss \([0-9.]*\)$/\1 \2/p' "$work/run.log"
}
# 4 layers of 32 x 32 and 32: P elements; Z3, fp32.
P=$((4 * (32 * 32 + 32)))
bytes() {
  sed -n 's/^bytes a step, all ranks: \([0-9]*\) inside the shard groups, \([0-9]*\) between them$/\1 \2/p' "$work/run.log"
}

hsdp 4 -dmuon_replicate 1 -dmuon_shard 4
point $? "1x4"
losses >"$work/first"
same "$(wc -l <"$work/first" | tr -d ' ')" 7 "seven losses"
$AWK 'NR == 1 { first = $2 } { last = $2 } END { exit !(last > 0 && last < first / 2) }' "$work/first"
point $? "the loss falls to less than half"
for mesh in "1 4" "2 2" "4 1"; do
  R=${mesh% *} S=${mesh#* }
  hsdp 4 -dmuon_replicate "$R" -dmuon_shard "$S"
  grep -q "replicate $R x shard $S x tp 1" "$work/run.log"
  point $? "${R}x$S: the mesh is shown"
  same "$(grep -c '^layers\.[0-3]\.[a-z]* *group layers\.[0-3] .*owner' "$work/run.log")" 8 "${R}x$S: eight owners"
  same "$(losses)" "$(cat "$work/first")" "${R}x$S: the same losses"
  same "$(bytes)" "$((3 * (S - 1) * R * P * 4)) $((2 * (R - 1) * P * 4))" "${R}x$S: the bytes of the formulas"
done
hsdp 4 -dmuon_replicate 2 -dmuon_replicate_async 0
same "$(losses)" "$(cat "$work/first")" "in step: the same losses"
hsdp 8 -dmuon_replicate 2 -dmuon_shard 4
point $? "2x4"
same "$(bytes)" "$((3 * 3 * 2 * P * 4)) $((2 * P * 4))" "2x4: the bytes of the formulas"
finish
