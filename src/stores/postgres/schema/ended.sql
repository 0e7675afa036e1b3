-- Forgetting attempts that ended long ago. Under a snapshot that stays open their dead rows stay, too: so each step goes on where
-- the last one ended, over so many numbers.

-- Deletes attempts that ended, but for the last p_keep ones, in a step over p_limit numbers; whether there may be more. One that
-- is committed after so many later ones is kept. And puts counts together. One daemon at a time does it.
CREATE OR REPLACE FUNCTION forget_ended(p_daemon int4, p_epoch int8, p_keep int8, p_limit int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_from int8; v_to int8;
BEGIN
    PERFORM fence(p_daemon, p_epoch);
    PERFORM fold_counts();
    SELECT attempt INTO v_from FROM forgotten FOR UPDATE SKIP LOCKED;
    SELECT least(v_from + p_limit, last_value - p_keep) INTO v_to FROM attempt_numbers;
    IF v_to > v_from THEN
        PERFORM forget_attempts(ARRAY(SELECT attempt FROM attempts WHERE attempt > v_from AND attempt <= v_to));
        INSERT INTO passed_over SELECT attempt FROM attempts WHERE attempt > v_from AND attempt <= v_to;
        UPDATE forgotten SET attempt = v_to;
        RETURN true;
    ELSIF v_from IS NOT NULL THEN
        PERFORM forget_passed_over(p_limit);
    END IF;
    RETURN false;
END $$;

-- Those that have ended meanwhile.
CREATE OR REPLACE FUNCTION forget_passed_over(p_limit int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_ended int8[];
BEGIN
    v_ended := ARRAY(SELECT p.attempt FROM passed_over p CROSS JOIN LATERAL
        (SELECT finished FROM attempts WHERE attempt = p.attempt OFFSET 0) AS a WHERE finished IS NOT NULL LIMIT p_limit);
    PERFORM forget_attempts(v_ended);
    DELETE FROM passed_over p WHERE attempt = ANY (v_ended) AND NOT EXISTS (SELECT FROM attempts a WHERE a.attempt = p.attempt);
END $$;

-- Deletes those of these attempts that ended, and that nobody has locked.
CREATE OR REPLACE FUNCTION forget_attempts(p_attempts int8[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_keys int8[];
BEGIN
    WITH gone AS (DELETE FROM attempts WHERE attempt = ANY (ARRAY(SELECT attempt FROM attempts
            WHERE attempt = ANY (p_attempts) AND finished IS NOT NULL ORDER BY attempt FOR UPDATE SKIP LOCKED)) RETURNING key_id, ended),
        numbers AS (DELETE FROM ends WHERE ended = ANY (ARRAY(SELECT ended FROM gone)))
        SELECT array_agg(DISTINCT key_id) INTO v_keys FROM gone;
    DELETE FROM failures WHERE key_id = ANY (v_keys);
    INSERT INTO failures SELECT key_id FROM log WHERE key_id = ANY (v_keys) AND exit_code <> 0 AND finished IS NOT NULL
        ORDER BY key_id ON CONFLICT DO NOTHING;
END $$;
