#!/bin/sh
# Prints the parameter hash of the standard small run: hash_reference.sh [RANKS [OPTION...]].
# No test by itself: equal under Open MPI and MPICH, for one BLAS and one processor type.
#   MPIRUN=mpirun.openmpi abs_top_srcdir=... abs_top_builddir=... sh test/mpi/hash_reference.sh 4
. "$abs_top_srcdir/test/mpi/train_common.sh"

ranks=${1:-4}
[ $# -eq 0 ] || shift
if train "$ranks" $small "$@"; then
  result parameter_hash
else
  tail -n 15 "$work/run.log" >&2
  exit 1
fi
