#!/bin/sh
# One pass over all links in pages/, and what is dead. The queue stays in this directory: run it again tomorrow.
#
# Environment: SHIFTBOSS, the program (that in PATH if not given); WORKERS, how many links at a time (16).
set -eu
shiftboss=${SHIFTBOSS:-shiftboss}
cd "$(dirname "$0")"
mkdir -p input

"$shiftboss" serve --config shiftboss.toml 2>daemon.log &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon"' EXIT
tries=0
until health=$("$shiftboss" health -t worker.sock 2>&1); do
    kill -0 "$daemon" 2>/dev/null || { tail -n 5 daemon.log >&2 && exit 1; }
    [ $((tries += 1)) -lt 600 ] || { echo "$health" >&2 && exit 1; }
    sleep 0.1
done
"$shiftboss" fetch input links -- ./fetch.sh pages

"$shiftboss" work --once --until-done -n "${WORKERS:-16}" -t worker.sock -- ./check.sh >checked.log
echo "Dead, or never reached, and the last that was said of it:"
"$shiftboss" tasks --status failed -n 10000 --json -t worker.sock | grep -o '"key":"[^"]*"' | cut -d '"' -f 4 |
    awk -F ': ' 'FILENAME != "-" { why[$1] = substr($0, length($1) + 3); next } { print $1 "  " why[$1] }' checked.log -
