-- A database of the Python supervisor (spec 6, version 2), made of ours, which is attached as `ours`. Indexes and triggers come
-- last.

CREATE TABLE fetchers (
    fetcher_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO fetchers SELECT fetcher_id, name FROM ours.fetchers WHERE fetcher_id <> 0;

CREATE TABLE fetcher_runs (
    fetcher_id  INTEGER NOT NULL REFERENCES fetchers (fetcher_id),
    run_started INTEGER NOT NULL,
    is_complete INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (fetcher_id, run_started)
) STRICT;
INSERT INTO fetcher_runs SELECT fetcher_id, run_started, is_complete FROM ours.fetcher_runs WHERE fetcher_id <> 0;

CREATE TABLE queue (
    fetcher_id          INTEGER NOT NULL,
    fetcher_run_started INTEGER NOT NULL,
    attr_path           TEXT NOT NULL,
    payload             TEXT NOT NULL,
    is_dequeued         INTEGER NOT NULL DEFAULT 0,
    last_started        INTEGER,
    order_jitter        INTEGER,
    PRIMARY KEY (fetcher_run_started, fetcher_id, attr_path),
    FOREIGN KEY (fetcher_id, fetcher_run_started) REFERENCES fetcher_runs (fetcher_id, run_started) ON DELETE CASCADE
) STRICT;
INSERT INTO queue
SELECT fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued, last_started, order_jitter
FROM ours.queue WHERE fetcher_id <> 0 ORDER BY 2, 1, 3;

CREATE TABLE log (
    attr_path TEXT PRIMARY KEY,
    started   INTEGER NOT NULL,
    finished  INTEGER,
    exit_code INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO log SELECT attr_path, started, finished, exit_code FROM ours.log ORDER BY 1;

CREATE INDEX fetcher_run_started_index ON fetcher_runs (run_started, fetcher_id);
CREATE INDEX queue_order_index ON queue (last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started DESC);
CREATE INDEX queue_attr_path_index ON queue (attr_path);

CREATE TRIGGER fetcher_runs_delete AFTER DELETE ON fetcher_runs BEGIN
    DELETE FROM fetchers WHERE fetcher_id = OLD.fetcher_id
        AND NOT EXISTS (SELECT 1 FROM fetcher_runs WHERE fetcher_id = OLD.fetcher_id);
END;
CREATE TRIGGER queue_insert_started AFTER INSERT ON queue BEGIN
    UPDATE queue SET last_started = log.started FROM log WHERE log.attr_path = NEW.attr_path AND queue.rowid = NEW.rowid;
END;
CREATE TRIGGER log_insert_started AFTER INSERT ON log BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
END;
CREATE TRIGGER log_update_started AFTER UPDATE OF started ON log BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
END;

PRAGMA user_version = 2;
