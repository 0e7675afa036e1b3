#!/bin/sh
# Runs the whole example in a temporary directory: the daemon, a fetcher and two workers, until
# every file has its checksum. Leaves nothing behind. `make run` calls it.
#
# Environment: AUDIT_DIRECTORY what to audit (/usr/bin), SHIFTBOSS the program (else it is built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=${AUDIT_DIRECTORY:-/usr/bin}

build() {
    root=$(cd "$here/../.." && pwd)
    (cd "$root" && cargo build --release --locked --bin shiftboss) >&2
    target=${CARGO_TARGET_DIR:-target}
    case $target in
    /*) echo "$target/release/shiftboss" ;;
    *) echo "$root/$target/release/shiftboss" ;;
    esac
}

# Ends what was started, by its process id, whatever the reason for the end is.
clean_up() {
    code=$?
    trap - EXIT INT TERM
    for process in $workers $daemon; do
        kill "$process" 2>/dev/null || :
        wait "$process" 2>/dev/null || :
    done
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

finished_jobs() {
    cat "$place"/results.1 "$place"/results.2 | wc -l
}

# A worker makes its .idle file when its last DONE was answered with NOJOBS.
all_idle() {
    [ -e "$place/results.1.idle" ] && [ -e "$place/results.2.idle" ]
}

shiftboss=${SHIFTBOSS:-$(build)}
place=$(mktemp -d)
socket=$place/worker.sock
workers=
daemon=
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place/input"
: >"$place/results.1"
: >"$place/results.2"

echo "Starting the daemon in $place"
"$shiftboss" serve "$place/state.db" "$place/input" "$socket" 2>"$place/daemon.log" &
daemon=$!
while [ ! -S "$socket" ]; do
    daemon_lives
    sleep 0.1
done

echo "Starting two workers; they ask, and wait while there is nothing to do"
for number in 1 2; do
    WORKER_IDLE=1 WORKER_RETRY=1 \
        sh "$here/worker.sh" "$shiftboss" "$socket" "$place/results.$number" &
    workers="$workers $!"
done

echo "Listing the files in $directory"
total=$(sh "$here/fetch.sh" "$place/input" "$directory")

echo "Taking $total checksums"
while :; do
    done=$(finished_jobs)
    echo "  $done of $total"
    if [ "$done" -ge "$total" ] && all_idle; then
        break
    fi
    daemon_lives
    sleep 1
done

echo
"$shiftboss" status "$place/state.db"
echo
failed=$(cat "$place"/results.1 "$place"/results.2 | grep -c '^FAILED ' || :)
echo "Done: $((total - failed)) checksums, $failed files that could not be read."

kill "$daemon"
wait "$daemon" || fail "the daemon did not stop cleanly"
daemon=
