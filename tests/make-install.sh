#!/bin/sh
# Tests `make install` and `make uninstall` with built programs: tests/packages.sh calls it. What one brought the other takes
# away, but settings.
# Usage: tests/make-install.sh PROGRAMS_DIR
set -eu
cd "$(dirname "$0")/.."
programs=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "make-install.sh: $*" >&2
    exit 1
}

# Below DESTDIR, as packagers use it: `test_below PREFIX`.
test_below() {
    root=$scratch/root
    rm -rf "$root"
    make install built="$programs" PREFIX="$1" DESTDIR="$root" >/dev/null
    "$root$1/bin/shiftboss" --version
    "$root$1/bin/shiftspool" --version
    grep -q "^ExecStart=$1/bin/shiftboss " "$root$1/lib/systemd/system/shiftboss.service" || fail "the unit runs another program"
    grep -q "^ExecStart=$1/bin/shiftspool " "$root$1/lib/systemd/system/shiftspool-tasks.service" || fail "the unit runs another spool"
    [ -e "$root$1/share/man/man1/shiftboss-serve.1" ] || fail "make install brought no man page"
    echo '# Mine.' >>"$root/etc/shiftboss.toml"
    make install built="$programs" PREFIX="$1" DESTDIR="$root" >/dev/null
    grep -q '^# Mine.$' "$root/etc/shiftboss.toml" || fail "make install replaced the settings"
    make uninstall PREFIX="$1" DESTDIR="$root" >/dev/null
    left=$(cd "$root" && find . -type f)
    [ "$left" = ./etc/shiftboss.toml ] || fail "make uninstall left $left"
}

echo "== make install, make uninstall"
test_below /usr
test_below /usr/local
test_below /opt/shiftboss
