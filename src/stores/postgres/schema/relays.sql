-- What relays ask: they join, and have batches and rows carried out, each once for its number. What a relay is stands in
-- 0002_relays.sql.

CREATE OR REPLACE FUNCTION installation() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE state SET installation = substr(md5(random()::text || clock_timestamp()::text), 1, 16) WHERE installation IS NULL;
    RETURN (SELECT s.installation FROM state s);
END $$;

-- A run whose rows are ahead of its position is stale for whoever reads its file next.
CREATE OR REPLACE FUNCTION make_stale(p_daemon int4, p_fetcher text, p_started int8) RETURNS void LANGUAGE sql AS $$
    UPDATE runs r SET stale = true, ahead = NULL
    WHERE r.daemon = p_daemon AND r.ahead = coalesce(r.position, 'null') AND (p_fetcher IS NULL
        OR r.run_started = p_started AND r.fetcher = (SELECT fetcher FROM fetchers WHERE name = p_fetcher))
$$;

-- A relay joins, or joins anew. refused: why it may not.
CREATE OR REPLACE FUNCTION join_relay(p_name text, p_process text, p_installation text, p_version text, p_lease int8, p_max_tasks int8,
    p_takeover int8, OUT epoch int8, OUT installation text, OUT paused bool, OUT input_directory text, OUT refused text)
LANGUAGE plpgsql AS $$
DECLARE v_name text := 'relay ' || p_name; v_known daemons; v_is_known bool;
BEGIN
    PERFORM require_here();
    installation := installation();
    IF p_installation <> installation THEN
        refused := 'the daemon has another queue by now: this relay''s lists and jobs are not its';
        RETURN;
    END IF;
    INSERT INTO daemons (name, owner, version, epoch, policy_lease, max_tasks, takeover, process, lost)
        VALUES (v_name, v_name, p_version, nextval('epochs'), p_lease, p_max_tasks, p_takeover, p_process, true)
        ON CONFLICT DO NOTHING;
    SELECT * INTO v_known FROM daemons d WHERE d.name = v_name FOR UPDATE;
    v_is_known := v_known.process IS NOT DISTINCT FROM p_process;
    -- A daemon may have been called so.
    IF v_known.process IS NULL OR NOT v_is_known AND NOT v_known.lost AND v_known.pid IS NOT NULL THEN
        refused := format('another relay has the name %s: give this one another with --name; if that was this one before, the name is '
            'free in a few seconds', p_name);
        RETURN;
    END IF;
    UPDATE daemons d SET epoch = nextval('epochs'), process = p_process, version = p_version, policy_lease = p_lease,
            max_tasks = p_max_tasks, takeover = p_takeover, pid = 0, lost = false, gone_at = NULL, beat = d.beat + 1,
            beat_at = now_ms() / 1000, started = now_ms() / 1000
        WHERE d.daemon = v_known.daemon
        RETURNING d.epoch, d.input_directory INTO epoch, input_directory;
    -- Another process counts its batches anew, and each one its rows with each epoch.
    DELETE FROM relay_lanes WHERE daemon = v_known.daemon AND (lane >= 16 OR NOT v_is_known);
    IF NOT v_is_known THEN
        PERFORM make_stale(v_known.daemon, NULL, NULL);
        DELETE FROM rejected_files WHERE daemon = v_known.daemon;
    END IF;
    SELECT s.paused INTO paused FROM state s;
END $$;

-- The relay that acts under an epoch, which it keeps to the end of the transaction; NULL: nobody. It lives.
CREATE OR REPLACE FUNCTION relay_of(p_epoch int8) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE v_relay daemons;
BEGIN
    SELECT * INTO v_relay FROM daemons WHERE epoch = p_epoch AND process IS NOT NULL AND NOT lost FOR KEY SHARE;
    IF v_relay.beat_at < now_ms() / 1000 THEN
        UPDATE daemons SET beat = beat + 1, beat_at = now_ms() / 1000 WHERE daemon = v_relay.daemon AND epoch = p_epoch;
    END IF;
    RETURN v_relay.daemon;
END $$;

-- The last number of a lane, which nobody else moves to the end of the transaction.
CREATE OR REPLACE FUNCTION last_in_lane(p_relay int4, p_lane int4, OUT number int8, OUT answer jsonb) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO relay_lanes VALUES (p_relay, p_lane, 0, NULL) ON CONFLICT DO NOTHING;
    SELECT l.number, l.answer INTO number, answer FROM relay_lanes l
        WHERE l.daemon = p_relay AND l.lane = p_lane FOR NO KEY UPDATE;
