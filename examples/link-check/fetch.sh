#!/bin/sh
# The fetcher: each link in the files below a directory, once, and a file that has it, as lines URL FILE.
#
# Usage: fetch.sh DIRECTORY
set -eu
grep -roE "https?://[^][ \"'<>()]+" "$1" | sed -E 's/^([^:]*):(.*)/\2 \1/' | sort -u -k 1,1
