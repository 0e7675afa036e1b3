-- Counts that status shows; nothing is decided by them. Each connection counts in rows of its own, and readers sum them
-- up, so nobody waits for another's commit. A new row each minute: one that is updated at every call would get slow
-- under a snapshot that stays open. `fold_counts` puts them together again.

-- A run has so many rows more, and so many more of them wait.
CREATE OR REPLACE FUNCTION count_rows(p_run int4, p_rows int8, p_pending int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO counts AS c VALUES (p_run, pg_backend_pid(), now_ms() / 60000, p_rows, p_pending)
    ON CONFLICT (run, backend, minute)
        DO UPDATE SET rows = c.rows + excluded.rows, pending = c.pending + excluded.pending;
END $$;

-- So many more jobs are in flight.
CREATE OR REPLACE FUNCTION count_out(p_jobs int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_jobs <> 0 THEN
        INSERT INTO counts AS c VALUES (0, pg_backend_pid(), now_ms() / 60000, 0, 0, p_jobs)
        ON CONFLICT (run, backend, minute) DO UPDATE SET in_flight = c.in_flight + excluded.in_flight;
    END IF;
END $$;

-- So many more jobs ended then with this code.
CREATE OR REPLACE FUNCTION count_done(p_finished int8, p_code int8, p_jobs int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO completions AS c VALUES (p_finished / 60, p_code, pg_backend_pid(), p_jobs)
    ON CONFLICT (minute, exit_code, backend) DO UPDATE SET jobs = c.jobs + excluded.jobs;
END $$;

-- Puts the counts of former minutes together, whosever they are, and drops those of runs that are gone and those that
-- nobody asks for any more. What another connection has locked is left to it.
CREATE OR REPLACE FUNCTION fold_counts() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_minute int8 := now_ms() / 60000;
BEGIN
    WITH old AS (DELETE FROM counts WHERE ctid = ANY (ARRAY(SELECT ctid FROM counts WHERE minute < v_minute - 1
            FOR UPDATE SKIP LOCKED)) RETURNING run, rows, pending, in_flight)
    INSERT INTO counts AS c
        SELECT run, pg_backend_pid(), v_minute, sum(old.rows), sum(pending), sum(in_flight)
        FROM old JOIN runs USING (run) GROUP BY run
        ON CONFLICT (run, backend, minute) DO UPDATE SET rows = c.rows + excluded.rows,
            pending = c.pending + excluded.pending, in_flight = c.in_flight + excluded.in_flight;
    WITH old AS (DELETE FROM hours WHERE ctid = ANY (ARRAY(SELECT ctid FROM hours WHERE minute < v_minute - 1
            AND minute > 0 FOR UPDATE SKIP LOCKED)) RETURNING *)
    INSERT INTO hours AS h
        SELECT hour, fetcher, outcome, 0, 0, sum(jobs), sum(took_ms), sum(revisits), sum(revisit_seconds)
        FROM old GROUP BY hour, fetcher, outcome
        ON CONFLICT (hour, fetcher, outcome, backend, minute) DO UPDATE SET jobs = h.jobs + excluded.jobs,
            took_ms = h.took_ms + excluded.took_ms, revisits = h.revisits + excluded.revisits,
            revisit_seconds = h.revisit_seconds + excluded.revisit_seconds;
    DELETE FROM hours WHERE hour < v_minute / 60 - 90 * 24;
    DELETE FROM completions WHERE ctid = ANY (ARRAY(SELECT ctid FROM completions WHERE minute < v_minute - 120
        FOR UPDATE SKIP LOCKED));
END $$;
