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
trap 'kill "$daemon"; wait "$daemon"' EXIT
until [ -S worker.sock ]; do
    kill -0 "$daemon"
    sleep 0.1
done
"$shiftboss" fetch input links -- ./fetch.sh pages

"$shiftboss" work --once --until-done -n "${WORKERS:-16}" -t worker.sock -- ./check.sh >checked.log
echo "Dead, or never reached:"
"$shiftboss" tasks --status failed -n 10000 -t worker.sock
