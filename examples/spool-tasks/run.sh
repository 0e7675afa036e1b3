#!/bin/sh
# Tasks that are put into a spool while the daemon is down: `shiftspool run` has `shiftboss add` bring each to the daemon
# once it is up, and a worker does them. In a temporary directory; leaves nothing behind.
#
# Environment: SHIFTBOSS and SHIFTSPOOL, the programs (those in PATH if not given).
set -eu
shiftboss=${SHIFTBOSS:-shiftboss} shiftspool=${SHIFTSPOOL:-shiftspool}
place=$(mktemp -d)
cd "$place"

clean_up() {
    kill ${daemon:+"$daemon"} ${adder:+"$adder"} 2>/dev/null || :
    wait
    rm -rf "$place"
}
trap clean_up EXIT

# No daemon runs yet, so `add` ends with 69, and the entries stay: "later".
"$shiftspool" init spool tasks
"$shiftspool" run spool tasks --attempts 1 --defer 69,74,75,77,78 -- \
    "$shiftboss" add --id {id} --lines --file {meta_file} -t "$place/worker.sock" >/dev/null &
adder=$!
printf '%s\n' 'alpha 1' 'bravo 2' | "$shiftspool" put spool tasks --meta-lines >/dev/null

"$shiftboss" serve state.db input worker.sock &
daemon=$!
"$shiftboss" work --max-jobs 2 -t worker.sock -- echo {payload}
until [ -z "$("$shiftspool" list spool tasks; "$shiftspool" list --checkouts spool tasks | grep -v 'Nothing')" ]; do
    sleep 0.1
done
