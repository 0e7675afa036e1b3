#!/bin/sh
# Checks the link that is the job's key: 0 if it is there, 1 if it is dead, 75 if it is to be asked again. What a server
# says of when that may be goes on to the daemon, which asks nothing of its host meanwhile.
said=$(curl -sS --max-time 30 -o /dev/null -w '%{http_code} %header{retry-after}' -- "$SHIFTBOSS_KEY") || exit 75
status=${said%% *} wait=${said#* }
echo "$status"

case $status in
    2?? | 3??) exit 0 ;;
    429 | 503) ;;
    5??) exit 75 ;;
    *) exit 1 ;;
esac
# Seconds, or a date.
case $wait in
    '') wait=60 ;;
    *[!0-9]*) wait=$(($(date -d "$wait" +%s || echo 0) - $(date +%s))) ;;
esac
[ "$wait" -le 0 ] || echo "group-wait=$wait" >"$SHIFTBOSS_CONTROL"
exit 75
