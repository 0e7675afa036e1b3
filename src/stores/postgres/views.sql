-- What anybody may read with SQL: views of the names and columns that the tables of the Python supervisor have. Nothing here decides.

CREATE SCHEMA shiftboss_public;
COMMENT ON SCHEMA shiftboss_public IS 'the queue of shiftboss, to look at: nothing is changed here';

-- A key or a payload as text; one that is none, or has a NUL, with its bytes escaped.
CREATE VIEW texts AS
    SELECT id, since, started, finished, exit_code, served,
        CASE position('\x00'::bytea IN key) WHEN 0 THEN convert_from(key, 'UTF8') ELSE encode(key, 'escape') END AS key
    FROM keys;

CREATE VIEW shiftboss_public.fetcher_runs AS
    SELECT fetcher AS fetcher_id, run AS run_started, complete::int4 AS is_complete FROM runs
    UNION ALL SELECT 0, number, 1 FROM tasks WHERE status NOT IN ('done', 'cancelled');
COMMENT ON VIEW shiftboss_public.fetcher_runs IS 'the lists that were taken in; and one of each single task';

CREATE VIEW shiftboss_public.fetchers AS
    SELECT fetcher AS fetcher_id, name FROM names WHERE EXISTS (SELECT FROM runs WHERE runs.fetcher = names.fetcher)
    UNION ALL SELECT 0, '@tasks' WHERE EXISTS (SELECT FROM tasks WHERE status NOT IN ('done', 'cancelled'));
COMMENT ON VIEW shiftboss_public.fetchers IS 'the fetchers that have a list; @tasks has the single tasks';

-- A row waits if it was armed no earlier than its fetcher was served, as keys.served says; 0: never (a file's reference.sql).
CREATE VIEW shiftboss_public.queue AS
    SELECT r.fetcher AS fetcher_id, r.run AS fetcher_run_started, k.key AS attr_path,
        CASE position('\x00'::bytea IN r.payload) WHEN 0 THEN convert_from(r.payload, 'UTF8') ELSE encode(r.payload, 'escape') END AS payload,
        (r.armed < coalesce(substring(' ' || k.served FROM ' ' || r.fetcher || ':(\d+)')::int8, 0))::int4 AS is_dequeued,
        k.started AS last_started
    FROM rows r JOIN texts k ON k.id = r.key
    UNION ALL
    SELECT 0, t.number, k.key,
        CASE position('\x00'::bytea IN t.payload) WHEN 0 THEN convert_from(t.payload, 'UTF8') ELSE encode(t.payload, 'escape') END,
        (t.status <> 'waiting')::int4, k.started
    FROM tasks t JOIN texts k ON k.id = t.key WHERE t.status NOT IN ('done', 'cancelled');
COMMENT ON VIEW shiftboss_public.queue IS 'the rows of all lists; is_dequeued: it was handed out';

CREATE VIEW shiftboss_public.log AS
    SELECT key AS attr_path, started, finished, exit_code FROM texts WHERE started IS NOT NULL;
COMMENT ON VIEW shiftboss_public.log IS 'when each key was last handed out, and how its job ended';
