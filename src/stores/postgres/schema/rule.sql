-- What a key is to the dispatcher, and the parts of a dispatch that several operations share. Whoever calls these holds
-- the key's row in `log`.

CREATE OR REPLACE FUNCTION now_ms() RETURNS int8 LANGUAGE sql AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8 $$;

-- Functions that are called for each job are in plpgsql where the planner cannot inline them: a function in SQL is planned
-- anew by each call.
CREATE OR REPLACE FUNCTION deleting_runs() RETURNS int4[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(SELECT run FROM runs WHERE deleting);
END $$;

-- The attempts of a key whose end is not known.
CREATE OR REPLACE FUNCTION deliveries(p_key int8) RETURNS SETOF attempts LANGUAGE sql STABLE ROWS 2 AS $$
    SELECT a.* FROM attempts a WHERE a.attempt IN (
        SELECT l.attempt FROM log l WHERE l.key_id = p_key
        UNION SELECT o.attempt FROM overdue o WHERE o.key_id = p_key)
$$;

-- The row of a key that is handed out next: the newest one of its fetcher that was not handed out, or that was and whose
-- lease expired; of several fetchers' the one that was served least recently.
CREATE OR REPLACE FUNCTION choose(p_key int8, p_deleting int4[]) RETURNS SETOF queue LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT q.* FROM queue q
    WHERE q.key_id = p_key AND q.run <> ALL (p_deleting)
        AND NOT EXISTS (SELECT FROM queue newer WHERE newer.key_id = p_key AND newer.fetcher = q.fetcher
            AND newer.run_started > q.run_started AND newer.run <> ALL (p_deleting))
        AND (NOT q.dispatched OR EXISTS (SELECT FROM deliveries(p_key) d
            WHERE d.fetcher = q.fetcher AND d.run_started = q.run_started))
    ORDER BY q.dispatched, q.served NULLS FIRST, q.fetcher LIMIT 1
$$;

-- This transaction made keys ready: claims that go on behind them are to begin anew.
CREATE OR REPLACE FUNCTION note_ready() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('shiftboss.made_ready', 'yes', true);
END $$;

-- The last word of a transaction that may have made keys ready.
CREATE OR REPLACE FUNCTION tell_ready() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('shiftboss.made_ready', true) = 'yes' THEN
        UPDATE floor SET version = version + 1, raised = greatest(raised, now_ms() / 1000);
    END IF;
END $$;

-- The key has no place in the order for now.
CREATE OR REPLACE FUNCTION unready(p_key int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM ready USING log l, keys k
    WHERE l.key_id = p_key AND k.key_id = p_key AND ready.key_id = p_key
        AND ready.started = coalesce(l.started, -1) AND ready.place = k.place;
END $$;

-- The same of many keys.
CREATE OR REPLACE FUNCTION unready_all(p_keys int8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM unnest(p_keys) AS u
        CROSS JOIN LATERAL (SELECT started FROM log WHERE key_id = u OFFSET 0) AS l
        CROSS JOIN LATERAL (SELECT place FROM keys WHERE key_id = u OFFSET 0) AS k
        CROSS JOIN LATERAL (SELECT ctid FROM ready
            WHERE started = coalesce(l.started, -1) AND place = k.place AND key_id = u OFFSET 0) AS r));
END $$;

-- Whether the key has a place in the order.
CREATE OR REPLACE FUNCTION is_in_order(p_key int8) RETURNS bool LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM log l, keys k, ready r WHERE l.key_id = p_key AND k.key_id = p_key AND r.key_id = p_key
        AND r.started = coalesce(l.started, -1) AND r.place = k.place);
END $$;

-- The run of the key's only row; NULL: it has several.
CREATE OR REPLACE FUNCTION only_run(p_key int8) RETURNS int4 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT CASE count(*) WHEN 1 THEN min(run) END FROM queue WHERE key_id = p_key);
END $$;

