-- Forgetting a key that nothing lists. Its id stays, as that of a key that never ran.

-- 'forgotten', 'listed', 'in_flight', or 'unknown'. Called with the key's row in `log` locked.
CREATE OR REPLACE FUNCTION forget_key(p_key int8, p_now int8, p_lease int8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_log log; v_other attempts; v_attempts int8[]; v_is_known bool;
BEGIN
    SELECT * INTO v_log FROM log WHERE key_id = p_key;
    IF EXISTS (SELECT FROM queue WHERE key_id = p_key) THEN
        RETURN 'listed';
    ELSIF v_log.started IS NOT NULL AND v_log.finished IS NULL AND v_log.started >= p_now - p_lease
            OR EXISTS (SELECT FROM deliveries(p_key) WHERE lease IS NOT NULL OR started_ms / 1000 >= p_now - p_lease) THEN
        RETURN 'in_flight';
    END IF;
    v_is_known := v_log.started IS NOT NULL OR v_log.last IS NOT NULL OR EXISTS (SELECT FROM holds WHERE key_id = p_key);
    IF v_is_known IS NOT TRUE THEN
        RETURN 'unknown';
    END IF;
    FOR v_other IN SELECT * FROM deliveries(p_key) LOOP
        PERFORM end_expired(v_other, p_lease);
    END LOOP;
    v_attempts := ARRAY(WITH RECURSIVE chain AS (
            SELECT a.attempt, a.prev_last FROM attempts a WHERE attempt = v_log.last AND key_id = p_key
            UNION ALL SELECT a.attempt, a.prev_last FROM chain c CROSS JOIN LATERAL (
                SELECT * FROM attempts WHERE attempt = c.prev_last OFFSET 0) AS a)
        SELECT attempt FROM chain);
    WITH gone AS (DELETE FROM attempts WHERE attempt = ANY (v_attempts) RETURNING ended)
        DELETE FROM ends WHERE ended = ANY (ARRAY(SELECT ended FROM gone));
    DELETE FROM passed_over WHERE attempt = ANY (v_attempts);
    DELETE FROM disordered WHERE attempt = ANY (v_attempts);
    DELETE FROM failures WHERE key_id = p_key;
    DELETE FROM last_served WHERE key_id = p_key;
    DELETE FROM holds WHERE key_id = p_key;
    DELETE FROM backoff_counts WHERE key_id = p_key;
    PERFORM unready(p_key);
    UPDATE log SET started = NULL, finished = NULL, exit_code = NULL, attempt = NULL, last = NULL WHERE key_id = p_key;
    PERFORM refresh(p_key, p_now, p_lease);
    RETURN 'forgotten';
END $$;
