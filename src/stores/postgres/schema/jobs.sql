-- Dispatches and their ends. Many plain keys in a few statements; any other key by itself, by the rule.

-- One step of a batch: what was asked, and its answer. Which columns count, the operation says (src/stores/postgres/batch.rs).
CREATE TYPE outcome AS (
    ord int4, answer text, attempt int8, key bytea, payload bytea, number int8, detail jsonb
);

-- Hands a key's row out, under this attempt; NULL: it has none to be handed out.
CREATE FUNCTION hand_out(p_ord int4, p_key int8, p_attempt int8, p_daemon int4, p_call int8, p_now_ms int8, p_lease int8,
    p_worker text, p_job_lease int4) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE v_row queue; v_log log; v_count int4; v_marked int8[]; v_other attempts;
BEGIN
    SELECT * INTO v_row FROM choose(p_key, deleting_runs());
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT greatest(v_row.expired, coalesce(max(d.delivery_count), 0)) + 1 INTO v_count FROM deliveries(p_key) d
        WHERE v_row.dispatched AND d.fetcher = v_row.fetcher AND d.run_started = v_row.run_started;
    UPDATE queue SET expired = 0, dead = false
        WHERE key_id = p_key AND fetcher = v_row.fetcher AND run <> v_row.run AND expired <> 0;
    FOR v_other IN SELECT * FROM deliveries(p_key) d WHERE NOT EXISTS (SELECT FROM queue q
            WHERE q.key_id = p_key AND q.fetcher = d.fetcher AND q.run_started = d.run_started) LOOP
        PERFORM end_expired(v_other, p_lease);
    END LOOP;
    v_marked := ARRAY(SELECT run_started FROM queue
        WHERE key_id = p_key AND fetcher = v_row.fetcher AND NOT dispatched);
    SELECT * INTO STRICT v_log FROM log WHERE key_id = p_key;
    INSERT INTO attempts (attempt, key_id, fetcher, run_started, daemon, call, started_ms, worker, lease,
            delivery_count, prev_started, prev_finished, prev_exit_code, prev_served, prev_last, marked)
        VALUES (p_attempt, p_key, v_row.fetcher, v_row.run_started, p_daemon, p_call, p_now_ms, p_worker, p_job_lease,
            v_count, v_log.started, v_log.finished, v_log.exit_code, served(p_key, v_row.fetcher), v_log.last, v_marked);
    UPDATE queue SET dispatched = true, served = p_attempt WHERE key_id = p_key AND fetcher = v_row.fetcher;
    PERFORM unready(p_key);
    UPDATE log SET started = p_now_ms / 1000, finished = NULL, exit_code = NULL, attempt = p_attempt, last = p_attempt
        WHERE key_id = p_key;
    PERFORM refresh(p_key, p_now_ms / 1000, p_lease);
    RETURN (p_ord, 'job', p_attempt, (SELECT key FROM keys WHERE key_id = p_key), v_row.payload, NULL, NULL)::outcome;
END $$;

-- Hands the first keys in order out to those that ask.
CREATE FUNCTION claim(p_daemon int4, p_call int8, p_now_ms int8, p_lease int8, p_ords int4[], p_workers text[],
    p_job_leases int4[]) RETURNS SETOF outcome LANGUAGE plpgsql ROWS 64 AS $$
DECLARE
    v_wanted int4 := cardinality(p_ords); v_given int4 := 0; v_now int8 := p_now_ms / 1000;
    v_deleting int4[] := deleting_runs(); v_rounds int4 := 0;
    v_found int4; v_alive int4; v_keys int8[]; v_places int8[]; v_starts int8[]; v_attempts int8[]; v_plain bool[]; v_job outcome;
