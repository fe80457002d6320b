#!/bin/sh
# configure's law for dependencies: what was asked for and is missing is an error that names the
# probe; what is optional and switched off is explained in the summary; nothing is run.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
[ -x "$abs_top_srcdir/configure" ] || skip_all "no configure in the source tree"
[ ! -f "$abs_top_srcdir/config.status" ] || skip_all "the source tree is configured in place"

# Settings of the caller would answer instead of the search.
unset="-u BLAS_CFLAGS -u BLAS_LIBS -u JANSSON_CFLAGS -u JANSSON_LIBS -u HWLOC_CFLAGS -u HWLOC_LIBS
  -u CUDA_CFLAGS -u CUDA_LIBS -u NVCC"

# refused DESCRIPTION WORDS ARGUMENT...: configure fails and says the words
refused() {
  what=$1 words=$2
  shift 2
  rm -rf "$work/build"
  mkdir "$work/build"
  (cd "$work/build" && env -u CFLAGS $unset "$abs_top_srcdir/configure" CC="$CC" "$@") >"$work/log" 2>&1
  [ $? -ne 0 ] && tail -n 4 "$work/log" | grep -q "$words"
  ok $? "$what" "$work/log"
}
refused "--with-blas=DIR without a BLAS there" 'includes <cblas.h> and calls cblas_sgemm' --with-blas=/nonexistent
refused "--with-hwloc=DIR without hwloc there" 'includes <hwloc.h> and calls hwloc_topology_init' --with-hwloc=/nonexistent
refused "--with-jansson=MODULE of no such name" 'jansson.*not found; tried: .pkg-config nosuchmodule' --with-jansson=nosuchmodule
refused "--with-cuda=DIR without CUDA there" 'is no /nonexistent/bin/nvcc' --with-cuda=/nonexistent
refused "--with-cuda without NCCL" 'switched off by --without-nccl' --with-cuda --without-nccl
refused "--without-mpi" 'mpi.*switched off by --without-mpi' --without-mpi

rm -rf "$work/build"
mkdir "$work/build"
(cd "$work/build" && env -u CFLAGS $unset "$abs_top_srcdir/configure" CC="$CC" --without-hwloc --without-cuda) >"$work/log" 2>&1
[ $? -eq 0 ] && sed -n '/is configured:/,$p' "$work/log" | grep -q 'hwloc *no *switched off by --without-hwloc'
ok $? "--without-hwloc is explained in the summary" "$work/log"
sed -n '/is configured:/,$p' "$work/log" | grep -q 'CUDA *no *switched off by --without-cuda'
ok $? "so is --without-cuda" "$work/log"

grep -n AC_RUN_IFELSE "$abs_top_srcdir/configure.ac" "$abs_top_srcdir"/m4/dmuon*.m4 >"$work/log"
[ ! -s "$work/log" ]
ok $? "configure runs none of its probes" "$work/log"

finish
