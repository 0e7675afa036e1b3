-- Version 4: attempts that belong to named workers, with leases, and what became of every attempt.

-- Who holds the job, as the worker named itself, and how long it may be silent, in seconds. Both
-- NULL: a classic worker. A row with a lease excludes its key from the order until it is deleted.
ALTER TABLE shiftboss_flights ADD COLUMN worker TEXT;
ALTER TABLE shiftboss_flights ADD COLUMN lease INTEGER;
CREATE INDEX shiftboss_leased ON shiftboss_flights (attempt) WHERE lease IS NOT NULL;

-- Attempts that ended, the last 100,000 of them. outcome: done (exit_code says how), released (given
-- back), undone (the answer did not arrive), expired (its lease ran out).
CREATE TABLE shiftboss_attempts (
    attempt     INTEGER PRIMARY KEY,
    attr_path   TEXT NOT NULL,
    fetcher_id  INTEGER NOT NULL,
    run_started INTEGER NOT NULL,
    worker      TEXT,
    started     INTEGER NOT NULL,
    finished    INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    exit_code   INTEGER
) STRICT;
-- Whether a job was handed out again after its lease ran out: shiftboss_turns has the dispatches that
-- were not taken back, this the others.
CREATE INDEX shiftboss_returned ON shiftboss_attempts (attr_path, attempt)
WHERE outcome IN ('released', 'expired');

-- Rows whose lease ran out: how often, until the job is done.
-- dead: it did so too often, and the row waits for its fetcher's next run.
CREATE TABLE shiftboss_tries (
    fetcher_id  INTEGER NOT NULL,
    run_started INTEGER NOT NULL,
    attr_path   TEXT NOT NULL,
    tries       INTEGER NOT NULL,
    dead        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (fetcher_id, run_started, attr_path)
) STRICT, WITHOUT ROWID;

-- Entries of a spool that are in the queue: which run of the fetcher '@spool' each is. line is a
-- checksum of the key and payload that it came with: another one under the same name is another entry.
-- One entry of a key at a time, since a newer run would hide the older.
CREATE TABLE shiftboss_spool (
    name        TEXT PRIMARY KEY,
    run_started INTEGER NOT NULL UNIQUE,
    attr_path   TEXT NOT NULL UNIQUE,
    line        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- No run of '@spool' up to this one is free.
INSERT INTO shiftboss_counters (name, value) VALUES ('spool', 0);
