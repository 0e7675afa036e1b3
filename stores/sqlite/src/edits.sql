-- What outsiders wrote into the views of reference.sql, until the queue carries it out (edits.rs).

-- Rows of log that somebody wrote, whole.
CREATE TABLE log_edits (
    key       TEXT PRIMARY KEY,
    started   INTEGER NOT NULL,
    finished  INTEGER,
    exit_code INTEGER,
    CONSTRAINT "times are seconds since 1970, of the years 0 to 9999"
    CHECK (started BETWEEN -62167219200 AND 253402300799 AND coalesce(finished, 0) BETWEEN -62167219200 AND 253402300799)
) STRICT, WITHOUT ROWID;
-- Rows of queue whose is_dequeued somebody wrote.
CREATE TABLE row_edits (
    key         INTEGER NOT NULL,
    fetcher     INTEGER NOT NULL,
    run         INTEGER NOT NULL,
    is_dequeued INTEGER NOT NULL,
    PRIMARY KEY (key, fetcher, run)
) STRICT, WITHOUT ROWID;
-- What outsiders wrote and nobody can read, as it was: a row of queue (with fetcher_id and payload) or of log, and why.
CREATE TABLE set_aside (
    number     INTEGER PRIMARY KEY,
    why        TEXT NOT NULL,
    attr_path  ANY,
    fetcher_id ANY,
    run        ANY,
    payload    ANY,
    started    ANY,
    finished   ANY,
    exit_code  ANY
) STRICT;
