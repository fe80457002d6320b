#!/bin/sh
# One global batch of 168 sequences, shared by 1, 2, 3, 4, 7 and 8 ranks, and one of 30, which most
# of them do not divide: the losses agree to 1e-5, as the gradients are sums divided by the total.
. "$abs_top_srcdir/test/mpi/train_common.sh"

# The default text where there is one.
if [ -f /usr/share/common-licenses/GPL-3 ]; then own_text=; fi
small="-layers 2 -width 32 -context 16 -steps 20 $own_text"

for batch in 168 30; do
  for ranks in 1 2 3 4 7 8; do
    train $ranks $small -batch $batch
    point $? "$ranks ranks, batch $batch"
    losses "$work/loss.$ranks"
    [ $ranks -eq 1 ] && continue
    near "$work/loss.1" "$work/loss.$ranks" 1e-5 "$ranks ranks, batch $batch: losses as on one rank"
  done
  $AWK 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first - 0.5) }' "$work/loss.8"
  point $? "batch $batch: the loss falls"
done
finish
