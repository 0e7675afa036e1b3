-- Jobs that failed: whether their tasks are tried again (retries.sql); and keys whose jobs fail again and again: how often in a row, and
-- the holds that come of it, beside those of operators. The rules are those of actors/src/store/failures.rs; whoever records the end of
-- a job tells here, once, with the key's row in `log` locked.

-- Up to a tenth more or less by the key's jitter.
CREATE OR REPLACE FUNCTION jittered(p_key int8, p_delay int8) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p_delay + p_delay * (SELECT jitter FROM keys WHERE key_id = p_key) / 21474836480;
END $$;

-- A job of the key ended, and that is recorded; of a task, if it is known. Whether the key is to be refreshed.
CREATE OR REPLACE FUNCTION settle(p_key int8, p_fetcher int4, p_run int8, p_retried int4, p_code int8, p_now int8) RETURNS bool
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM bumps WHERE key_id = p_key AND kind = 'retry' AND fetcher = p_fetcher AND run_started = p_run;
    IF p_code <> 0 AND p_fetcher IS NOT NULL AND delay(p_key, p_fetcher, p_run, p_retried, p_code, p_now) THEN
        RETURN true;
    END IF;
    RETURN count_end(p_key, p_code, p_now);
END $$;

-- An end of a key's job, of a task that is not tried again. Whether the key is to be refreshed.
CREATE OR REPLACE FUNCTION count_end(p_key int8, p_code int8, p_now int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_rule backoff_rule; v_failures int8; v_delay int8;
BEGIN
    SELECT * INTO v_rule FROM backoff_rule;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF p_code = 0 OR (p_code = ANY (v_rule.codes)) <> v_rule.is_listed THEN
        DELETE FROM backoff_counts WHERE key_id = p_key;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        DELETE FROM holds WHERE key_id = p_key AND kind = 'backoff';
        RETURN FOUND;
    END IF;
    INSERT INTO backoff_counts AS c VALUES (p_key, 1) ON CONFLICT (key_id) DO UPDATE SET failures = c.failures + 1
        RETURNING failures INTO v_failures;
    IF v_failures < v_rule.after THEN
        RETURN false;
    END IF;
    v_delay := v_rule.delays[least(v_failures - v_rule.after + 1, cardinality(v_rule.delays))];
    v_delay := jittered(p_key, v_delay);
    INSERT INTO holds VALUES (p_key, 'backoff', p_now, p_now + v_delay,
            CASE v_failures WHEN 1 THEN 'failed' ELSE 'failed ' || v_failures || ' times in a row' END, 'backoff')
        ON CONFLICT (key_id, kind) DO UPDATE SET since = excluded.since, until = excluded.until, reason = excluded.reason;
    RETURN true;
END $$;

-- The same of plain keys' jobs; which keys are to be refreshed. Their tasks were not tried again before.
CREATE OR REPLACE FUNCTION settle_ends(p_keys int8[], p_attempts int8[], p_codes int8[], p_now int8) RETURNS SETOF int8
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM backoff_rule) OR EXISTS (SELECT FROM retry_rules WHERE fetcher <> '@tasks') THEN
        RETURN QUERY SELECT u.key_id FROM unnest(p_keys, p_attempts, p_codes) AS u (key_id, attempt, code)
            CROSS JOIN LATERAL (SELECT fetcher, run_started FROM attempts a WHERE a.attempt = u.attempt OFFSET 0) AS task
            WHERE (code <> 0 OR EXISTS (SELECT FROM backoff_counts c WHERE c.key_id = u.key_id))
                AND settle(u.key_id, task.fetcher, task.run_started, 0, code, p_now);
    END IF;
END $$;
