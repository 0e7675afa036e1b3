#!/bin/sh
# Runs a command with a PostgreSQL server of its own: started in a temporary directory, reached by a socket there only, and
# stopped at the end. `make test-postgres`, `make run-postgres` and `make bench-postgres` use it.
#
# Environment: SHIFTBOSS_TEST_POSTGRES the URL of a server, without a database, whose role may make databases: where it is
# set, that one is used; else the command has it. SHIFTBOSS_SERVER_SETTINGS the server's settings (-c NAME=VALUE ...) in place
# of those for tests, which are quick and lose everything with the machine.
set -eu

for_tests='-c fsync=off -c full_page_writes=off -c shared_buffers=64MB -c max_wal_size=1GB'

fail() {
    echo "postgres-server.sh: $*" >&2
    exit 1
}

# The newest programs of a server that Debian has installed.
programs() {
    for found in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -n -r); do
        [ ! -x "$found/initdb" ] || { echo "$found" && return; }
    done
    initdb=$(command -v initdb) && dirname "$initdb"
}

# Without a cluster of the system: nothing runs beside the one of the tests.
install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "there is no PostgreSQL: install its server, version 14 or newer (Debian: postgresql), or set SHIFTBOSS_TEST_POSTGRES"
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
    (apt-get install -y postgresql || { apt-get update && apt-get install -y postgresql; }) >&2
}

# A server refuses to be root's.
as_user() {
    if [ "$(id -u)" != 0 ]; then
        "$@"
    else
        (cd / && setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "$@")
    fi
}

# Its directory has a name that nobody guesses, and may be entered: some tests are another user.
start() {
    bin=$(programs) || { install && bin=$(programs); }
    user=postgres
    id postgres >/dev/null 2>&1 || user=nobody
    place=$(mktemp -d)
    trap stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    [ "$(id -u)" != 0 ] || chown "$user" "$place"
    chmod 711 "$place"
    as_user "$bin/initdb" -D "$place/data" -U shiftboss -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$place/log" ||
        { cat "$place/log" >&2 && fail "initdb failed"; }
    as_user "$bin/pg_ctl" -D "$place/data" -l "$place/data/log" -w -s start -o "-k $place -c listen_addresses= \
        -c max_connections=300 ${SHIFTBOSS_SERVER_SETTINGS:-$for_tests}" ||
        { cat "$place/data/log" >&2 && fail "the server does not start"; }
    SHIFTBOSS_TEST_POSTGRES="postgres://shiftboss@$(echo "$place" | sed 's,/,%2F,g')"
    export SHIFTBOSS_TEST_POSTGRES
}

stop() {
    code=$?
    trap - EXIT INT TERM
    as_user "$bin/pg_ctl" -D "$place/data" -m immediate -s stop || :
    rm -rf "$place"
    exit "$code"
}

[ -n "${SHIFTBOSS_TEST_POSTGRES:-}" ] || start
"$@"
