-- Dispatches and their ends. Many plain keys in a few statements; any other key by itself, by the rule.
--
-- A plan is made once a connection, when the tables may be empty, and must be right when they are not. So what is
-- looked up for each row of a set is a LATERAL subquery that is not pulled up (OFFSET 0), or an array of keys: there
-- is no other way for these than along the index.

-- The same answer to several steps.
CREATE OR REPLACE FUNCTION answered(p_ords int4[], p_answer text) RETURNS outcome[] LANGUAGE plpgsql AS $$
DECLARE v_answers outcome[] := '{}'; v_answer outcome := (NULL, p_answer, NULL, NULL, NULL, NULL, NULL)::outcome;
BEGIN
    FOREACH v_answer.ord IN ARRAY p_ords LOOP
        v_answers := v_answers || v_answer;
    END LOOP;
    RETURN v_answers;
END $$;

-- Hands a key's row out, under this attempt; NULL: it has none to be handed out.
CREATE OR REPLACE FUNCTION hand_out(p_asked asked, p_at int4, p_key int8, p_attempt int8) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE v_row queue; v_log log; v_count int4; v_marked int8[]; v_other attempts; v_now int8 := p_asked.now_ms / 1000;
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
        PERFORM end_expired(v_other, p_asked.lease);
    END LOOP;
    v_marked := ARRAY(SELECT run_started FROM queue
        WHERE key_id = p_key AND fetcher = v_row.fetcher AND NOT dispatched);
    PERFORM count_rows(run, 0, -1) FROM queue WHERE key_id = p_key AND fetcher = v_row.fetcher AND NOT dispatched;
    SELECT * INTO STRICT v_log FROM log WHERE key_id = p_key;
    INSERT INTO attempts (attempt, key_id, fetcher, run_started, daemon, call, started_ms, worker, lease,
            delivery_count, prev_started, prev_finished, prev_exit_code, prev_served, prev_last, marked)
        VALUES (p_attempt, p_key, v_row.fetcher, v_row.run_started, p_asked.daemon, p_asked.call, p_asked.now_ms,
            p_asked.workers[p_at], p_asked.job_leases[p_at], v_count, v_log.started, v_log.finished, v_log.exit_code,
            served(p_key, v_row.fetcher), v_log.last, v_marked);
    UPDATE queue SET dispatched = true, served = p_attempt WHERE key_id = p_key AND fetcher = v_row.fetcher;
    PERFORM bump_goes_out(p_key, v_row.fetcher, v_row.run_started, p_attempt);
    PERFORM unready(p_key);
    UPDATE log SET started = v_now, finished = NULL, exit_code = NULL, attempt = p_attempt, last = p_attempt
        WHERE key_id = p_key;
    PERFORM refresh(p_key, v_now, p_asked.lease);
    RETURN (p_asked.ords[p_at], 'job', p_attempt, (SELECT key FROM keys WHERE key_id = p_key), v_row.payload, NULL,
        NULL)::outcome;
END $$;

-- Where the claims of this connection go on: the second of their last look from the front, and the key that they took last,
-- [second, started, place]. What stands before it was taken: under a snapshot that stays open its dead rows would be gone over
-- at each claim. It holds until anybody makes a key ready (`floor`), and for ten seconds after that look, for a transaction
-- that fails makes ready what it had locked, and tells nobody. While the clock is set back, keys are passed over whose
-- lease was over already.
CREATE OR REPLACE FUNCTION place_to_go_on(p_version int8, p_raised int8, p_now int8) RETURNS int8[] LANGUAGE plpgsql STABLE AS $$
DECLARE v_kept int8[] := string_to_array(nullif(current_setting('shiftboss.place', true), ''), ' ')::int8[];
BEGIN
    IF v_kept[1] = p_version AND p_raised <= v_kept[2] AND p_now - v_kept[2] BETWEEN 0 AND 10
            AND current_setting('shiftboss.made_ready', true) IS DISTINCT FROM 'yes' THEN
        RETURN v_kept[2 : 4];
    END IF;
    RETURN ARRAY[p_now, -1, 0];
