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
    | test(/^orders::(a_classic_daemon|health$)/)
    | test(/^serving::statement_(22|34|39)_/)
    | test(/^spool_tasks::/)
    | test(/^single_tasks::(a_job_that_ends_under|a_task_outlives|an_unknown_group|classic_knows)/)
    | test(/^(targets|top)::/)
    | test(/^(metrics|web|pages)::(a_classic|the_health_of_a_classic|a_database)/)
    | test(/^turns::(a_lease_holds|an_undone_turn|classic_serves|fetchers_take_turns|twelve_hours)/)
    | test(/^version2::(both::(a_classic|classic_)|client::a_worker_without|waiting::outside_edits)/)
    | test(/^views::(a_database_for_others|the_json_objects|times_that|why_in_words|with_the_daemon_down)/)'
# Those of commands that use no queue.
other='binary(project) | test(/^(check|child|fetch|on_change|cli)::/)'
# Thousands of files: one after the other, for server and daemon share the machine's cores.
many='test(/^files::bulk::/)'
daemon="kind(test) & package(shiftboss) & not ($sqlite | $many | $other | test(/on_server::/))"

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
PROPTEST_CASES="${PROPTEST_CASES:-60}" \
    cargo nextest run --locked -p shiftboss-postgres --features server "$@" || code=$?
cargo nextest run --locked -p shiftboss --run-ignored only -E "(test(postgres::) | test(on_server::)) $clocks" "$@" || code=$?
cargo nextest run --locked -p shiftboss -E "$daemon" "$@" || code=$?
cargo nextest run --locked -p shiftboss -E "$many" --test-threads 1 "$@" || code=$?
[ "$#" != 0 ] || soak || code=$?
exit "$code"
