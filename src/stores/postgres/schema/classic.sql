-- Jobs of classic workers, whose leases nobody counts: those that are over are found by going through the attempts once, in the
-- order of their numbers, which is the order of their starts unless the server's clock was set back.

-- The clock was set back: classic jobs that are out may have started after later ones. From now on they are looked at by
-- themselves.
CREATE OR REPLACE FUNCTION note_disorder() RETURNS void LANGUAGE sql AS $$
    INSERT INTO disordered SELECT attempt FROM attempts WHERE finished IS NULL AND lease IS NULL ORDER BY attempt
    ON CONFLICT DO NOTHING
$$;

-- Classic attempts that may be overdue: those behind p_after up to the first one whose lease runs, and those that are out of
-- order. More at once than a batch asks for jobs, and few enough for one call. gone_to: how far all were gone through.
-- They are not seen in the order of their numbers, which are given before commits, but by their own daemon: whoever adopts its
-- jobs begins at the first one.
CREATE OR REPLACE FUNCTION find_overdue(p_after int8, p_now int8, p_lease int8, OUT gone_to int8, OUT due int8[], OUT key_ids int8[])
LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts;
BEGIN
    gone_to := p_after;
    SELECT coalesce(array_agg(attempt), '{}'), coalesce(array_agg(key_id), '{}') INTO due, key_ids
        FROM (SELECT a.* FROM disordered d CROSS JOIN LATERAL (SELECT * FROM attempts WHERE attempt = d.attempt OFFSET 0) AS a
            WHERE finished IS NULL AND started_ms / 1000 + p_lease < p_now LIMIT 300) AS found;
    FOR v_attempt IN SELECT * FROM attempts WHERE attempt > p_after ORDER BY attempt LOOP
        IF v_attempt.finished IS NULL AND v_attempt.lease IS NULL
                AND NOT EXISTS (SELECT FROM disordered WHERE attempt = v_attempt.attempt) THEN
            EXIT WHEN v_attempt.started_ms / 1000 + p_lease >= p_now;
            -- One that is overdue already may have left the order while the clock was set back, and nobody saw that.
            IF NOT (EXISTS (SELECT FROM overdue WHERE attempt = v_attempt.attempt) AND is_in_order(v_attempt.key_id)) THEN
                due := due || v_attempt.attempt;
                key_ids := key_ids || v_attempt.key_id;
            END IF;
        END IF;
        gone_to := v_attempt.attempt;
        EXIT WHEN cardinality(due) >= 300;
    END LOOP;
END $$;

-- Those are ready again. more: there may be more to do now.
CREATE OR REPLACE FUNCTION expire_classic(p_after int8, p_now int8, p_lease int8, OUT gone_to int8, OUT more bool) LANGUAGE plpgsql AS $$
DECLARE v_due int8[]; v_keys int8[]; v_new int8; v_key int8;
BEGIN
    SELECT f.gone_to, f.due, f.key_ids INTO gone_to, v_due, v_keys FROM find_overdue(p_after, p_now, p_lease) AS f;
    more := cardinality(v_due) >= 300;
    PERFORM FROM log WHERE key_id = ANY (v_keys) ORDER BY key_id FOR NO KEY UPDATE;
    WITH new AS (INSERT INTO overdue SELECT attempt, key_id FROM attempts WHERE attempt = ANY (v_due) AND finished IS NULL
            ON CONFLICT DO NOTHING RETURNING 1)
        SELECT count(*) INTO v_new FROM new;
    PERFORM count_out(-v_new);
    FOR v_key IN SELECT DISTINCT u FROM unnest(v_keys) AS u LOOP
        PERFORM refresh(v_key, p_now, p_lease);
    END LOOP;
    DELETE FROM disordered WHERE ctid = ANY (ARRAY(SELECT d.ctid FROM disordered d WHERE attempt = ANY (v_due)
        OR NOT EXISTS (SELECT FROM attempts a WHERE a.attempt = d.attempt AND finished IS NULL) FOR UPDATE SKIP LOCKED));
END $$;

-- Keys in flight by their log rows alone are free, too, when the lease is over: those for which that came after p_seen.
CREATE OR REPLACE FUNCTION free_unended(p_seen int8, p_now int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_keys int8[]; v_key int8;
BEGIN
    v_keys := ARRAY(SELECT key_id FROM unended WHERE started >= p_seen - p_lease AND started < p_now - p_lease ORDER BY key_id);
    PERFORM FROM log WHERE key_id = ANY (v_keys) ORDER BY key_id FOR NO KEY UPDATE;
    FOREACH v_key IN ARRAY v_keys LOOP
        PERFORM refresh(v_key, p_now, p_lease);
    END LOOP;
END $$;
