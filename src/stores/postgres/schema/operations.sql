-- Operations that are no dispatch and no end.

CREATE OR REPLACE FUNCTION requeue(p_key int8, p_now_ms int8, p_lease int8, OUT answer text, OUT attempt int8) LANGUAGE plpgsql AS $$
DECLARE v_last attempts;
BEGIN
    SELECT * INTO v_last FROM deliveries(p_key) d ORDER BY d.attempt DESC LIMIT 1;
    IF v_last.lease IS NOT NULL OR v_last.started_ms / 1000 >= p_now_ms / 1000 - p_lease THEN
        PERFORM take_back(v_last, 'released', true, p_now_ms, p_lease);
        answer := 'back';
        attempt := v_last.attempt;
    ELSE
        answer := CASE WHEN EXISTS (SELECT FROM queue WHERE key_id = p_key) THEN 'not in flight' ELSE 'unknown' END;
    END IF;
END $$;

-- How many rows and tasks; NULL: no row has the key, or it is held.
CREATE OR REPLACE FUNCTION retry(p_key int8, p_fetcher text, p_max_expired int4, p_now int8, p_lease int8) RETURNS int8
LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN EXISTS (SELECT FROM queue WHERE key_id = p_key) AND NOT EXISTS (SELECT FROM holds WHERE key_id = p_key)
        THEN arm(p_key, p_fetcher, p_max_expired, p_now, p_lease) END;
END $$;

-- Puts back what has ended of a key; how many rows and tasks.
CREATE OR REPLACE FUNCTION arm(p_key int8, p_fetcher text, p_max_expired int4, p_now int8, p_lease int8) RETURNS int8
LANGUAGE plpgsql AS $$
DECLARE v_tasks int8 := 0; v_rows int8 := 0; v_run int4;
BEGIN
    PERFORM forget_delay(p_key, p_fetcher);
    IF coalesce(p_fetcher, '@tasks') = '@tasks' THEN
        v_tasks := retry_tasks(p_key, 10000, p_max_expired, p_lease);
    END IF;
    FOR v_run IN UPDATE queue q SET dispatched = false, expired = 0, dead = false
            WHERE q.key_id = p_key AND q.dispatched
                AND (p_fetcher IS NULL OR q.fetcher = (SELECT fetcher FROM fetchers WHERE name = p_fetcher))
                AND NOT EXISTS (SELECT FROM deliveries(p_key) d WHERE d.fetcher = q.fetcher)
                AND NOT EXISTS (SELECT FROM queue newer WHERE newer.key_id = p_key AND newer.fetcher = q.fetcher
                    AND newer.run_started > q.run_started)
            RETURNING q.run LOOP
        PERFORM count_rows(v_run, 0, 1);
        v_rows := v_rows + 1;
    END LOOP;
    PERFORM refresh(p_key, p_now, p_lease);
    RETURN v_tasks + v_rows;
END $$;

-- The lease of an attempt expired, if its worker did not go to another daemon meanwhile.
CREATE OR REPLACE FUNCTION expire(p_daemon int4, p_attempt int8, p_max_expired int4, p_now_ms int8, p_lease int8) RETURNS outcome
LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts := lock_attempt(p_attempt); v_other attempts; v_is_dead bool; v_key int8 := v_attempt.key_id;
BEGIN
    IF v_attempt.attempt IS NULL OR v_attempt.finished IS NOT NULL OR v_attempt.daemon <> p_daemon THEN
        RETURN (NULL, 'ended', NULL, NULL, NULL, NULL, NULL)::outcome;
    END IF;
    v_is_dead := v_attempt.delivery_count >= p_max_expired;
    PERFORM take_back(v_attempt, 'expired', NOT v_is_dead, p_now_ms, p_lease);
    UPDATE queue SET expired = v_attempt.delivery_count, dead = v_is_dead
        WHERE key_id = v_key AND fetcher = v_attempt.fetcher AND run_started = v_attempt.run_started;
    IF v_is_dead THEN
        FOR v_other IN SELECT * FROM deliveries(v_key)
                WHERE fetcher = v_attempt.fetcher AND run_started = v_attempt.run_started LOOP
            PERFORM end_expired(v_other, p_lease);
        END LOOP;
        IF v_attempt.fetcher = 0 THEN
            PERFORM end_task_with(v_attempt.run_started, 'dead_letter');
            PERFORM derive_row(v_key, p_max_expired, p_lease);
        END IF;
    END IF;
    PERFORM refresh(v_key, p_now_ms / 1000, p_lease);
    PERFORM arm_if_bumped(v_key, p_now_ms / 1000, p_lease) WHERE v_is_dead;
    RETURN (NULL, 'expired', NULL, (SELECT key FROM keys WHERE key_id = v_key), NULL, NULL,
        jsonb_build_object('worker', v_attempt.worker, 'dead_letter', v_is_dead, 'single', v_attempt.fetcher = 0))::outcome;