-- Derives a key's place in the order, and whether it is plain, from all that is known of it.
CREATE OR REPLACE FUNCTION refresh(p_key int8, p_now int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_log log; v_deleting int4[] := deleting_runs(); v_rows int8; v_simple bool; v_is_ready bool; v_open attempts;
BEGIN
    PERFORM unready(p_key);
    -- Of a delayed one that is seen when it is due.
    DELETE FROM bumps WHERE key_id = p_key AND due IS NULL AND NOT EXISTS (SELECT FROM queue WHERE key_id = p_key);
    SELECT * INTO STRICT v_log FROM log WHERE key_id = p_key;
    v_is_ready := (v_log.started IS NULL OR v_log.finished IS NOT NULL OR v_log.started + p_lease < p_now)
        AND NOT EXISTS (SELECT FROM deliveries(p_key) WHERE lease IS NOT NULL)
        AND NOT EXISTS (SELECT FROM holds WHERE key_id = p_key)
        AND EXISTS (SELECT FROM choose(p_key, v_deleting));
    IF v_is_ready THEN
        INSERT INTO ready SELECT coalesce(v_log.started, -1), place, p_key, only_run(p_key) FROM keys WHERE key_id = p_key;
        PERFORM note_ready();
    END IF;
    SELECT * INTO v_open FROM attempts WHERE attempt = v_log.attempt;
    DELETE FROM unended WHERE key_id = p_key;
    INSERT INTO unended SELECT p_key, v_log.started
        WHERE v_log.started IS NOT NULL AND v_log.finished IS NULL AND v_open.attempt IS NULL;
    SELECT count(*), coalesce(bool_and(expired = 0 AND NOT dead AND fetcher <> 0 AND run <> ALL (v_deleting)
            AND (v_open.attempt IS NULL
                OR dispatched AND fetcher = v_open.fetcher AND run_started = v_open.run_started)), true)
        INTO v_rows, v_simple FROM queue WHERE key_id = p_key;
    v_simple := v_simple AND NOT EXISTS (SELECT FROM overdue WHERE key_id = p_key)
        AND NOT EXISTS (SELECT FROM holds WHERE key_id = p_key)
        AND NOT EXISTS (SELECT FROM bumps WHERE key_id = p_key)
        AND (v_rows = 1 OR v_rows = 0 AND v_open.attempt IS NULL)
        AND (v_open.attempt IS NOT NULL OR v_log.started IS NULL OR v_log.finished IS NOT NULL);
    UPDATE log SET plain = v_simple WHERE key_id = p_key AND plain <> v_simple;
END $$;

-- A delivery is none any more.
CREATE OR REPLACE FUNCTION end_delivery(p_attempt attempts, p_outcome text, p_code int8, p_finished int8, p_took int8)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE attempts SET finished = p_finished, outcome = p_outcome, exit_code = p_code, took_ms = p_took,
            ended = note_end(p_attempt, p_outcome, p_code, p_finished, p_took, 1)
        WHERE attempt = p_attempt.attempt;
    DELETE FROM bumps WHERE attempt = p_attempt.attempt;
    DELETE FROM overdue WHERE attempt = p_attempt.attempt;
    PERFORM count_out(-1) WHERE NOT FOUND;
    UPDATE log SET attempt = (SELECT max(attempt) FROM overdue WHERE key_id = p_attempt.key_id)
        WHERE key_id = p_attempt.key_id AND attempt = p_attempt.attempt;
END $$;

-- One whose lease expired at some time, and that cannot come again.
CREATE OR REPLACE FUNCTION end_expired(p_attempt attempts, p_lease int8) RETURNS void LANGUAGE sql AS $$
    SELECT end_delivery(p_attempt, 'expired', NULL, p_attempt.started_ms / 1000 + p_lease, NULL)
$$;

-- When a fetcher was last served with a key.
CREATE OR REPLACE FUNCTION served(p_key int8, p_fetcher int4) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT max(served) FROM queue WHERE key_id = p_key AND fetcher = p_fetcher),
        (SELECT attempt FROM last_served JOIN fetchers USING (name) WHERE key_id = p_key AND fetcher = p_fetcher));
END $$;

