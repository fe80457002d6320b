#!/bin/sh
# How every test is started: launch.sh RANKS PROGRAM [ARGUMENT...]
#
#   RANKS 0       the program alone, without a launcher
#   RANKS N       under $MPIRUN on N ranks
#   RANKS all     on 1, 2, 3, 4, 7 and 8 ranks one after another, the results joined into one TAP
#                 stream with a plan of its own
#
# It fixes what a run depends on: no stdin, a time limit, one BLAS thread, ranks that yield when
# there are more of them than cores, sanitizers that forgive the MPI library its own leaks.
#
#   MPIRUN                 the launcher; its name (or what it says of itself) tells the MPI
#   DMUON_TEST_TIMEOUT     seconds before a run is killed (120, a shell script 600; four times that with
#                          sanitizers or valgrind)
#   DMUON_TEST_RANKS       what "all" means, e.g. "1 4"
#   DMUON_TEST_RENDEZVOUS  non-empty: tiny eager limits, so that large and small messages alike wait
#                          for their receive
#   DMUON_TEST_VALGRIND    non-empty: each rank under valgrind
#   DMUON_TEST_THREADS     threads of a rank's BLAS (1)
set -u

if [ $# -lt 2 ]; then
  echo "usage: $0 RANKS PROGRAM [ARGUMENT...]" >&2
  exit 2
fi
ranks=$1
shift

here=$(cd "$(dirname "$0")" && pwd)
: "${MPIRUN:=}" "${AWK:=awk}"
slow=1
if [ -n "${DMUON_SANITIZE:-}" ] || [ -n "${DMUON_TEST_VALGRIND:-}" ]; then slow=4; fi
limit=120
case $ranks,$1 in 0,*sh) limit=600 ;; esac # a script has several runs, each with a limit of its own
limit=${DMUON_TEST_TIMEOUT:-$((limit * slow))}

# Programs whose name begins with cuda_ find the test double where others find the CUDA backend.
case " $*" in
  */cuda_*)
    DMUON_MODULE_PATH=${abs_top_builddir:-.}/test/double/.libs
    export DMUON_MODULE_PATH ;;
esac

# ---- what every process sees ----------------------------------------------------------------------
threads=${DMUON_TEST_THREADS:-1}
OPENBLAS_NUM_THREADS=$threads BLIS_NUM_THREADS=$threads MKL_NUM_THREADS=$threads OMP_NUM_THREADS=$threads
export OPENBLAS_NUM_THREADS BLIS_NUM_THREADS MKL_NUM_THREADS OMP_NUM_THREADS

# Open MPI: run as root in a container, more ranks than cores, idle ranks give way.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
export OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_mpi_yield_when_idle OMPI_MCA_hwloc_base_binding_policy

# The link order is not looked at, since the shim below stands before the sanitizer's runtime.
ASAN_OPTIONS=${ASAN_OPTIONS:-fast_unwind_on_malloc=0:detect_leaks=1:verify_asan_link_order=0}
LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$here/suppressions/lsan.supp:print_suppressions=0}
UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS

if [ -n "${DMUON_TEST_RENDEZVOUS:-}" ]; then
  OMPI_MCA_btl_vader_eager_limit=256 OMPI_MCA_btl_self_eager_limit=256 OMPI_MCA_btl_tcp_eager_limit=256
  UCX_RNDV_THRESH=128
  export OMPI_MCA_btl_vader_eager_limit OMPI_MCA_btl_self_eager_limit OMPI_MCA_btl_tcp_eager_limit UCX_RNDV_THRESH
fi

if [ -n "${DMUON_TEST_VALGRIND:-}" ]; then
  case $1 in
    *sh) ;;
    *)
      set -- valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
        --show-leak-kinds=definite --num-callers=40 --suppressions="$here/suppressions/valgrind.supp" "$@" ;;
  esac
fi

