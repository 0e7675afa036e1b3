#!/bin/sh
# Runs the tests of the store on PostgreSQL, and the daemon's tests on it: `make test-postgres` calls it.
#
# Environment: SHIFTBOSS_TEST_POSTGRES the URL of a server, without a database, whose role may make databases. Where it is
# not set, one server is started in a temporary directory, reached by a socket there only, and stopped at the end.
# Arguments go to nextest.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "postgres.sh: $*" >&2
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
        -c fsync=off -c full_page_writes=off -c max_connections=300 -c shared_buffers=64MB -c max_wal_size=1GB" ||
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

# The daemon's tests that are about SQLite: its file, its faults and edits of it by hand, and the classic rules. One that is
# missing here fails (Site::database in tests/common).
sqlite='test(/^(backup|damage|database|faults|work::classic|safety::(refused|planted|limits)|status)::/)
    | test(/^classic::(a_thousand_pipelined_lines|accepted_forms_of_done)$/)
    | test(/^delivery::(a_killed_peer|an_answer_(left|not|that)|an_undo_does_not|classic_undoes)/)
    | test(/^directory::another_daemons_directory_is_not_accepted$/)
    | test(/^fetchers::(a_file_is_checked_without|a_reload_at_any_time|the_daemons_own_files)/)
    | test(/^files::(lines::every_form|reconciled::(a_file_that_grew|killed_while_rows|random_edits|unchanged_files))/)
    | test(/^lifecycle::(a_second_signal_ends_at_once|wrong_command_lines)$/)
    | test(/^logging::journal$/)
    | test(/^observed::(a_backup|counts_are_true_under_outside_edits|status_of_a_running)/)
    | test(/^orders::(a_classic_daemon|a_lock_is_named|health$)/)
    | test(/^serving::statement_(22|34|39)_/)
    | test(/^single_tasks::(a_job_that_ends_under|a_task_outlives|an_unknown_group|classic_knows)/)
    | test(/^targets::/)
    | test(/^turns::(a_lease_holds|an_undone_turn|classic_serves|fetchers_take_turns|twelve_hours)/)
    | test(/^version2::(both::(a_classic|classic_)|client::a_worker_without|waiting::outside_edits)/)
    | test(/^views::(a_database_for_others|the_json_objects|why_in_words|with_the_daemon_down)$/)'
# Those that do not pass on a server yet: thousands of lists, of one transaction each, are slower there than these wait.
open='test(/^files::(bulk|names::(a_file_set_aside|good_names))/)'
# Those of commands that use no queue.
other='binary(project) | (binary(spool) & not test(/^serve/)) | test(/^(check|child|fetch|on_change|cli)::/)'
daemon="kind(test) & package(shiftboss) & not ($sqlite | $open | $other | test(/on_server::/))"

if ! cargo nextest --version >/dev/null 2>&1; then
    fail "cargo-nextest is not installed: cargo install --locked cargo-nextest"
fi
# Both, whatever comes of the first.
code=0
cargo nextest run --locked -p shiftboss --run-ignored only -E 'test(postgres::) | test(on_server::)' "$@" || code=$?
cargo nextest run --locked -p shiftboss -E "$daemon" "$@" || code=$?
exit "$code"
