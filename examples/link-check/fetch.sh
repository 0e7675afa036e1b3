#!/bin/sh
# The fetcher: each link in the files below a directory, once, and a file that has it, as lines URL FILE.
#
# Usage: fetch.sh DIRECTORY
set -eu
# A link ends before a fragment, and before what ends a sentence.
grep -roE "https?://[^][ \"'<>()#\`]+" "$1" | sed -E 's/^([^:]*):(.*[^.,;:!?])[.,;:!?]*$/\2 \1/' | sort -u -k 1,1
