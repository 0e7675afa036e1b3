-- Version 1: the four public tables (spec 6), as the Python supervisor made them first.
CREATE TABLE fetchers (
    fetcher_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE fetcher_runs (
    fetcher_id  INTEGER NOT NULL REFERENCES fetchers (fetcher_id),
    run_started INTEGER NOT NULL,
    is_complete INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (fetcher_id, run_started)
) STRICT;

CREATE INDEX fetcher_run_started_index ON fetcher_runs (run_started, fetcher_id);

-- A fetcher goes with its last run.
CREATE TRIGGER fetcher_runs_delete AFTER DELETE ON fetcher_runs
BEGIN
    DELETE FROM fetchers
    WHERE fetcher_id = OLD.fetcher_id
      AND NOT EXISTS (SELECT 1 FROM fetcher_runs WHERE fetcher_id = OLD.fetcher_id);
END;

CREATE TABLE queue (
    fetcher_id          INTEGER NOT NULL,
    fetcher_run_started INTEGER NOT NULL,
    attr_path           TEXT NOT NULL,
    payload             TEXT NOT NULL,
    is_dequeued         INTEGER NOT NULL DEFAULT 0,
    last_started        INTEGER,
    PRIMARY KEY (fetcher_run_started, fetcher_id, attr_path),
    FOREIGN KEY (fetcher_id, fetcher_run_started)
        REFERENCES fetcher_runs (fetcher_id, run_started) ON DELETE CASCADE
) STRICT;

CREATE INDEX queue_attr_path_index ON queue (attr_path);

CREATE TABLE log (
    attr_path TEXT PRIMARY KEY,
    started   INTEGER NOT NULL,
    finished  INTEGER,
    exit_code INTEGER
) STRICT, WITHOUT ROWID;

-- queue.last_started is log.started of the key, always.
CREATE TRIGGER queue_insert_started AFTER INSERT ON queue
BEGIN
    UPDATE queue SET last_started = log.started FROM log
    WHERE log.attr_path = NEW.attr_path AND queue.rowid = NEW.rowid;
END;

CREATE TRIGGER log_insert_started AFTER INSERT ON log
BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
END;

CREATE TRIGGER log_update_started AFTER UPDATE OF started ON log
BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
END;
