#!/bin/sh
# Puts the built programs in their place, or takes them away: `make install`, `make uninstall`, `make dist` and contrib/nix
# call it. Settings, /etc/shiftboss.toml, are never replaced nor removed.
# Usage: contrib/install.sh PROGRAMS_DIR MAN_DIR | --uninstall
#
# Environment: PREFIX (/usr/local), DESTDIR (none: a directory that stands for the root, for who makes packages).
set -eu

prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
here=$(dirname "$0")

case "$prefix" in
/*) ;;
*) echo "install.sh: PREFIX must begin with a slash: $prefix" >&2 && exit 64 ;;
esac
below=$root$prefix
settings=$root/etc/shiftboss.toml
programs="shiftboss shiftspool"

put() {
    install -D -m 644 "$1" "$below/$2"
}

install_all() {
    [ -f "$1/shiftboss" ] && [ -f "$1/shiftspool" ] && [ -d "$2/man1" ] ||
        { echo "install.sh: a program in $1, or $2/man1, is missing: run make setup man" >&2 && exit 69; }
    for page in "$2"/man1/*; do
        put "$page" "share/man/man1/$(basename "$page")"
    done
    for program in $programs; do
        install -D -m 755 "$1/$program" "$below/bin/$program"
        put "$2/completions/$program.bash" "share/bash-completion/completions/$program"
        put "$2/completions/_$program" "share/zsh/site-functions/_$program"
        put "$2/completions/$program.fish" "share/fish/vendor_completions.d/$program.fish"
    done
    put "$here/shiftboss.sysusers" lib/sysusers.d/shiftboss.conf
    put "$here/shiftboss.toml" share/doc/shiftboss/shiftboss.toml
    put "$here/network.conf" share/doc/shiftboss/network.conf
    put "$here/shiftboss-relay.toml" share/doc/shiftboss/shiftboss-relay.toml
    for unit in "$here"/*.service; do
        place=lib/systemd/system/$(basename "$unit")
        put "$unit" "$place"
        sed -i "s,/usr/bin/shift,$prefix/bin/shift," "$below/$place"
    done
    if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
        echo "You are not root: $settings is not made, and units in $below/lib/systemd/system may not be looked for."
    elif [ ! -e "$settings" ]; then
        install -D -m 644 "$here/shiftboss.toml" "$settings"
    fi
}

uninstall() {
    for program in $programs; do
        rm -f "$below/bin/$program" "$below/share/man/man1/$program.1" "$below/share/man/man1/$program"-*.1 \
            "$below/share/bash-completion/completions/$program" "$below/share/zsh/site-functions/_$program" \
            "$below/share/fish/vendor_completions.d/$program.fish"
    done
    rm -f "$below/lib/sysusers.d/shiftboss.conf"
    for unit in "$here"/*.service; do
        rm -f "$below/lib/systemd/system/$(basename "$unit")"
    done
    rm -rf "$below/share/doc/shiftboss"
    echo "Settings and database are left: $settings, /var/lib/shiftboss"
}

case "$#:${1:-}" in
1:--uninstall) uninstall ;;
2:*) install_all "$1" "$2" ;;
*) echo "usage: install.sh PROGRAMS_DIR MAN_DIR | --uninstall" >&2 && exit 64 ;;
esac