END $$;

-- Keeps such a place for the next claim.
CREATE OR REPLACE FUNCTION go_on_from(p_version int8, p_from int8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('shiftboss.place', array_to_string(p_version || p_from, ' '), false);
END $$;

-- Those that got nothing from the first ones' turn.
CREATE OR REPLACE FUNCTION without_first(p_asked asked, p_count int4) RETURNS asked LANGUAGE sql IMMUTABLE AS $$
    SELECT p_asked.ords[p_count + 1 :], p_asked.workers[p_count + 1 :], p_asked.job_leases[p_count + 1 :], p_asked.daemon,
        p_asked.call, p_asked.now_ms, p_asked.lease
$$;

-- Hands the first keys in order out to those that ask. There is 'nothing' when a look from the front finds no key that
-- could be handed out; 'later': somebody has locked what there is. p_ended: jobs that ended just before, and are not counted
-- yet: most batches end as many as they hand out. p_is_last: nothing that locks comes after it in the batch.
CREATE OR REPLACE FUNCTION claim_in_order(p_asked asked, p_paused bool, p_ended int8, p_is_last bool) RETURNS outcome[] LANGUAGE plpgsql AS $$
DECLARE v_version int8; v_raised int8; v_deleting int4[]; v_from int8[]; v_given outcome[]; v_is_all bool := true;
BEGIN
    IF p_paused OR p_asked.ords = '{}' THEN
        PERFORM count_out(-p_ended);
        RETURN answered(p_asked.ords, 'nothing');
    END IF;
    SELECT version, raised, ARRAY(SELECT run FROM runs WHERE deleting) INTO v_version, v_raised, v_deleting FROM floor;
    v_from := place_to_go_on(v_version, v_raised, p_asked.now_ms / 1000);
    IF v_deleting = '{}' THEN
        v_given := claim_from(p_asked, v_version, v_from, order_end(), v_deleting);
    ELSE
        SELECT given, is_all INTO v_given, v_is_all
            FROM claim_beside_deletion(p_asked, v_version, v_from, v_deleting, p_is_last);
        v_version := NULL;
    END IF;
    IF v_is_all AND cardinality(v_given) < cardinality(p_asked.ords) AND v_from[2 : 3] <> '{-1, 0}' THEN
        v_given := v_given || claim_from(without_first(p_asked, cardinality(v_given)), v_version,
            ARRAY[p_asked.now_ms / 1000, -1, 0], order_end(), v_deleting);
    END IF;
    IF cardinality(v_given) <> p_ended THEN
        PERFORM count_out(cardinality(v_given) - p_ended);
    END IF;
    IF cardinality(v_given) < cardinality(p_asked.ords) THEN
        RETURN v_given || unclaimed(without_first(p_asked, cardinality(v_given)), v_is_all);
    END IF;
    RETURN v_given;
END $$;

-- The answers to those who got nothing, when all of the order was looked at, or not.
CREATE OR REPLACE FUNCTION unclaimed(p_asked asked, p_is_all bool) RETURNS outcome[] LANGUAGE plpgsql AS $$
DECLARE v_is_empty bool := p_is_all AND count_ready(1, p_asked.now_ms / 1000, p_asked.lease) = 0;
BEGIN
    RETURN answered(p_asked.ords, CASE WHEN v_is_empty THEN 'nothing' ELSE 'later' END);
END $$;

-- Behind every place in the order.
CREATE OR REPLACE FUNCTION order_end() RETURNS int8[] LANGUAGE sql IMMUTABLE AS $$
    SELECT '{9223372036854775807, 9223372036854775807}'::int8[]
$$;

-- Between two places in the order, p_from with the second of its look before it: plain keys in this one statement, any other
-- one by the rule. The row of `ready` that is locked is the proof that nothing of its key changed since this statement's
-- snapshot but a payload. So the key's row in `log` may be found by its ctid, and its row in `queue` not.
CREATE OR REPLACE FUNCTION claim_from(p_asked asked, p_version int8, p_from int8[], p_until int8[], p_deleting int4[])
RETURNS outcome[] LANGUAGE plpgsql AS $$
DECLARE
    v_now int8 := p_asked.now_ms / 1000; v_at int4 := 0; v_given outcome[] := '{}'; v_job outcome;
    v_plain bool; v_key int8; v_started int8; v_place int8;
BEGIN
    FOR v_job.ord, v_job.attempt, v_job.key, v_job.payload, v_plain, v_key, v_started, v_place IN
        WITH c AS MATERIALIZED (
            SELECT r.ctid AS ready, l.ctid AS log, r.key_id, r.place, l.plain, l.started, l.finished, l.exit_code, l.last
            FROM ready r JOIN log l USING (key_id)
            WHERE (r.started, r.place) >= (p_from[2], p_from[3]) AND (r.started, r.place) <= (p_until[1], p_until[2])
                AND (r.run IS NULL OR r.run <> ALL (p_deleting))
                AND (l.finished IS NOT NULL OR l.started IS NULL OR l.started + p_asked.lease < v_now)
            ORDER BY r.started, r.place LIMIT cardinality(p_asked.ords) FOR NO KEY UPDATE OF r, l SKIP LOCKED),
        n AS MATERIALIZED (
            SELECT c.*, row_number() OVER () AS n, nextval('attempt_numbers') AS attempt FROM c),
        taken AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT ready FROM c))),
        x AS MATERIALIZED (
            SELECT n.*, q.*, k.key FROM n LEFT JOIN LATERAL (
                SELECT run, fetcher, run_started, payload, served FROM queue
                WHERE n.plain AND key_id = n.key_id OFFSET 0) AS q ON true
            CROSS JOIN LATERAL (SELECT key FROM keys WHERE key_id = n.key_id OFFSET 0) AS k),
        marked AS (UPDATE queue SET dispatched = true, served = (ARRAY(SELECT attempt FROM x WHERE plain))
                [array_position(ARRAY(SELECT key_id FROM x WHERE plain), key_id)]
            WHERE key_id = ANY (ARRAY(SELECT key_id FROM x WHERE plain))),
        counted AS (INSERT INTO counts AS c SELECT run, pg_backend_pid(), v_now / 60, 0, -count(*) FROM x WHERE plain GROUP BY run
            ON CONFLICT (run, backend, minute) DO UPDATE SET pending = c.pending + excluded.pending),
        logged AS (UPDATE log SET started = v_now, finished = NULL, exit_code = NULL, attempt = x.attempt, last = x.attempt
            FROM x WHERE log.ctid = x.log AND x.plain),
        kept AS (INSERT INTO attempts (attempt, key_id, fetcher, run_started, daemon, call, started_ms, worker, lease,
                prev_started, prev_finished, prev_exit_code, prev_served, prev_last)
            SELECT attempt, key_id, fetcher, run_started, p_asked.daemon, p_asked.call, p_asked.now_ms, p_asked.workers[n],
                p_asked.job_leases[n], started, finished, exit_code, served, last FROM x WHERE plain)
        SELECT p_asked.ords[n], attempt, key, payload, plain, key_id, coalesce(started, -1), place FROM x ORDER BY n
    LOOP
        v_at := v_at + 1;
        IF v_plain THEN
            v_job.answer := 'job';
        ELSE
            v_job := hand_out(p_asked, v_at, v_key, v_job.attempt);
            IF v_job.ord IS NULL THEN
                -- Its runs are being deleted.
                PERFORM count_out(-1);
                v_job := (p_asked.ords[v_at], 'later', NULL, NULL, NULL, NULL, NULL)::outcome;
            END IF;
        END IF;
        v_given := v_given || v_job;
    END LOOP;
    PERFORM go_on_from(p_version, ARRAY[p_from[1], v_started, v_place]) WHERE v_at > 0 AND p_version IS NOT NULL;
    RETURN v_given;
