#!/bin/sh
# A worker: asks for a file, takes its checksum, says so and gets the next one. This loop is all
# that a worker needs; a real one does something else where sha256sum stands.
#
# Usage: worker.sh SHIFTBOSS SOCKET RESULTS
#   RESULTS       one line for each job: the checksum and the path, or FAILED and the path
#   RESULTS.idle  is there while the daemon has nothing for this worker
# Environment: WORKER_IDLE seconds to wait after NOJOBS (60), WORKER_RETRY after no answer (5).
set -u

shiftboss=$1
socket=$2
results=$3

line=READY
while :; do
    answer=$("$shiftboss" ask --timeout 5s -t "$socket" "$line" 2>/dev/null) || answer=
    case $answer in
    'JOB '*)
        rm -f "$results.idle"
        job=${answer#JOB }
        path=${job%% *}
        sha256sum -- "$path" >>"$results" 2>/dev/null
        code=$?
        [ "$code" -eq 0 ] || echo "FAILED $path" >>"$results"
        line="DONE $path $code"
        ;;
    NOJOBS)
        : >"$results.idle"
        sleep "${WORKER_IDLE:-60}"
        line=READY
        ;;
    '')
        # The daemon is not there, or is being restarted. Saying the same again is harmless.
        sleep "${WORKER_RETRY:-5}"
        ;;
    *)
        echo "worker: not an answer: $answer" >&2
        exit 1
        ;;
    esac
done
