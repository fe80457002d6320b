#!/bin/sh
# What carries communication when the machine is not as one would like it, over the double of CUDA:
# ranks without a GPU or a driver, ranks that share one, staged because asked for, NCCL's own sums,
# and both ways of keeping NCCL's calls in order. View says which; the bits are what they must be.
. "$abs_top_srcdir/test/mpi/train_common.sh"

base="-layers 2 -width 32 -context 8 -batch 60 -steps 3 $own_text"

# view OPTION...: the View of a mesh of 4 ranks
view() {
  sh "$abs_top_srcdir/test/launch.sh" 4 "$abs_top_builddir/examples/ex01_hello" "$@" \
    >"$work/run.log" 2>&1
}
# says STATUS TEXT WHAT
says() {
  says_status=$1
  grep -q -F -e "$2" "$work/run.log" || says_status=1
  point "$says_status" "$3"
}
# silent TEXT WHAT
silent() {
  if grep -q -F -e "$1" "$work/run.log"; then point 1 "$2"; else point 0 "$2"; fi
}

view -dmuon_device cuda
says $? "launch order by events" "a GPU a rank: by NCCL, in the order of events"
silent "transport:" "nothing is staged"
NCCL_LAUNCH_ORDER_IMPLICIT=1
export NCCL_LAUNCH_ORDER_IMPLICIT
view -dmuon_device cuda
says $? "launch order implicit" "NCCL keeps the order when it was told to"
CUDA_DOUBLE_NCCL_VERSION=22500 view -dmuon_device cuda
says $? "launch order by events" "but for one that is too old"
unset NCCL_LAUNCH_ORDER_IMPLICIT
view -dmuon_device cuda:staged
says $? "staged through host memory: asked for" "staged because asked for"
CUDA_DOUBLE_SHARED=1 view -dmuon_device cuda
says $? "staged through host memory: ranks 0 and 1 share GPU-" "two ranks on one GPU"
CUDA_DOUBLE_MISSING=2,3d view -dmuon_device cuda
says $? "ranks 2 and 3 have no GPU" "ranks without a GPU"
CUDA_DOUBLE_MISSING=3d view -dmuon_device cuda
says $? "staged through host memory: rank 3 has no GPU" "a rank without a driver"
CUDA_DOUBLE_MISSING=0,1,2,3 view -dmuon_device cuda
if [ $? -ne 0 ]; then gone=0; else gone=1; fi
says $gone "sees no GPU" "no rank has one: it fails, and says what is missing"

# run WHAT OPTION...: train_gpt on 4 ranks ends with $reference
run() {
  run_what=$1
  shift
  # shellcheck disable=SC2086
  train 4 $base -dmuon_device cuda -dmuon_replicate 2 "$@"
  same "$(result parameter_hash)" "$reference" "$run_what"
}

# With AdamW alone no product comes from a BLAS: every device has the host's bits.
# shellcheck disable=SC2086
train 4 $base -optimizer adamw -dmuon_replicate 2
reference=$(result parameter_hash)
run "adamw, the host's bits" -sharded -optimizer adamw
export CUDA_DOUBLE_MISSING=2,3d
run "adamw, two ranks without a GPU" -sharded -optimizer adamw
unset CUDA_DOUBLE_MISSING

# shellcheck disable=SC2086
train 4 $base -dmuon_device cuda -dmuon_replicate 2
point $? "muon"
reference=$(result parameter_hash)
losses "$work/ordered"
export NCCL_LAUNCH_ORDER_IMPLICIT=1
run "muon, launch order implicit" -sharded
unset NCCL_LAUNCH_ORDER_IMPLICIT
export CUDA_DOUBLE_NCCL_VERSION=22500
run "muon, an old NCCL" -sharded
unset CUDA_DOUBLE_NCCL_VERSION
export CUDA_DOUBLE_SHARED=1
run "muon, one GPU for all" -sharded
unset CUDA_DOUBLE_SHARED
run "muon, staged" -sharded -dmuon_device cuda:staged

# shellcheck disable=SC2086
train 4 $base -dmuon_device cuda -dmuon_replicate 2 -sharded -dmuon_reduce nccl
point $? "sums by NCCL"
reference=$(result parameter_hash)
losses "$work/nccl"
same "$(paste "$work/ordered" "$work/nccl" |
  $AWK '{ d = $1 - $2; if (d < 0) d = -d; if ($1 <= 0 || d > 1e-4 * $1) bad = 1 }
    END { print (NR == 3 && !bad ? "near" : "far") }')" \
  near "the losses are those of ordered sums, nearly"
run "the same plan, the same bits" -sharded -dmuon_reduce nccl
finish