# ---- one run --------------------------------------------------------------------------------------
# Debian's MPICH polls without ever yielding: a shim that the test build makes yields for it.
shim=${abs_top_builddir:-.}/test/.libs/yieldshim.so
flavour=
case ${MPIRUN##*/} in
  *openmpi* | orterun* | prterun*) flavour=openmpi ;;
  *mpich* | *hydra*) flavour=mpich ;;
esac
if [ -z "$flavour" ] && [ -n "$MPIRUN" ] && [ "$ranks" != 0 ]; then
  case $($MPIRUN --version 2>&1 </dev/null) in
    *"Open MPI"* | *OpenRTE* | *PRRTE*) flavour=openmpi ;;
    *HYDRA* | *MPICH*) flavour=mpich ;;
    *) flavour=other ;;
  esac
fi

# The settings of this script, and of make, are not options of the library: a program of ours does
# not see them, a script passes them on.
hide_settings() {
  case $1 in
    *sh) ;;
    *) unset DMUON_TEST_TIMEOUT DMUON_TEST_RANKS DMUON_TEST_RENDEZVOUS DMUON_TEST_VALGRIND \
         DMUON_TEST_THREADS DMUON_SANITIZE DMUON_MPI_CFLAGS DMUON_CONFIGURE_FLAGS ;;
  esac
}

run() (
  n=$1
  shift
  valgrind=${DMUON_TEST_VALGRIND:-}
  hide_settings "$1"
  if [ "$n" = 0 ]; then
    timeout -k 5 "$limit" "$@" </dev/null
  elif [ "$flavour" = mpich ] && [ -f "$shim" ] && [ -z "$valgrind" ]; then
    timeout -k 5 "$limit" $MPIRUN -n "$n" -env LD_PRELOAD "$shim" "$@" </dev/null
  else
    timeout -k 5 "$limit" $MPIRUN -n "$n" "$@" </dev/null
  fi
  status=$?
  if [ $status -eq 124 ]; then echo "# killed after $limit seconds on $n ranks"; fi
  exit $status
)

if [ "$ranks" != 0 ] && [ -z "$MPIRUN" ]; then
  echo "1..0 # SKIP no MPI launcher: configure with MPIRUN=..."
  exit 0
fi
if [ "$ranks" != all ]; then
  run "$ranks" "$@"
  exit $?
fi

# ---- all sizes, one stream ------------------------------------------------------------------------
# Each run's points are renumbered and say their size; a run that dies, or whose points do not match
# its plan, is one more point that fails.
for n in ${DMUON_TEST_RANKS:-1 2 3 4 7 8}; do
  echo "@begin $n"
  run "$n" "$@"
  echo "@end $?"
done | $AWK '
  /^@begin / { ranks = $2; points = 0; plan = -1; skipped = 0; next }
  /^@end / {
    if ($2 != 0 && !(failed_here && plan == points))
      printf "not ok %d - %d ranks: exit status %d\n", ++total, ranks, $2
    else if (!skipped && plan != points)
      printf "not ok %d - %d ranks: planned %d points, saw %d\n", ++total, ranks, plan, points
    failed_here = 0
    fflush()
    next
  }
  /^1\.\.0/ { skipped = 1; plan = 0; why = $0; sub(/^1\.\.0[ #]*/, "", why)
              printf "ok %d - %d ranks # %s\n", ++total, ranks, why == "" ? "SKIP" : why; next }
  /^1\.\.[0-9]+/ { plan = substr($1, 4) + 0; next }
  /^(not )?ok([ \t]|$)/ {
    bad = /^not /
    if (bad && !/# *TODO/) failed_here = 1
    rest = $0
    sub(/^(not )?ok[ \t]*[0-9]*[ \t]*-?[ \t]*/, "", rest)
    points++
    printf "%sok %d - %d ranks: %s\n", bad ? "not " : "", ++total, ranks, rest
    fflush()
    next
  }
  { print; fflush() }
  END { printf "1..%d\n", total }
'