END $$;

-- The same while runs are being deleted, which have left their keys in the order: where it is to go on these are taken out
-- first, of as many keys as nearly always is enough, and then of as many as a quarter of a second is enough for. A worker
-- waits for 4 s.
CREATE OR REPLACE FUNCTION claim_beside_deletion(p_asked asked, p_version int8, p_from int8[], p_deleting int4[], p_is_last bool,
    OUT given outcome[], OUT is_all bool) LANGUAGE plpgsql AS $$
DECLARE v_limit int4; v_from int8[] := p_from; v_until int8[];
BEGIN
    given := '{}';
    FOREACH v_limit IN ARRAY ARRAY[2 * cardinality(p_asked.ords), 1000, 50000] LOOP
        v_until := sweep(v_from, p_deleting, v_limit, p_is_last);
        is_all := v_until IS NULL;
        given := given || claim_from(without_first(p_asked, cardinality(given)), NULL, v_from,
            coalesce(v_until, order_end()), p_deleting);
        EXIT WHEN is_all OR cardinality(given) = cardinality(p_asked.ords);
        v_from[2 : 3] := v_until;
        -- Not past keys that are left in the order: the next look must take them out.
        PERFORM go_on_from(p_version, v_from) WHERE p_is_last;
    END LOOP;
END $$;

