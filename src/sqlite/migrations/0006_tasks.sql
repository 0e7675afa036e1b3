-- Version 6: single tasks, and how long attempts took.

-- How long the job was out, in milliseconds; NULL: not known, as of attempts that ended before this version,
-- and of most that outlived a daemon.
ALTER TABLE shiftboss_attempts ADD COLUMN took_ms INTEGER;

-- Single tasks: added one by one, or accepted from a spool, and kept until their job ended with code 0. What
-- the queue holds of them is derived from this table (src/sqlite/task_rows.rs): of each key one row, in
-- a run of its own of the fetcher '@tasks', whose fetcher_id is 0. The run's number is the task's.
-- checksum: of the payload. status: waiting (in flight, too), failed or dead_letter.
-- started: of the attempt whose dispatch is recorded no longer, because the classic rules, the Python supervisor or
-- an edit by hand removed it; exit_code: how its job ended since. Both until the next start with leases.
CREATE TABLE shiftboss_single_tasks (
    task      INTEGER PRIMARY KEY,
    attr_path TEXT NOT NULL,
    checksum  INTEGER NOT NULL,
    added     INTEGER NOT NULL,
    status    TEXT NOT NULL DEFAULT 'waiting',
    started   INTEGER,
    exit_code INTEGER,
    payload   TEXT NOT NULL
) STRICT;
CREATE INDEX shiftboss_tasks_of_key ON shiftboss_single_tasks (attr_path, status, task);
CREATE INDEX shiftboss_waiting_payloads ON shiftboss_single_tasks (attr_path, checksum)
WHERE status = 'waiting';
CREATE INDEX shiftboss_unrecorded_tasks ON shiftboss_single_tasks (attr_path)
WHERE started IS NOT NULL;

-- Entries of a spool are accepted as single tasks now. Those that version 4 or 5 had in the queue are in their
-- spool still, checked out by a daemon that is dead, and are accepted from there.
DELETE FROM queue WHERE fetcher_id IN (SELECT fetcher_id FROM fetchers WHERE name = '@spool');
DELETE FROM shiftboss_runs WHERE fetcher_id IN (SELECT fetcher_id FROM fetchers WHERE name = '@spool');
DELETE FROM fetcher_runs WHERE fetcher_id IN (SELECT fetcher_id FROM fetchers WHERE name = '@spool');
DROP TABLE shiftboss_spool;
DELETE FROM shiftboss_counters WHERE name = 'spool';

-- Entries of spools that were accepted, and may still be in their spool. born: when the file was made, in nanoseconds,
-- for an inode is used again; 0: not known.
CREATE TABLE shiftboss_accepted (
    spool    TEXT NOT NULL,
    name     TEXT NOT NULL,
    inode    INTEGER NOT NULL,
    born     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (spool, name, inode, born, checksum)
) STRICT, WITHOUT ROWID;

-- task: no task up to this one is free. single_tasks: rows of that table; single_tasks_ended: of those, the
-- ones that failed or are dead letters.
INSERT INTO shiftboss_counters (name, value)
VALUES ('task', 0), ('single_tasks', 0), ('single_tasks_ended', 0);

-- Always there: a table without it was emptied.
INSERT OR IGNORE INTO shiftboss_state (name, value) VALUES ('made', '6');

-- There may be a run for each single task: the few large ones, and those under deletion, are found so.
CREATE INDEX shiftboss_slots ON shiftboss_runs (slot) WHERE slot > 0 OR deleting <> 0;

-- What a run's file said when it was read: a digest of its lines, and the file's times once it was
-- seen that it still says so (actors/src/run_reader.rs). NULL: not known.
-- stale: the file was read anew since it changed, and rows may be there that it lists no longer.
ALTER TABLE shiftboss_runs ADD COLUMN content INTEGER;
ALTER TABLE shiftboss_runs ADD COLUMN modified INTEGER;
ALTER TABLE shiftboss_runs ADD COLUMN changed INTEGER;
ALTER TABLE shiftboss_runs ADD COLUMN stale INTEGER NOT NULL DEFAULT 0;

-- Keys whose last attempt failed, the one that ended last at the end.
CREATE INDEX shiftboss_failed ON log (finished) WHERE exit_code <> 0;