END $$;

-- Carries a relay's batch out, once for each number; 0: it only reads. One without operations has the negative of the last number that
-- was kept: where that is not, the queue went back. The answer at place -1 says that it was not carried out: 'lost' or 'outdated'. The other
-- parameters are those of apply.
CREATE OR REPLACE FUNCTION apply_relayed(p_epoch int8, p_lane int4, p_number int8, p_seen int8, p_after int8, p_lease int8,
    p_max_expired int4, p_max_tasks int8, p_until int4[], p_kind text[], p_key bytea[], p_jitter int4[], p_ids int8[],
    p_code int8[], p_name text[], p_seconds int4[], p_payload bytea[], p_detail jsonb[], p_rows int4[], p_row_key bytea[],
    p_row_jitter int4[], p_row_payload bytea[]) RETURNS SETOF outcome LANGUAGE plpgsql ROWS 64 AS $$
DECLARE v_relay int4 := relay_of(p_epoch); v_last record; v_answer outcome; v_answers outcome[] := '{}';
BEGIN
    IF v_relay IS NULL OR p_number < 0 AND -p_number > coalesce((SELECT number FROM relay_lanes
            WHERE daemon = v_relay AND lane = p_lane), 0) THEN
        RETURN NEXT (-1, 'lost', NULL, NULL, NULL, NULL, NULL)::outcome;
        RETURN;
    END IF;
    IF p_number > 0 THEN
        SELECT * INTO v_last FROM last_in_lane(v_relay, p_lane);
        IF p_number = v_last.number AND v_last.answer IS NOT NULL THEN
            RETURN QUERY SELECT * FROM jsonb_populate_recordset(NULL::outcome, v_last.answer);
            RETURN;
        ELSIF p_number <= v_last.number THEN
            RETURN NEXT (-1, 'outdated', NULL, NULL, NULL, NULL, NULL)::outcome;
            RETURN;
        END IF;
    END IF;
    PERFORM make_stale(v_relay, p_name[i], p_ids[i]) FROM generate_subscripts(p_kind, 1) i WHERE p_kind[i] = 'register_run';
    -- A call that nobody undoes: the relay asks again, and undoes what its workers were not told of.
    FOR v_answer IN SELECT * FROM apply(v_relay, p_epoch, 0, p_seen, p_after, p_lease, p_max_expired, p_max_tasks, false, p_until,
            p_kind, p_key, p_jitter, p_ids, p_code, p_name, p_seconds, p_payload, p_detail, p_rows, p_row_key, p_row_jitter,
            p_row_payload) LOOP
        RETURN NEXT v_answer;
        v_answers := v_answers || CASE WHEN v_answer.ord > 0 THEN v_answer END;
    END LOOP;
    IF p_number > 0 THEN
        UPDATE relay_lanes SET number = p_number, answer = to_jsonb(array_remove(v_answers, NULL))
            WHERE daemon = v_relay AND lane = p_lane;
    END IF;
END $$;

-- Adds rows of relays' lists that came by ranges: each message once, and none before those with lower numbers. Its answer is
-- 'stored', 'rejected', 'gap' or 'lost'. p_rows: where the rows of each message end. The rejected numbers of a range are remembered
-- in the answer of its lane, v_rejected_max at the most; of what may be older the relay is 'lost'.
--
-- Several daemons add to the same runs, each in an order of its own. So relays come first, then runs, then the keys of a run,
-- each in the order of their numbers: daemons wait for each other in no circle. Whoever deletes a run marks it before, and so
-- waits for its rows, or has them rejected.
CREATE OR REPLACE FUNCTION add_relayed_rows(p_lease int8, p_epoch int8[], p_range int4[], p_number int8[], p_fetcher text[],
    p_started int8[], p_rows int4[], p_row_key bytea[], p_row_jitter int4[], p_row_payload bytea[]) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    v_relay int4; v_last record; v_run runs; v_runs int4[]; v_from int4; v_keys bytea[]; v_jitters int4[]; v_payloads bytea[];
    v_is_rejected bool; v_rejected_max CONSTANT int4 := 1000;
