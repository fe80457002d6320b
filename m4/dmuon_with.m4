dnl One law for every dependency:
dnl
dnl   --with-X=guess   (default) use it where found; a required one that is missing is an error
dnl   --with-X=yes     must be found
dnl   --with-X=no      not used; an error for a required one
dnl   --with-X=DIR     must be found below DIR (DIR/include, DIR/lib)
dnl   --with-X=NAME    must be found as the pkg-config module NAME
dnl   X_CFLAGS, X_LIBS given by the user are taken as they are, and only checked
dnl
dnl DMUON_WITH(X, purpose, required|optional, pkg-config modules, fallback libraries, header, function,
dnl            [preamble], body)
dnl   X in lower case. Each fallback is a word of -l flags joined by commas (-lcblas,-lblas). The probe
dnl   is a program that includes the header, then has the preamble, and the body in main; it must
dnl   compile and link. The function is named to people.
dnl Sets HAVE_X in config.h, X_CFLAGS, X_LIBS, dmuon_with_X (found or not), dmuon_note_X (how).
AC_DEFUN([DMUON_WITH], [
  AC_ARG_VAR(m4_toupper([$1])[_CFLAGS], [compiler flags for $1, taken instead of a search])
  AC_ARG_VAR(m4_toupper([$1])[_LIBS], [linker flags for $1, taken instead of a search])
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=guess|yes|no|DIR], [$2 ($3)])], [], [with_$1=guess])
  dmuon_with_$1=no
  dmuon_note_$1=
  dmuon_tried_$1=
  AS_CASE([$with_$1],
    [no], [dmuon_note_$1="switched off by --without-$1"],
    [
      AS_IF([test -n "$m4_toupper([$1])_LIBS$m4_toupper([$1])_CFLAGS"], [
        DMUON_TRY([$1], [flags as given], [$m4_toupper([$1])_CFLAGS], [$m4_toupper([$1])_LIBS], [$6], [$8], [$9])
      ], [
        AS_CASE([$with_$1],
          [guess|yes], [
            for dmuon_module in $4; do
              DMUON_TRY_MODULE([$1], [$dmuon_module], [$6], [$8], [$9])
            done
            for dmuon_word in $5; do
              dmuon_libs=`AS_ECHO(["$dmuon_word"]) | tr ',' ' '`
              DMUON_TRY([$1], [$dmuon_libs], [], [$dmuon_libs], [$6], [$8], [$9])
            done],
          [*/*], [
            AS_IF([test -f "$with_$1/include/$6"], [], [dmuon_tried_$1=" [[$6 is not in $with_$1/include]]"])
            dmuon_multiarch=`$CC -print-multiarch 2>/dev/null`
            for dmuon_word in $5; do
              dmuon_libs=`AS_ECHO(["$dmuon_word"]) | tr ',' ' '`
              dmuon_first=`AS_ECHO(["$dmuon_libs"]) | $SED 's/^-l//; s/ .*//'`
              for dmuon_libdir in "$with_$1/lib" "$with_$1/lib64" "$with_$1/lib/$dmuon_multiarch"; do
                AS_IF([test -f "$with_$1/include/$6" && ls "$dmuon_libdir/lib$dmuon_first".* >/dev/null 2>&1], [
                  DMUON_TRY([$1], [$dmuon_libs in $dmuon_libdir], [-I$with_$1/include],
                    [-L$dmuon_libdir -Wl,-rpath,$dmuon_libdir $dmuon_libs], [$6], [$8], [$9])
                ], [dmuon_tried_$1="$dmuon_tried_$1 [[lib$dmuon_first in $dmuon_libdir]]"])
              done
            done],
          [DMUON_TRY_MODULE([$1], [$with_$1], [$6], [$8], [$9])])
      ])
    ])
  AS_IF([test $dmuon_with_$1 = yes], [AC_DEFINE([HAVE_]m4_toupper([$1]), [1], [$2])], [
    test -n "$dmuon_note_$1" || dmuon_note_$1="not found; tried:$dmuon_tried_$1"
    AS_IF([test $3 = required || { test "$with_$1" != guess && test "$with_$1" != no; }], [
      AC_MSG_ERROR([$1 ($2): $dmuon_note_$1.
  The probe was a program that includes <$6> and calls $7; config.log has what the compiler said.
  Say where it is with --with-$1=DIR, --with-$1=PKG-CONFIG-MODULE, or m4_toupper([$1])_CFLAGS and m4_toupper([$1])_LIBS.])
    ])
  ])
])

dnl DMUON_TRY(X, what, cflags, libs, header, preamble, body): one attempt, unless X is found already.
AC_DEFUN([DMUON_TRY], [
  AS_IF([test $dmuon_with_$1 = no], [
    AC_MSG_CHECKING([for $1: $2])
    dmuon_save_CPPFLAGS=$CPPFLAGS
    dmuon_save_LIBS=$LIBS
    CPPFLAGS="$3 $CPPFLAGS"
    LIBS="$4 $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([#include <$5>
$6], [$7])], [
      dmuon_with_$1=yes
      dmuon_note_$1="$2"
      m4_toupper([$1])_CFLAGS="$3"
      m4_toupper([$1])_LIBS="$4"
    ], [dmuon_tried_$1="$dmuon_tried_$1 [[$2]]"])
    CPPFLAGS=$dmuon_save_CPPFLAGS
    LIBS=$dmuon_save_LIBS
    AC_MSG_RESULT([$dmuon_with_$1])
  ])
])

dnl DMUON_TRY_MODULE(X, module, header, preamble, body): the same through pkg-config.
AC_DEFUN([DMUON_TRY_MODULE], [
  AS_IF([test $dmuon_with_$1 = no], [
    AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$2" 2>/dev/null], [
      dmuon_module_cflags=`$PKG_CONFIG --cflags "$2"`
      dmuon_module_libs=`$PKG_CONFIG --libs "$2"`
      DMUON_TRY([$1], [pkg-config $2], [$dmuon_module_cflags], [$dmuon_module_libs], [$3], [$4], [$5])
    ], [dmuon_tried_$1="$dmuon_tried_$1 [[pkg-config $2]]"])
  ])
])
