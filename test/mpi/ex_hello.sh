#!/bin/sh
# The first example on 4 ranks: one mesh, one view, each rank at a place and a part of its own.
. "$abs_top_srcdir/test/mpi/train_common.sh"

# hello OPTION...: what it prints goes to $work/run.log
hello() {
  sh "$abs_top_srcdir/test/launch.sh" 4 "$abs_top_builddir/examples/ex01_hello" "$@" \
    >"$work/run.log" 2>&1
}
places() {
  sed -n 's/^MPI rank [0-9]* is \(([0-9,]*)\) of the mesh and reads part \([0-9]\) of 4 .*/\1\2/p' \
    "$work/run.log" | sort | tr '\n' ' '
}

hello
point $? "the machine decides"
same "$(places)" "(0,0,0)0 (0,1,0)1 (0,2,0)2 (0,3,0)3 " "one node: one shard group"
hello -dmuon_node_size 2
point $? "nodes of two ranks"
same "$(places)" "(0,0,0)0 (0,1,0)1 (1,0,0)2 (1,1,0)3 " "two nodes: two replicas"
hello -dmuon_replicate 4 -dmuon_shard 1
point $? "sizes given"
same "$(places)" "(0,0,0)0 (1,0,0)1 (2,0,0)2 (3,0,0)3 " "they are taken"
finish
