#!/bin/sh
# Takes the pictures of README while the example is at work, light and dark: of the page as a browser shows it, and of `top` as a
# terminal does. `make pictures` calls it.
set -eu
cd "$(dirname "$0")/.."
command -v chromium >/dev/null && command -v chromedriver >/dev/null ||
    sh tests/install.sh chromium chromium-driver fonts-dejavu-core
target=${CARGO_TARGET_DIR:-target}
cargo build --locked -p shiftboss
cargo build --locked --manifest-path tests/browser/Cargo.toml --target-dir "$target/browser"
SHIFTBOSS=$(realpath "$target/debug/shiftboss")
export SHIFTBOSS

place=$(mktemp -d)
demo=''
clean_up() {
    trap - EXIT
    [ -z "$demo" ] || { kill "$demo" && wait "$demo"; } || :
    rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Waits until a command succeeds.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || { echo "pictures.sh: in vain: $*" >&2 && exit 1; }
        sleep 0.1
    done
}

DEMO_LISTEN=127.0.0.1:0 DEMO_PACE=4 sh examples/audit-files/demo.sh >"$place/demo" 2>&1 &
demo=$!
await grep -q 'Ctrl-C' "$place/demo"
socket=$(sed -n 's/.*top -t //p' "$place/demo")
address=$(sed -n 's/^Look at //p' "$place/demo")
is_busy() { "$SHIFTBOSS" status -t "$socket" | grep -qE '^Last hour +[4-9][0-9] '; }
await is_busy

# A terminal for `top`, which shows what ended, until it has drawn that some times.
{ sleep 1 && printf 4 && sleep 20; } | TERM=xterm-256color timeout -s KILL 16 \
    script -qfec "stty cols 110 rows 20; exec '$SHIFTBOSS' top -t '$socket'" "$place/top" >/dev/null 2>&1 || :
"$target/browser/debug/pictures" "$address" "$place/top" docs/pictures