-- Keeps that for when there is no such row.
CREATE OR REPLACE FUNCTION keep_served(p_key int8, p_fetcher int4, p_attempt int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO last_served SELECT p_key, name, p_attempt FROM fetchers
    WHERE fetcher = p_fetcher AND p_attempt IS NOT NULL
        AND NOT EXISTS (SELECT FROM queue WHERE key_id = p_key AND fetcher = p_fetcher)
    ON CONFLICT (key_id, name) DO UPDATE SET attempt = excluded.attempt;
END $$;

-- Takes a dispatch back, whatever was done to its log row meanwhile. With p_rearm its rows wait again.
CREATE OR REPLACE FUNCTION take_back(p_attempt attempts, p_outcome text, p_rearm bool, p_now_ms int8, p_lease int8)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_key int8 := p_attempt.key_id; v_run int4;
BEGIN
    IF p_rearm THEN
        FOR v_run IN UPDATE queue SET dispatched = false WHERE key_id = v_key AND fetcher = p_attempt.fetcher
                AND dispatched AND run_started = ANY (coalesce(p_attempt.marked, ARRAY[p_attempt.run_started]))
                RETURNING run LOOP
            PERFORM count_rows(v_run, 0, 1);
        END LOOP;
        UPDATE bumps SET attempt = NULL, last_attempt = p_attempt.attempt WHERE attempt = p_attempt.attempt;
    END IF;
    UPDATE queue SET served = p_attempt.prev_served WHERE key_id = v_key AND served = p_attempt.attempt;
    UPDATE last_served SET attempt = p_attempt.prev_served
        WHERE key_id = v_key AND attempt = p_attempt.attempt AND p_attempt.prev_served IS NOT NULL;
    DELETE FROM last_served WHERE key_id = v_key AND attempt = p_attempt.attempt;
    PERFORM unready(v_key);
    UPDATE log SET started = p_attempt.prev_started, finished = p_attempt.prev_finished,
            exit_code = p_attempt.prev_exit_code
        WHERE key_id = v_key AND finished IS NULL AND started = p_attempt.started_ms / 1000;
    UPDATE log SET last = p_attempt.prev_last
        WHERE key_id = v_key AND last = p_attempt.attempt AND p_outcome = 'undone';
    PERFORM end_delivery(p_attempt, p_outcome, NULL,
        CASE p_outcome WHEN 'undone' THEN p_attempt.started_ms ELSE p_now_ms END / 1000,
        CASE WHEN p_outcome <> 'undone' THEN greatest(p_now_ms - p_attempt.started_ms, 0) END);
    PERFORM refresh(v_key, p_now_ms / 1000, p_lease);
END $$;

-- The id of a key, made if it is not known, and its row in `log` locked.
CREATE OR REPLACE FUNCTION lock_key(p_key bytea, p_jitter int4, p_make bool) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE v_key int8;
BEGIN
    SELECT key_id INTO v_key FROM keys WHERE jitter = p_jitter AND sha256(key) = sha256(p_key);
    IF v_key IS NULL AND p_make THEN
        PERFORM make_keys(ARRAY[p_key], ARRAY[p_jitter]);
        SELECT key_id INTO v_key FROM keys WHERE jitter = p_jitter AND sha256(key) = sha256(p_key);
    END IF;
    PERFORM FROM log WHERE key_id = v_key FOR NO KEY UPDATE;
    RETURN v_key;
END $$;

-- Makes keys that are not known.
CREATE OR REPLACE FUNCTION make_keys(p_keys bytea[], p_jitters int4[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_jitters int4[]; v_jitter int4;
BEGIN
    WITH made AS (
        INSERT INTO keys (key, jitter, place)
        SELECT n.key, n.jitter, (n.jitter::int8 + 2147483648) << 16
        FROM (SELECT DISTINCT jitter, key FROM unnest(p_keys, p_jitters) AS u (key, jitter)) n
        LEFT JOIN LATERAL (SELECT key_id FROM keys k WHERE k.jitter = n.jitter AND sha256(k.key) = sha256(n.key) OFFSET 0)
            AS known ON true WHERE known.key_id IS NULL
        ORDER BY n.jitter, n.key
        ON CONFLICT (jitter, sha256(key)) DO NOTHING
        RETURNING key_id, jitter),
    logged AS (INSERT INTO log (key_id) SELECT key_id FROM made ORDER BY key_id)
    SELECT array_agg(jitter) INTO v_jitters FROM made;
    FOR v_jitter IN SELECT jitter FROM keys WHERE jitter = ANY (v_jitters) GROUP BY jitter HAVING count(*) > 1 LOOP
        PERFORM number_ties(v_jitter);
    END LOOP;
END $$;

-- Keys of one jitter are in the order of their bytes.
CREATE OR REPLACE FUNCTION number_ties(p_jitter int4) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_key int8; v_place int8; v_is_ready bool;
BEGIN
    PERFORM FROM log WHERE key_id IN (SELECT key_id FROM keys WHERE jitter = p_jitter)
        ORDER BY key_id FOR NO KEY UPDATE;
    FOR v_key, v_place IN
        SELECT key_id, ((jitter::int8 + 2147483648) << 16) + least(row_number() OVER (ORDER BY key) - 1, 65535)
        FROM keys WHERE jitter = p_jitter LOOP
        v_is_ready := is_in_order(v_key);
        PERFORM unready(v_key);
        UPDATE keys SET place = v_place WHERE key_id = v_key AND place <> v_place;
        IF v_is_ready THEN
            INSERT INTO ready SELECT coalesce(started, -1), v_place, v_key, only_run(v_key) FROM log WHERE key_id = v_key;
            PERFORM note_ready();
        END IF;
    END LOOP;
END $$;
