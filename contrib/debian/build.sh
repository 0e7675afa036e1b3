#!/bin/sh
# Makes the Debian package of the programs that were built, in target/debian: `make deb` calls it, after `make man`. cargo-deb is
# installed below target/ where it is missing. Cargo.toml says what is in the package. Arguments go to cargo-deb.
set -eu
cd "$(dirname "$0")/../.."

tools=${CARGO_TARGET_DIR:-target}/tools
version="cargo-deb 3.8.0"
# It packs in seconds however it is built; without optimizations it is built in half the time.
[ "$("$tools/bin/cargo-deb" --version 2>/dev/null)" = "$version" ] ||
    cargo install --locked --debug --root "$tools" cargo-deb --version "${version#* }"
"$tools/bin/cargo-deb" --locked --no-build -p shiftboss "$@"