END $$;

CREATE OR REPLACE FUNCTION stored_run(p_run runs) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('fetcher', f.name, 'started', p_run.run_started, 'complete', p_run.complete,
        'position', p_run.position, 'rows', p_run.rows, 'deleting', p_run.deleting, 'stale', p_run.stale)
    FROM fetchers f WHERE f.fetcher = p_run.fetcher
$$;

-- Adds rows of a run: in a few statements those of keys that nothing else lists and nobody has; the others one by one.
CREATE OR REPLACE FUNCTION add_rows(p_run runs, p_keys bytea[], p_jitters int4[], p_payloads bytea[], p_now int8, p_lease int8)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_keys int8[]; v_payloads bytea[]; v_started int8[]; v_is_idle bool[]; v_not_plain int8[]; v_own int8[]; v_others int8[];
    v_added int8; v_name text; v_key int8;
BEGIN
    -- Claims pass over what is locked here.
    PERFORM note_ready();
    PERFORM make_keys(p_keys, p_jitters);
    SELECT array_agg(key_id), array_agg(payload) INTO v_keys, v_payloads
        FROM (SELECT DISTINCT ON (k.key_id) k.key_id, u.payload
            FROM unnest(p_keys, p_jitters, p_payloads) WITH ORDINALITY AS u (key, jitter, payload, n)
            CROSS JOIN LATERAL (SELECT key_id FROM keys WHERE jitter = u.jitter AND sha256(key) = sha256(u.key) OFFSET 0) AS k
            ORDER BY k.key_id, u.n DESC) AS last;
    -- In the same order.
    SELECT array_agg(started), array_agg(attempt IS NULL AND (started IS NULL OR finished IS NOT NULL)),
            array_agg(key_id) FILTER (WHERE NOT plain)
        INTO v_started, v_is_idle, v_not_plain
        FROM (SELECT * FROM log WHERE key_id = ANY (v_keys) ORDER BY key_id FOR NO KEY UPDATE) AS locked;
    IF p_run.listing THEN
        INSERT INTO listed SELECT p_run.run, unnest(v_keys) ON CONFLICT DO NOTHING;
    END IF;
    SELECT name INTO v_name FROM fetchers WHERE fetcher = p_run.fetcher;
    PERFORM forget_earlier(v_keys, p_run.fetcher, p_run.run_started);
    WITH known AS MATERIALIZED (
            SELECT u.*, q.is_own, q.is_own IS NULL AND u.is_idle
                AND NOT EXISTS (SELECT FROM holds WHERE holds.key_id = u.key_id OFFSET 0) AS is_free
            FROM unnest(v_keys, v_payloads, v_started, v_is_idle) AS u (key_id, payload, started, is_idle)
            CROSS JOIN LATERAL (SELECT bool_or(run = p_run.run) AS is_own FROM queue WHERE key_id = u.key_id OFFSET 0) AS q),
        queued AS (INSERT INTO queue (run, key_id, fetcher, run_started, served, payload)
            SELECT p_run.run, key_id, p_run.fetcher, p_run.run_started,
                (SELECT attempt FROM last_served s WHERE s.key_id = known.key_id AND s.name = v_name), payload
            FROM known WHERE is_free),
        readied AS (INSERT INTO ready SELECT coalesce(started, -1), k.place, key_id, p_run.run FROM known
            CROSS JOIN LATERAL (SELECT place FROM keys WHERE key_id = known.key_id OFFSET 0) AS k WHERE is_free)
    SELECT count(*) FILTER (WHERE is_free), array_agg(key_id) FILTER (WHERE is_own),
            array_agg(key_id) FILTER (WHERE NOT is_free AND is_own IS NOT TRUE)
        INTO v_added, v_own, v_others FROM known;
    UPDATE log SET plain = true WHERE key_id = ANY (v_not_plain)
        AND key_id <> ALL (coalesce(v_own, '{}') || coalesce(v_others, '{}'));
    UPDATE queue SET payload = v_payloads[array_position(v_keys, key_id)]
        WHERE run = p_run.run AND key_id = ANY (v_own) AND payload <> v_payloads[array_position(v_keys, key_id)];
    FOREACH v_key IN ARRAY coalesce(v_others, '{}') LOOP
        INSERT INTO queue (run, key_id, fetcher, run_started, served, payload)
            VALUES (p_run.run, v_key, p_run.fetcher, p_run.run_started, served(v_key, p_run.fetcher),
                v_payloads[array_position(v_keys, v_key)]);
        PERFORM refresh(v_key, p_now, p_lease);
        v_added := v_added + 1;
    END LOOP;
    UPDATE runs SET rows = rows + v_added WHERE run = p_run.run AND v_added <> 0;
    PERFORM count_rows(p_run.run, 0, v_added) WHERE v_added <> 0;
