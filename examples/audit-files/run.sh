#!/bin/sh
# Runs the whole example in a temporary directory: the daemon, a fetcher and a worker with two jobs at
# a time, until every file has its checksum. Leaves nothing behind. `make run` calls it.
#
# Environment: AUDIT_DIRECTORY what to audit (/usr/bin), SHIFTBOSS the program (else it is built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=${AUDIT_DIRECTORY:-/usr/bin}

# Ends what was started, by its process id, whatever the reason for the end is.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    if [ "$code" -ne 0 ] && [ -f "$place/daemon.log" ]; then
        echo "--- the daemon's log:" >&2
        cat "$place/daemon.log" >&2
    fi
    rm -rf "$place"
    exit "$code"
}

fail() {
    echo "run: $*" >&2
    exit 1
}

daemon_lives() {
    kill -0 "$daemon" 2>/dev/null || fail "the daemon has ended"
}

shiftboss=${SHIFTBOSS:-$(sh "$here/build.sh")}
place=$(mktemp -d)
socket=$place/worker.sock
daemon=
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place/input"

echo "Starting the daemon in $place"
"$shiftboss" serve "$place/state.db" "$place/input" "$socket" 2>"$place/daemon.log" &
daemon=$!
while [ ! -S "$socket" ]; do
    daemon_lives
    sleep 0.1
done

# A key ends at the first space, so a path with white space cannot be one.
echo "Listing the files in $directory"
"$shiftboss" fetch "$place/input" audit -- \
    find "$directory" -type f ! -path '*[[:space:]]*' -printf '%p %s %T@\n'

# --once ends when there is nothing to do; without it, the worker waits for more.
echo "Taking their checksums"
"$shiftboss" work -n 2 --once -t "$socket" -- sha256sum -- {key} >"$place/results"

echo
"$shiftboss" status -t "$place/state.db"
echo
sums=$(cut -d' ' -f2- "$place/results" | grep -cE '^[0-9a-f]{64} ' || :)
total=$(cat "$place/input"/audit.*.txt | wc -l)
echo "Done: $sums checksums, $((total - sums)) files that could not be read."

kill "$daemon"
wait "$daemon" || fail "the daemon did not stop cleanly"
daemon=
echo "To go on by hand: export PATH=\"$(dirname "$shiftboss"):\$PATH\". To look at such a queue in a browser: make demo."
