-- The queue of the schema `shiftboss` under the names that it has for queries of the tests: the Python supervisor's four tables, and
-- those of seen_in_file.sql.
CREATE SCHEMA seen;
CREATE VIEW seen.fetchers AS
    SELECT fetcher AS fetcher_id, name FROM shiftboss.fetchers WHERE fetcher <> 0;
CREATE VIEW seen.fetcher_runs AS
    SELECT fetcher AS fetcher_id, run_started, complete::int AS is_complete FROM shiftboss.runs WHERE run <> 0;
CREATE VIEW seen.queue AS
    SELECT q.fetcher AS fetcher_id, q.run_started AS fetcher_run_started, convert_from(k.key, 'UTF8') AS attr_path,
        convert_from(q.payload, 'UTF8') AS payload, q.dispatched::int AS is_dequeued, l.started AS last_started,
        k.jitter AS order_jitter
    FROM shiftboss.queue q JOIN shiftboss.keys k USING (key_id) JOIN shiftboss.log l USING (key_id);
CREATE VIEW seen.log AS
    SELECT convert_from(k.key, 'UTF8') AS attr_path, l.started, l.finished, l.exit_code
    FROM shiftboss.log l JOIN shiftboss.keys k USING (key_id) WHERE l.started IS NOT NULL;
CREATE VIEW seen.ended AS
    SELECT a.attempt, convert_from(k.key, 'UTF8') AS attr_path, a.fetcher AS fetcher_id, a.run_started, a.worker,
        a.started_ms / 1000 AS started, a.finished, a.outcome, a.exit_code
    FROM shiftboss.attempts a JOIN shiftboss.keys k USING (key_id) WHERE a.finished IS NOT NULL;
CREATE VIEW seen.singles AS
    SELECT t.task, convert_from(k.key, 'UTF8') AS attr_path, t.status,
        convert_from(t.payload, 'UTF8') AS payload
    FROM shiftboss.single_tasks t JOIN shiftboss.keys k USING (key_id);
CREATE VIEW seen.lists AS
    SELECT fetcher AS fetcher_id, run_started, skipped, stale::int AS stale, (position ->> 'changed')::int8 AS changed
    FROM shiftboss.runs WHERE run <> 0;
CREATE FUNCTION seen.ifnull(int4, int4) RETURNS int4 LANGUAGE sql AS 'SELECT coalesce($1, $2)';
CREATE VIEW seen.out AS
    SELECT a.attempt, convert_from(k.key, 'UTF8') AS attr_path
    FROM shiftboss.attempts a JOIN shiftboss.keys k USING (key_id) WHERE a.finished IS NULL;
CREATE VIEW seen.accepted AS
    SELECT spool, name, inode, born, checksum FROM shiftboss.accepted;
