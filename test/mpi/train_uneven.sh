#!/bin/sh
# On 3 and 7 ranks sums have another shape, so bits differ: from mesh to mesh, and from another number
# of ranks. Losses stay within 1e-5 of those of one rank, parameters within 1e-4 (in the norm of all).
. "$abs_top_srcdir/test/mpi/train_common.sh"
base="$tiny -batch 68"

values() { # the parameters of a file, one a line
  od -A n -v -t f4 -w4 "$1"
}

train 1 $base -save "$work/one.bin"
point $? "one rank"
values "$work/one.bin" >"$work/one.txt"
losses "$work/one.loss"
for run in "3 1" "3 3" "7 1" "7 7"; do
  ranks=${run% *} replicate=${run#* }
  for form in "" -sharded "-sharded -z2 -adamw sharded -dmuon_replicate_async 1"; do
    # shellcheck disable=SC2086
    train "$ranks" $base $form -dmuon_replicate "$replicate" -save "$work/many.bin"
    point $? "$ranks ranks, ${replicate}x$((ranks / replicate)) $form"
    losses "$work/many.loss"
    near "$work/one.loss" "$work/many.loss" 1e-5 "losses as on one rank"
    values "$work/many.bin" | paste "$work/one.txt" - | $AWK '
      { d += ($1 - $2) ^ 2; s += $1 ^ 2; if (NF == 2) n++ }
      END { printf "%.2g\n", sqrt(d / s); exit !(n == NR && n > 10000 && d <= 1e-8 * s) }' >"$work/run.log"
    point $? "parameters as on one rank (relative difference $(cat "$work/run.log"))"
  done
done
finish
