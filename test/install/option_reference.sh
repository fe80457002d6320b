#!/bin/sh
# doc/options.md says what the library's tables say.
. "${abs_top_srcdir:-$(dirname "$0")/../..}/test/tap.sh"
scratch
"$abs_top_builddir/doc/option_reference" >"$work/options.md"
diff "$abs_top_srcdir/doc/options.md" "$work/options.md" >"$work/difference"
ok $? "doc/options.md is made from the tables (make option-reference writes it anew)" \
  "$work/difference"
finish
