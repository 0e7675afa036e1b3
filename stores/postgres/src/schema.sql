-- Where records are kept: the tables of stores/sqlite/src/schema.sql. What is another thing here, and why, is said with it; nothing here
-- decides. Keys and payloads are bytea, for text has no NUL.

-- The fixed part of each record, as in a file. No column that changes is in an index, so an update is a HOT one: what SQLite has partial
-- indexes for is in places.
CREATE TABLE keys (
    id           int8 PRIMARY KEY,
    key          bytea NOT NULL,
    since        int8,
    started      int8,
    finished     int8,
    exit_code    int8,
    claimed      boolean NOT NULL,
    served       text NOT NULL,
    waiting      int8 NOT NULL,
    failed       int8 NOT NULL,
    dead         int8 NOT NULL,
    last_attempt int8 NOT NULL,
    attempt      int8,
    fetcher      int8,
    run          int8,
    worker       text,
    lease        int8,
    started_ms   int8,
    owner        text,
    before       text,
    turn         int8,
    held         int8 NOT NULL,
    extra        boolean NOT NULL,
    failed_at    int8,
    single_group int8,
    routes       text
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
-- A key of 4 KiB has no room in an index.
CREATE UNIQUE INDEX keys_by_key ON keys (sha256(key));
-- For those who look for keys by how they begin.
CREATE INDEX keys_by_text ON keys (substr(key, 1, 64));

-- What of keys is looked for, in order. kind: 1, the order of dispatch, at turn; 2, with --classic, keys that somebody has, at turn;
-- 3, in flight, at the attempt; 4, keys with a row that failed, at their last end; 5, keys that somebody else started, at the start; 6, the
-- order of keys in groups, at turn.
CREATE TABLE places (
    kind int2 NOT NULL,
    at   int8 NOT NULL,
    key  int8 NOT NULL,
    PRIMARY KEY (kind, at, key)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- Lines of lists that have a key.
CREATE TABLE rows (
    key     int8 NOT NULL,
    fetcher int8 NOT NULL,
    run     int8 NOT NULL,
    armed   int8 NOT NULL,
    reading int8 NOT NULL,
    payload bytea NOT NULL,
    grp     int8,
    PRIMARY KEY (key, fetcher, run)
) WITH (fillfactor = 80);
CREATE INDEX rows_by_run ON rows (fetcher, run, key);

-- What few keys have.
CREATE TABLE extras (
    key        int8 PRIMARY KEY,
    extras     text NOT NULL,
    lane       int8,
    due        int8,
    held       int8,
    backed_off int8,
    delayed    int8,
    stopping   int8,
    dead       boolean NOT NULL,
    lane_in_group int8
);
CREATE INDEX lane ON extras (lane, key) WHERE lane IS NOT NULL;
CREATE INDEX due ON extras (due, key) WHERE due IS NOT NULL;
CREATE INDEX held ON extras (held, key) WHERE held IS NOT NULL;
CREATE INDEX backed_off ON extras (backed_off, key) WHERE backed_off IS NOT NULL;
CREATE INDEX delayed ON extras (delayed, key) WHERE delayed IS NOT NULL;
CREATE INDEX stopping ON extras (stopping) WHERE stopping IS NOT NULL;
CREATE INDEX dead ON extras (key) WHERE dead;

-- Keys of groups, and of fetchers whose tasks some workers take alone; and the first one of each group and line.
CREATE TABLE stands (
    grp  int8 NOT NULL,
    line int8 NOT NULL,
    at   int8 NOT NULL,
    key  int8 NOT NULL,
    PRIMARY KEY (grp, line, at, key)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
CREATE TABLE heads (
    grp  int8 NOT NULL,
    line int8 NOT NULL,
    at   int8 NOT NULL,
    key  int8 NOT NULL,
    open boolean NOT NULL,
    PRIMARY KEY (grp, line)
) WITH (fillfactor = 50);
CREATE INDEX open_heads ON heads (line, at, key) WHERE open;
-- Groups.
CREATE TABLE groups (
    grp       int8 PRIMARY KEY,
    name      text NOT NULL,
    kind      int8 NOT NULL,
    opens     int8,
    in_flight int8 NOT NULL,
    waiting   int8 NOT NULL,
    tasks     int8 NOT NULL,
    state     text NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX kinds ON groups (kind, waiting, grp);
CREATE INDEX opening ON groups (opens, grp) WHERE opens IS NOT NULL;

-- Single tasks.
CREATE TABLE tasks (
    number   int8 PRIMARY KEY,
    key      int8 NOT NULL,
    status   text NOT NULL,
    checksum int8 NOT NULL,
    name     text UNIQUE,
    over     int8,
    payload  bytea NOT NULL
);
CREATE INDEX tasks_of_key ON tasks (key, status, number);
CREATE INDEX ended_tasks ON tasks (status, number) WHERE status IN ('failed', 'dead_letter');
CREATE INDEX waiting_payloads ON tasks (key, checksum) WHERE status = 'waiting';
-- Those that are kept for their names.
CREATE INDEX tasks_over ON tasks (over) WHERE over IS NOT NULL;

-- Attempts that ended.
CREATE SEQUENCE ends;
CREATE TABLE attempts (
    ended      int8 NOT NULL DEFAULT nextval('ends'),
    attempt    int8 PRIMARY KEY,
    key        int8 NOT NULL,
    fetcher    int8 NOT NULL,
    run        int8 NOT NULL,
    worker     text,
    started_ms int8 NOT NULL,
    ended_ms   int8 NOT NULL,
    outcome    text NOT NULL,
    exit_code  int8,
    previous   int8 NOT NULL,
    revisit    int8
);
CREATE INDEX attempts_by_end ON attempts (ended);
-- Numbers of attempts. It has gaps: what a daemon drew and had no use for is lost when it ends.
CREATE SEQUENCE numbers MINVALUE 0;
SELECT nextval('numbers');

-- Sums of attempts that ended, by hour (unix time / 3600); and jobs that were done, by minute (unix time / 60). Each daemon has its part
-- of a sum, which may be less than nothing: daemons do not wait for each other's.
CREATE TABLE hours (
    hour            int8 NOT NULL,
    fetcher         int8 NOT NULL,
    outcome         text NOT NULL,
    daemon          int8 NOT NULL,
    jobs            int8 NOT NULL,
    took_ms         int8 NOT NULL,
    revisits        int8 NOT NULL,
    revisit_seconds int8 NOT NULL,
    PRIMARY KEY (hour, fetcher, outcome, daemon)
) WITH (fillfactor = 50);
CREATE TABLE minutes (
    minute    int8 NOT NULL,
    exit_code int8 NOT NULL,
    daemon    int8 NOT NULL,
    jobs      int8 NOT NULL,
    PRIMARY KEY (minute, exit_code, daemon)
) WITH (fillfactor = 50);

-- Fetchers by the numbers that their names have for ever; of several with one name (`--classic`) the highest one is its own.
CREATE TABLE names (
    fetcher int8 PRIMARY KEY,
    name    text NOT NULL
);
CREATE TABLE runs (
    fetcher  int8 NOT NULL,
    run      int8 NOT NULL,
    since    int8 NOT NULL,
    complete boolean NOT NULL,
    deleting boolean NOT NULL,
    listing  int8,
    reading  int8 NOT NULL,
    position text,
    skipped  int8 NOT NULL,
    stale    int8 NOT NULL,
    PRIMARY KEY (fetcher, run)
);
-- Sums of what each run has, as in a file; each daemon has its part.
CREATE TABLE counts (
    fetcher     int8 NOT NULL,
    run         int8 NOT NULL,
    daemon      int8 NOT NULL,
    rows        int8 NOT NULL,
    waiting     int8 NOT NULL,
    in_flight   int8 NOT NULL,
    leased      int8 NOT NULL,
    redelivered int8 NOT NULL,
    delayed     int8 NOT NULL,
    dead        int8 NOT NULL,
    failed      int8 NOT NULL,
    held        int8 NOT NULL,
    backed_off  int8 NOT NULL,
    bumped      int8 NOT NULL,
    keys        int8 NOT NULL,
    unlisted    int8 NOT NULL,
    PRIMARY KEY (fetcher, run, daemon)
) WITH (fillfactor = 20);

-- The header's numbers. version: another one after each change of what stands here, in names or in runs; but of floor, which is raised by whoever
-- makes a key ready where others may have passed (src/front.rs).
CREATE TABLE header (
    version     int8 NOT NULL,
    last_bump   int8 NOT NULL,
    last_single int8 NOT NULL,
    last_since  int8 NOT NULL,
    paused      boolean NOT NULL,
    clock       int8 NOT NULL,
    ids         int8 NOT NULL,
    floor       int8 NOT NULL
);
INSERT INTO header VALUES (0, 0, 0, 0, false, 0, 0, 0);
-- What of the header is a daemon's own: the credit of its lane.
CREATE TABLE credits (
    daemon int8 PRIMARY KEY,
    credit int8 NOT NULL
) WITH (fillfactor = 20);

-- The daemons: who may write, and who lives (src/membership.rs). epoch: that of its last joining, or of whoever took it for dead since; no two
-- are the same. process: which one, and behind an @ where. socket: where it answers, there. connections: what the server calls its connections by. beat: raised once a
-- second while it lives; beat_at: when that was, for people. gone: 'stopped', or 'silent': it was taken for dead. adopted: what it saw to is others'.
CREATE SEQUENCE epochs;
CREATE TABLE daemons (
    daemon      int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    process     text NOT NULL,
    pid         int8 NOT NULL,
    socket      text NOT NULL,
    version     text NOT NULL,
    connections text NOT NULL,
    epoch       int8 NOT NULL,
    started     int8 NOT NULL,
    beat        int8 NOT NULL,
    beat_at     int8 NOT NULL,
    gone        text,
    gone_at     int8,
    adopted     boolean NOT NULL
) WITH (fillfactor = 50);

-- How often relays were heard of, by whichever daemon.
CREATE TABLE beats (
    relay text PRIMARY KEY,
    beat  int8 NOT NULL
) WITH (fillfactor = 50);

-- What is not the queue's business: a daemon's and its relays' own notes, each as JSON.
CREATE TABLE documents (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);
