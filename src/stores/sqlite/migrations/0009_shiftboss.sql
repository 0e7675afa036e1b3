-- Version 9: what shiftboss keeps beside the public tables. Triggers in plain SQL keep it right under
-- edits by anybody, in the transaction of the edit (triggers.sql).

-- What a row is to the dispatcher (the rule is in src/stores/sqlite/schema.rs):
--   0  nothing: dispatched, hidden by a newer run of its fetcher, or its key is leased or on hold
--   1  ready and plain: nothing but this row and the log says anything of its key
--   2  ready: the key is not in flight
--  -1  held: the key is in flight; ready again once its lease expired (last_started tells)
--  -2  it was plain, and a classic worker got it: while the log does not know an end, the row is the record of
--      its dispatch (shiftboss_row_deliveries), and held; from then on it is nothing to the dispatcher
-- A row whose state is not 0 is undispatched, or the lease of its dispatch expired or may yet expire, but for
-- -2. That is written by the daemon alone, once a job; with whatever else happens to the key, the record moves to
-- shiftboss_deliveries.
ALTER TABLE queue ADD COLUMN state INTEGER NOT NULL DEFAULT 0;

-- The reference's own order: two wide indexes would cost twice at every dispatch. It works without
-- (docs/migrating-from-supervisor-py.md, "Going back").
DROP INDEX IF EXISTS queue_order_index;

-- A large run has a partition of the order for itself, so that a run under deletion is passed over at once.
-- Small runs, and the first rows of large ones, share partition 0.
ALTER TABLE queue ADD COLUMN partition INTEGER NOT NULL DEFAULT 0;

-- The last attempt in which a row of this fetcher and key was dispatched: fetchers take turns by it. All rows of a
-- fetcher and a key have the same; without any, shiftboss_last_served keeps it.
ALTER TABLE queue ADD COLUMN last_served INTEGER;

-- What undoing its dispatch must restore, of a row of state -2: what the log and last_served were.
ALTER TABLE queue ADD COLUMN prev_started INTEGER;
ALTER TABLE queue ADD COLUMN prev_finished INTEGER;
ALTER TABLE queue ADD COLUMN prev_exit_code INTEGER;
ALTER TABLE queue ADD COLUMN prev_last_served INTEGER;

-- The order of dispatch: walked from its beginning, for each partition and each state.
CREATE INDEX shiftboss_ready ON queue (
    partition, state, last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
) WHERE state > 0;
-- Held rows are apart: most never come up, and the narrower index costs less.
CREATE INDEX shiftboss_held ON queue (partition, last_started, order_jitter) WHERE state = -1;

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
-- The keys in flight, the oldest first. An index, not a counter: it stays right under INSERT OR REPLACE too, which
-- fires no delete trigger.
CREATE INDEX shiftboss_unfinished ON log (started) WHERE finished IS NULL;
-- Keys whose last attempt failed, the one that ended last at the end.
CREATE INDEX shiftboss_failed ON log (finished) WHERE exit_code <> 0;

-- One row a fetcher run: counts of its rows, how far its file was read, and what the file said then: a digest
-- of its lines, and the file's times once it was seen that it still says so (actors/src/run_reader.rs).
-- stale: the file was read anew since it changed, and rows may be there that it lists no longer.
CREATE TABLE shiftboss_runs (
    fetcher_id  INTEGER NOT NULL,
    run_started INTEGER NOT NULL,
    rows        INTEGER NOT NULL DEFAULT 0,
    pending     INTEGER NOT NULL DEFAULT 0,
    skipped     INTEGER NOT NULL DEFAULT 0,
    deleting    INTEGER NOT NULL DEFAULT 0,
    partition   INTEGER NOT NULL DEFAULT 0,
    offset      INTEGER,
    lines       INTEGER,
    device      INTEGER,
    inode       INTEGER,
    checksum    INTEGER,
    content     INTEGER,
    modified    INTEGER,
    changed     INTEGER,
    stale       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (fetcher_id, run_started)
) STRICT, WITHOUT ROWID;
-- There may be a run for each single task: the few large ones, and those under deletion, are found so.
CREATE INDEX shiftboss_partitioned_runs ON shiftboss_runs (partition)
WHERE partition > 0 OR deleting <> 0;

