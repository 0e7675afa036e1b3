#!/bin/sh
# Builds the program and says where it is. The examples call it, unless SHIFTBOSS names one. It updates what `make setup`
# built; without that, it builds a program in a third of the time.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-target}
case $target in
/*) ;;
*) target=$root/$target ;;
esac
profile=quick
[ ! -x "$target/release/shiftboss" ] || profile=release
[ -x "$target/$profile/shiftboss" ] || echo "Building shiftboss, which takes two to four minutes on two cores" >&2
(cd "$root" && cargo build --profile "$profile" --locked --bin shiftboss) >&2
echo "$target/$profile/shiftboss"
