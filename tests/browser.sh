#!/bin/sh
# Has a browser look at the pages: `make test-browser` calls it. Installs Debian's chromium and its driver where they are missing.
# Arguments go to nextest.
set -eu
cd "$(dirname "$0")/.."
command -v chromium >/dev/null && command -v chromedriver >/dev/null ||
    sh tests/install.sh chromium chromium-driver fonts-dejavu-core
cargo build --locked -p shiftboss
target=${CARGO_TARGET_DIR:-target}
SHIFTBOSS=$(realpath "$target/debug/shiftboss")
export SHIFTBOSS
cargo nextest run --locked --manifest-path tests/browser/Cargo.toml --target-dir "$target/browser" \
    --config-file .config/nextest.toml --run-ignored only "$@"