-- Dispatches whose end is not known: what undoing one must restore, and whose lease may expire.
-- Several of one key: the largest attempt is in flight, the leases of the others expired.
-- delivery_count: which delivery of its row it is. marked_runs: a JSON array of the runs whose rows it marked.
-- worker, lease: who holds the job, as the worker named itself, and how long it may be silent, in seconds; NULL:
-- a classic worker. A row with a lease excludes its key from the order until it is deleted.
CREATE TABLE shiftboss_deliveries (
    attr_path        TEXT NOT NULL,
    attempt          INTEGER NOT NULL,
    fetcher_id       INTEGER NOT NULL,
    run_started      INTEGER NOT NULL,
    started          INTEGER NOT NULL,
    delivery_count   INTEGER NOT NULL,
    prev_started     INTEGER,
    prev_finished    INTEGER,
    prev_exit_code   INTEGER,
    prev_last_served INTEGER,
    marked_runs      TEXT NOT NULL,
    worker           TEXT,
    lease            INTEGER,
    PRIMARY KEY (attr_path, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX shiftboss_leased ON shiftboss_deliveries (attempt) WHERE lease IS NOT NULL;
-- Those that their rows record, with the columns of shiftboss_deliveries.
CREATE VIEW shiftboss_row_deliveries AS
SELECT queue.attr_path, last_served AS attempt, fetcher_id, fetcher_run_started AS run_started,
    log.started, 1 AS delivery_count, prev_started, prev_finished, prev_exit_code, prev_last_served,
    json_array(fetcher_run_started) AS marked_runs, NULL AS worker, NULL AS lease
FROM log CROSS JOIN queue ON queue.attr_path = log.attr_path
WHERE state = -2 AND log.finished IS NULL AND last_served IS NOT NULL;
-- All of them.
CREATE VIEW shiftboss_in_flight AS
SELECT attr_path, attempt, fetcher_id, run_started, started, delivery_count, prev_started, prev_finished,
    prev_exit_code, prev_last_served, marked_runs, worker, lease FROM shiftboss_deliveries
UNION ALL SELECT * FROM shiftboss_row_deliveries;

-- Attempts that ended, the last 100,000 of them. outcome: done (exit_code says how), released (given
-- back), undone (the answer did not arrive), expired (its lease did). took_ms: how long the job was out, in
-- milliseconds; NULL: not known, as of most that outlived a daemon.
CREATE TABLE shiftboss_attempts (
    attempt     INTEGER PRIMARY KEY,
    attr_path   TEXT NOT NULL,
    fetcher_id  INTEGER NOT NULL,
    run_started INTEGER NOT NULL,
    worker      TEXT,
    started     INTEGER NOT NULL,
    finished    INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    exit_code   INTEGER,
    took_ms     INTEGER
) STRICT;
-- Whether a job was handed out again after its lease expired: last_served has the dispatches that were not
-- taken back, this the others.
CREATE INDEX shiftboss_returned_attempts ON shiftboss_attempts (attr_path, attempt)
WHERE outcome IN ('released', 'expired');

-- queue.last_served of fetchers and keys that have no row any more: it outlives rows, runs and ids. What is here of
-- those that have one again is out of date.
CREATE TABLE shiftboss_last_served (
    attr_path TEXT NOT NULL,
    name      TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    PRIMARY KEY (attr_path, name)
) STRICT, WITHOUT ROWID;

-- Rows whose leases expired: how many, until the job is done.
-- dead_letter: too many, and the row waits for its fetcher's next run.
CREATE TABLE shiftboss_expired_leases (
    fetcher_id     INTEGER NOT NULL,
    run_started    INTEGER NOT NULL,
    attr_path      TEXT NOT NULL,
    expired_leases INTEGER NOT NULL,
    dead_letter    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (fetcher_id, run_started, attr_path)
) STRICT, WITHOUT ROWID;

-- Single tasks: added one by one, or accepted from a spool, and kept until their job ended with code 0. What
-- the queue holds of them is derived from this table (src/stores/sqlite/task_rows.rs): of each key one row, in
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

-- The fetchers that the daemon runs itself, and how each is. Their lists come through the input directory, as
-- anybody's do; the tables `fetchers` and `fetcher_runs` are about those.
-- state: what it is doing, in words. run_started: when the run began that is on, or was broken off by a
-- death; NULL: none. last_*: the run that ended last; last_code is 0 if its list is in place.
-- next_run: when it runs next if nothing changes; NULL: when something does.
CREATE TABLE shiftboss_managed_fetchers (
    name         TEXT PRIMARY KEY,
    state        TEXT NOT NULL,
    run_started  INTEGER,
    last_started INTEGER,
    last_ended   INTEGER,
    last_code    INTEGER,
    last_message TEXT,
    next_run     INTEGER
) STRICT, WITHOUT ROWID;

-- Jobs that ended, by minute (unix time / 60) and exit code; the daemon drops old minutes.
CREATE TABLE shiftboss_completions (
    minute    INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    jobs      INTEGER NOT NULL,
    PRIMARY KEY (minute, exit_code)
) STRICT, WITHOUT ROWID;

-- Input files that are left out, and why.
CREATE TABLE shiftboss_rejected_files (
    name   TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    since  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- attempt: no attempt up to this one is free. row: see src/stores/sqlite/runs.rs. task: no task up to this one is free.
-- single_tasks: rows of that table; single_tasks_ended: of those, the ones that failed or are dead letters.
CREATE TABLE shiftboss_counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO shiftboss_counters (name, value)
VALUES ('attempt', 0), ('row', 0), ('task', 0), ('single_tasks', 0), ('single_tasks_ended', 0);

-- What status shows of the daemon: durability, policy, lease, directory_lost_since, clean; pid and
-- started until a clean stop. made is always there: a table without it was emptied.
CREATE TABLE shiftboss_state (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO shiftboss_state (name, value) VALUES ('made', '9');
