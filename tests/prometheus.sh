#!/bin/sh
# Has Prometheus check the alert rules, and scrape a page: `make test-prometheus` calls it. Installs Debian's where it is missing.
# Arguments go to nextest.
set -eu
cd "$(dirname "$0")/.."
command -v prometheus >/dev/null && command -v promtool >/dev/null || sh tests/install.sh prometheus
promtool check rules contrib/prometheus/shiftboss.rules.yml
promtool test rules contrib/prometheus/shiftboss.rules.test.yml
cargo nextest run --locked -p shiftboss --run-ignored only -E 'test(/^prometheus::/)' "$@"
