#!/bin/sh
# Runs the tests of relays on a broker, and two short soaks: `make test-broker` calls it. Arguments go to nextest; with any, there
# is no soak.
#
# Environment: SHIFTBOSS_TEST_BROKER as for broker-server.sh, which starts a broker where it is not set.
set -eu
cd "$(dirname "$0")/.."
[ -n "${SHIFTBOSS_TEST_BROKER:-}" ] || exec sh tests/broker-server.sh sh "tests/$(basename "$0")" "$@"

if ! cargo nextest --version >/dev/null 2>&1; then
    echo "broker.sh: cargo-nextest is not installed: cargo install --locked cargo-nextest" >&2
    exit 1
fi
shared='(test(over_broker::shared::) | test(by_several_daemons))'
cluster='test(over_broker::cluster::)'
cargo nextest run --locked -p shiftboss --ignore-default-filter -E "test(over_broker::) - $shared - $cluster" "$@"
# A queue that several daemons share is on a server, which is started (and installed) where there is none.
with_server=sh\ tests/postgres-server.sh
[ -z "${SHIFTBOSS_TEST_POSTGRES:-}" ] || with_server=
$with_server cargo nextest run --locked -p shiftboss --ignore-default-filter -E "$shared" "$@"
case "$*" in
"" | *cluster*)
    env -u SHIFTBOSS_TEST_BROKER SHIFTBOSS_TEST_NODES=3 \
        sh tests/broker-server.sh cargo nextest run --locked -p shiftboss --ignore-default-filter -E "$cluster" "$@"
    ;;
esac
[ "$#" = 0 ] || exit 0
if [ -z "${SHIFTBOSS_TEST_BROKER_PID:-}" ]; then
    echo "broker.sh: no soak, which kills the broker: this one is not the tests' own" >&2
    exit 0
fi
# Half a minute of `make soak-broker`, with one daemon and with three.
cargo build --locked -p shiftboss -p shiftboss-soak
for daemons in "" --shared; do
    # shellcheck disable=SC2086
    target/debug/shiftboss-soak broker --program target/debug/shiftboss --minutes 0.5 $daemons
done
