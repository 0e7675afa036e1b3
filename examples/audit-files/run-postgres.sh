#!/bin/sh
# The example with one queue of two daemons, on a PostgreSQL server of its own: each has a list and a worker with two jobs at
# a time. One of the daemons is killed in the middle and started again; every file has its checksum once all the same. Leaves
# nothing behind. `make run-postgres` calls it.
#
# Environment: AUDIT_DIRECTORY and AUDIT_OTHER what to audit (/usr/bin, /usr/sbin), SHIFTBOSS the program (else it is built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -n "${SHIFTBOSS_TEST_POSTGRES:-}" ] || exec sh "$root/tests/postgres-server.sh" sh "$here/run-postgres.sh"

# Ends what was started, by its process id, whatever the reason for the end is.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    for started in $daemon_one $daemon_two $worker_one $worker_two; do
        kill "$started" 2>/dev/null || :
        wait "$started" 2>/dev/null || :
    done
    [ "$code" -eq 0 ] || tail -n 20 "$place"/*.log >&2
    rm -rf "$place"
    exit "$code"
}

fail() {
    echo "run-postgres: $*" >&2
    exit 1
}

# Starts the daemon of a name; its process id is in $started.
start() {
    rm -f "$place/$1.sock"
    "$shiftboss" serve --daemon-name "$1" "$database" "$place/$1" "$place/$1.sock" 2>>"$place/$1.log" &
    started=$!
    while [ ! -S "$place/$1.sock" ]; do
        kill -0 "$started" 2>/dev/null || fail "the daemon $1 has ended"
        sleep 0.1
    done
}

list() {
    "$shiftboss" fetch "$place/$1" "$1" -- find "$2" -type f ! -path '*[[:space:]]*' -printf '%p %s %T@\n'
}

# --once ends when there is nothing to do. A file that cannot be read has no checksum.
work() {
    "$shiftboss" work -n 2 --once --lease 3s -t "$place/$1.sock" -- sh -c 'sha256sum -- "$1" || echo "unreadable  $1"' - {key} \
        >>"$place/$1.results" 2>>"$place/$1.work.log" &
    started=$!
}

shiftboss=${SHIFTBOSS:-$(sh "$here/build.sh")}
place=$(mktemp -d)
database=$SHIFTBOSS_TEST_POSTGRES/postgres
daemon_one= daemon_two= worker_one= worker_two=
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place/one" "$place/two"

echo "Starting two daemons, each with a list and a worker"
start one && daemon_one=$started
start two && daemon_two=$started
list one "${AUDIT_DIRECTORY:-/usr/bin}"
list two "${AUDIT_OTHER:-/usr/sbin}"
total=$(cat "$place"/one/one.*.txt "$place"/two/two.*.txt | wc -l)
work one && worker_one=$started
work two && worker_two=$started

until [ "$(cat "$place"/*.results | wc -l)" -gt $((total / 4)) ]; do
    kill -0 "$worker_two" 2>/dev/null || fail "the work is over too soon"
    sleep 0.05
done
echo "Killing one of them after $(cat "$place"/*.results | wc -l) of $total files, and starting it again"
kill -9 "$daemon_one"
wait "$daemon_one" 2>/dev/null || :
start one && daemon_one=$started
wait "$worker_one" || fail "a worker failed"
wait "$worker_two" || fail "a worker failed"
worker_one= worker_two=
# What the killed daemon handed out in its last moment, and told nobody, comes back when its lease is over.
tries=0
while [ "$(cat "$place"/*.results | wc -l)" -lt "$total" ] && [ $tries -lt 20 ]; do
    tries=$((tries + 1))
    sleep 0.5
    work two && wait "$started" || fail "a worker failed"
done

echo
"$shiftboss" status -t "$database"
echo
names=$(cat "$place"/*.results | awk '{ print $NF }' | sort)
again=$(echo "$names" | uniq -d)
[ -z "$again" ] || fail "done twice: $again"
[ "$(echo "$names" | wc -l)" -eq "$total" ] || fail "$(echo "$names" | wc -l) of $total files are done"
echo "Done: all $total files, each once."
