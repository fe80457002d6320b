dnl How the code is compiled: the kind of build, warnings, and the flags its numbers depend on.

dnl DMUON_BUILD_KIND: --enable-debug, --enable-sanitize, --enable-werror.
AC_DEFUN([DMUON_BUILD_KIND], [
  AC_ARG_ENABLE([debug], [AS_HELP_STRING([--enable-debug], [no optimisation, internal checks (DMUON_DEBUG)])], [], [enable_debug=no])
  AC_ARG_ENABLE([sanitize], [AS_HELP_STRING([--enable-sanitize], [address and undefined behaviour sanitizers])], [], [enable_sanitize=no])
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [warnings are errors])], [], [enable_werror=no])
  dmuon_build_kind=optimised
  AS_IF([test "$enable_debug" = yes], [
    dmuon_build_kind=debug
    AS_IF([test $dmuon_default_cflags = yes], [CFLAGS="-O0 -g3"], [CFLAGS="$CFLAGS -O0 -g3"])
    AC_DEFINE([DMUON_DEBUG], [1], [Internal checks are compiled in.])
  ])
  dnl Optimised and instrumented, gcc sees overflows and truncations that cannot be.
  AS_IF([test "$enable_sanitize" != no && test "$enable_debug" = no && test $dmuon_default_cflags = yes],
    [CFLAGS="-O1 -g"])
  AS_IF([test "$enable_sanitize" != no], [
    AS_IF([test "$enable_sanitize" = yes], [enable_sanitize=address,undefined])
    AS_CASE([$dmuon_build_kind], [debug], [dmuon_build_kind="debug, "], [dmuon_build_kind=])
    dmuon_build_kind="${dmuon_build_kind}sanitized ($enable_sanitize)"
    dmuon_sanitize_flags="-fsanitize=$enable_sanitize -fno-sanitize-recover=all -fno-omit-frame-pointer"
    dmuon_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $dmuon_sanitize_flags"
    AC_MSG_CHECKING([whether $CC links with $dmuon_sanitize_flags])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])], [
      AC_MSG_RESULT([no])
      AC_MSG_ERROR([--enable-sanitize: $CC does not link with $dmuon_sanitize_flags (the sanitizers' runtime may be missing: libclang-rt-dev, libasan)])
    ])
    CFLAGS=$dmuon_save_CFLAGS
  ])
  AC_SUBST([dmuon_sanitize_flags])
  AM_CONDITIONAL([DMUON_SANITIZE], [test "$enable_sanitize" != no])
])

dnl DMUON_FLAG(VARIABLE, flag): appends the flag when the compiler takes it without a word.
AC_DEFUN([DMUON_FLAG], [
  AS_VAR_PUSHDEF([cache], [dmuon_cv_flag_$2])
  AC_CACHE_CHECK([whether $CC takes $2], cache, [
    dmuon_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $2"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [AS_VAR_SET(cache, yes)], [AS_VAR_SET(cache, no)])
    CFLAGS=$dmuon_save_CFLAGS
  ])
  AS_VAR_IF(cache, yes, [$1="$$1 $2"])
  AS_VAR_POPDEF([cache])
])

dnl DMUON_FLAGS: DMUON_CFLAGS for every object of the project, DMUON_LDFLAGS for the shared library.
AC_DEFUN([DMUON_FLAGS], [
  dmuon_cflags=
  DMUON_FLAG([dmuon_cflags], [-std=c11])
  dnl The bits of a result are part of the contract: no fused multiply-add that the source does not name.
  DMUON_FLAG([dmuon_cflags], [-ffp-contract=off])
  DMUON_FLAG([dmuon_cflags], [-fno-math-errno])
  DMUON_FLAG([dmuon_cflags], [-fvisibility=hidden])
  DMUON_FLAG([dmuon_cflags], [-Wall])
  DMUON_FLAG([dmuon_cflags], [-Wextra])
  dnl MPICH's MPI_STATUSES_IGNORE is the pointer 1, which gcc 12 takes for an array of size 0.
  DMUON_FLAG([dmuon_cflags], [--param=min-pagesize=0])
  dnl Instrumented code makes gcc warn of truncations and values that cannot be; its manual says so.
  AS_IF([test "$enable_sanitize" != no], [
    DMUON_FLAG([dmuon_cflags], [-Wno-format-truncation])
    DMUON_FLAG([dmuon_cflags], [-Wno-maybe-uninitialized])
    DMUON_FLAG([dmuon_cflags], [-Wno-stringop-overflow])
  ])
  AS_IF([test "$enable_werror" = yes], [DMUON_FLAG([dmuon_cflags], [-Werror])])
  AS_IF([test "$enable_sanitize" != no], [dmuon_cflags="$dmuon_cflags $dmuon_sanitize_flags"])
  AC_SUBST([DMUON_CFLAGS], [$dmuon_cflags])

  DMUON_LDFLAGS=
  AS_IF([test "$enable_sanitize" = no], [
    AC_CACHE_CHECK([whether the linker takes -z defs], [dmuon_cv_z_defs], [
      dmuon_save_LDFLAGS=$LDFLAGS
      LDFLAGS="$LDFLAGS -Wl,-z,defs"
      AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [dmuon_cv_z_defs=yes], [dmuon_cv_z_defs=no])
      LDFLAGS=$dmuon_save_LDFLAGS
    ])
    AS_IF([test $dmuon_cv_z_defs = yes], [DMUON_LDFLAGS="-Wl,-z,defs"])
  ])
  dnl Functions that modules may call are still called by the library itself without a detour.
  AC_CACHE_CHECK([whether the linker takes -Bsymbolic-functions], [dmuon_cv_bsymbolic], [
    dmuon_save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -Wl,-Bsymbolic-functions"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [dmuon_cv_bsymbolic=yes], [dmuon_cv_bsymbolic=no])
    LDFLAGS=$dmuon_save_LDFLAGS
  ])
  AS_IF([test $dmuon_cv_bsymbolic = yes], [DMUON_LDFLAGS="$DMUON_LDFLAGS -Wl,-Bsymbolic-functions"])
  AC_SUBST([DMUON_LDFLAGS])
])

dnl DMUON_SUMMARY: what was found, or why not, in one table.
AC_DEFUN([DMUON_SUMMARY], [
  AS_ECHO([""])
  AS_ECHO(["$PACKAGE_STRING is configured:"])
  dmuon_row() { printf '  %-12s %-8s %s\n' "$[1]" "$[2]" "$[3]"; }
  dmuon_row compiler "" "$CC ($dmuon_build_kind; $CFLAGS)"
  dmuon_row MPI "$dmuon_with_mpi" "$dmuon_mpi_flavour, $dmuon_note_mpi"
  dmuon_row BLAS "$dmuon_with_blas" "$dmuon_blas_name, $dmuon_note_blas"
  dmuon_row jansson "$dmuon_with_jansson" "$dmuon_note_jansson"
  dmuon_row hwloc "$dmuon_with_hwloc" "$dmuon_note_hwloc"
  dmuon_row CUDA "$dmuon_with_cuda" "$dmuon_note_cuda"
  AS_IF([test -n "$MPIRUN"], [dmuon_row launcher yes "$MPIRUN (tests and examples alone)"],
    [dmuon_row launcher no "no mpirun that fits $CC: tests on several ranks are skipped; MPIRUN=... names one"])
  dmuon_row library "" "shared $enable_shared, static $enable_static; installed in $prefix"
  AS_ECHO([""])
  AS_ECHO(["Next: make, make check, make install"])
])
