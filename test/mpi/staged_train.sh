#!/bin/sh
# train_gpt with communication staged through memory of its own, on the host's device: the bits and
# the bytes of the host's communication.
. "$abs_top_srcdir/test/mpi/train_common.sh"

base="-layers 2 -width 32 -context 8 -batch 60 -steps 4 $own_text"

# row RANKS OPTION...
row() {
  row_ranks=$1
  shift
  # shellcheck disable=SC2086
  train "$row_ranks" $base "$@"
  point $? "$row_ranks ranks: $*"
  reference=$(result parameter_hash)
  # shellcheck disable=SC2086
  train "$row_ranks" $base "$@" -dmuon_device host:staged
  same "$(result parameter_hash)" "$reference" "the same, staged"
}

row 3 -dmuon_replicate 1
row 4 -sharded -dmuon_replicate 2
row 4 -sharded -adamw sharded -dmuon_replicate 1 -dmuon_reduce_fanin 1
finish