END $$;

-- Removes a run's rows of these keys: in a few statements those of keys that have nothing else and are not out; the others one
-- by one. One daemon at a time removes rows of a run: whose it is, or, of a run that is nobody's, who has locked its fetcher.
CREATE OR REPLACE FUNCTION remove_rows(p_keys int8[], p_run int4, p_now int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_plain int8[]; v_key int8;
BEGIN
    v_plain := ARRAY(SELECT key_id FROM log WHERE key_id = ANY (p_keys) AND plain AND attempt IS NULL);
    PERFORM unready_all(v_plain);
    WITH gone AS (DELETE FROM queue WHERE run = p_run AND key_id = ANY (v_plain) RETURNING key_id, fetcher, served)
    INSERT INTO last_served SELECT key_id, name, served FROM gone JOIN fetchers USING (fetcher) WHERE served IS NOT NULL
        ON CONFLICT (key_id, name) DO UPDATE SET attempt = excluded.attempt;
    FOR v_key IN SELECT u FROM unnest(p_keys) AS u WHERE u <> ALL (v_plain) LOOP
        PERFORM remove_row(v_key, p_run, p_lease);
        PERFORM refresh(v_key, p_now, p_lease);
    END LOOP;
END $$;

-- Deletes rows of a run, p_limit at the most, and with its last row the run; whether that is gone.
CREATE OR REPLACE FUNCTION delete_run(p_run runs, p_limit int8, p_now int8, p_lease int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_keys int8[];
BEGIN
    IF p_run.run IS NULL THEN
        RETURN true;
    END IF;
    -- Whoever registers a run of this fetcher comes before or after.
    PERFORM FROM fetcher_owners WHERE name = (SELECT name FROM fetchers WHERE fetcher = p_run.fetcher) FOR NO KEY UPDATE;
    UPDATE runs SET deleting = true WHERE run = p_run.run AND NOT deleting;
    v_keys := ARRAY(SELECT key_id FROM queue WHERE run = p_run.run ORDER BY key_id LIMIT p_limit);
    PERFORM FROM log WHERE key_id = ANY (v_keys) ORDER BY key_id FOR NO KEY UPDATE;
    PERFORM count_rows(run, 0, -count(*)) FROM queue WHERE run = p_run.run AND key_id = ANY (v_keys) AND NOT dispatched
        GROUP BY run;
    PERFORM remove_rows(v_keys, p_run.run, p_now, p_lease);
    UPDATE runs SET rows = rows - cardinality(v_keys) WHERE run = p_run.run;
    IF cardinality(v_keys) >= p_limit THEN
        RETURN false;
    END IF;
    DELETE FROM listed WHERE run = p_run.run;
    DELETE FROM runs WHERE run = p_run.run;
    PERFORM leave_fetcher(p_run.fetcher);
    RETURN true;
END $$;

-- Deletes runs one after the other, p_limit rows and runs at the most; how many of the first ones are gone. Fetchers are locked
-- first, and then the keys of all of them in the order of their ids.
CREATE OR REPLACE FUNCTION delete_runs(p_daemon int4, p_runs jsonb, p_limit int8, p_now int8, p_lease int8) RETURNS int8
LANGUAGE plpgsql AS $$
DECLARE v_gone int8 := 0; v_left int8 := p_limit; v_asked jsonb; v_run runs;
BEGIN
    PERFORM FROM fetcher_owners WHERE name = ANY (ARRAY(SELECT asked ->> 0 FROM jsonb_array_elements(p_runs) AS asked))
        ORDER BY name FOR NO KEY UPDATE;
    PERFORM FROM log WHERE key_id = ANY (ARRAY(SELECT q.key_id FROM jsonb_array_elements(p_runs) AS asked
        CROSS JOIN LATERAL (SELECT * FROM run_of(p_daemon, asked ->> 0, (asked ->> 1)::int8) OFFSET 0) AS r
        CROSS JOIN LATERAL (SELECT key_id FROM queue WHERE run = r.run ORDER BY key_id LIMIT p_limit) AS q
        LIMIT p_limit)) ORDER BY key_id FOR NO KEY UPDATE;
    FOR v_asked IN SELECT jsonb_array_elements(p_runs) LOOP
        v_run := run_of(p_daemon, v_asked ->> 0, (v_asked ->> 1)::int8);
        EXIT WHEN v_left <= 0 OR NOT delete_run(v_run, v_left, p_now, p_lease);
        v_left := v_left - coalesce(v_run.rows, 0) - 1;
        v_gone := v_gone + 1;
    END LOOP;
    RETURN v_gone;
END $$;

-- Looks at rows of a run, p_limit at the most, and deletes those that its listing lacks; whether there are more.
CREATE OR REPLACE FUNCTION prune(p_run runs, p_limit int8, p_now int8, p_lease int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_keys int8[]; v_gone int8[];
BEGIN
    IF NOT coalesce(p_run.listing, false) THEN
        RETURN false;
    END IF;
    -- Claims pass over what is locked here.
    PERFORM note_ready();
    v_keys := ARRAY(SELECT key_id FROM queue WHERE run = p_run.run AND key_id > p_run.pruned_to ORDER BY key_id LIMIT p_limit);
    PERFORM FROM log WHERE key_id = ANY (v_keys) ORDER BY key_id FOR NO KEY UPDATE;
    PERFORM count_rows(run, 0, -count(*)) FROM queue q WHERE run = p_run.run AND key_id = ANY (v_keys) AND NOT dispatched
        AND NOT EXISTS (SELECT FROM listed l WHERE l.run = q.run AND l.key_id = q.key_id) GROUP BY run;
    v_gone := ARRAY(SELECT u FROM unnest(v_keys) AS u
        WHERE NOT EXISTS (SELECT FROM listed WHERE run = p_run.run AND key_id = u));
    PERFORM remove_rows(v_gone, p_run.run, p_now, p_lease);
    UPDATE runs SET rows = rows - cardinality(v_gone), pruned_to = v_keys[cardinality(v_keys)]
        WHERE run = p_run.run AND v_keys <> '{}';
    IF cardinality(v_keys) >= p_limit THEN
        RETURN true;
    END IF;
    UPDATE runs SET listing = false, stale = false, pruned_to = 0 WHERE run = p_run.run;
    DELETE FROM listed WHERE run = p_run.run;
    RETURN false;
END $$;

-- Jobs in flight. Those that are overdue are so again while the clock is set back.
CREATE OR REPLACE FUNCTION count_in_flight(p_now int8, p_lease int8) RETURNS int8 LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT sum(in_flight) FROM counts WHERE run = 0), 0)::int8 + (SELECT count(*) FROM overdue o
        CROSS JOIN LATERAL (SELECT started_ms FROM attempts WHERE attempt = o.attempt OFFSET 0) AS a
        WHERE started_ms / 1000 >= p_now - p_lease)
$$;

-- So many keys that could be handed out now, at the most. While runs are being deleted, as many keys are looked at as take a
-- third of a second; if none of them has anything else, there may be one behind them.
CREATE OR REPLACE FUNCTION count_ready(p_limit int8, p_now int8, p_lease int8) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
DECLARE v_deleting int4[] := deleting_runs(); v_seen int8; v_found int8;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE CASE WHEN run IS NULL THEN v_deleting = '{}'
            OR EXISTS (SELECT FROM choose(found.key_id, v_deleting)) ELSE run <> ALL (v_deleting) END)
        INTO v_seen, v_found FROM (SELECT r.key_id, r.run FROM ready r JOIN log l USING (key_id)
            WHERE l.finished IS NOT NULL OR l.started IS NULL OR l.started + p_lease < p_now
            LIMIT p_limit + CASE v_deleting WHEN '{}' THEN 0 ELSE 50000 END) AS found;
    RETURN CASE WHEN v_found = 0 AND v_seen > p_limit + 49999 THEN 1 ELSE least(v_found, p_limit) END;
END $$;
