-- Keys that operators bump, and tasks that are tried again: such a key is not plain (rule.sql), keeps its place in the order, and goes before it as far as the
-- credit allows (actors/src/store/bumps.rs has the same rule).

-- Has a key run soon. Called with its row in `log` locked. before: so many go before it; NULL: why it is not bumped.
CREATE OR REPLACE FUNCTION bump(p_key int8, p_by text, p_max int8, p_max_expired int4, p_now int8, p_lease int8,
    OUT answer text, OUT before int8) LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM queue WHERE key_id = p_key) THEN
        answer := 'unknown';
    ELSIF EXISTS (SELECT FROM holds WHERE key_id = p_key) THEN
        answer := 'held';
    ELSE
        IF NOT EXISTS (SELECT FROM bumps WHERE key_id = p_key AND kind = 'bump' AND attempt IS NULL) THEN
            IF (SELECT count(*) FROM bumps WHERE kind = 'bump' AND attempt IS NULL AND due IS NULL) >= p_max THEN
                answer := 'full';
                RETURN;
            END IF;
            -- One whose earlier hand-out has not ended is bumped anew, and so is one that is tried again.
            DELETE FROM bumps WHERE key_id = p_key;
            INSERT INTO bumps (key_id, since, bumped_by) VALUES (p_key, p_now, p_by);
        END IF;
        PERFORM arm(p_key, NULL, p_max_expired, p_now, p_lease);
        before := (SELECT count(*) FROM bumps WHERE kind = 'bump' AND attempt IS NULL AND due IS NULL
            AND place < (SELECT place FROM bumps WHERE key_id = p_key));
    END IF;
END $$;

-- A job of the key ended: one that was bumped meanwhile runs once more.
CREATE OR REPLACE FUNCTION arm_if_bumped(p_key int8, p_now int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM bumps WHERE key_id = p_key AND kind = 'bump' AND attempt IS NULL) THEN
        PERFORM arm(p_key, NULL, 0, p_now, p_lease);
    END IF;
END $$;

-- Whether the key could be handed out.
CREATE OR REPLACE FUNCTION may_go(p_key int8, p_now int8, p_lease int8) RETURNS bool LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN is_in_order(p_key) AND EXISTS (SELECT FROM log
        WHERE key_id = p_key AND (finished IS NOT NULL OR started IS NULL OR started + p_lease < p_now));
END $$;

-- Hands the first bumped key out that could go, to the first of those that ask; NULL: there is none.
CREATE OR REPLACE FUNCTION claim_bumped(p_asked asked) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE v_key int8; v_now int8 := p_asked.now_ms / 1000; v_job outcome;
BEGIN
    -- As may_go has it, for all of them at once.
    FOR v_key IN SELECT b.key_id
            FROM (SELECT * FROM bumps WHERE attempt IS NULL AND due IS NULL ORDER BY kind, place LIMIT 1000) AS b
            CROSS JOIN LATERAL (SELECT * FROM log WHERE key_id = b.key_id OFFSET 0) AS l
            CROSS JOIN LATERAL (SELECT place FROM keys WHERE key_id = b.key_id OFFSET 0) AS k
            CROSS JOIN LATERAL (SELECT FROM ready r WHERE r.started = coalesce(l.started, -1) AND r.place = k.place
                AND r.key_id = b.key_id OFFSET 0) AS r
            WHERE l.finished IS NOT NULL OR l.started IS NULL OR l.started + p_asked.lease < v_now
            ORDER BY b.kind, b.place LOOP
        PERFORM FROM log WHERE key_id = v_key FOR NO KEY UPDATE SKIP LOCKED;
        -- Somebody may have handed it out before it was locked.
        IF FOUND AND may_go(v_key, v_now, p_asked.lease)
                AND EXISTS (SELECT FROM bumps WHERE key_id = v_key AND attempt IS NULL AND due IS NULL) THEN
            v_job := hand_out(p_asked, 1, v_key, nextval('attempt_numbers'));
            IF v_job.ord IS NOT NULL THEN
                PERFORM count_out(1);
                RETURN v_job;
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Whether a look of this connection in this second found no bumped key that could go, and nobody made a key ready since.
CREATE OR REPLACE FUNCTION is_lane_idle(p_version int8, p_now int8) RETURNS bool LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN current_setting('shiftboss.lane_idle', true) IS NOT DISTINCT FROM p_version || ' ' || p_now
        AND current_setting('shiftboss.made_ready', true) IS DISTINCT FROM 'yes';
