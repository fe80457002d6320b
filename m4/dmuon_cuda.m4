dnl The CUDA backend: nvcc, the runtime, cuBLAS and NCCL, all of them or none. Nothing is run but the
dnl compilers; no driver and no GPU are asked for.

dnl DMUON_WITH_CUDA: --with-cuda, --with-nccl, --with-cuda-arch. Sets the conditional DMUON_CUDA, NVCC,
dnl NVCC_ARCH, CUDA_CFLAGS, CUDA_LIBS (of the module alone), CXX (for the test double).
AC_DEFUN([DMUON_WITH_CUDA], [
  AC_ARG_VAR([NVCC], [CUDA compiler, for *.cu alone])
  AC_ARG_VAR([NVCCFLAGS], [flags for NVCC (-O3)])
  AC_ARG_VAR([CUDA_CFLAGS], [compiler flags for CUDA and NCCL headers, taken instead of a search])
  AC_ARG_VAR([CUDA_LIBS], [linker flags for runtime, cuBLAS and NCCL, taken instead of a search])
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=guess|yes|no|DIR],
    [GPUs: CUDA 11.8 or newer, with nvcc and cuBLAS (optional)])], [], [with_cuda=guess])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=guess|yes|no|DIR],
    [messages between GPUs: NCCL 2.18 or newer (needed with CUDA)])], [], [with_nccl=guess])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch="80 90a"],
    [what kernels are compiled for (default: those of 80, 90a, 100 that nvcc knows)])], [], [with_cuda_arch=guess])
  dmuon_with_cuda=no
  dmuon_with_double=no
  dmuon_note_cuda=
  AS_CASE([$with_cuda],
    [no], [dmuon_note_cuda="switched off by --without-cuda"],
    [DMUON_CUDA_SEARCH])
  AS_IF([test "$dmuon_with_cuda" = no && test "$with_cuda" != no], [
    AS_IF([test "$with_cuda" != guess || { test "$with_nccl" != guess && test "$with_nccl" != no; }],
      [AC_MSG_ERROR([cuda (GPUs): $dmuon_note_cuda.
  Say where it is with --with-cuda=DIR, --with-nccl=DIR, NVCC, or CUDA_CFLAGS and CUDA_LIBS; config.log has what
  the compiler said; --without-cuda builds without.])])
  ])
  AS_IF([test $dmuon_with_cuda = yes], [
    AC_DEFINE([HAVE_CUDA], [1], [The CUDA backend is built.])
    AS_IF([test "$enable_shared" != yes],
      [AC_DEFINE([DMUON_CUDA_LINKED], [1], [The CUDA backend is part of the static library.])])
    DMUON_CXX
  ], [CUDA_CFLAGS= CUDA_LIBS= NVCC=])
  AC_SUBST([NVCC_ARCH])
  CUDA_DISTCHECK_FLAGS=
  AS_IF([test $dmuon_with_cuda = yes], [CUDA_DISTCHECK_FLAGS="--with-cuda-arch=$dmuon_arch"])
  AC_SUBST([CUDA_DISTCHECK_FLAGS])
  AC_SUBST([NVCC_WARNINGS])
  AC_SUBST([CUDA_RPATH])
  CUDA_STATIC_LIBS=
  AS_IF([test "$enable_shared" != yes], [CUDA_STATIC_LIBS="$CUDA_LIBS $CUDA_RPATH"])
  AC_SUBST([CUDA_STATIC_LIBS])
  AM_CONDITIONAL([DMUON_CUDA], [test $dmuon_with_cuda = yes])
  AM_CONDITIONAL([DMUON_DOUBLE], [test $dmuon_with_double = yes])
  AM_CONDITIONAL([DMUON_CUDA_MODULE], [test $dmuon_with_cuda = yes && test "$enable_shared" = yes])
])