BEGIN
    LOOP
        SELECT array_agg(key_id), array_agg(started), array_agg(place), array_agg(nextval('attempt_numbers')),
                array_agg(plain), count(*)
            INTO v_keys, v_starts, v_places, v_attempts, v_plain, v_found
            FROM (SELECT r.key_id, r.started, r.place, l.plain FROM ready r JOIN log l USING (key_id)
                WHERE l.finished IS NOT NULL OR l.started IS NULL OR l.started + p_lease < v_now
                ORDER BY r.started, r.place LIMIT v_wanted - v_given
                FOR NO KEY UPDATE OF r, l SKIP LOCKED) AS first;
        EXIT WHEN v_found = 0;
        DELETE FROM ready USING unnest(v_keys, v_starts, v_places) AS c (key_id, started, place)
            WHERE ready.started = c.started AND ready.place = c.place AND ready.key_id = c.key_id;
        v_alive := v_found;
        IF v_deleting <> '{}' THEN
            -- A run that is being deleted has left its keys in the order.
            SELECT array_agg(key_id), array_agg(attempt), array_agg(plain), count(*)
                INTO v_keys, v_attempts, v_plain, v_alive
                FROM unnest(v_keys, v_attempts, v_plain) AS c (key_id, attempt, plain)
                WHERE EXISTS (SELECT FROM choose(c.key_id, v_deleting));
        END IF;
        RETURN QUERY WITH c AS MATERIALIZED (
            SELECT u.*, p_ords[v_given + u.n] AS ord, p_workers[v_given + u.n] AS worker, p_job_leases[v_given + u.n] AS lease
            FROM unnest(v_keys, v_attempts, v_plain) WITH ORDINALITY AS u (key_id, attempt, plain, n) WHERE u.plain),
        x AS MATERIALIZED (
            SELECT c.*, q.ctid AS row, q.fetcher, q.run_started, q.payload, q.served, l.started, l.finished, l.exit_code, l.last
            FROM c JOIN queue q ON q.key_id = c.key_id JOIN log l ON l.key_id = c.key_id),
        marked AS (UPDATE queue SET dispatched = true, served = x.attempt FROM x WHERE queue.ctid = x.row),
        logged AS (UPDATE log SET started = v_now, finished = NULL, exit_code = NULL, attempt = x.attempt, last = x.attempt
            FROM x WHERE log.key_id = x.key_id),
        kept AS (INSERT INTO attempts (attempt, key_id, fetcher, run_started, daemon, call, started_ms, worker, lease,
                prev_started, prev_finished, prev_exit_code, prev_served, prev_last)
            SELECT x.attempt, x.key_id, x.fetcher, x.run_started, p_daemon, p_call, p_now_ms, x.worker, x.lease,
                x.started, x.finished, x.exit_code, x.served, x.last FROM x)
        SELECT x.ord, 'job'::text, x.attempt, k.key, x.payload, NULL::int8, NULL::jsonb FROM x JOIN keys k USING (key_id);
        FOR i IN 1 .. v_alive LOOP
            IF NOT v_plain[i] THEN
                v_job := hand_out(p_ords[v_given + i], v_keys[i], v_attempts[i], p_daemon, p_call, p_now_ms, p_lease,
                    p_workers[v_given + i], p_job_leases[v_given + i]);
                RETURN NEXT v_job;
            END IF;
        END LOOP;
        v_given := v_given + v_alive;
        v_rounds := v_rounds + 1;
        EXIT WHEN v_given = v_wanted OR v_rounds = 8;
    END LOOP;
    RETURN QUERY SELECT ord, CASE v_rounds WHEN 8 THEN 'later' ELSE 'nothing' END,
            NULL::int8, NULL::bytea, NULL::bytea, NULL::int8, NULL::jsonb
        FROM unnest(p_ords[v_given + 1 :]) AS ord;
END $$;

