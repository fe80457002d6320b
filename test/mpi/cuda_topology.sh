#!/bin/sh
# Ranks on GPUs (the double's, one after another on the PCI bus), and a machine file that has them:
# which GPU each rank uses is found by its address, whatever the launcher or the program chose.
. "$abs_top_srcdir/test/mpi/train_common.sh"

DMUON_MODULE_PATH=$abs_top_builddir/test/double/.libs
export DMUON_MODULE_PATH
sed 's/\(pci_busid="0000:\)\([1-8]\)1:00.0/\10\2:00.0/' \
  "$abs_top_srcdir/test/data/topo/made-hgx-h100.xml" >"$work/node.xml"

# hello RANKS OPTION...
hello() {
  hello_ranks=$1
  shift
  sh "$abs_top_srcdir/test/launch.sh" "$hello_ranks" "$abs_top_builddir/examples/ex01_hello" \
    -dmuon_device cuda -dmuon_topology "$work/node.xml" "$@" >"$work/run.log" 2>&1
}
says() {
  grep -q -- "$1" "$work/run.log"
  point $? "$2"
}

if ! hello 4; then
  grep -q 'built without hwloc' "$work/run.log" && skip_all "machine files need hwloc"
fi
says '^  GPUs: *each rank has one, 4 GPUs without a rank$' "4 ranks: their GPUs are found"
says '^  islands: *1 island of 4 ranks: NVLink domains' "NVLink joins them"
says '^  shard: .*over NVLink, 450 GB/s' "and carries the shard axis"
says '^      1: GPU 1 (0000:02:00.0, near mlx5_1).*; GPU 2 proposed$' "what is used, and what would be"

CUDA_DOUBLE_GPUS=8 hello 4
says 'up to 4 ranks share one, 7 GPUs without a rank$' "all on the current GPU"
CUDA_DOUBLE_GPUS=8 hello 4 -dmuon_bind gpu
point $? "bind gpu"
says '^  GPUs: *each rank has one, 4 GPUs without a rank$' "each rank on one of its own"
says '^      3: GPU 6 (0000:07:00.0, near mlx5_6)' "as proposed"
CUDA_DOUBLE_VISIBLE=7,6,5,4,3,2,1,0 hello 4 -dmuon_bind gpu
point $? "bind gpu where CUDA counts the other way round"
says '^  GPUs: *each rank has one, 4 GPUs without a rank$' "each rank on one of its own"
says '^      3: GPU 6 (0000:07:00.0, near mlx5_6)' "and as proposed: by address"
CUDA_DOUBLE_GPUS=8 hello 4 -dmuon_bind gpu -dmuon_device cuda:ordinal=3
says 'up to 4 ranks share one, 7 GPUs without a rank$' "an ordinal that was said is used"
for visible in 1 5,3; do
  CUDA_DOUBLE_VISIBLE=$visible hello 4 -dmuon_bind gpu
  status=$?
  [ "$status" -ne 0 ]
  point $? "bind gpu where ranks see GPU $visible alone is refused"
  says 'is to use the GPU at 0000:0[1-8]:00.0, which is not among the [12] that it sees' "and named"
done
hello 4 -dmuon_topology "node:1 gpu:8" -dmuon_bind gpu
status=$?
[ "$status" -ne 0 ]
point $? "bind gpu on a machine that is described in words is refused"
says 'PCI addresses of GPUs of the node are not known' "and named"
finish
