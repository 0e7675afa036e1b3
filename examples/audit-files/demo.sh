#!/bin/sh
# Shows the page: the example's work at a slow pace, for as long as somebody looks at it. The daemon runs two fetchers itself,
# which list files of AUDIT_DIRECTORY every few minutes; two workers take one after the other; and `shiftboss web` prints its
# address. Ends with Ctrl-C, within some seconds, and leaves nothing behind. `make demo` calls it.
#
# Environment: AUDIT_DIRECTORY what to audit (/usr/bin), DEMO_LISTEN where the page listens (127.0.0.1:7390), DEMO_PACE seconds a
# job takes at most (3), SHIFTBOSS the program (else it is built).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=${AUDIT_DIRECTORY:-/usr/bin}
listen=${DEMO_LISTEN:-127.0.0.1:7390}

# Sends all of them a signal; those that have ended, too.
end() {
    for process; do
        kill "$process" 2>/dev/null || :
    done
}

# Waits for the ends of all of them.
await() {
    for process; do
        wait "$process" 2>/dev/null || :
    done
}

# Ends what was started, by process id, whatever the reason for the end is; another signal meanwhile changes nothing. Workers
# first, for they report to the daemon. A second signal after a second has them give their jobs back rather than wait for them.
clean_up() {
    code=$?
    trap - EXIT
    trap '' INT TERM HUP
    if [ -n "$workers" ]; then
        end $workers
        sleep 1.2
        end $workers
        await $workers
    fi
    end $page $daemon
    await $page $daemon
    case $code in
    0 | 129 | 130 | 143) ;;
    *) cat "$place"/*.log >&2 ;;
    esac
    rm -rf "$place"
    exit "$code"
}

shiftboss=${SHIFTBOSS:-$(sh "$here/build.sh")}
workers='' page='' daemon=''
place=$(mktemp -d)
socket=$place/worker.sock
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place/input"

# A key ends at the first space, so a path with white space cannot be one.
list="find '$directory' -maxdepth 1 -type f ! -path '*[[:space:]]*' -printf '%p %s https://sources.debian.org/search/%f/\\n' | sort"
cat >"$place/shiftboss.toml" <<END
database = "$place/state.db"
input_dir = "$place/input"
socket = "$socket"

[[fetcher]]
name = "programs"
command = ["sh", "-c", "$list | head -n 40"]
every = "2min"

[[fetcher]]
name = "other-programs"
command = ["sh", "-c", "$list | tail -n +41 | head -n 60"]
every = "5min"
END

# What a worker does with a file: it takes its time, and refuses large ones, so that there is something to look at.
cat >"$place/audit.sh" <<'END'
size=$(stat -c %s -- "$1") || exit 2
echo "$1 has $size bytes"
sleep "0.$((size % 10))"
sleep "$((size % $2))"
[ "$size" -lt 1000000 ] || { echo "too large for a demonstration" >&2 && exit 1; }
exec sha256sum -- "$1"
END

# Each in a session of its own: Ctrl-C at the terminal is for this script, which ends them in order.
setsid "$shiftboss" serve --config "$place/shiftboss.toml" 2>"$place/daemon.log" &
daemon=$!
while [ ! -S "$socket" ]; do
    kill -0 "$daemon" 2>/dev/null || exit 1
    sleep 0.1
done
for name in ann bob; do
    setsid "$shiftboss" work --name "$name" --log-dir "$place/outputs" -t "$socket" -- \
        sh "$place/audit.sh" {key} "${DEMO_PACE:-3}" >/dev/null 2>"$place/$name.log" &
    workers="$workers $!"
done
printf '%s\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$place/token"
chmod 600 "$place/token"
setsid "$shiftboss" web --listen "$listen" --token-file "$place/token" --output "$place/outputs/{day}/{key}.log" \
    --title "Programs" -t "$socket" 2>"$place/web.log" &
page=$!
while ! address=$(sed -n 's/.*Listening: \(http[^ ]*\).*/\1/p' "$place/web.log") || [ -z "$address" ]; do
    kill -0 "$page" 2>/dev/null || exit 1
    sleep 0.1
done
echo "Look at $address"
echo "or in another terminal: $shiftboss top -t $socket"
echo "To pause, resume or retry there: any user name, and the password $(cat "$place/token")"
echo "Ctrl-C ends it."
wait "$page"
