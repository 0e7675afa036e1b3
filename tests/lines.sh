#!/bin/sh
# Counts the lines of product code by room: Rust, SQL and templates. `make lines` calls it. Tests are left out: directories and
# files of that name, and the modules at the end of files.
set -eu
cd "$(dirname "$0")/.."

for room in src actors/src console/src protocol/src queue/src relay/src runner/src spool/src stores/postgres/src stores/sqlite/src; do
    find "$room" \( -name '*.rs' -o -name '*.sql' -o -path '*/templates/*' \) -type f \
        | grep -vE '/tests?/|tests?\.rs$|/testing|_tests\.rs$' | sort \
        | xargs awk -v room="$room" '
            FNR == 1 { before = "" }
            before == "#[cfg(test)]" && /^mod tests \{/ { n[kind]--; nextfile }
            { kind = FILENAME ~ /\.rs$/ ? "rust" : FILENAME ~ /\.sql$/ ? "sql" : "templates"; n[kind]++; before = $0 }
            END { printf "%-20s rust %6d  sql %5d  templates %4d\n", room, n["rust"], n["sql"], n["templates"] }'
done | awk '{ print; rust += $3; sql += $5; templates += $7 }
    END { printf "%-20s rust %6d  sql %5d  templates %4d  all %d\n", "whole", rust, sql, templates, rust + sql + templates }'
