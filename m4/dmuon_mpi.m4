dnl MPI: the compiler wrapper, the check of its version, and the launcher that belongs to it. Nothing
dnl is run: launchers are matched by name and by what mpi.h defines.

dnl DMUON_MPI_CC: before AC_PROG_CC. A CC given by the user is left alone; otherwise a wrapper.
AC_DEFUN([DMUON_MPI_CC], [
  AC_BEFORE([$0], [AC_PROG_CC])
  AC_ARG_VAR([CC], [C compiler: an MPI wrapper such as mpicc.openmpi or mpicc.mpich])
  AS_IF([test -z "$CC"], [
    AS_CASE(["${with_mpi-guess}"],
      [*/*], [
        AS_IF([test -x "$with_mpi/bin/mpicc"], [CC="$with_mpi/bin/mpicc"],
          [AC_MSG_ERROR([--with-mpi=$with_mpi: no $with_mpi/bin/mpicc there])])],
      [guess|yes], [AC_CHECK_PROGS([CC], [mpicc mpicc.openmpi mpicc.mpich])])
  ])
])

dnl DMUON_WITH_MPI: an MPI of version 3.1 or newer, by compiling and linking alone.
AC_DEFUN([DMUON_WITH_MPI], [
  dmuon_mpi_modules="ompi-c mpich"
  AS_CASE(["$with_mpi"], [*/*], [with_mpi=yes])
  AS_IF([test -z "$MPI_CFLAGS$MPI_LIBS" && test "$with_mpi" != no], [
    AC_MSG_CHECKING([whether $CC compiles and links MPI programs by itself])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[int argc = 0; char **argv = 0; MPI_Init(&argc, &argv);]])],
      [dmuon_mpi_wrapper=yes], [dmuon_mpi_wrapper=no])
    AC_MSG_RESULT([$dmuon_mpi_wrapper])
    AS_IF([test $dmuon_mpi_wrapper = yes], [dmuon_mpi_modules=])
  ])
  DMUON_WITH([mpi], [messages between ranks: MPI 3.1 or newer], [required], [$dmuon_mpi_modules],
    [-lc], [mpi.h], [MPI_Init of MPI 3.1 or newer], [#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error "MPI 3.1 or newer is needed"
#endif],
    [int argc = 0; char **argv = 0; MPI_Init(&argc, &argv);])
  AS_IF([test "$MPI_LIBS" = -lc], [MPI_LIBS= dmuon_note_mpi="by the wrapper"])

  dmuon_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$MPI_CFLAGS $CPPFLAGS"
  dmuon_mpi_flavour=unknown
  AC_MSG_CHECKING([which MPI it is])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef OPEN_MPI
#error no
#endif]], [])], [dmuon_mpi_flavour=openmpi])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef MPICH_VERSION
#error no
#endif]], [])], [dmuon_mpi_flavour=mpich])
  AC_MSG_RESULT([$dmuon_mpi_flavour])
  CPPFLAGS=$dmuon_save_CPPFLAGS

  dnl The wrappers for other languages, for the tests of installed headers; none is needed to build.
  AC_ARG_VAR([MPICXX], [C++ compiler wrapper, for tests alone])
  AC_ARG_VAR([MPIFC], [Fortran compiler wrapper, for tests alone])
  DMUON_MPI_SIBLING([MPICXX], [mpicxx mpic++])
  DMUON_MPI_SIBLING([MPIFC], [mpifort mpif90])
])

dnl DMUON_MPI_SIBLING(VARIABLE, names): the program of the same MPI as CC, by CC's directory and suffix.
AC_DEFUN([DMUON_MPI_SIBLING], [
  AS_IF([test -z "$$1"], [
    dmuon_names=
    for dmuon_word in $CC; do
      dmuon_base=`AS_ECHO(["$dmuon_word"]) | $SED 's,.*/,,'`
      dmuon_where=`AS_ECHO(["$dmuon_word"]) | $SED -n 's,/[[^/]]*$,/,p'`
      AS_CASE([$dmuon_base], [mpicc*], [
        dmuon_suffix=`AS_ECHO(["$dmuon_base"]) | $SED 's/^mpicc//'`
        for dmuon_word in $2; do dmuon_names="$dmuon_names $dmuon_where$dmuon_word$dmuon_suffix"; done])
    done
    for dmuon_word in $2; do
      AS_IF([test $dmuon_mpi_flavour != unknown], [dmuon_names="$dmuon_names $dmuon_word.$dmuon_mpi_flavour"])
    done
    AC_PATH_PROGS([$1], [$dmuon_names])
  ])
])

dnl DMUON_MPIRUN: the launcher, for tests and examples. Overridden by MPIRUN=...
AC_DEFUN([DMUON_MPIRUN], [
  AC_ARG_VAR([MPIRUN], [launcher for tests: matched with the compiler when not given])
  DMUON_MPI_SIBLING([MPIRUN], [mpirun mpiexec])
  AS_IF([test -z "$MPIRUN"], [
    AS_CASE([$dmuon_mpi_flavour],
      [openmpi], [AC_PATH_PROGS([MPIRUN], [orterun prterun mpirun mpiexec])],
      [mpich], [AC_PATH_PROGS([MPIRUN], [mpiexec.hydra mpirun mpiexec])],
      [AC_PATH_PROGS([MPIRUN], [mpirun mpiexec])])
  ])
  AM_CONDITIONAL([DMUON_YIELD_SHIM], [test $dmuon_mpi_flavour = mpich && test "$enable_shared" = yes])
])