BEGIN
    PERFORM relay_of(epoch) FROM (SELECT DISTINCT epoch FROM unnest(p_epoch) AS epoch ORDER BY epoch) AS asked;
    PERFORM FROM runs WHERE NOT deleting AND run = ANY (ARRAY(SELECT r.run
            FROM unnest(p_fetcher, p_started) AS asked (fetcher, started)
            CROSS JOIN LATERAL (SELECT run FROM runs JOIN fetchers f USING (fetcher)
                WHERE f.name = asked.fetcher AND run_started = asked.started OFFSET 0) AS r))
        ORDER BY run FOR NO KEY UPDATE;
    FOR i IN 1 .. cardinality(p_epoch) LOOP
        v_relay := relay_of(p_epoch[i]);
        IF v_relay IS NULL THEN
            RETURN NEXT 'lost';
            CONTINUE;
        END IF;
        SELECT * INTO v_last FROM last_in_lane(v_relay, 16 + p_range[i]);
        IF p_number[i] <= v_last.number THEN
            RETURN NEXT CASE WHEN v_last.answer @> to_jsonb(p_number[i]) THEN 'rejected'
                WHEN jsonb_array_length(v_last.answer) = v_rejected_max AND p_number[i] < (v_last.answer ->> 0)::int8 THEN 'lost'
                ELSE 'stored' END;
        ELSIF p_number[i] > v_last.number + 1 THEN
            RETURN NEXT 'gap';
        ELSE
            v_run := run_of(v_relay, p_fetcher[i], p_started[i]);
            v_is_rejected := v_run.run IS NULL OR v_run.deleting;
            IF v_is_rejected AND jsonb_array_length(v_last.answer) = v_rejected_max THEN
                v_last.answer := v_last.answer - 0;
            END IF;
            UPDATE relay_lanes SET number = p_number[i], answer = CASE WHEN v_is_rejected
                    THEN coalesce(v_last.answer, '[]') || to_jsonb(p_number[i]) ELSE answer END
                WHERE daemon = v_relay AND lane = 16 + p_range[i];
            IF v_is_rejected THEN
                RETURN NEXT 'rejected';
            ELSE
                v_runs[i] := v_run.run;
                RETURN NEXT 'stored';
            END IF;
        END IF;
    END LOOP;
    FOR v_run IN SELECT * FROM runs WHERE run = ANY (v_runs) ORDER BY run LOOP
        v_keys := '{}'; v_jitters := '{}'; v_payloads := '{}';
        FOR i IN 1 .. cardinality(p_epoch) LOOP
            IF v_runs[i] = v_run.run THEN
                v_from := coalesce(p_rows[i - 1], 0) + 1;
                v_keys := v_keys || p_row_key[v_from : p_rows[i]];
                v_jitters := v_jitters || p_row_jitter[v_from : p_rows[i]];
                v_payloads := v_payloads || p_row_payload[v_from : p_rows[i]];
            END IF;
        END LOOP;
        IF v_keys <> '{}' THEN
            UPDATE runs SET ahead = coalesce(position, 'null') WHERE run = v_run.run
                AND ahead IS DISTINCT FROM coalesce(position, 'null');
            PERFORM add_rows(v_run, v_keys, v_jitters, v_payloads, now_ms() / 1000, p_lease);
        END IF;
    END LOOP;
    PERFORM tell_ready();
END $$;

-- A relay is taken for dead, or was stopped: see adopt.
CREATE OR REPLACE FUNCTION lose_relay(p_daemon int4, p_epoch int8, p_relay_epoch int8) RETURNS int8 LANGUAGE sql AS $$
    SELECT adopt(p_daemon, p_epoch, daemon, epoch, beat) FROM daemons
    WHERE epoch = p_relay_epoch AND process IS NOT NULL AND NOT lost
$$;

-- It says itself that it was stopped: nobody misses it.
CREATE OR REPLACE FUNCTION stop_relay(p_daemon int4, p_epoch int8, p_relay_epoch int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE v_relay int4 := (SELECT daemon FROM daemons WHERE epoch = p_relay_epoch); v_jobs int8 := lose_relay(p_daemon, p_epoch, p_relay_epoch);
BEGIN
    UPDATE daemons SET pid = NULL WHERE daemon = v_relay AND v_jobs IS NOT NULL;
    RETURN v_jobs;
END $$;
