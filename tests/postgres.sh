#!/bin/sh
# Runs the tests of the store on PostgreSQL, the daemon's tests on it, and a short soak: `make test-postgres` calls it.
# Arguments go to nextest; with any, there is no soak.
#
# Environment: SHIFTBOSS_TEST_POSTGRES as for postgres-server.sh, which starts a server where it is not set.
set -eu
cd "$(dirname "$0")/.."
[ -n "${SHIFTBOSS_TEST_POSTGRES:-}" ] || exec sh tests/postgres-server.sh sh "tests/$(basename "$0")" "$@"

fail() {
    echo "postgres.sh: $*" >&2
    exit 1
}

# What a server changes for a whole daemon: its start and its kills, what becomes of answers, waiting, files that come and go, and what
# is shown. The rules of the queue are proved on a server by the store's own tests. Of these modules, what is about SQLite's file is in
# a module `sqlite`, and what is about the classic rules has them in its name.
daemon='test(/^(kills|serving|lifecycle|delivery|version2|single_tasks|files::(life|losses|positions)|levers|bumps|holds|retries|work::kills)::/)
    - test(/sqlite::|classic/)'

# A minute of `make soak-postgres`, on a server of its own.
soak() {
    cargo build --locked -p shiftboss -p shiftboss-soak || return
    if [ "$(id -u)" = 0 ]; then
        set -- unshare -m target/debug/shiftboss-soak postgres --fill-disk
    else
        set -- target/debug/shiftboss-soak postgres
    fi
    "$@" --program target/debug/shiftboss --minutes 0.7
}

# Clocks that differ need Debian's faketime.
clocks=''
if ! command -v faketime >/dev/null && ! { [ "$(id -u)" = 0 ] && apt-get install -y faketime >&2; }; then
    [ -z "${CI:-}" ] || fail "faketime is not installed"
    echo "postgres.sh: NOT TESTED: clocks that differ, for faketime is not installed" >&2
    clocks='- test(/clocks_that_differ/)'
fi

# What is refused in front of a server.
command -v pgbouncer >/dev/null || { [ "$(id -u)" = 0 ] && apt-get install -y pgbouncer >&2; } ||
    fail "pgbouncer is not installed"

if ! cargo nextest --version >/dev/null 2>&1; then
    fail "cargo-nextest is not installed: cargo install --locked cargo-nextest"
fi
# All, whatever comes of the first.
code=0
cargo nextest run --locked -p shiftboss-postgres --features server "$@" || code=$?
cargo nextest run --locked -p shiftboss --ignore-default-filter --run-ignored all \
    -E "(test(postgres::) | test(/^on_server::/)) $clocks | ($daemon)" "$@" || code=$?
[ "$#" != 0 ] || soak || code=$?
exit "$code"
