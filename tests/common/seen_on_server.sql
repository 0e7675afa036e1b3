-- The queue of the schema `shiftboss` under the names that it has for queries of the tests: the Python supervisor's four tables, and
-- those of seen_in_file.sql.
CREATE SCHEMA seen;
CREATE VIEW seen.fetchers AS SELECT fetcher_id, name FROM shiftboss_public.fetchers WHERE fetcher_id <> 0;
CREATE VIEW seen.fetcher_runs AS SELECT * FROM shiftboss_public.fetcher_runs WHERE fetcher_id <> 0;
CREATE VIEW seen.queue AS
    SELECT q.*, ((k.id >> 31) - 2147483648)::int4 AS order_jitter
    FROM shiftboss_public.queue q JOIN shiftboss.texts k ON k.key = q.attr_path;
CREATE VIEW seen.log AS SELECT * FROM shiftboss_public.log;
CREATE VIEW seen.ended AS
    SELECT a.attempt, k.key AS attr_path, a.fetcher AS fetcher_id, a.run AS run_started, a.worker, a.started_ms / 1000 AS started,
        a.ended_ms / 1000 AS finished, a.outcome, a.exit_code
    FROM shiftboss.attempts a JOIN shiftboss.texts k ON k.id = a.key;
CREATE VIEW seen.out AS
    SELECT attempt, convert_from(key, 'UTF8') AS attr_path FROM shiftboss.keys WHERE attempt IS NOT NULL;
CREATE VIEW seen.singles AS
    SELECT t.number AS task, k.key AS attr_path, t.status, convert_from(t.payload, 'UTF8') AS payload
    FROM shiftboss.tasks t JOIN shiftboss.texts k ON k.id = t.key WHERE t.status NOT IN ('done', 'cancelled');
CREATE VIEW seen.lists AS
    SELECT fetcher AS fetcher_id, run AS run_started, skipped, stale, (position::json -> 'verified' ->> 'changed')::int8 AS changed
    FROM shiftboss.runs;
CREATE FUNCTION seen.ifnull(int4, int4) RETURNS int4 LANGUAGE sql AS 'SELECT coalesce($1, $2)';
