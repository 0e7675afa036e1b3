#!/bin/sh
# Tests `make dist` and the image: tests/packages.sh --release calls it. The program of the tarball runs a queue in a directory
# that has nothing else in it but /dev/null and /proc; so does the image, with its own settings and user; packed twice the
# tarball is the same, and nothing in it says where it was built. Installs Debian's buildah where it is missing.
set -eu
cd "$(dirname "$0")/.."
dist=${CARGO_TARGET_DIR:-target}/dist
scratch=$(mktemp -d)
daemon=
storage="--root $scratch/storage --runroot $scratch/run --storage-driver vfs"

fail() {
    echo "tarball.sh: $*" >&2
    exit 1
}

stop() {
    code=$?
    trap - EXIT INT TERM
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    rm -rf "$scratch"
    exit "$code"
}

# buildah passes no signal on.
innermost() {
    process=$1
    while child=$(pgrep -P "$process"); do
        process=$child
    done
    echo "$process"
}

# `run_queue WHERE COMMAND...`: a daemon has a job run by a worker, all as COMMAND, which is given shiftboss's arguments.
run_queue() {
    where=$1
    shift
    "$@" serve 2>"$scratch/log" &
    daemon=$!
    for _ in $(seq 100); do
        ! "$@" health >"$scratch/said" 2>&1 || break
        sleep 0.1
    done
    grep -q Healthy "$scratch/said" || { cat "$scratch/log" "$scratch/said" >&2 && fail "no daemon answers in $where"; }
    { "$@" add key payload && "$@" work --once -- /usr/bin/shiftboss --version && "$@" log; } >"$scratch/said" 2>&1 &&
        grep -q success "$scratch/said" || { cat "$scratch/said" >&2 && fail "no job runs in $where"; }
    kill "$(innermost "$daemon")"
    wait "$daemon" || { cat "$scratch/log" >&2 && fail "the daemon did not stop cleanly in $where"; }
    daemon=
}

test_tarball() {
    echo "== the tarball, twice the same"
    make dist
    cp "$dist/SHA256SUMS" "$scratch/first"
    sh contrib/dist.sh >/dev/null 2>&1
    cmp "$scratch/first" "$dist/SHA256SUMS" || fail "packed again, the tarball is another one"
    (cd "$dist" && sha256sum --check --quiet SHA256SUMS)
    ls -l "$dist"/*.tar.gz
    root=$scratch/empty
    mkdir "$root"
    tar -xzf "$dist"/shiftboss-*.tar.gz -C "$root" --strip-components=1
    for path in "$PWD" "${CARGO_HOME:-$HOME/.cargo}"; do
        ! grep -rqF "$path" "$root" || fail "the tarball names $path"
    done
    echo "== the tarball in an empty directory"
    install -d -o 65532 "$root/state"
    # What a worker needs: what a job reads, and the program, again.
    mkdir "$root/dev" "$root/proc" && mknod -m 666 "$root/dev/null" c 1 3
    # The job's command is where the image has the program, too.
    mkdir "$root/usr" && ln -s ../bin "$root/usr/bin"
    run_queue "the empty directory" env -i PATH="$PATH" SHIFTBOSS_DATABASE=/state/db SHIFTBOSS_INPUT_DIR=/state/input \
        SHIFTBOSS_SOCKET=/state/socket SHIFTBOSS_TARGET=/state/socket unshare --mount sh -c 'mount -t proc proc "$0/proc" &&
            exec chroot --userspec=65532:65532 --groups= "$0" /bin/shiftboss "$@"' "$root"
}

# shellcheck disable=SC2086
test_image() {
    echo "== the image"
    command -v buildah >/dev/null || sh tests/install.sh buildah
    # From scratch, so without a network.
    buildah $storage bud --format docker -t shiftboss -f Containerfile "$dist/image"
    container=$(buildah $storage from shiftboss)
    said=$(buildah $storage inspect --format '{{.Docker.Config.User}} {{.Docker.Config.Healthcheck.Test}} {{.Docker.Config.Cmd}}' shiftboss)
    [ "$said" = "65532:65532 [CMD /usr/bin/shiftboss health] [serve]" ] || fail "the image is another one: $said"
    run_queue "the image" buildah $storage run --isolation chroot "$container" -- /usr/bin/shiftboss
}

trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ "$(id -u)" = 0 ] || fail "only root can give a program another root directory"
# The directory is another user's to go through.
chmod 711 "$scratch"
test_tarball
test_image
