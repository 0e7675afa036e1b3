-- Counts that status shows; nothing is decided by them. Each connection counts in rows of its own, and readers sum them
-- up, so nobody waits for another's commit. A new row each minute: one that is updated at every call would get slow
-- under a snapshot that stays open. `fold_counts` puts them together again.

-- rows: of run 0 alone, for `runs` has those of the others. pending: rows that were not handed out yet. in_flight: with run 0,
-- the attempts that have no end and are not in `overdue`; to count them, all that are kept would have to be gone through.
CREATE TABLE counts (
    run     int4 NOT NULL,
    backend int4 NOT NULL,
    minute  int8 NOT NULL,
    rows    int8 NOT NULL,
    pending int8 NOT NULL,
    in_flight int8 NOT NULL DEFAULT 0,
    PRIMARY KEY (run, backend, minute)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Jobs that ended, by minute (unix time / 60) and exit code.
CREATE TABLE completions (
    minute    int8 NOT NULL,
    exit_code int8 NOT NULL,
    backend   int4 NOT NULL,
    jobs      int8 NOT NULL,
    PRIMARY KEY (minute, exit_code, backend)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A run has so many rows more, and so many more of them wait.
CREATE FUNCTION count_rows(p_run int4, p_rows int8, p_pending int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO counts AS c VALUES (p_run, pg_backend_pid(), now_ms() / 60000, p_rows, p_pending)
    ON CONFLICT (run, backend, minute)
        DO UPDATE SET rows = c.rows + excluded.rows, pending = c.pending + excluded.pending;
END $$;

-- So many more jobs are in flight.
CREATE FUNCTION count_out(p_jobs int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_jobs <> 0 THEN
        INSERT INTO counts AS c VALUES (0, pg_backend_pid(), now_ms() / 60000, 0, 0, p_jobs)
        ON CONFLICT (run, backend, minute) DO UPDATE SET in_flight = c.in_flight + excluded.in_flight;
    END IF;
END $$;

-- So many more jobs ended then with this code.
CREATE FUNCTION count_done(p_finished int8, p_code int8, p_jobs int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO completions AS c VALUES (p_finished / 60, p_code, pg_backend_pid(), p_jobs)
    ON CONFLICT (minute, exit_code, backend) DO UPDATE SET jobs = c.jobs + excluded.jobs;
END $$;

-- Puts the counts of former minutes together, whosever they are, and drops those of runs that are gone and those that
-- nobody asks for any more. What another connection has locked is left to it.
CREATE FUNCTION fold_counts() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_minute int8 := now_ms() / 60000;
BEGIN
    WITH old AS (DELETE FROM counts WHERE ctid = ANY (ARRAY(SELECT ctid FROM counts WHERE minute < v_minute - 1
            FOR UPDATE SKIP LOCKED)) RETURNING run, rows, pending, in_flight)
    INSERT INTO counts AS c
        SELECT run, pg_backend_pid(), v_minute, sum(old.rows), sum(pending), sum(in_flight)
        FROM old JOIN runs USING (run) GROUP BY run
        ON CONFLICT (run, backend, minute) DO UPDATE SET rows = c.rows + excluded.rows,
            pending = c.pending + excluded.pending, in_flight = c.in_flight + excluded.in_flight;
    DELETE FROM completions WHERE ctid = ANY (ARRAY(SELECT ctid FROM completions WHERE minute < v_minute - 120
        FOR UPDATE SKIP LOCKED));
END $$;
