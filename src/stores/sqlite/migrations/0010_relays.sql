-- Version 10: relays, who act on the queue through this daemon from machines that reach a broker only. What no table here
-- names is the daemon's own.

-- process: which one it is, so that it is known again. epoch: no other joining of any relay has the same. number: of the
-- last batch that was carried out; answer: what that was answered, as JSON, for its relay may ask again. lost: 1: it was taken
-- for dead; 2: it was stopped. lost_since, lost_reason: of its input directory.
CREATE TABLE shiftboss_relays (
    relay           INTEGER PRIMARY KEY,
    name            TEXT NOT NULL UNIQUE,
    process         TEXT NOT NULL,
    epoch           INTEGER NOT NULL UNIQUE,
    number          INTEGER NOT NULL DEFAULT 0,
    answer          TEXT,
    lost            INTEGER NOT NULL DEFAULT 0,
    joined          INTEGER NOT NULL,
    input_directory TEXT,
    lost_since      INTEGER,
    lost_reason     TEXT
) STRICT;

-- Whose lists those of a fetcher are, while it has any.
CREATE TABLE shiftboss_relay_fetchers (
    name  TEXT PRIMARY KEY,
    relay INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who sees to a leased attempt, until it has ended; what is here of others is out of date.
CREATE TABLE shiftboss_relay_leases (
    attempt INTEGER PRIMARY KEY,
    relay   INTEGER NOT NULL
) STRICT;

CREATE TABLE shiftboss_relay_rejected_files (
    relay  INTEGER NOT NULL,
    name   TEXT NOT NULL,
    reason TEXT NOT NULL,
    since  INTEGER NOT NULL,
    PRIMARY KEY (relay, name)
) STRICT, WITHOUT ROWID;
