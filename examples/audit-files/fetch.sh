#!/bin/sh
# A fetcher: lists the regular files under a directory, one line each: the path as the key, and
# "SIZE MTIME" as the payload. It writes as every fetcher should: into a growing
# audit.NUMBER.txt.part, whose lines are live at once, renamed to .txt when it is whole.
#
# Usage: fetch.sh INPUT_DIR DIRECTORY
set -eu

input=$1
directory=$2
run=audit.$(date +%s).txt

# What a fetcher that failed has left behind.
rm -f "$input"/audit.*.txt.part

# A key ends at the first space, so a path with white space cannot be one.
count=$(find "$directory" -type f ! -path '*[[:space:]]*' -printf '%p %s %T@\n' |
    tee "$input/$run.part" | wc -l)
left_out=$(find "$directory" -type f -path '*[[:space:]]*' -printf x | wc -c)

# The new run is there before the old one goes.
find "$input" -maxdepth 1 -name 'audit.*.txt' ! -name "$run" -exec rm -f {} +
mv "$input/$run.part" "$input/$run"

[ "$left_out" -eq 0 ] || echo "fetch: left out $left_out paths with white space" >&2
echo "$count"
