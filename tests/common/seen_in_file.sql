-- What queries of the tests look at beside the Python supervisor's four tables, whatever keeps the queue: in a file here, on a
-- server in seen_on_server.sql. Of the connection that looks; nothing is written.
PRAGMA temp_store = MEMORY;
-- Attempts that ended, and those that have not.
CREATE TEMP VIEW ended AS
    SELECT a.attempt, k.key AS attr_path, a.fetcher AS fetcher_id, a.run AS run_started, a.worker, a.started_ms / 1000 AS started,
        a.ended_ms / 1000 AS finished, a.outcome, a.exit_code
    FROM attempts a JOIN keys k ON k.id = a.key;
CREATE TEMP VIEW out AS SELECT attempt, key AS attr_path FROM keys WHERE attempt IS NOT NULL;
-- Single tasks that are not over.
CREATE TEMP VIEW singles AS
    SELECT t.number AS task, k.key AS attr_path, t.status, t.payload
    FROM tasks t JOIN keys k ON k.id = t.key WHERE t.status NOT IN ('done', 'cancelled');
-- Runs of lists. changed: the time of the file when it was compared with what was read of it.
CREATE TEMP VIEW lists AS
    SELECT r.fetcher AS fetcher_id, r.run AS run_started, ifnull(c.rows, 0) AS rows, ifnull(c.waiting, 0) AS pending, r.skipped,
        r.stale, r.position ->> '$.verified.changed' AS changed, r.position ->> '$.offset' AS bytes
    FROM runs r LEFT JOIN counts c ON c.fetcher = r.fetcher AND c.run = r.run;
