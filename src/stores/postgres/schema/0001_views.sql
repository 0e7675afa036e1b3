-- What anybody may read with SQL: views of the names and columns that the tables of the other store have.

CREATE SCHEMA shiftboss_public;
COMMENT ON SCHEMA shiftboss_public IS 'the queue of shiftboss, to look at: nothing is changed here';

-- A key or a payload as text; one with a NUL, which text cannot hold, with its bytes escaped.
CREATE FUNCTION as_text(p_bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE position(decode('00', 'hex') IN p_bytes) WHEN 0 THEN convert_from(p_bytes, 'UTF8') ELSE encode(p_bytes, 'escape') END
$$;

CREATE VIEW shiftboss_public.fetcher_runs AS
    SELECT fetcher AS fetcher_id, run_started, complete::int4 AS is_complete FROM runs WHERE run <> 0
    UNION ALL SELECT 0, run_started, 1 FROM queue WHERE run = 0;
COMMENT ON VIEW shiftboss_public.fetcher_runs IS 'the lists that were taken in; and one of each single task that has a row';

CREATE VIEW shiftboss_public.fetchers AS
    SELECT fetcher AS fetcher_id, name FROM fetchers
    WHERE fetcher <> 0 OR EXISTS (SELECT FROM queue WHERE run = 0);
COMMENT ON VIEW shiftboss_public.fetchers IS 'the fetchers that have a list; @tasks has the single tasks';

CREATE VIEW shiftboss_public.queue AS
    SELECT q.fetcher AS fetcher_id, q.run_started AS fetcher_run_started, as_text(k.key) AS attr_path,
        as_text(q.payload) AS payload, q.dispatched::int4 AS is_dequeued, l.started AS last_started
    FROM queue q JOIN keys k USING (key_id) JOIN log l USING (key_id);
COMMENT ON VIEW shiftboss_public.queue IS 'the rows of all lists; is_dequeued: it was handed out';

CREATE VIEW shiftboss_public.log AS
    SELECT as_text(k.key) AS attr_path, l.started, l.finished, l.exit_code
    FROM log l JOIN keys k USING (key_id) WHERE l.started IS NOT NULL;
COMMENT ON VIEW shiftboss_public.log IS 'when each key was last handed out, and how its job ended';
