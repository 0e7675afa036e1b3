#!/bin/sh
# Installs graphile-worker, in the version of package.json beside this file, into a directory. `make bench-postgres` calls it.
set -eu
here=$(dirname "$0")
mkdir -p "$1"
cp "$here/package.json" "$here/worker.js" "$1"
[ ! -d "$1/node_modules/graphile-worker" ] || exit 0
command -v npm >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y npm
cd "$1"
npm install --no-package-lock --no-audit --no-fund