-- Takes keys that have nothing but rows of these runs out of the order, among so many from a place on; where that look ended,
-- NULL: at the end of the order. The key itself need not be locked: who changes it puts another row into the order. But he waits
-- for this transaction then, so it must not wait for him: p_removes is false where more is to be locked.
CREATE OR REPLACE FUNCTION sweep(p_from int8[], p_deleting int4[], p_limit int4, p_removes bool) RETURNS int8[] LANGUAGE plpgsql AS $$
DECLARE v_until int8[];
BEGIN
    WITH looked AS MATERIALIZED (SELECT ctid, started, place, p_removes AND CASE WHEN run IS NULL
                THEN NOT EXISTS (SELECT FROM choose(key_id, p_deleting)) ELSE run = ANY (p_deleting) END AS is_dead
            FROM (SELECT ctid, * FROM ready WHERE (started, place) >= (p_from[2], p_from[3])
                ORDER BY started, place LIMIT p_limit) AS first),
        free AS MATERIALIZED (SELECT ctid FROM ready WHERE ctid = ANY (ARRAY(SELECT ctid FROM looked WHERE is_dead))
            FOR UPDATE SKIP LOCKED),
        gone AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT ctid FROM free)))
    SELECT ARRAY[started, place] INTO v_until FROM looked OFFSET p_limit - 1;
    RETURN v_until;
END $$;

