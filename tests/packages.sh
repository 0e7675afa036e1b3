#!/bin/sh
# Tests what users install. The Debian package is checked by lintian, and installed, upgraded while jobs are in flight,
# removed and purged in a Debian of its own, which systemd runs as the first process; the units as they run there;
# installation without systemd; `make install`; what is for Nix. Installs Debian's tools where they are missing; what cannot be tested
# here fails.
# Usage: tests/packages.sh [--release]
#
# `make test-packages` and continuous integration package the program that the other tests run, for a release build takes
# longer than all of this. With --release (`make test-release`) it is the package of `make deb`; tarball and image, too.
#
# The Debian is made once, in target/packages, with the mirror that apt uses here.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
place=$target/packages
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
jobs=80

fail() {
    echo "packages.sh: $*" >&2
    exit 1
}

step() {
    echo "== $*"
}

prepare() {
    [ "$(id -u)" = 0 ] || fail "only root can test packages: it makes file systems and namespaces"
    missing=
    for tool in lintian mmdebstrap nix-instantiate:nix-bin systemd-analyze:systemd dpkg-shlibdeps:dpkg-dev; do
        command -v "${tool%:*}" >/dev/null || missing="$missing ${tool#*:}"
    done
    # shellcheck disable=SC2086
    [ -z "$missing" ] || sh tests/install.sh $missing
    mkdir -p "$place"
    scratch=$(mktemp -d "$place/test.XXXXXX")
    container=
    trap stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# What runs in the container ends with its first process, and so do its mounts.
stop() {
    code=$?
    trap - EXIT INT TERM
    [ "$code" = 0 ] || [ -z "$container" ] || inside journalctl --no-pager -n 15 >&2 || :
    stop_container
    rm -rf "$scratch"
    exit "$code"
}

stop_container() {
    [ -z "$container" ] || { kill -TERM "$container" && wait "$container" || :; } 2>/dev/null
    container=
}

find_mirror() {
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
        awk -v release="$VERSION_CODENAME" '$1 == release && $2 == "main" { print $3; exit }'
}

# A Debian of this machine's version, with systemd.
make_base() {
    . /etc/os-release
    base=$place/$ID-$VERSION_CODENAME
    [ ! -d "$base" ] || return 0
    step "a $PRETTY_NAME is made in $base"
    mirror=$(find_mirror)
    # Only what was updated once knows its suites.
    [ -n "$mirror" ] || { apt-get update >&2 && mirror=$(find_mirror); } || :
    [ -n "$mirror" ] || fail "apt knows no mirror of $VERSION_CODENAME"
    rm -rf "$base.new"
    mmdebstrap --mode=root --variant=essential --include=systemd,adduser "$VERSION_CODENAME" "$base.new" "$mirror" \
        2>"$scratch/mmdebstrap.log" || { tail "$scratch/mmdebstrap.log" >&2 && fail "mmdebstrap failed"; }
    mv "$base.new" "$base"
}

# The same package with another version: `repackage VERSION [LINE]` adds a line to the settings that it brings.
repackage() {
    rm -rf "$scratch/again"
    dpkg-deb -R "$deb" "$scratch/again"
    sed -i "s/^Version: .*/Version: $1/" "$scratch/again/DEBIAN/control"
    [ "$#" = 1 ] || echo "$2" >>"$scratch/again/etc/shiftboss.toml"
    (cd "$scratch/again" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zgzip -z1 -b "$scratch/again" "$scratch/$1.deb" >/dev/null
}

boot() {
    layer=$scratch/booted
    mkdir "$layer"
    sh tests/container.sh "$base" "$layer" /lib/systemd/systemd >"$layer/console" 2>&1 &
    container=$!
    for _ in $(seq 300); do
        # The first process is the only child of unshare, which is the only child of the script.
        init=$(pgrep -P "$(pgrep -P "$container" -x unshare)" -x systemd 2>/dev/null) || init=
        [ -z "$init" ] || state=$(inside systemctl is-system-running 2>/dev/null) || :
        case "${state:-}" in running | degraded) root=/proc/$init/root && return 0 ;; esac
        sleep 0.1
    done
    cat "$layer/console" >&2
    fail "systemd did not start in the container"
}

inside() {
    nsenter -t "$init" -a -- "$@"
}

# What a shell in the container says.
shell() {
    inside /bin/sh -euc "$1"
}

# dpkg answers no question: one would end it.
install_package() {
    package=$1
    shift
    cp "$scratch/$package.deb" "$root/srv/package.deb"
    inside dpkg -i "$@" /srv/package.deb </dev/null >"$scratch/dpkg.log" 2>&1 ||
        { cat "$scratch/dpkg.log" >&2 && fail "dpkg -i of $package failed"; }
}

expect() {
    [ "$2" = "$3" ] || fail "$1: expected \"$3\", found \"$2\""
}

wait_for() {
    for _ in $(seq 300); do
        ! eval "$2" || return 0
        sleep 0.1
    done
    fail "after 30 s it is not so that $1"
}

test_lintian() {
    step "lintian"
    lintian --allow-root --fail-on error "$deb" || fail "lintian found errors"
}

# All commands of a program, and those below them.
commands_of() {
    of=$1
    shift
    "$programs/$of" "$@" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' | grep -v '^help$' |
        while read -r name; do
            echo "$of${1:+-$1}-$name"
            # No command has two levels below it.
            [ "$#" != 0 ] || commands_of "$of" "$name"
        done
}

test_content() {
    step "a man page for each command, completions, settings"
    { commands_of shiftboss && commands_of shiftspool; } >"$scratch/commands"
    [ "$(wc -l <"$scratch/commands")" -gt 40 ] || fail "$(wc -l <"$scratch/commands") commands were found"
    dpkg-deb -c "$deb" | awk '{ print $6 }' >"$scratch/content"
    while read -r name; do
        grep -qx "./usr/share/man/man1/$name.1.gz" "$scratch/content" || fail "$name has no man page"
    done <"$scratch/commands"
    for name in shiftboss shiftspool; do
        for file in bin/$name share/bash-completion/completions/$name share/zsh/vendor-completions/_$name \
            share/fish/vendor_completions.d/$name.fish share/man/man1/$name.1.gz; do
            grep -qx "./usr/$file" "$scratch/content" || fail "the package lacks $file"
        done
    done
    expect "conffiles" "$(dpkg-deb --ctrl-tarfile "$deb" | tar -xO ./conffiles)" /etc/shiftboss.toml
}

# The setting names no group of builders: nothing is built.
test_nix() {
    step "the package and the module for Nix"
    NIX_CONFIG="build-users-group =" nix-instantiate --eval --strict tests/packages.nix ||
        fail "contrib/nix cannot be evaluated"
}

# Tens of the figure that systemd-analyze prints.
test_units() {
    step "exposure of the units, before they run"
    systemd-analyze security --offline=true --threshold=15 contrib/shiftboss.service | tail -n 1
    systemd-analyze security --offline=true --threshold=15 contrib/shiftboss-web.service | tail -n 1
    systemd-analyze security --offline=true --threshold=15 contrib/shiftboss-relay.service | tail -n 1
    systemd-analyze security --offline=true --threshold=15 contrib/shiftspool-tasks.service | tail -n 1
}

state_of() {
    echo "$(inside systemctl is-enabled "$1")" "$(inside systemctl is-active "$1")"
}

test_first_installation() {
    step "install"
    install_package first
    expect "the daemon" "$(state_of shiftboss)" "enabled active"
    expect "the page" "$(state_of shiftboss-web)" "disabled inactive"
    expect "a relay" "$(state_of shiftboss-relay)" "disabled inactive"
    expect "the socket" "$(inside stat -c '%a %U %G' /run/shiftboss/worker.sock)" "660 shiftboss shiftboss"
    shell 'shiftboss check --config /etc/shiftboss.toml && shiftboss health && systemctl reload shiftboss' >/dev/null
    inside systemd-analyze verify shiftboss.service shiftboss-web.service shiftboss-relay.service shiftboss-worker@jobs.service \
        shiftspool-tasks.service
    inside systemd-analyze security --threshold=15 shiftboss.service | tail -n 1
    inside systemctl start shiftboss-web
    wait_for "the page is well" 'inside bash -c "exec 3<>/dev/tcp/127.0.0.1/7390 &&
        printf \"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n\" >&3 && tail -n 1 <&3" 2>/dev/null | grep -qx ok'
}

# Its unit brings a task that was put while the daemon was down.
test_spool() {
    step "a spool's tasks"
    inside systemctl stop shiftboss
    inside systemctl start shiftspool-tasks
    shell 'shiftspool put /var/lib/shiftboss-spool tasks --meta "spooled 1" </dev/null' >/dev/null
    inside systemctl start shiftboss
    wait_for "the task is added" 'inside shiftboss tasks | grep -q "^spooled "'
    inside shiftboss cancel spooled
    inside systemctl stop shiftspool-tasks
}

# It takes the daemon's place, waits for a broker that is not there, and gives the place back.
test_relay() {
    step "a relay in the daemon's place"
    shell 'sed "s,^broker = .*,broker = \"amqp://127.0.0.1:9/\"," /usr/share/doc/shiftboss/examples/shiftboss-relay.toml >/etc/shiftboss-relay.toml
        systemctl start --no-block shiftboss-relay'
    wait_for "the relay looks for its broker" 'inside journalctl -u shiftboss-relay | grep -q "127.0.0.1:9"'
    expect "the daemon" "$(inside systemctl is-active shiftboss)" inactive
    shell 'rm /etc/shiftboss-relay.toml; systemctl stop shiftboss-relay; systemctl start shiftboss; shiftboss health'
}

# The unit for workers, whose jobs write when they begin and end; while there is the file `long`, they do not end.
start_jobs() {
    shell 'mkdir -p /etc/shiftboss && echo "COMMAND=/usr/local/bin/job {key}" >/etc/shiftboss/jobs.conf'
    cat >"$root/usr/local/bin/job" <<'END'
#!/bin/sh
echo "began $1 $(date +%s.%N)" >>/var/lib/shiftboss/ledger
sleep 0.5
while [ -e /var/lib/shiftboss/long ]; do sleep 0.1; done
echo "ended $1 $(date +%s.%N)" >>/var/lib/shiftboss/ledger
END
    chmod 755 "$root/usr/local/bin/job"
    inside setpriv --reuid=shiftboss --regid=shiftboss --clear-groups \
        shiftboss fetch /var/lib/shiftboss/input "$1" -- seq -f '%g payload' "$2" "$3" >/dev/null
    inside systemctl restart shiftboss-worker@jobs
}

counted() {
    grep -c "^$1 " "$root/var/lib/shiftboss/ledger" 2>/dev/null || [ -e "$root/var/lib/shiftboss/ledger" ] || echo 0
}

test_upgrade() {
    step "upgrade while jobs are in flight"
    shell 'echo "lease = \"2h\"" >>/etc/shiftboss.toml; systemctl restart shiftboss; cp /etc/shiftboss.toml /srv/edited'
    repackage 0.1.1-1
    repackage 0.1.2-1 '# A new version has this line.'
    start_jobs numbers 1 "$jobs"
    wait_for "a quarter of the jobs ended" '[ "$(counted ended)" -ge $((jobs / 4)) ]'
    before=$(inside systemctl show -P MainPID shiftboss)
    worker=$(inside systemctl show -P MainPID shiftboss-worker@jobs)
    : >"$root/var/lib/shiftboss/long"
    wait_for "a job is in flight" '[ "$(counted began)" -gt "$(counted ended)" ]'
    install_package 0.1.1-1
    rm "$root/var/lib/shiftboss/long"
    [ "$(inside systemctl show -P MainPID shiftboss)" != "$before" ] || fail "the daemon was not restarted"
    stopped=$(date -d "$(inside systemctl show --timestamp=us -P InactiveEnterTimestamp shiftboss)" +%s.%N)
    wait_for "half of the jobs ended" '[ "$(counted ended)" -ge $((jobs / 2)) ]'
    test_new_settings
    wait_for "all jobs ended" '[ "$(counted ended)" -ge "$jobs" ]'
    wait_for "all ends are recorded" '[ "$(inside shiftboss log -n 1000 | grep -c " success")" = "$jobs" ]'
    expect "jobs that began and ended once" \
        "$(awk '{ n[$1 " " $2]++ } END { for (k in n) if (n[k] == 1) once++; print once, NR }' "$root/var/lib/shiftboss/ledger")" \
        "$((2 * jobs)) $((2 * jobs))"
    over=$(awk -v at="$stopped" '$1 == "began" { began[$2] = $3 } $1 == "ended" && began[$2] < at && $3 > at' \
        "$root/var/lib/shiftboss/ledger" | wc -l)
    [ "$over" -ge 1 ] || fail "no job was in flight when the daemon was restarted"
    expect "the worker" "$(inside systemctl show -P MainPID shiftboss-worker@jobs)" "$worker"
    echo "$jobs jobs ran once each, $over of them over a restart of the daemon; the worker went on"
}

# What an administrator changed is kept, without a question, and is asked about only if the package has changed it, too.
test_new_settings() {
    shell 'cmp /etc/shiftboss.toml /srv/edited'
    install_package 0.1.2-1 --force-confold
    shell 'cmp /etc/shiftboss.toml /srv/edited; grep -q "new version" /etc/shiftboss.toml.dpkg-dist'
    expect "the version" "$(inside dpkg-query -W -f '${Version}' shiftboss)" 0.1.2-1
}

test_removal() {
    step "remove while jobs are in flight"
    : >"$root/var/lib/shiftboss/ledger"
    start_jobs more 1001 1040
    wait_for "jobs run" '[ "$(counted began)" -ge 8 ]'
    inside dpkg -r shiftboss >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log" >&2 && fail "dpkg -r failed"; }
    expect "jobs that began, and did not end" "$(($(counted began) - $(counted ended)))" 0
    cp "$root/var/lib/shiftboss/state.db" "$scratch/left.db"
    expect "jobs in flight" "$("$program" status --json -t "$scratch/left.db" | sed 's/.*"in_flight":\([0-9]*\).*/\1/')" 0
    expect "processes" "$(shell 'cat /proc/[0-9]*/comm' | grep -c '^shift' || :)" 0
    shell 'test -e /etc/shiftboss.toml; test ! -e /usr/bin/shiftboss; test ! -e /usr/bin/shiftspool'
    step "purge"
    inside dpkg -P shiftboss >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log" >&2 && fail "dpkg -P failed"; }
    grep "the database and the lists are left in /var/lib/shiftboss" "$scratch/dpkg.log" || fail "purge did not say what it left"
    shell 'test ! -e /etc/shiftboss.toml; test -e /var/lib/shiftboss/state.db'
    expect "what is left in /etc/systemd" "$(inside find /etc/systemd/system -name 'shift*')" ""
    step "install again, on the database that was left"
    install_package first
    expect "keys that ran" "$(inside shiftboss log -n 1000 | grep -c ' success')" "$((jobs + $(counted ended)))"
}

# As docs/installing.md says it, on the database that is there.
test_from_source() {
    step "make install, and the daemon that it brings"
    inside dpkg -P shiftboss >/dev/null 2>&1
    make install built="$programs" DESTDIR="$root" >/dev/null
    shell 'systemd-sysusers; systemctl daemon-reload; systemctl enable --now shiftboss' 2>/dev/null
    expect "the daemon" "$(inside readlink "/proc/$(inside systemctl show -P MainPID shiftboss)/exe")" /usr/local/bin/shiftboss
    inside shiftboss health
    inside systemctl disable --now shiftboss 2>/dev/null
    make uninstall DESTDIR="$root" >/dev/null
    expect "what is left in /usr/local" "$(inside find /usr/local -type f ! -name job)" ""
}

# A chroot for a container's image, say.
test_without_systemd() {
    step "install, upgrade, remove and purge where there is no systemd"
    layer=$scratch/plain
    mkdir -p "$layer/changes/packages"
    cp "$scratch/first.deb" "$scratch/0.1.1-1.deb" "$layer/changes/packages/"
    sh tests/container.sh "$base" "$layer" /bin/sh -euxc '
        dpkg --purge systemd
        dpkg -i /packages/first.deb </dev/null
        id shiftboss; getent passwd shiftboss | grep nologin
        dpkg -i /packages/first.deb </dev/null
        dpkg -i /packages/0.1.1-1.deb </dev/null
        install -d -o shiftboss /var/lib/shiftboss /run/shiftboss
        setpriv --reuid=shiftboss --regid=shiftboss --clear-groups shiftboss serve --config /etc/shiftboss.toml & daemon=$!
        for _ in $(seq 100); do shiftboss health && break || sleep 0.1; done
        shiftboss add key payload
        kill $daemon; wait $daemon
        dpkg -r shiftboss
        dpkg -P shiftboss | grep "left in /var/lib/shiftboss"
        test -e /var/lib/shiftboss/state.db' >"$scratch/plain.log" 2>&1 ||
        { cat "$scratch/plain.log" >&2 && fail "the package needs systemd"; }
}

# The tests' own program is there, if they ran.
build() {
    step "build"
    if [ "$1" = release ]; then
        make deb
    else
        cargo build --locked -p shiftboss -p shiftspool
        make man
        sh contrib/debian/build.sh --quiet --profile dev --fast --strip --no-separate-debug-symbols
    fi
    deb=$target/debian/shiftboss_$version-1_$(dpkg --print-architecture).deb
    programs=$target/$1
    program=$programs/shiftboss
    ls -l "$deb"
    cp "$deb" "$scratch/first.deb"
}

profile=debug
[ "${1:-}" != --release ] || profile=release
prepare
build $profile
make_base
test_lintian
test_content
test_units
test_nix
boot
test_first_installation
test_spool
test_relay
test_upgrade
test_removal
test_from_source
stop_container
test_without_systemd
sh tests/make-install.sh "$programs"
[ $profile = debug ] || sh tests/tarball.sh
echo "The packages are in order."