dnl One thing after another; the first that is missing is the note.
AC_DEFUN([DMUON_CUDA_SEARCH], [
  AS_CASE([$with_cuda],
    [*/*], [AS_IF([test -z "$NVCC" && test -x "$with_cuda/bin/nvcc"], [NVCC=$with_cuda/bin/nvcc])
      AS_IF([test -z "$NVCC"], [dmuon_note_cuda="there is no $with_cuda/bin/nvcc"])],
    [guess|yes], [AC_PATH_PROGS([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])
      AS_IF([test -z "$NVCC"], [dmuon_note_cuda="no nvcc on PATH or in /usr/local/cuda/bin"])],
    [dmuon_note_cuda="--with-cuda is guess, yes, no or a directory, not $with_cuda"])
  AS_IF([test "$with_nccl" = no], [dmuon_note_cuda="switched off by --without-nccl, which it needs"])
  AS_IF([test -z "$dmuon_note_cuda"], [
    dmuon_cuda_home=$with_cuda
    AS_CASE([$with_cuda], [*/*], [], [
      dmuon_cuda_home=`AS_ECHO(["$NVCC"]) | $SED 's,/bin/[[^/]]*$,,'`
      dnl A link in /usr/bin says nothing of where the headers are.
      AS_IF([test ! -f "$dmuon_cuda_home/include/cuda_runtime_api.h"], [
        dmuon_cuda_home=`readlink -f "$NVCC" 2>/dev/null | $SED 's,/bin/[[^/]]*$,,'`])])
    DMUON_CUDA_FLAGS
    DMUON_CUDA_TRY([the CUDA runtime, 11.8 or newer], [#include <cuda_runtime_api.h>
#if CUDART_VERSION < 11080
#error "CUDA 11.8 or newer is needed"
#endif], [int n = 0; (void)cudaGetDeviceCount(&n);])
    DMUON_CUDA_TRY([cuBLAS], [#include <cublas_v2.h>], [cublasHandle_t h; (void)cublasCreate(&h);])
    DMUON_CUDA_TRY([NCCL 2.18 or newer], [#include <nccl.h>
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error "NCCL 2.18 or newer is needed"
#endif], [int v = 0; (void)ncclGetVersion(&v);])
  ])
  AS_IF([test -z "$dmuon_note_cuda"], [DMUON_CUDA_ARCH])
  AS_IF([test -z "$dmuon_note_cuda"], [
    dmuon_with_cuda=yes
    dmuon_note_cuda="`"$NVCC" --version | $SED -n 's/.*release \([[0-9.]]*\).*/\1/p'` in $dmuon_cuda_home, for $dmuon_cuda_arch"
  ])
])

dnl Include and library flags, unless they were given.
AC_DEFUN([DMUON_CUDA_FLAGS], [
  CUDA_RPATH=
  AS_IF([test -z "$CUDA_CFLAGS$CUDA_LIBS"], [
    dmuon_cuda_dirs=
    AS_CASE([$with_nccl], [*/*], [dmuon_cuda_dirs=$with_nccl])
    for dmuon_dir in $dmuon_cuda_dirs "$dmuon_cuda_home"; do
      AS_CASE([$dmuon_dir], [/usr], [continue])
      CUDA_CFLAGS="$CUDA_CFLAGS -isystem $dmuon_dir/include"
      for dmuon_libdir in "$dmuon_dir/lib64" "$dmuon_dir/lib" "$dmuon_dir/targets/`uname -m`-linux/lib"; do
        AS_IF([ls "$dmuon_libdir"/libcudart.so* "$dmuon_libdir"/libnccl.so* >/dev/null 2>&1 ||
               test -f "$dmuon_libdir/libcudart.so" || test -f "$dmuon_libdir/libnccl.so"], [
          CUDA_LIBS="$CUDA_LIBS -L$dmuon_libdir"
          CUDA_RPATH="$CUDA_RPATH -Wl,-rpath,$dmuon_libdir"
          break
        ])
      done
    done
    CUDA_LIBS="$CUDA_LIBS -lcudart -lcublas -lnccl"
  ])
])

dnl DMUON_CUDA_TRY(what, headers, body): compiles and links, unless something is missing already.
AC_DEFUN([DMUON_CUDA_TRY], [
  AS_IF([test -z "$dmuon_note_cuda"], [
    AC_MSG_CHECKING([for $1])
    dmuon_save_CPPFLAGS=$CPPFLAGS
    dmuon_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
    LIBS="$CUDA_LIBS $CUDA_RPATH $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([$2], [$3])], [AC_MSG_RESULT([yes])], [
      AC_MSG_RESULT([no])
      dmuon_note_cuda="no $1 with $CUDA_CFLAGS $CUDA_LIBS"
    ])
    CPPFLAGS=$dmuon_save_CPPFLAGS
    LIBS=$dmuon_save_LIBS
  ])
])

dnl NVCC_ARCH: one -gencode for each architecture, and the newest portable one as PTX for later GPUs.
AC_DEFUN([DMUON_CUDA_ARCH], [
  test -n "$NVCCFLAGS" || NVCCFLAGS=-O3
  NVCC_ARCH=
  dmuon_cuda_arch=
  dmuon_cuda_newest=
  dmuon_cuda_list=$with_cuda_arch
  AS_CASE([$with_cuda_arch], [guess|yes], [dmuon_cuda_list="80 90a 100"])
  for dmuon_arch in `AS_ECHO(["$dmuon_cuda_list"]) | tr ',;' '  '`; do
    dmuon_arch=`AS_ECHO(["$dmuon_arch"]) | $SED 's/^sm_//'`
    AC_MSG_CHECKING([whether $NVCC compiles for sm_$dmuon_arch])
    cat >conftest.cu <<'DMUON_END'
struct args { float *x; };
extern "C" __global__ void conftest_kernel(args a) { a.x[[threadIdx.x]] *= 2; }
DMUON_END
    AS_IF([AC_TRY_COMMAND(["$NVCC" -gencode arch=compute_$dmuon_arch,code=sm_$dmuon_arch -c conftest.cu -o conftest.$ac_objext >&AS_MESSAGE_LOG_FD 2>&1])], [
      AC_MSG_RESULT([yes])
      NVCC_ARCH="$NVCC_ARCH -gencode arch=compute_$dmuon_arch,code=sm_$dmuon_arch"
      dmuon_cuda_arch="$dmuon_cuda_arch${dmuon_cuda_arch:+ }sm_$dmuon_arch"
      AS_CASE([$dmuon_arch], [*[[a-z]]], [], [dmuon_cuda_newest=$dmuon_arch])
    ], [
      AC_MSG_RESULT([no])
      AS_CASE([$with_cuda_arch], [guess|yes], [],
        [dmuon_note_cuda="$NVCC does not compile for sm_$dmuon_arch of --with-cuda-arch"])
    ])
    rm -f conftest.cu conftest.$ac_objext
  done
  AS_IF([test -n "$dmuon_cuda_newest"],
    [NVCC_ARCH="$NVCC_ARCH -gencode arch=compute_$dmuon_cuda_newest,code=compute_$dmuon_cuda_newest"])
  AS_IF([test -z "$dmuon_cuda_arch" && test -z "$dmuon_note_cuda"],
    [dmuon_note_cuda="$NVCC compiles for none of $dmuon_cuda_list"])
  NVCC_WARNINGS="-Xcompiler -Wall,-Wextra"
  AS_IF([test "$enable_werror" = yes], [NVCC_WARNINGS="$NVCC_WARNINGS,-Werror -Werror all-warnings"])
])

dnl DMUON_CXX: a C++ compiler that knows the same MPI, for the test double. nvcc needs one anyway.
AC_DEFUN([DMUON_CXX], [
  AC_ARG_VAR([CXX], [C++ compiler, for tests of a build with CUDA alone])
  CXX_WARNINGS="-Wall -Wextra"
  AS_IF([test "$enable_werror" = yes], [CXX_WARNINGS="$CXX_WARNINGS -Werror"])
  dmuon_cxx_list="$CXX"
  test -n "$CXX" || dmuon_cxx_list="$MPICXX g++ c++ clang++"
  cat >conftest.cpp <<'DMUON_END'
#include <mpi.h>
#include <cuda_runtime_api.h>
int main() { return MPI_VERSION == 0; }
DMUON_END
  CXX=
  for dmuon_word in $dmuon_cxx_list; do
    AS_IF([test -z "$CXX"], [
      AC_MSG_CHECKING([whether $dmuon_word compiles C++17 with MPI and CUDA])
      AS_IF([AC_TRY_COMMAND([$dmuon_word -std=c++17 $MPI_CFLAGS $CUDA_CFLAGS -c conftest.cpp -o conftest.$ac_objext >&AS_MESSAGE_LOG_FD 2>&1])],
        [
        AC_MSG_RESULT([yes])
        CXX=$dmuon_word
      ], [AC_MSG_RESULT([no])])
    ])
  done
  rm -f conftest.cpp conftest.$ac_objext
  dmuon_with_double=no
  AS_IF([test -n "$CXX" && test "$enable_shared" = yes], [dmuon_with_double=yes])
  AC_SUBST([CXX_WARNINGS])
])
