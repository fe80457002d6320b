dnl The dependencies themselves, each an instance of the law in dmuon_with.m4.

dnl BLAS: any CBLAS. --with-blas=blis also finds a BLIS whose headers lie in a directory of their own.
AC_DEFUN([DMUON_WITH_BLAS], [
  AS_IF([test "$with_blas" = blis && test -z "$BLAS_CFLAGS$BLAS_LIBS" &&
         ! $PKG_CONFIG --exists blis 2>/dev/null], [
    dmuon_multiarch=`$CC -print-multiarch 2>/dev/null || gcc -print-multiarch 2>/dev/null`
    for dmuon_dir in /usr/include/$dmuon_multiarch /usr/include /usr/local/include; do
      for dmuon_kind in blis blis-openmp blis-pthread blis-serial; do
        AS_IF([test -z "$BLAS_LIBS" && test -f $dmuon_dir/$dmuon_kind/cblas.h], [
          BLAS_CFLAGS="-I$dmuon_dir/$dmuon_kind"
          BLAS_LIBS="-lblis"
        ])
      done
    done
  ])
  DMUON_WITH([blas], [matrix products through CBLAS], [required], [openblas blis flexiblas cblas mkl-dynamic-lp64-seq],
    [-lopenblas -lblis -lflexiblas -lcblas,-lblas], [cblas.h], [cblas_sgemm], [],
    [float a = 1.0f; cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1.0f, &a, 1, &a, 1, 0.0f, &a, 1);])
  dnl BLIS's header is not free of warnings, and wants more of the system's than strict C11 shows.
  BLAS_CFLAGS=`AS_ECHO([" $BLAS_CFLAGS"]) | $SED 's/ -I *\(@<:@^ @:>@\)/ -isystem \1/g; s/^ *//'`
  dmuon_save_CPPFLAGS=$CPPFLAGS
  dmuon_save_CFLAGS=$CFLAGS
  CPPFLAGS="$BLAS_CFLAGS $CPPFLAGS"
  CFLAGS="$CFLAGS $DMUON_CFLAGS"
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#undef _GNU_SOURCE
#include <stdlib.h>
#include <cblas.h>]])], [],
    [BLAS_CFLAGS="$BLAS_CFLAGS -D_GNU_SOURCE"])
  CPPFLAGS=$dmuon_save_CPPFLAGS
  CFLAGS=$dmuon_save_CFLAGS
  AS_CASE(["$dmuon_note_blas $BLAS_LIBS"],
    [*openblas*], [dmuon_blas_name=OpenBLAS],
    [*blis*], [dmuon_blas_name=BLIS],
    [*flexiblas*], [dmuon_blas_name=FlexiBLAS],
    [*mkl*], [dmuon_blas_name=MKL],
    [dmuon_blas_name=CBLAS])
  AC_DEFINE_UNQUOTED([DMUON_BLAS_NAME], ["$dmuon_blas_name"], [Which BLAS was found, for people.])
])

AC_DEFUN([DMUON_WITH_JANSSON], [
  DMUON_WITH([jansson], [reading and writing JSON], [required], [jansson], [-ljansson],
    [jansson.h], [json_object], [],
    [json_t *o = json_object(); json_decref(o);])
])

dnl hwloc 2.1 or later: distances by name, and files of version 2.
AC_DEFUN([DMUON_WITH_HWLOC], [
  DMUON_WITH([hwloc], [what the machine looks like], [optional], [hwloc], [-lhwloc],
    [hwloc.h], [hwloc_topology_init], [
#if HWLOC_API_VERSION < 0x00020100
#error hwloc is older than 2.1
#endif],
    [hwloc_topology_t t; (void)hwloc_topology_init(&t);])
])
