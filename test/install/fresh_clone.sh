#!/bin/sh
# A user's first minutes: a clone of this tree's commit, ./quickstart, a short training run; then the
# clone must be as clean as it came. Takes about a minute, so it is not a part of "make check":
#   sh test/install/fresh_clone.sh
# Heeded: what quickstart heeds (CC, MPIRUN, JOBS, DMUON_CONFIGURE_FLAGS, ...).
. "${abs_top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}/test/tap.sh"
scratch
command -v git >/dev/null 2>&1 || skip_all "no git"
git -C "$abs_top_srcdir" rev-parse --verify -q HEAD >/dev/null 2>&1 || skip_all "no git repository"
# Settings of the surrounding make, and of a test, are not a user's.
unset MAKEFLAGS MFLAGS MAKELEVEL abs_top_builddir
for name in CC CFLAGS MPIRUN; do
  eval "[ -n \"\${$name:-}\" ] || unset $name"
done
[ "${CC:-}" != mpicc ] || unset CC # the default of tap.sh

git -c protocol.file.allow=always clone -q "$abs_top_srcdir" "$work/clone" >"$work/log" 2>&1 </dev/null
ok $? "git clone" "$work/log"
[ -x "$work/clone/quickstart" ] || finish

(cd "$work/clone" && ./quickstart train -steps 4 -layers 1 -width 32) >"$work/log" 2>&1 </dev/null
ok $? "./quickstart train, from nothing" "$work/log"
grep -q '"parameter_hash"' "$work/clone/build/train_gpt.json" 2>/dev/null
ok $? "it leaves its results in build/train_gpt.json" "$work/log"

git -C "$work/clone" status --porcelain >"$work/log" 2>&1
[ ! -s "$work/log" ]
ok $? "the source tree is as it came" "$work/log"

# Again: nothing is configured or built a second time.
(cd "$work/clone" && ./quickstart build) >"$work/log" 2>&1 </dev/null
status=$?
[ $status -eq 0 ] && ! grep -q -e autoreconf -e configuring "$work/log"
ok $? "a second ./quickstart has nothing to configure" "$work/log"
finish
