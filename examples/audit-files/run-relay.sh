#!/bin/sh
# The example with relays: a daemon that has no lists, and two relays, each with a list and two workers, which reach it over a
# RabbitMQ broker of their own. The broker is killed in the middle and started again; every file has its checksum once all the
# same. Leaves nothing behind. `make run-relay` calls it.
#
# Environment: AUDIT_DIRECTORY and AUDIT_OTHER what to audit (/usr/bin, /usr/sbin), SHIFTBOSS the program (else it is built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -n "${SHIFTBOSS_TEST_BROKER:-}" ] || exec sh "$root/tests/broker-server.sh" sh "$here/run-relay.sh"

# Ends what was started, by its process id, whatever the reason for the end is.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    for started in $workers $relays $daemon; do
        kill "$started" 2>/dev/null || :
        wait "$started" 2>/dev/null || :
    done
    [ "$code" -eq 0 ] || tail -n 20 "$place"/*.log >&2
    rm -rf "$place"
    exit "$code"
}

fail() {
    echo "run-relay: $*" >&2
    exit 1
}

# Waits for the socket of a process: its name, and its id.
wait_for() {
    while [ ! -S "$place/$1.sock" ]; do
        kill -0 "$2" 2>/dev/null || fail "$1 has ended"
        sleep 0.1
    done
}

relay() {
    "$shiftboss" relay --name "$1" --broker-prefix "$prefix" "$broker" "$place/$1" "$place/$1.sock" 2>"$place/$1.log" &
    relays="$relays $!"
    wait_for "$1" $!
}

list() {
    "$shiftboss" fetch "$place/$1" "$1" -- find "$2" -type f ! -path '*[[:space:]]*' -printf '%p %s %T@\n'
}

# --once ends when there is nothing to do. A file that cannot be read has no checksum.
work() {
    "$shiftboss" work -n 2 --once -t "$place/$1.sock" -- sh -c 'sha256sum -- "$1" || echo "unreadable  $1"' - {key} \
        >>"$place/$1.results" 2>>"$place/$1.work.log" &
    workers="$workers $!"
}

# The files that are done.
done_so_far() {
    cat "$place"/*.results | wc -l
}

shiftboss=${SHIFTBOSS:-$(sh "$here/build.sh")}
broker=$SHIFTBOSS_TEST_BROKER prefix=run-relay-$$.
place=$(mktemp -d)
daemon= relays= workers=
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place/none"

echo "Starting a daemon, and two relays, each with a list and two workers"
"$shiftboss" serve --broker "$broker" --broker-prefix "$prefix" "$place/state.db" "$place/none" "$place/daemon.sock" \
    2>"$place/daemon.log" &
daemon=$!
wait_for daemon $daemon
until grep -q "Relays are served" "$place/daemon.log"; do
    kill -0 $daemon || fail "the daemon has ended"
    sleep 0.1
done
relay one
relay two
list one "${AUDIT_DIRECTORY:-/usr/bin}"
list two "${AUDIT_OTHER:-/usr/sbin}"
total=$(cat "$place"/one/one.*.txt "$place"/two/two.*.txt | wc -l)
for relay in one two; do
    work $relay
    work $relay
done

until [ "$(done_so_far)" -gt $((total / 4)) ]; do
    sleep 0.05
done
if [ -n "${SHIFTBOSS_TEST_BROKER_PID:-}" ]; then
    echo "Killing the broker after $(done_so_far) of $total files, and starting it again"
    kill -USR1 "$SHIFTBOSS_TEST_BROKER_PID"
fi
for worker in $workers; do
    wait "$worker" || fail "a worker failed"
done
workers=
# What was handed out when the broker was killed, and told nobody, comes back when its relay has undone it.
tries=0
while [ "$(done_so_far)" -lt "$total" ] && [ $tries -lt 60 ]; do
    tries=$((tries + 1))
    sleep 0.5
    work two && wait $workers || fail "a worker failed"
    workers=
done

echo
"$shiftboss" status -t "$place/daemon.sock"
echo
names=$(cat "$place"/*.results | awk '{ print $NF }' | sort)
again=$(echo "$names" | uniq -d)
[ -z "$again" ] || fail "done twice: $again"
[ "$(echo "$names" | wc -l)" -eq "$total" ] || fail "$(echo "$names" | wc -l) of $total files are done"
echo "Done: all $total files, each once."
