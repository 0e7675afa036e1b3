#!/bin/sh
# Builds the program and says where it is. The examples call it, unless SHIFTBOSS names one.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
(cd "$root" && cargo build --release --locked --bin shiftboss) >&2
target=${CARGO_TARGET_DIR:-target}
case $target in
/*) echo "$target/release/shiftboss" ;;
*) echo "$root/$target/release/shiftboss" ;;
esac
