-- Version 3: what shiftboss keeps beside the public tables. Triggers in plain SQL keep it right
-- under edits by anybody, in the transaction of the edit (triggers.sql).
--
-- queue.state says what a row is to the dispatcher:
--   0  nothing: dispatched, or a newer run of its fetcher lists the key, or the key's lease lives
--   1  ready: the key is not in flight
--   2  held: the key is in flight; ready again once the lease ran out (last_started tells)
-- A row in state 1 or 2 is undispatched, or its dispatch lost its lease or may yet lose it.
ALTER TABLE queue ADD COLUMN state INTEGER NOT NULL DEFAULT 0;

-- The reference's own order: two wide indexes would cost twice at every dispatch. It works without
-- (docs/operating.md, roll-back).
DROP INDEX IF EXISTS queue_order_index;

-- The rows of a large run lie apart in the order of dispatch, under the run's slot, so that a run
-- under deletion is passed over at once. Small runs, and the first rows of large ones, share slot 0.
ALTER TABLE queue ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;

-- The order of dispatch: walked from its beginning, for each slot, in state 1 and in state 2.
CREATE INDEX shiftboss_ready ON queue (
    slot, state, last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
) WHERE state > 0;

-- The log in the order of dispatch rather than by key: what is dispatched one after the other then
-- lies on the same pages, and a commit writes few of them. To others it is the same table.
CREATE TABLE shiftboss_copy AS SELECT * FROM log;
DROP TABLE log;
CREATE TABLE log (
    attr_path TEXT PRIMARY KEY NOT NULL,
    started   INTEGER NOT NULL,
    finished  INTEGER,
    exit_code INTEGER
) STRICT;
INSERT INTO log SELECT * FROM shiftboss_copy ORDER BY started;
DROP TABLE shiftboss_copy;
CREATE TRIGGER log_insert_started AFTER INSERT ON log
BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
END;
CREATE TRIGGER log_update_started AFTER UPDATE OF started ON log
BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
END;

-- One row a fetcher run: counts of its rows and how far its file was read.
CREATE TABLE shiftboss_runs (
    fetcher_id  INTEGER NOT NULL,
    run_started INTEGER NOT NULL,
    rows        INTEGER NOT NULL DEFAULT 0,
    pending     INTEGER NOT NULL DEFAULT 0,
    skipped     INTEGER NOT NULL DEFAULT 0,
    deleting    INTEGER NOT NULL DEFAULT 0,
    slot        INTEGER NOT NULL DEFAULT 0,
    offset      INTEGER,
    lines       INTEGER,
    device      INTEGER,
    inode       INTEGER,
    checksum    INTEGER,
    PRIMARY KEY (fetcher_id, run_started)
) STRICT, WITHOUT ROWID;

-- Dispatches whose end is not known: what undoing one must restore, and whose lease may run out.
-- Several of one key: the largest attempt is in flight, the others lost their lease.
CREATE TABLE shiftboss_flights (
    attr_path      TEXT NOT NULL,
    attempt        INTEGER NOT NULL,
    fetcher_id     INTEGER NOT NULL,
    run_started    INTEGER NOT NULL,
    started        INTEGER NOT NULL,
    tries          INTEGER NOT NULL,
    prev_started   INTEGER,
    prev_finished  INTEGER,
    prev_exit_code INTEGER,
    prev_turn      INTEGER,
    rearm          TEXT NOT NULL,  -- JSON array of the run_started whose rows it marked
    PRIMARY KEY (attr_path, attempt)
) STRICT, WITHOUT ROWID;

-- The last attempt in which a fetcher's row of a key was dispatched; outlives runs and ids. By
-- jitter first, as keys are dispatched: see the log.
CREATE TABLE shiftboss_turns (
    order_jitter INTEGER NOT NULL,
    attr_path    TEXT NOT NULL,
    name         TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    PRIMARY KEY (order_jitter, attr_path, name)
) STRICT, WITHOUT ROWID;

-- attempt: no attempt up to this one is free (src/sqlite/tally.rs). row: see src/sqlite/places.rs.
CREATE TABLE shiftboss_counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO shiftboss_counters (name, value) VALUES ('attempt', 0), ('row', 0);

-- The keys in flight. An index, not a counter: it stays right under INSERT OR REPLACE too, which
-- fires no delete trigger.
CREATE INDEX shiftboss_unfinished ON log (started) WHERE finished IS NULL;

-- Jobs that ended, by minute (unix time / 60) and exit code; the daemon drops old minutes.
CREATE TABLE shiftboss_done (
    minute    INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    jobs      INTEGER NOT NULL,
    PRIMARY KEY (minute, exit_code)
) STRICT, WITHOUT ROWID;

-- Input files that are left out, and why.
CREATE TABLE shiftboss_aside (
    name   TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    since  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What status shows of the daemon: durability, policy, lease, directory_lost_since, clean; pid and
-- started until a clean stop.
CREATE TABLE shiftboss_state (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
