#!/bin/sh
# The first example on machines that are not here: what it sees in a file and in a text, and the split
# it proposes, for planned ranks and for those that run.
. "$abs_top_srcdir/test/mpi/train_common.sh"

hello() {
  sh "$abs_top_srcdir/test/launch.sh" "$@" >"$work/run.log" 2>&1
}
example=$abs_top_builddir/examples/ex01_hello
# says PATTERN WHAT: a line of the output matches
says() {
  grep -q -- "$1" "$work/run.log"
  point $? "$2"
}

hello 1 "$example" -ranks 64 -dmuon_topology "node:8 package:2 gpu:8 nvlink:all@450GB ib:8@400Gb"
point $? "a text, 64 planned ranks"
says '^mesh: replicate 8 x shard 8 x tp 1 = 64 ranks$' "a shard group a node"
says '^  islands: .* 8 islands of 8 ranks: NVLink domains inside nodes' "by NVLink"
says '^  sizes: .*shard 8 (the ranks of an NVLink domain)' "with the reason"
says '^  shard: .*all inside nodes, over NVLink, 450 GB/s' "shard over NVLink"
says '^  replicate: .*crossing nodes, over InfiniBand, 50 GB/s' "replicate over InfiniBand"
says '^  places: .*nobody is bound' "places are proposed"
says '^      4: GPU 4 (gpu4, near ib4) NUMA node 1' "the fifth rank of a node: its GPU and port"

hello 1 "$example" -ranks 72 -dmuon_topology "node:18 gpu:4 nvlink:all fabric:18"
says '^mesh: replicate 1 x shard 72 x tp 1 = 72 ranks$' "a rack is one shard group"
says '^  islands: .*NVLink domains that span nodes' "over nodes"
hello 1 "$example" -ranks 72 -dmuon_topology "node:18 gpu:4 nvlink:all fabric:18" \
  -dmuon_island node
says '^mesh: replicate 18 x shard 4 x tp 1 = 72 ranks$' "unless nodes are asked for"
hello 1 "$example" -ranks 72 -dmuon_topology "node:18 gpu:4 nvlink:all fabric:18" -dmuon_shard 36
says '^mesh: replicate 2 x shard 36 x tp 1 = 72 ranks$' "or a size"

hello 1 "$example" -ranks 8
grep -q 'a plan mesh has no machine to ask' "$work/run.log"
point $? "a plan without a machine says what is missing"

hello 8 "$example" -dmuon_node_size 4 -dmuon_topology "node:2 gpu:4 nvlink:pairs"
point $? "8 ranks in pretended nodes, a text"
says '^mesh: replicate 4 x shard 2 x tp 1 = 8 ranks$' "pairs"
same "$(grep -c '^MPI rank [0-7] is' "$work/run.log")" 8 "every rank has its place"

# Files need hwloc.
if hello 1 "$example" -ranks 32 -dmuon_topology "$abs_top_srcdir/test/data/topo/nvidiaDGX2.xml"; then
  says '^mesh: replicate 2 x shard 16 x tp 1 = 32 ranks$' "DGX-2 from its file: 16 GPUs"
  says 'gpu:16 nvlink:all@150GB' "and what joins them"
  says 'GPUs of NUMA node 1: 8 0000:b7:00.0' "and where they are"
  says 'the description has 1 node' "a node stands for all"
  hello 4 "$example" -dmuon_topology "$abs_top_srcdir/test/data/topo/made-hgx-h100.xml"
  point $? "4 ranks that run, HGX from its file"
  says '^      1: GPU 2 (0000:31:00.0, near mlx5_2) NUMA node 0' "spread over GPUs and ports"
  says '4 GPUs without a rank' "and GPUs are left"
else
  grep -q 'built without hwloc' "$work/run.log"
  point $? "without hwloc a file is refused, and it is said why"
fi
finish
