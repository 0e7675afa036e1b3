-- Tasks that failed and are tried again by themselves: rows of `bumps` with the time when each is due, until it waits again; then it goes
-- with the bumped keys, behind them. While a task is delayed its row stays dispatched, or the single task failed. Of a key one task at a
-- time is tried again. Called with the key's row in `log` locked.

-- So often a task was tried again by itself.
CREATE OR REPLACE FUNCTION retried(p_key int8, p_fetcher int4, p_run int8) RETURNS int4 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT retries FROM bumps WHERE key_id = p_key AND kind = 'retry' AND fetcher = p_fetcher AND run_started = p_run), 0);
END $$;

-- Whether a task has failed, and no newer list has replaced it.
CREATE OR REPLACE FUNCTION has_failed(p_key int8, p_fetcher int4, p_run int8) RETURNS bool LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_fetcher = 0 THEN
        RETURN EXISTS (SELECT FROM single_tasks WHERE task = p_run AND status = 'failed');
    END IF;
    RETURN EXISTS (SELECT FROM queue WHERE key_id = p_key AND fetcher = p_fetcher AND run_started = p_run AND dispatched)
        AND NOT EXISTS (SELECT FROM queue WHERE key_id = p_key AND fetcher = p_fetcher AND run_started > p_run);
END $$;

-- Whether a failed task is delayed: its rule (actors/src/store/failures.rs) has retries left. Its end is recorded by now.
CREATE OR REPLACE FUNCTION delay(p_key int8, p_fetcher int4, p_run int8, p_retried int4, p_code int8, p_now int8) RETURNS bool
LANGUAGE plpgsql AS $$
DECLARE v_rule retry_rules; v_name text; v_delay int8;
BEGIN
    SELECT name INTO v_name FROM fetchers WHERE fetcher = p_fetcher;
    SELECT * INTO v_rule FROM retry_rules
        WHERE fetcher = v_name OR fetcher = CASE WHEN p_fetcher <> 0 THEN '' END ORDER BY fetcher <> '' DESC LIMIT 1;
    IF v_rule.most IS NULL OR p_retried >= v_rule.most OR p_code = 0 OR (p_code = ANY (v_rule.codes)) <> v_rule.is_listed
            OR NOT has_failed(p_key, p_fetcher, p_run) THEN
        RETURN false;
    END IF;
    v_delay := jittered(p_key, v_rule.delays[least(p_retried + 1, cardinality(v_rule.delays))]);
    INSERT INTO bumps (key_id, since, bumped_by, kind, due, fetcher, run_started, retries)
        VALUES (p_key, p_now, 'job_retry', 'retry', p_now + v_delay, p_fetcher, p_run, p_retried + 1)
        ON CONFLICT (key_id) DO NOTHING;
    RETURN FOUND;
END $$;

-- A delayed task of the key is tried again no more: somebody puts it back. With a fetcher's name only if it is that one's.
CREATE OR REPLACE FUNCTION forget_delay(p_key int8, p_fetcher text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM bumps WHERE key_id = p_key AND due IS NOT NULL AND (p_fetcher IS NULL OR fetcher =
        CASE p_fetcher WHEN '@tasks' THEN 0 ELSE (SELECT f.fetcher FROM fetchers f WHERE f.name = p_fetcher) END);
END $$;

-- A fetcher's newer list names these keys, or its single tasks are cancelled: earlier tasks are not tried again.
CREATE OR REPLACE FUNCTION forget_earlier(p_keys int8[], p_fetcher int4, p_newer int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM bumps) THEN
        DELETE FROM bumps WHERE key_id = ANY (p_keys) AND kind = 'retry' AND attempt IS NULL AND fetcher = p_fetcher
            AND run_started < p_newer;
    END IF;
END $$;

-- A key is handed out: it is bumped no longer, unless that is taken back. A task that is tried again stays in the lane if another one
-- of its key has gone, and it waits still.
CREATE OR REPLACE FUNCTION bump_goes_out(p_key int8, p_fetcher int4, p_run int8, p_attempt int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bumps SET attempt = p_attempt WHERE key_id = p_key AND attempt IS NULL AND due IS NULL
        AND (kind = 'bump' OR fetcher = p_fetcher AND run_started = p_run);
    DELETE FROM bumps b WHERE key_id = p_key AND kind = 'retry' AND attempt IS NULL AND due IS NULL
        AND NOT CASE b.fetcher WHEN 0 THEN EXISTS (SELECT FROM single_tasks WHERE task = b.run_started AND status = 'waiting')
            ELSE EXISTS (SELECT FROM queue q WHERE q.key_id = p_key AND q.fetcher = b.fetcher AND q.run_started = b.run_started
                AND NOT q.dispatched) END;
END $$;

-- Delayed tasks whose time has come wait again. What somebody has locked is for the next time.
CREATE OR REPLACE FUNCTION end_delays(p_limit int8, p_max_expired int4, p_now int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_key int8;
BEGIN
    FOR v_key IN SELECT key_id FROM log WHERE key_id = ANY (ARRAY(SELECT key_id FROM bumps WHERE due <= p_now
            ORDER BY due LIMIT p_limit)) ORDER BY key_id FOR NO KEY UPDATE SKIP LOCKED LOOP
        PERFORM end_delay(v_key, b.fetcher, b.run_started, p_max_expired, p_now, p_lease)
            FROM bumps b WHERE b.key_id = v_key AND b.due <= p_now;
    END LOOP;
END $$;

-- One that was replaced meanwhile, put back or taken out, is not tried again.
CREATE OR REPLACE FUNCTION end_delay(p_key int8, p_fetcher int4, p_run int8, p_max_expired int4, p_now int8, p_lease int8) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE v_run int4;
BEGIN
    IF NOT has_failed(p_key, p_fetcher, p_run) OR p_fetcher <> 0 AND EXISTS (SELECT FROM deliveries(p_key) WHERE fetcher = p_fetcher) THEN
        PERFORM forget_delay(p_key, NULL);
    ELSE
        UPDATE bumps SET due = NULL, since = p_now WHERE key_id = p_key;
        IF p_fetcher = 0 THEN
            PERFORM retry_task(p_key, p_run, p_max_expired, p_lease);
        ELSE
            UPDATE queue SET dispatched = false WHERE key_id = p_key AND fetcher = p_fetcher AND run_started = p_run RETURNING run INTO v_run;
            PERFORM count_rows(v_run, 0, 1);
        END IF;
    END IF;
    PERFORM refresh(p_key, p_now, p_lease);
END $$;

-- A single task that failed waits again.
CREATE OR REPLACE FUNCTION retry_task(p_key int8, p_task int8, p_max_expired int4, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM queue WHERE run = 0 AND key_id = p_key AND run_started = p_task) THEN
        PERFORM remove_row(p_key, 0, p_lease);
    END IF;
    UPDATE single_tasks SET status = 'waiting' WHERE task = p_task;
    PERFORM count_tasks(0, -1);
    PERFORM derive_row(p_key, p_max_expired, p_lease);
END $$;
