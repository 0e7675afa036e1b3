#!/bin/sh
# Runs a command as the first process of a Debian that lies in a directory: in namespaces of its own, without a network,
# and without a mount that anybody else sees, so that nothing is left when that process ends. tests/packages.sh calls it.
# Usage: tests/container.sh BASE LAYER COMMAND...
#
# BASE is only read; what the command changes is kept in the directory LAYER. systemd as the command boots the Debian.
set -eu

mount_all() {
    mount --make-rprivate /
    # Below the layer, for a name that is there.
    root=$2/root
    mkdir -p "$2/changes" "$2/work" "$root"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/changes,workdir=$2/work" "$root"
    mount -t proc proc "$root/proc"
    # A setting of the kernel is everybody's.
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null zero full random urandom tty; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir "$root/dev/shm" "$root/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    cd "$root"
    mkdir -p before
    pivot_root . before
}

# The kernel takes a moment to end processes, and a cgroup that has some cannot be removed.
end() {
    echo 1 >"$group/cgroup.kill"
    for _ in $(seq 100); do
        ! grep -q 'populated 0' "$group/cgroup.events" || break
        sleep 0.1
    done
    find "$group" -depth -type d -exec rmdir {} +
}

# The cgroup is there for the namespace to begin at.
begin() {
    cgroups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$cgroups" ] || { echo "container.sh: no cgroup2 is mounted" >&2 && exit 69; }
    group=$cgroups/shiftboss-container-$$
    mkdir "$group"
    trap end EXIT
    # Killed with this script, and all its processes with it.
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
        unshare --cgroup --mount --pid --uts --ipc --net --fork --kill-child sh "$0" --inside "$@" &
    trap 'kill -KILL $!; wait $! || :; exit 143' TERM INT
    wait $!
}

[ "$(id -u)" = 0 ] || { echo "container.sh: only root can run it" >&2 && exit 77; }
if [ "$1" = --inside ]; then
    shift
    mount_all "$1" "$2"
    shift 2
    exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        /bin/sh -c 'umount -l /before && exec "$@"' sh "$@"
fi
begin "$@"
