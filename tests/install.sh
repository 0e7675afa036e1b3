#!/bin/sh
# Installs Debian packages for the tests, without what starts by itself: a package's own service is kept from doing so.
# Usage: tests/install.sh PACKAGE...
set -eu

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || {
    echo "install.sh: only root can install packages, with apt-get: $*" >&2
    exit 1
}
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
fi
export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
(apt-get install -y --no-install-recommends "$@" ||
    { apt-get update && apt-get install -y --no-install-recommends "$@"; }) >&2