-- Records the end of a key's job, by key alone.
CREATE OR REPLACE FUNCTION end_job(p_key int8, p_code int8, p_now_ms int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_log log; v_last attempts; v_other attempts; v_retried int4;
BEGIN
    SELECT * INTO v_log FROM log WHERE key_id = p_key;
    IF v_log.started IS NULL THEN
        RETURN;
    END IF;
    PERFORM unready(p_key);
    UPDATE log SET finished = p_now_ms / 1000, exit_code = p_code WHERE key_id = p_key;
    PERFORM count_done(p_now_ms / 1000, p_code, 1);
    PERFORM count_done(v_log.finished, coalesce(v_log.exit_code, 0), -1) WHERE v_log.finished IS NOT NULL;
    SELECT * INTO v_last FROM attempts WHERE attempt = v_log.attempt AND v_log.finished IS NULL;
    IF FOUND THEN
        v_retried := retried(p_key, v_last.fetcher, v_last.run_started);
        UPDATE queue SET expired = 0, dead = false
            WHERE key_id = p_key AND fetcher = v_last.fetcher AND run_started = v_last.run_started AND expired <> 0;
        PERFORM end_delivery(v_last, 'done', p_code, p_now_ms / 1000, greatest(p_now_ms - v_last.started_ms, 0));
        FOR v_other IN SELECT * FROM deliveries(p_key) WHERE fetcher = v_last.fetcher LOOP
            PERFORM end_expired(v_other, p_lease);
        END LOOP;
        PERFORM end_task(p_key, v_last.fetcher, v_last.run_started, p_code, p_now_ms, p_lease);
    ELSE
        INSERT INTO failures SELECT p_key WHERE p_code <> 0 ON CONFLICT DO NOTHING;
    END IF;
    PERFORM settle(p_key, v_last.fetcher, v_last.run_started, v_retried, p_code, p_now_ms / 1000) WHERE v_log.finished IS NULL;
    PERFORM refresh(p_key, p_now_ms / 1000, p_lease);
    -- Said again, it is no end of a job.
    PERFORM arm_if_bumped(p_key, p_now_ms / 1000, p_lease) WHERE v_log.finished IS NULL;
END $$;

-- The same of a leased attempt; how it is acknowledged.
CREATE OR REPLACE FUNCTION end_attempt(p_attempt int8, p_code int8, p_now_ms int8, p_lease int8) RETURNS text LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE FUNCTION lock_attempt(p_attempt int8) RETURNS attempts LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts;
BEGIN
    PERFORM FROM log WHERE key_id = (SELECT key_id FROM attempts WHERE attempt = p_attempt) FOR NO KEY UPDATE;
    SELECT * INTO v_attempt FROM attempts WHERE attempt = p_attempt AND lease IS NOT NULL;
    RETURN v_attempt;
END $$;

-- A job ended after its lease: its row is dispatched again, to nobody, and ended.
CREATE OR REPLACE FUNCTION end_late(p_late attempts, p_code int8, p_now_ms int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_key int8 := p_late.key_id; v_other attempts; v_run int4; 
    v_retried int4 := retried(p_late.key_id, p_late.fetcher, p_late.run_started);
BEGIN
    PERFORM unready(v_key);
    FOR v_run IN UPDATE queue SET dispatched = true WHERE key_id = v_key AND fetcher = p_late.fetcher AND NOT dispatched
            AND run_started <= p_late.run_started AND (fetcher <> 0 OR run_started = p_late.run_started) RETURNING run LOOP
        PERFORM count_rows(v_run, 0, -1);
    END LOOP;
    PERFORM count_done(p_now_ms / 1000, p_code, 1);
    UPDATE queue SET served = p_late.attempt WHERE key_id = v_key AND fetcher = p_late.fetcher;
    PERFORM keep_served(v_key, p_late.fetcher, p_late.attempt);
    UPDATE queue SET expired = 0, dead = false
        WHERE key_id = v_key AND fetcher = p_late.fetcher AND run_started = p_late.run_started AND expired <> 0;
    FOR v_other IN SELECT * FROM deliveries(v_key) WHERE fetcher = p_late.fetcher LOOP
        PERFORM end_expired(v_other, p_lease);
    END LOOP;
    PERFORM note_end(p_late, 'expired', NULL, p_late.finished, p_late.took_ms, -1);
    UPDATE attempts SET outcome = 'done', finished = p_now_ms / 1000, exit_code = p_code,
            ended = note_end(p_late, 'done', p_code, p_now_ms / 1000, p_late.took_ms, 1)
        WHERE attempt = p_late.attempt;
    UPDATE log SET started = p_late.started_ms / 1000, finished = p_now_ms / 1000, exit_code = p_code WHERE key_id = v_key;
    PERFORM end_task(v_key, p_late.fetcher, p_late.run_started, p_code, p_now_ms, p_lease);
    -- What was bumped has run.
    DELETE FROM bumps WHERE last_attempt = p_late.attempt AND attempt IS NULL AND due IS NULL AND key_id = v_key;
    PERFORM settle(v_key, p_late.fetcher, p_late.run_started, v_retried, p_code, p_now_ms / 1000);
    PERFORM refresh(v_key, p_now_ms / 1000, p_lease);
    PERFORM arm_if_bumped(v_key, p_now_ms / 1000, p_lease);
END $$;

-- Records the ends of plain keys' jobs among the steps of a batch; which ones these were. The keys of all ends are locked then.
CREATE OR REPLACE FUNCTION end_plain_jobs(p_from int4, p_to int4, p_kind text[], p_key bytea[], p_jitter int4[], p_attempt int8[],
    p_code int8[], p_now_ms int8, p_lease int8) RETURNS int4[] LANGUAGE plpgsql AS $$
DECLARE
    v_now int8 := p_now_ms / 1000; v_ords int4[]; v_keys int8[]; v_attempts int8[]; v_codes int8[]; v_numbers int8[];
    v_told jsonb;
BEGIN
    -- attempt: the one that the key's log row is of. Of two ends of a key only the first one is plain.
    SELECT array_agg(n ORDER BY n) FILTER (WHERE is_plain), array_agg(key_id ORDER BY n) FILTER (WHERE is_plain),
            array_agg(attempt ORDER BY n) FILTER (WHERE is_plain), array_agg(code ORDER BY n) FILTER (WHERE is_plain)
        INTO v_ords, v_keys, v_attempts, v_codes
        FROM (SELECT e.n, l.key_id, l.attempt, e.code, e.nth = 1 AND l.plain AND l.finished IS NULL
                AND l.attempt IS NOT NULL AND (e.kind = 'complete' OR l.attempt = e.attempt AND e.lease IS NOT NULL) AS is_plain
            FROM (SELECT e.n::int4, e.kind, e.attempt, e.code, a.lease, coalesce(a.key_id, k.key_id) AS key_id,
                    row_number() OVER (PARTITION BY coalesce(a.key_id, k.key_id) ORDER BY e.n) AS nth
                FROM unnest(p_kind, p_key, p_jitter, p_attempt, p_code)
                    WITH ORDINALITY AS e (kind, key, jitter, attempt, code, n)
                LEFT JOIN LATERAL (SELECT key_id, lease FROM attempts WHERE attempt = e.attempt OFFSET 0) AS a ON true
                LEFT JOIN LATERAL (SELECT key_id FROM keys
                    WHERE jitter = e.jitter AND sha256(key) = sha256(e.key) OFFSET 0) AS k ON true
                WHERE e.kind IN ('complete', 'complete_attempt') AND e.n BETWEEN p_from AND p_to ORDER BY 6, 1) AS e
            CROSS JOIN LATERAL (SELECT * FROM log WHERE log.key_id = e.key_id FOR NO KEY UPDATE) AS l) AS e;
    IF v_ords IS NULL THEN
        RETURN '{}';
    END IF;
    v_numbers := ARRAY(SELECT next_end() FROM generate_subscripts(v_ords, 1));
    WITH ended AS (UPDATE attempts SET finished = v_now, outcome = 'done', took_ms = greatest(p_now_ms - started_ms, 0),
                exit_code = v_codes[array_position(v_attempts, attempt)],
                ended = v_numbers[array_position(v_attempts, attempt)]
            WHERE attempt = ANY (v_attempts)
            RETURNING ended, attempt, fetcher, took_ms, outcome_word('done', exit_code) AS word,
                revisit_of(attempts) AS revisit),
        logged AS (UPDATE log SET finished = v_now, exit_code = v_codes[array_position(v_keys, key_id)], attempt = NULL
            WHERE key_id = ANY (v_keys)),
        numbered AS (INSERT INTO ends SELECT ended, attempt FROM ended),
        named AS (SELECT coalesce(f.name, '') AS name, e.word, e.took_ms, e.revisit
            FROM ended e LEFT JOIN LATERAL (SELECT name FROM fetchers WHERE fetcher = e.fetcher OFFSET 0) AS f ON true),
        hourly AS (INSERT INTO hours AS h
            SELECT v_now / 3600, name, word, pg_backend_pid(), v_now / 60, count(*), sum(took_ms), count(revisit), coalesce(sum(revisit), 0)
            FROM named GROUP BY name, word
            ON CONFLICT (hour, fetcher, outcome, backend, minute) DO UPDATE SET jobs = h.jobs + excluded.jobs,
                took_ms = h.took_ms + excluded.took_ms, revisits = h.revisits + excluded.revisits,
                revisit_seconds = h.revisit_seconds + excluded.revisit_seconds)
    SELECT jsonb_agg(jsonb_build_array(name, word, took_ms, revisit)) INTO v_told FROM named;
    PERFORM tell_ends(v_told);
    INSERT INTO completions AS c SELECT v_now / 60, code, pg_backend_pid(), count(*) FROM unnest(v_codes) AS code GROUP BY code
        ON CONFLICT (minute, exit_code, backend) DO UPDATE SET jobs = c.jobs + excluded.jobs;
    PERFORM refresh(key_id, v_now, p_lease) FROM settle_ends(v_keys, v_attempts, v_codes, v_now) AS key_id;
    RETURN v_ords;
END $$;

-- Any other end.
CREATE OR REPLACE FUNCTION end_one(p_ord int4, p_kind text, p_key bytea, p_jitter int4, p_attempt int8, p_code int8, p_now_ms int8,
    p_lease int8) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE v_answer outcome := (p_ord, 'recorded', NULL, NULL, NULL, NULL, NULL)::outcome; v_key int8;
BEGIN
    IF p_kind = 'complete' THEN
        v_key := lock_key(p_key, p_jitter, false);
        PERFORM end_job(v_key, p_code, p_now_ms, p_lease) WHERE v_key IS NOT NULL;
    ELSE
        v_answer.answer := end_attempt(p_attempt, p_code, p_now_ms, p_lease);
    END IF;
    -- The key may have more than this job.
    v_answer.number := 1 WHERE v_answer.answer = 'recorded' AND (v_key IS NOT NULL OR p_kind <> 'complete');
    RETURN v_answer;
END $$;

-- Dispatches and ends in their order. But ends of plain keys' jobs make nothing ready, and so are recorded first. p_asked: who
-- asks, and no dispatch yet.
CREATE OR REPLACE FUNCTION turn(p_asked asked, p_paused bool, p_from int4, p_to int4, p_kind text[], p_key bytea[], p_jitter int4[],
    p_attempt int8[], p_code int8[], p_who text[], p_job_lease int4[]) RETURNS outcome[] LANGUAGE plpgsql AS $$
DECLARE
    v_asked asked := p_asked; v_ords int4[] := '{}'; v_workers text[] := '{}'; v_leases int4[] := '{}'; v_done int4[] := '{}';
    v_is_done bool[]; v_ended int8; v_answers outcome[]; v_kind text; v_ord int4;
BEGIN
    IF 'complete' = ANY (p_kind) OR 'complete_attempt' = ANY (p_kind) THEN
        v_done := end_plain_jobs(p_from, p_to, p_kind, p_key, p_jitter, p_attempt, p_code, p_asked.now_ms,
            p_asked.lease);
    END IF;
    v_ended := cardinality(v_done);
    v_answers := answered(v_done, 'recorded');
    FOREACH v_ord IN ARRAY v_done LOOP
        v_is_done[v_ord] := true;
    END LOOP;
    FOR v_ord IN p_from .. p_to LOOP
        v_kind := p_kind[v_ord];
        IF v_kind = 'dispatch' THEN
            v_ords := v_ords || v_ord;
            v_workers := v_workers || p_who[v_ord];
            v_leases := v_leases || p_job_lease[v_ord];
        ELSIF v_is_done[v_ord] IS NULL THEN
            -- Who asked before is served before.
            v_asked.ords := v_ords;
            v_asked.workers := v_workers;
            v_asked.job_leases := v_leases;
            v_answers := v_answers || claim(v_asked, p_paused, v_ended, false) || end_one(v_ord, v_kind, p_key[v_ord], p_jitter[v_ord],
                p_attempt[v_ord], p_code[v_ord], p_asked.now_ms, p_asked.lease);
            v_ords := '{}'; v_workers := '{}'; v_leases := '{}'; v_ended := 0;
        END IF;
    END LOOP;
    v_asked.ords := v_ords;
    v_asked.workers := v_workers;
    v_asked.job_leases := v_leases;
    -- The look for a hold that is over locks nothing, and often is in a batch.
    RETURN v_answers || claim(v_asked, p_paused, v_ended, p_kind[p_to + 1 :] <@ '{next_hold_end}');
END $$;
