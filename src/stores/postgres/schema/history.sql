-- Ends of attempts: their numbers, what is counted of them by hour, and what the daemon is told of them. Whoever records an
-- end calls `note_end`; those of plain keys' jobs do it for many at once.

-- The number of an end.
CREATE OR REPLACE FUNCTION next_end() RETURNS int8 LANGUAGE sql AS $$
    SELECT (pg_current_xact_id()::text::int8 << 16) | (nextval('end_numbers') & 65535)
$$;

-- The end as the life of a task calls it.
CREATE OR REPLACE FUNCTION outcome_word(p_outcome text, p_code int8) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_outcome <> 'done' THEN p_outcome
        ELSE CASE p_code WHEN 0 THEN 'success' WHEN 124 THEN 'timeout' ELSE 'failure' END END
$$;

-- How long an attempt was out, in milliseconds: as far as whole seconds tell, where that was not noted.
CREATE OR REPLACE FUNCTION out_for(p_attempt attempts, p_finished int8, p_took int8) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(coalesce(p_took, (p_finished - p_attempt.started_ms / 1000) * 1000), 0)
$$;

-- From the start of its key before to its own, in seconds; NULL: it was the first one.
CREATE OR REPLACE FUNCTION revisit_of(p_attempt attempts) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_attempt.prev_started IS NOT NULL
        THEN greatest(p_attempt.started_ms / 1000 - p_attempt.prev_started, 0) END
$$;

-- So many more attempts of a fetcher (NULL: it is gone) ended so in that hour. What is taken back may have been counted of a
-- fetcher that is gone since: then of the first one that has any.
CREATE OR REPLACE FUNCTION count_hour(p_finished int8, p_fetcher text, p_outcome text, p_jobs int8, p_took_ms int8,
    p_revisits int8, p_revisit_seconds int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_fetcher text := coalesce(p_fetcher, '');
BEGIN
    IF p_jobs < 0 THEN
        SELECT fetcher INTO v_fetcher FROM (SELECT v_fetcher AS fetcher, 2 AS rank UNION ALL
            SELECT fetcher, (fetcher <> v_fetcher)::int4 FROM hours WHERE hour = p_finished / 3600 AND outcome = p_outcome
                GROUP BY fetcher HAVING sum(jobs) > 0) AS known ORDER BY rank, fetcher COLLATE "C" LIMIT 1;
    END IF;
    INSERT INTO hours AS h VALUES (p_finished / 3600, v_fetcher, p_outcome, pg_backend_pid(), p_finished / 60, p_jobs,
        p_took_ms, p_revisits, p_revisit_seconds)
    ON CONFLICT (hour, fetcher, outcome, backend, minute) DO UPDATE SET jobs = h.jobs + excluded.jobs,
        took_ms = h.took_ms + excluded.took_ms, revisits = h.revisits + excluded.revisits,
        revisit_seconds = h.revisit_seconds + excluded.revisit_seconds;
END $$;

-- Ends that the daemon is told of with the answers of its call: [fetcher, outcome, milliseconds, seconds since its key's start
-- before], each behind a comma.
CREATE OR REPLACE FUNCTION tell_ends(p_ends jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('shiftboss.ends',
        coalesce(current_setting('shiftboss.ends', true), '') || ',' || substr(p_ends::text, 2, length(p_ends::text) - 2), true);
END $$;

-- An attempt ended, or, with p_times -1, did not end as was recorded. Its number.
CREATE OR REPLACE FUNCTION note_end(p_attempt attempts, p_outcome text, p_code int8, p_finished int8, p_took int8, p_times int8)
RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
    v_ended int8; v_fetcher text; v_word text := outcome_word(p_outcome, p_code);
    v_took int8 := out_for(p_attempt, p_finished, p_took); v_revisit int8 := revisit_of(p_attempt);
BEGIN
    SELECT name INTO v_fetcher FROM fetchers WHERE fetcher = p_attempt.fetcher;
    PERFORM count_hour(p_finished, v_fetcher, v_word, p_times, p_times * v_took,
        p_times * (v_revisit IS NOT NULL)::int4, p_times * coalesce(v_revisit, 0));
    IF p_times < 0 THEN
        DELETE FROM ends WHERE ended = p_attempt.ended;
        RETURN NULL;
    END IF;
    v_ended := next_end();
    INSERT INTO ends VALUES (v_ended, p_attempt.attempt);
    PERFORM tell_ends(jsonb_build_array(jsonb_build_array(coalesce(v_fetcher, ''), v_word, v_took, v_revisit)));
    RETURN v_ended;
END $$;
