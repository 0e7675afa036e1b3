-- Keys that operators or backoff hold: such a key has no place in the order, and is not plain (rule.sql).

-- An operator holds a key, in place of his earlier hold of it. NULL: there are p_max already.
CREATE OR REPLACE FUNCTION hold(p_key bytea, p_jitter int4, p_seconds int8, p_reason text, p_by text, p_max int8, p_now int8,
    p_lease int8) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE v_key int8 := lock_key(p_key, p_jitter, true); v_until int8 := p_now + p_seconds; v_replaced jsonb;
BEGIN
    SELECT jsonb_build_object('kind', kind, 'since', since, 'until', until, 'reason', reason, 'by', held_by) INTO v_replaced
        FROM holds WHERE key_id = v_key AND kind = 'hold';
    UPDATE holds SET since = p_now, until = v_until, reason = p_reason, held_by = p_by WHERE key_id = v_key AND kind = 'hold';
    IF NOT FOUND THEN
        IF (SELECT count(*) FROM holds WHERE kind = 'hold') >= p_max THEN
            RETURN NULL;
        END IF;
        INSERT INTO holds VALUES (v_key, 'hold', p_now, v_until, p_reason, p_by);
        PERFORM refresh(v_key, p_now, p_lease);
    END IF;
    RETURN jsonb_build_object('until', v_until, 'replaced', v_replaced, 'is_known', EXISTS (SELECT FROM queue WHERE key_id = v_key)
        OR EXISTS (SELECT FROM log WHERE key_id = v_key AND started IS NOT NULL));
END $$;

-- Whoever holds it; whether it was held. What was counted of its failures stays. Called with the key's row in `log` locked.
CREATE OR REPLACE FUNCTION unhold(p_key int8, p_now int8, p_lease int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holds WHERE key_id = p_key;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM refresh(p_key, p_now, p_lease);
    RETURN true;
END $$;

-- Ends holds whose time is over. What somebody has locked is for the next time, so this waits for nobody.
CREATE OR REPLACE FUNCTION end_holds(p_limit int8, p_now int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_key int8;
BEGIN
    FOR v_key IN SELECT key_id FROM log WHERE key_id = ANY (ARRAY(SELECT key_id FROM holds WHERE until < p_now
            ORDER BY until LIMIT p_limit)) ORDER BY key_id FOR NO KEY UPDATE SKIP LOCKED LOOP
        -- Somebody may have made it longer meanwhile.
        DELETE FROM holds WHERE key_id = v_key AND until < p_now;
        PERFORM refresh(v_key, p_now, p_lease) WHERE FOUND;
    END LOOP;
END $$;
