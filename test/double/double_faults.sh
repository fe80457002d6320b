#!/bin/sh
# The double finds planted faults, one a kind, and says what they are; and finds nothing in the
# program without them, whatever the order that the seed draws.
. "$abs_top_srcdir/test/tap.sh"
scratch
program=$abs_top_builddir/test/double/double_faults
CUDA_DOUBLE_PATIENCE=2
export CUDA_DOUBLE_PATIENCE

# run RANKS FAULT: 0 ranks: without MPI
run() {
  if [ "$1" = 0 ]; then
    sh "$abs_top_srcdir/test/launch.sh" 0 "$program" "$2" >"$work/log" 2>&1
  else
    sh "$abs_top_srcdir/test/launch.sh" "$1" "$program" "$2" mpi >"$work/log" 2>&1
  fi
}

# found RANKS FAULT PHRASE: ends with an error, and a line of the double has the phrase
found() {
  run "$1" "$2"
  status=$?
  [ $status -ne 0 ] && [ $status -ne 124 ] && grep -a '^double: ' "$work/log" | grep -q -e "$3"
  ok $? "found: $2" "$work/log"
}

for seed in 0 1 2 3 4 5; do
  CUDA_DOUBLE_SEED=$seed
  export CUDA_DOUBLE_SEED
  run 0 ""
  ok $? "seed $seed: nothing in the right program" "$work/log"
done
for seed in 0 1 2; do
  CUDA_DOUBLE_SEED=$seed
  found 0 "wait" "reads .* without waiting for axpby on stream"
done
for ranks in 1 2 3 4; do
  CUDA_DOUBLE_SEED=$ranks
  run $ranks ""
  ok $? "$ranks ranks: nothing in the right program" "$work/log"
done

CUDA_DOUBLE_SEED=2 # as late as possible: the host is early
found 0 "poison" "axpby .* nobody has written"
found 0 "copied poison" "axpby reads poison"
found 0 "host access" "host access to device memory: byte 0 of allocation"
found 0 "undeclared" "liar: .* did not declare"
found 0 "write after read" "writes .* without waiting for axpby .* which reads them"
found 0 "born elsewhere" "without waiting for cudaMallocAsync"
found 0 "leading dimension" "cublasGemmEx: leading dimension 299 of A is less than its 300 rows"
found 0 "workspace" "cublasGemmEx: cublasSetStream has put the workspace back"
found 0 "overlap" "cublasGemmEx writes .* which it also reads"
found 0 "beyond the end" "4 bytes beyond the end of allocation"
found 0 "misaligned" "is not aligned"
found 0 "grid" "axpby: grid (1, 1, 1) of blocks (2048, 1, 1)"
found 0 "early result" "the host has not waited for cudaMemcpyAsync"
found 0 "changed source" "the host changed pinned allocation"
found 0 "pageable" "cudaMemcpyAsync: makes the host wait"
found 0 "synchronize" "cudaStreamSynchronize: makes the host wait"
found 0 "destroyed event" "cudaStreamWaitEvent: event .* has been destroyed"
found 0 "destroyed stream" "cudaStreamQuery: stream .* has been destroyed"
found 0 "after free async" "freed by cudaFreeAsync"
found 0 "early free" "cudaFree: .* has not waited for axpby"
found 0 "use after free" "axpby uses allocation .* freed by cudaFree"
found 0 "memory leak" "left behind: 1 device allocations (first: cudaMalloc, number 4)"
found 0 "pinned leak" "left behind: 1 pinned allocations (first: cudaHostAlloc, number 6)"
found 0 "handle leak" "left behind: 1 cuBLAS handles (first: cublasCreate, number 1)"
found 0 "stream leak" "left behind: 1 streams (first: cudaStreamCreateWithPriority, number 2)"
found 0 "event leak" "left behind: 1 events (first: cudaEventCreateWithFlags, number 1)"

if [ -z "$MPIRUN" ]; then
  skip "faults between ranks" "no MPI launcher: configure with MPIRUN=..."
  finish
fi
found 2 "root" "collective 0: .*(root 0, .*(root 1\|collective 0: .*(root 1, .*(root 0"
found 2 "count" "count 2999"
found 2 "type" "type 2)"
found 2 "collective order" "collective 1: .*ncclReduce"
found 2 "message length" "communicator 2: .*ncclRecv(.*count 3000.*ncclSend(.*count 2999"
found 2 "in progress" "ncclBroadcast: communicator 1 is still ncclInProgress"
found 2 "launch in progress" "axpby on stream .* still ncclInProgress"
found 2 "launch order" "ncclReduce of communicator 2 is not behind the call before, of communicator 1"
found 2 "communicator order" "nothing has moved for 2 seconds"
found 2 "thread" "ncclBroadcast: called from another thread"
found 2 "group" "an open NCCL group"
found 2 "communicator leak" "left behind: 1 communicators (first: ncclCommSplit, number 2)"

CUDA_DOUBLE_MISSING=0,1d
export CUDA_DOUBLE_MISSING
run 2 "no device"
ok $? "ranks without a GPU" "$work/log"
finish
