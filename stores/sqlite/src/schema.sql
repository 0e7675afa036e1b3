-- Where records are kept. What a record is, and what may be in it, is in queue/src/record.rs; nothing here decides.

-- The fixed part of each record. id: in the order of jitter, so that keys that run one after the other share pages.
-- since: in microseconds. claimed: somebody else started it. served: the attempts with which its fetchers were served last, as
-- `fetcher:attempt fetcher:attemptf`; f: it failed. waiting, failed, dead: its single tasks, but for the one that is out.
-- attempt to before: the attempt that is out; of a single task fetcher is 0, and run the task's number; started_ms: in milliseconds;
-- owner: the document of the relay that sees to it;
-- before: what a take-back restores, as JSON. turn, held: its place (src/code.rs): 0, in order; 1, with --classic, somebody has it; 2, in
-- order, in a group. extra: it has a row in extras. failed_at: when it ended last, if a row of it failed. single_group: that of its single
-- tasks. routes: where else it stands (stands), as `*:group fetcher:group fetcher`.
CREATE TABLE keys (
    id           INTEGER PRIMARY KEY,
    key          TEXT NOT NULL,
    since        INTEGER,
    started      INTEGER,
    finished     INTEGER,
    exit_code    INTEGER,
    claimed      INTEGER NOT NULL,
    served       TEXT NOT NULL,
    waiting      INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    dead         INTEGER NOT NULL,
    last_attempt INTEGER NOT NULL,
    attempt      INTEGER,
    fetcher      INTEGER,
    run          INTEGER,
    worker       TEXT,
    lease        INTEGER,
    started_ms   INTEGER,
    owner        TEXT,
    before       TEXT,
    turn         INTEGER,
    held         INTEGER NOT NULL,
    extra        INTEGER NOT NULL,
    failed_at    INTEGER,
    single_group INTEGER,
    routes       TEXT
) STRICT;
CREATE UNIQUE INDEX keys_by_key ON keys (key);
-- The order of dispatch; another one of keys in groups (held = 2); and, only with --classic, of those that somebody has (held = 1).
CREATE INDEX in_order ON keys (held, turn) WHERE turn IS NOT NULL;
CREATE INDEX in_flight ON keys (attempt) WHERE attempt IS NOT NULL;
-- Those that somebody else started, and may be at.
CREATE INDEX claimed ON keys (started) WHERE claimed = 1;
CREATE INDEX failed ON keys (failed_at) WHERE failed_at IS NOT NULL;

