-- From version 5, of an unreleased build, to version 6: single tasks, and how long attempts took.
ALTER TABLE shiftboss_attempts ADD COLUMN took_ms INTEGER;

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

-- Entries of a spool are accepted as single tasks now. Those that version 5 had in the queue are in their
-- spool still, checked out by a daemon that is dead, and are accepted from there.
DELETE FROM queue WHERE fetcher_id IN (SELECT fetcher_id FROM fetchers WHERE name = '@spool');
DELETE FROM shiftboss_runs WHERE fetcher_id IN (SELECT fetcher_id FROM fetchers WHERE name = '@spool');
DELETE FROM fetcher_runs WHERE fetcher_id IN (SELECT fetcher_id FROM fetchers WHERE name = '@spool');
DROP TABLE shiftboss_spool;
DELETE FROM shiftboss_counters WHERE name = 'spool';
CREATE TABLE shiftboss_accepted (
    spool    TEXT NOT NULL,
    name     TEXT NOT NULL,
    inode    INTEGER NOT NULL,
    born     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (spool, name, inode, born, checksum)
) STRICT, WITHOUT ROWID;
INSERT INTO shiftboss_counters (name, value)
VALUES ('task', 0), ('single_tasks', 0), ('single_tasks_ended', 0);
INSERT OR IGNORE INTO shiftboss_state (name, value) VALUES ('made', '6');

CREATE INDEX shiftboss_slots ON shiftboss_runs (slot) WHERE slot > 0 OR deleting <> 0;
ALTER TABLE shiftboss_runs ADD COLUMN content INTEGER;
ALTER TABLE shiftboss_runs ADD COLUMN modified INTEGER;
ALTER TABLE shiftboss_runs ADD COLUMN changed INTEGER;
ALTER TABLE shiftboss_runs ADD COLUMN stale INTEGER NOT NULL DEFAULT 0;

CREATE INDEX shiftboss_failed ON log (finished) WHERE exit_code <> 0;
