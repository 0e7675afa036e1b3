#!/bin/sh
# Makes the tarball, its checksum, and the directory that the image is made of, in target/dist: `make dist` calls it, after
# `make man`. The programs are linked statically, with musl, so they run on any Linux.
#
# The same programs give the same bytes, and no path of this machine is in them. Environment: SOURCE_DATE_EPOCH, the
# time of all files in the tarball (the last commit's).
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
triple=$machine-unknown-linux-musl
name=shiftboss-$version-$machine-linux
dist=$target/dist
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} || {
    echo "dist.sh: this is no git repository: set SOURCE_DATE_EPOCH" >&2
    exit 69
}

build() {
    command -v musl-gcc >/dev/null || sh tests/install.sh musl-tools
    [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] || rustup target add "$triple"
    # Where it was built is written into nothing: panics name files, and so does C.
    here=$(pwd)
    cargo=${CARGO_HOME:-$HOME/.cargo}
    CARGO_ENCODED_RUSTFLAGS=$(printf -- '--remap-path-prefix=%s=/shiftboss\037--remap-path-prefix=%s=/cargo' "$here" "$cargo")
    export CARGO_ENCODED_RUSTFLAGS
    export "CFLAGS_$(echo "$triple" | tr - _)=-ffile-prefix-map=$here=/shiftboss -ffile-prefix-map=$cargo=/cargo"
    cargo build --locked --release -p shiftboss -p shiftspool --target "$triple"
}

# What `make install` would put into /usr/local, and the documents. Settings are in share/doc.
stage() {
    rm -rf "$dist"
    mkdir -p "$dist"
    DESTDIR=$dist/staged PREFIX=/usr/local sh contrib/install.sh "$target/$triple/release" target/man
    mv "$dist/staged/usr/local" "$dist/$name"
    rm -r "$dist/staged"
    strip "$dist/$name"/bin/*
    cp README.md CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT "$dist/$name/share/doc/shiftboss/"
}

pack() {
    tar -C "$dist" --sort=name --format=ustar --mtime="@$time" --owner=0 --group=0 --numeric-owner \
        --mode=u+rwX,go+rX,go-w -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"
    (cd "$dist" && sha256sum "$name.tar.gz" >SHA256SUMS && cat SHA256SUMS)
}

# The directories are for volumes, which get their owner from them.
image() {
    mkdir -p "$dist/image/usr/bin" "$dist/image/var/lib/shiftboss" "$dist/image/run/shiftboss"
    cp "$dist/$name"/bin/* "$dist/image/usr/bin/"
}

build
stage
pack
image
rm -r "${dist:?}/$name"