-- Lines of lists that have a key. armed: the key's highest attempt when the row was put there. reading: of its file, in which it was
-- seen last.
CREATE TABLE rows (
    key     INTEGER NOT NULL,
    fetcher INTEGER NOT NULL,
    run     INTEGER NOT NULL,
    armed   INTEGER NOT NULL,
    reading INTEGER NOT NULL,
    payload TEXT NOT NULL,
    grp     INTEGER,
    PRIMARY KEY (key, fetcher, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX rows_by_run ON rows (fetcher, run, key);

-- What few keys have. extras: as JSON. lane, due: their places; lane_in_group: that of a key in a group. held, backed_off: since when
-- an operator (in seconds), or its failures, hold it. delayed: when the first of its tasks is tried again. stopping: the attempt
-- that is out, if it is to stop. dead: rows of it are dead letters.
CREATE TABLE extras (
    key        INTEGER PRIMARY KEY,
    extras     TEXT NOT NULL,
    lane       INTEGER,
    due        INTEGER,
    held       INTEGER,
    backed_off INTEGER,
    delayed    INTEGER,
    stopping   INTEGER,
    dead       INTEGER NOT NULL,
    lane_in_group INTEGER
) STRICT;
CREATE INDEX lane ON extras (lane) WHERE lane IS NOT NULL;
CREATE INDEX due ON extras (due) WHERE due IS NOT NULL;
CREATE INDEX held ON extras (held) WHERE held IS NOT NULL;
CREATE INDEX backed_off ON extras (backed_off) WHERE backed_off IS NOT NULL;
CREATE INDEX delayed ON extras (delayed) WHERE delayed IS NOT NULL;
CREATE INDEX stopping ON extras (stopping) WHERE stopping IS NOT NULL;
CREATE INDEX dead ON extras (key) WHERE dead = 1;

-- Keys of groups, and of fetchers whose tasks some workers take alone. line: whose (src/code.rs). grp: the group there, or 0. at: the turn, or the
-- place in the lane.
CREATE TABLE stands (
    grp  INTEGER NOT NULL,
    line INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    key  INTEGER NOT NULL,
    PRIMARY KEY (grp, line, at, key)
) STRICT, WITHOUT ROWID;
-- The first one of each group and line, and whether the group is open.
CREATE TABLE heads (
    grp  INTEGER NOT NULL,
    line INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    key  INTEGER NOT NULL,
    open INTEGER NOT NULL,
    PRIMARY KEY (grp, line)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_heads ON heads (line, at, key) WHERE open = 1;
-- Groups by the numbers of their names. kind: 0, open; 1, until a time; 2, full; 3, held. opens: when to look at it again, in steady
-- time. in_flight, waiting, tasks: how many jobs are out, keys wait for their turn, and rows are in it. state: the rest, as JSON.
CREATE TABLE groups (
    grp       INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    kind      INTEGER NOT NULL,
    opens     INTEGER,
    in_flight INTEGER NOT NULL,
    waiting   INTEGER NOT NULL,
    tasks     INTEGER NOT NULL,
    state     TEXT NOT NULL
) STRICT;
CREATE INDEX kinds ON groups (kind, waiting);
CREATE INDEX opening ON groups (opens, grp) WHERE opens IS NOT NULL;

-- Single tasks. name: the ID that it was added with, for which it is kept when it is done or cancelled. over: the minute of that.
-- checksum: of the payload.
CREATE TABLE tasks (
    number   INTEGER PRIMARY KEY,
    key      INTEGER NOT NULL,
    status   TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    name     TEXT UNIQUE,
    over     INTEGER,
    payload  TEXT NOT NULL
) STRICT;
CREATE INDEX tasks_of_key ON tasks (key, status, number);
CREATE INDEX ended_tasks ON tasks (status, number) WHERE status IN ('failed', 'dead_letter');
-- Those that are kept for their names.
CREATE INDEX tasks_over ON tasks (over) WHERE over IS NOT NULL;
CREATE INDEX waiting_payloads ON tasks (key, checksum) WHERE status = 'waiting';

-- Attempts that ended, by the number of the end, which ascends: a late result is a new end of its attempt. previous: the key's attempt
-- before, so that a key's history is a chain that begins at keys.last_attempt.
CREATE TABLE attempts (
    ended     INTEGER PRIMARY KEY,
    attempt   INTEGER NOT NULL,
    key       INTEGER NOT NULL,
    fetcher   INTEGER NOT NULL,
    run       INTEGER NOT NULL,
    worker    TEXT,
    started_ms INTEGER NOT NULL,
    ended_ms  INTEGER NOT NULL,
    outcome   TEXT NOT NULL,
    exit_code INTEGER,
    previous  INTEGER NOT NULL,
    revisit   INTEGER
) STRICT;
CREATE UNIQUE INDEX attempts_by_number ON attempts (attempt);

-- Sums of attempts that ended, by hour (unix time / 3600); and jobs that were done, by minute (unix time / 60).
CREATE TABLE hours (
    hour            INTEGER NOT NULL,
    fetcher         INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    jobs            INTEGER NOT NULL,
    took_ms         INTEGER NOT NULL,
    revisits        INTEGER NOT NULL,
    revisit_seconds INTEGER NOT NULL,
    PRIMARY KEY (hour, fetcher, outcome)
) STRICT, WITHOUT ROWID;
CREATE TABLE minutes (
    minute    INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    jobs      INTEGER NOT NULL,
    PRIMARY KEY (minute, exit_code)
) STRICT, WITHOUT ROWID;

-- Fetchers by the numbers that their names have for ever; under `--classic` one that went with its last list has a new one when it
-- comes back: the highest one of a name is its own.
CREATE TABLE names (
    fetcher INTEGER PRIMARY KEY,
    name    TEXT NOT NULL
) STRICT;
CREATE INDEX names_by_name ON names (name);
-- Runs of lists. position: how far its file was read, as JSON. stale: it was read anew since it changed (1), or rows came that are
-- behind its position (2).
CREATE TABLE runs (
    fetcher  INTEGER NOT NULL,
    run      INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    deleting INTEGER NOT NULL,
    listing  INTEGER,
    reading  INTEGER NOT NULL,
    position TEXT,
    skipped  INTEGER NOT NULL,
    stale    INTEGER NOT NULL,
    PRIMARY KEY (fetcher, run)
) STRICT, WITHOUT ROWID;
-- Sums of what each run has, also of one that is gone while a job of it is out. Of fetcher 0, run 0 has those of all single tasks, and
-- -1 what is counted of keys: held, backed_off, bumped, keys (all of them), unlisted (those that nothing lists).
CREATE TABLE counts (
    fetcher     INTEGER NOT NULL,
    run         INTEGER NOT NULL,
    rows        INTEGER NOT NULL,
    waiting     INTEGER NOT NULL,
    in_flight   INTEGER NOT NULL,
    leased      INTEGER NOT NULL,
    redelivered INTEGER NOT NULL,
    delayed     INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    held        INTEGER NOT NULL,
    backed_off  INTEGER NOT NULL,
    bumped      INTEGER NOT NULL,
    keys        INTEGER NOT NULL,
    unlisted    INTEGER NOT NULL,
    PRIMARY KEY (fetcher, run)
) STRICT, WITHOUT ROWID;

-- The header's numbers. clock: by how much the wall clock was set so far, in milliseconds. ids: keys that were ever given an id. ends: the last number of an end.
CREATE TABLE header (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    last_attempt INTEGER NOT NULL,
    last_bump    INTEGER NOT NULL,
    last_single  INTEGER NOT NULL,
    last_since   INTEGER NOT NULL,
    credit       INTEGER NOT NULL,
    paused       INTEGER NOT NULL,
    clock        INTEGER NOT NULL,
    ids          INTEGER NOT NULL,
    ends         INTEGER NOT NULL
) STRICT;

-- What is not the queue's business: a daemon's and its relays' own notes, each as JSON.
CREATE TABLE documents (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