END $$;

-- Hands keys out to those that ask: bumped ones as far as the credit allows, else the first ones in order. While another daemon
-- spends the credit the order alone counts here, so that nobody waits; then it grows by less.
CREATE OR REPLACE FUNCTION claim(p_asked asked, p_paused bool, p_ended int8, p_is_last bool) RETURNS outcome[] LANGUAGE plpgsql AS $$
DECLARE v_credit record;
BEGIN
    IF NOT p_paused AND p_asked.ords <> '{}' THEN
        SELECT * INTO v_credit FROM bump_credit
            WHERE share > 0 AND (thousandths < 1000 + share OR EXISTS (SELECT FROM bumps)) FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN claim_with_credit(p_asked, p_ended, p_is_last, v_credit.share, v_credit.thousandths);
        END IF;
    END IF;
    RETURN claim_in_order(p_asked, p_paused, p_ended, p_is_last);
END $$;

CREATE OR REPLACE FUNCTION claim_with_credit(p_asked asked, p_ended int8, p_is_last bool, p_share int4, p_credit int8) RETURNS outcome[]
LANGUAGE plpgsql AS $$
DECLARE
    v_given outcome[] := '{}'; v_answers outcome[]; v_job outcome; v_rest asked := p_asked; v_credit int8 := p_credit;
    v_ended int8 := p_ended; v_goes_on bool; v_count int4; v_version int8; v_now int8 := p_asked.now_ms / 1000;
BEGIN
    SELECT version, NOT is_lane_idle(version, v_now) INTO v_version, v_goes_on FROM floor;
    WHILE v_rest.ords <> '{}' LOOP
        IF v_goes_on AND v_credit >= 1000 THEN
            v_job := claim_bumped(v_rest);
            v_goes_on := v_job.ord IS NOT NULL;
            PERFORM set_config('shiftboss.lane_idle', v_version || ' ' || v_now, false) WHERE NOT v_goes_on;
            v_answers := CASE WHEN v_goes_on THEN ARRAY[v_job] END;
            v_credit := v_credit - CASE WHEN v_goes_on THEN 1000 ELSE 0 END;
        ELSE
            v_answers := NULL;
        END IF;
        IF v_answers IS NULL THEN
            -- As many as pay for the next bumped one.
            v_count := CASE WHEN v_goes_on THEN (999 - v_credit) / p_share + 1 ELSE cardinality(v_rest.ords) END;
            v_answers := claim_in_order(first_ones(v_rest, v_count), false, v_ended,
                p_is_last AND v_count >= cardinality(v_rest.ords));
            v_ended := 0;
            v_goes_on := v_goes_on AND 'job' = ALL (SELECT answer FROM unnest(v_answers));
        END IF;
        v_credit := least(v_credit + p_share * (SELECT count(*) FROM unnest(v_answers) WHERE answer = 'job'),
            1000 + p_share);
        v_given := v_given || v_answers;
        v_rest := without_first(p_asked, cardinality(v_given));
    END LOOP;
    PERFORM count_out(-v_ended) WHERE v_ended <> 0;
    UPDATE bump_credit SET thousandths = v_credit WHERE thousandths <> v_credit;
    RETURN v_given;
END $$;

CREATE OR REPLACE FUNCTION first_ones(p_asked asked, p_count int4) RETURNS asked LANGUAGE sql IMMUTABLE AS $$
    SELECT p_asked.ords[: p_count], p_asked.workers[: p_count], p_asked.job_leases[: p_count], p_asked.daemon,
        p_asked.call, p_asked.now_ms, p_asked.lease
$$;
