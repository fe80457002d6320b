dnl DMUON_VERSION
dnl Splits the package version into numbers for C and takes the libtool triple, both from VERSION.
AC_DEFUN([DMUON_VERSION], [
  m4_define([dmuon_version_list], m4_split(AC_PACKAGE_VERSION, [\.]))
  AC_DEFINE([DMUON_VERSION_MAJOR], m4_argn([1], dmuon_version_list), [Major version.])
  AC_DEFINE([DMUON_VERSION_MINOR], m4_argn([2], dmuon_version_list), [Minor version.])
  AC_DEFINE([DMUON_VERSION_PATCH], m4_argn([3], dmuon_version_list), [Patch version.])
  AC_SUBST([DMUON_LIBTOOL_VERSION], m4_esyscmd_s([sed -n 's/^libtool=//p' VERSION]))
])