-- Records the end of a key's job, by key alone.
CREATE FUNCTION end_job(p_key int8, p_code int8, p_now_ms int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_log log; v_last attempts; v_other attempts;
BEGIN
    SELECT * INTO v_log FROM log WHERE key_id = p_key;
    IF v_log.started IS NULL THEN
        RETURN;
    END IF;
    PERFORM unready(p_key);
    UPDATE log SET finished = p_now_ms / 1000, exit_code = p_code WHERE key_id = p_key;
    SELECT * INTO v_last FROM attempts WHERE attempt = v_log.attempt AND v_log.finished IS NULL;
    IF FOUND THEN
        UPDATE queue SET expired = 0, dead = false
            WHERE key_id = p_key AND fetcher = v_last.fetcher AND run_started = v_last.run_started AND expired <> 0;
        PERFORM end_delivery(v_last, 'done', p_code, p_now_ms / 1000, greatest(p_now_ms - v_last.started_ms, 0));
        FOR v_other IN SELECT * FROM deliveries(p_key) WHERE fetcher = v_last.fetcher LOOP
            PERFORM end_expired(v_other, p_lease);
        END LOOP;
        PERFORM end_task(p_key, v_last.fetcher, v_last.run_started, p_code, p_now_ms, p_lease);
    END IF;
    PERFORM refresh(p_key, p_now_ms / 1000, p_lease);
END $$;

-- The same of a leased attempt; how it is acknowledged.
CREATE FUNCTION end_attempt(p_attempt int8, p_code int8, p_now_ms int8, p_lease int8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts;
BEGIN
    v_attempt := lock_attempt(p_attempt);
    IF v_attempt.attempt IS NULL THEN
        RETURN 'unknown';
    ELSIF v_attempt.finished IS NULL THEN
        PERFORM end_job(v_attempt.key_id, p_code, p_now_ms, p_lease);
        RETURN 'recorded';
    ELSIF v_attempt.outcome = 'expired'
            AND NOT EXISTS (SELECT FROM log WHERE key_id = v_attempt.key_id AND last > p_attempt) THEN
        PERFORM end_late(v_attempt, p_code, p_now_ms, p_lease);
        RETURN 'recorded';
    END IF;
    RETURN CASE v_attempt.outcome WHEN 'done' THEN 'recorded' ELSE 'stale' END;
END $$;

-- A leased attempt, with its key locked.
CREATE FUNCTION lock_attempt(p_attempt int8) RETURNS attempts LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts;
BEGIN
    PERFORM FROM log WHERE key_id = (SELECT key_id FROM attempts WHERE attempt = p_attempt) FOR NO KEY UPDATE;
    SELECT * INTO v_attempt FROM attempts WHERE attempt = p_attempt AND lease IS NOT NULL;
    RETURN v_attempt;
END $$;

-- A job ended after its lease: its row is dispatched again, to nobody, and ended.
CREATE FUNCTION end_late(p_late attempts, p_code int8, p_now_ms int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_key int8 := p_late.key_id; v_other attempts;
BEGIN
    PERFORM unready(v_key);
    UPDATE queue SET dispatched = true WHERE key_id = v_key AND fetcher = p_late.fetcher AND NOT dispatched
        AND run_started <= p_late.run_started AND (fetcher <> 0 OR run_started = p_late.run_started);
    UPDATE queue SET served = p_late.attempt WHERE key_id = v_key AND fetcher = p_late.fetcher;
    PERFORM keep_served(v_key, p_late.fetcher, p_late.attempt);
    UPDATE queue SET expired = 0, dead = false
        WHERE key_id = v_key AND fetcher = p_late.fetcher AND run_started = p_late.run_started AND expired <> 0;
    FOR v_other IN SELECT * FROM deliveries(v_key) WHERE fetcher = p_late.fetcher LOOP
        PERFORM end_expired(v_other, p_lease);
    END LOOP;
    UPDATE attempts SET outcome = 'done', finished = p_now_ms / 1000, exit_code = p_code WHERE attempt = p_late.attempt;
    UPDATE log SET started = p_late.started_ms / 1000, finished = p_now_ms / 1000, exit_code = p_code WHERE key_id = v_key;
    PERFORM end_task(v_key, p_late.fetcher, p_late.run_started, p_code, p_now_ms, p_lease);
    PERFORM refresh(v_key, p_now_ms / 1000, p_lease);
END $$;

-- Dispatches and ends in their order. Ends of plain keys make nothing ready, so they may be recorded before dispatches
-- that were asked for earlier; another end after a dispatch begins a part of its own.
CREATE FUNCTION turn(p_daemon int4, p_call int8, p_now_ms int8, p_lease int8, p_paused bool, p_first int4, p_kind text[],
    p_key bytea[], p_jitter int4[], p_attempt int8[], p_code int8[], p_who text[], p_job_lease int4[])
RETURNS SETOF outcome LANGUAGE plpgsql ROWS 64 AS $$
DECLARE
    v_from int4 := 1; v_to int4; v_now int8 := p_now_ms / 1000; v_dispatch int4;
    v_ords int4[]; v_keys int8[]; v_attempts int8[]; v_codes int8[]; v_plain bool[];
BEGIN
    PERFORM FROM log WHERE key_id IN (
            SELECT a.key_id FROM attempts a WHERE a.attempt = ANY (p_attempt)
            UNION ALL SELECT k.key_id FROM unnest(p_key, p_jitter) AS asked (key, jitter)
                JOIN keys k ON k.jitter = asked.jitter AND sha256(k.key) = sha256(asked.key))
        ORDER BY key_id FOR NO KEY UPDATE;
    WHILE v_from <= cardinality(p_kind) LOOP
        SELECT array_agg(e.n ORDER BY e.n), array_agg(l.key_id ORDER BY e.n), array_agg(l.attempt ORDER BY e.n),
                array_agg(e.code ORDER BY e.n),
                array_agg(coalesce(l.plain AND l.finished IS NULL AND l.attempt IS NOT NULL
                    AND (e.kind = 'complete' OR l.attempt = e.attempt AND a.lease IS NOT NULL)
                    AND e.nth = 1, false) ORDER BY e.n)
            INTO v_ords, v_keys, v_attempts, v_codes, v_plain
            FROM (SELECT u.*, row_number() OVER (PARTITION BY u.attempt, u.key ORDER BY u.n) AS nth
                FROM unnest(p_kind, p_key, p_jitter, p_attempt, p_code)
                    WITH ORDINALITY AS u (kind, key, jitter, attempt, code, n)
                WHERE u.kind <> 'dispatch' AND u.n >= v_from) AS e
            LEFT JOIN attempts a ON a.attempt = e.attempt
            LEFT JOIN keys k ON k.jitter = e.jitter AND sha256(k.key) = sha256(e.key)
            LEFT JOIN log l ON l.key_id = coalesce(a.key_id, k.key_id);
        v_dispatch := v_from - 1 + array_position(p_kind[v_from :], 'dispatch');
        SELECT coalesce(min(n) - 1, cardinality(p_kind)) INTO v_to
            FROM unnest(v_ords, v_plain) AS e (n, plain) WHERE NOT plain AND n > v_dispatch;
        RETURN QUERY WITH e AS MATERIALIZED (
            SELECT * FROM unnest(v_ords, v_keys, v_attempts, v_codes, v_plain) AS e (n, key_id, attempt, code, plain)
            WHERE e.plain AND e.n <= v_to),
        ended AS (UPDATE attempts SET finished = v_now, outcome = 'done', exit_code = e.code,
                took_ms = greatest(p_now_ms - started_ms, 0)
            FROM e WHERE attempts.attempt = e.attempt),
        logged AS (UPDATE log SET finished = v_now, exit_code = e.code, attempt = NULL FROM e WHERE log.key_id = e.key_id)
        SELECT p_first + e.n - 1, 'recorded'::text, NULL::int8, NULL::bytea, NULL::bytea, NULL::int8, NULL::jsonb FROM e;
        FOR i IN 1 .. coalesce(cardinality(v_ords), 0) LOOP
            CONTINUE WHEN v_plain[i] OR v_ords[i] > v_to;
            IF p_kind[v_ords[i]] = 'complete' THEN
                PERFORM end_job(v_keys[i], p_code[v_ords[i]], p_now_ms, p_lease);
            END IF;
            RETURN QUERY SELECT p_first + v_ords[i] - 1, CASE p_kind[v_ords[i]] WHEN 'complete' THEN 'recorded'
                    ELSE end_attempt(p_attempt[v_ords[i]], p_code[v_ords[i]], p_now_ms, p_lease) END,
                NULL::int8, NULL::bytea, NULL::bytea, 1::int8, NULL::jsonb;
        END LOOP;
        IF v_dispatch <= v_to THEN
            RETURN QUERY SELECT c.* FROM (SELECT array_agg((p_first + n - 1)::int4 ORDER BY n) AS ords,
                    array_agg(who ORDER BY n) AS workers, array_agg(lease ORDER BY n) AS leases
                FROM unnest(p_kind, p_who, p_job_lease) WITH ORDINALITY AS d (kind, who, lease, n)
                WHERE kind = 'dispatch' AND n BETWEEN v_from AND v_to) AS asked,
                claim(p_daemon, p_call, p_now_ms, p_lease, ords, workers, leases) AS c WHERE NOT p_paused
            UNION ALL SELECT (p_first + n - 1)::int4, 'nothing', NULL, NULL, NULL, NULL, NULL
                FROM unnest(p_kind) WITH ORDINALITY AS d (kind, n)
                WHERE p_paused AND kind = 'dispatch' AND n BETWEEN v_from AND v_to;
        END IF;
        v_from := v_to + 1;
    END LOOP;
END $$;

-- Classic jobs whose lease is over are ready again, those of the attempts behind p_after. Returns how far all were gone
-- through. Attempts are in the order of their starts, but for those up to p_disorder.
CREATE FUNCTION expire_classic(p_after int8, p_disorder int8, p_now int8, p_lease int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts; v_to int8 := p_after; v_waits bool := false;
BEGIN
    FOR v_attempt IN SELECT * FROM attempts WHERE attempt > p_after ORDER BY attempt LOOP
        IF v_attempt.finished IS NULL AND v_attempt.lease IS NULL THEN
            IF v_attempt.started_ms / 1000 + p_lease >= p_now THEN
                v_waits := true;
            ELSE
                PERFORM FROM log WHERE key_id = v_attempt.key_id FOR NO KEY UPDATE;
                INSERT INTO overdue SELECT attempt, key_id FROM attempts
                    WHERE attempt = v_attempt.attempt AND finished IS NULL ON CONFLICT DO NOTHING;
                PERFORM refresh(v_attempt.key_id, p_now, p_lease);
            END IF;
        END IF;
        EXIT WHEN v_waits AND v_attempt.attempt > p_disorder;
        IF NOT v_waits THEN
            v_to := v_attempt.attempt;
        END IF;
    END LOOP;
    RETURN v_to;
END $$;
