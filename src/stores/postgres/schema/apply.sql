-- A batch of operations in one call, which is one transaction.

-- What came of an operation on a leased attempt: 'recorded', 'stale' or 'unknown'.
CREATE OR REPLACE FUNCTION release(p_attempt int8, p_now_ms int8, p_lease int8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts := lock_attempt(p_attempt);
BEGIN
    IF v_attempt.attempt IS NULL THEN
        RETURN 'unknown';
    ELSIF v_attempt.finished IS NULL THEN
        PERFORM take_back(v_attempt, 'released', true, p_now_ms, p_lease);
        RETURN 'recorded';
    END IF;
    RETURN CASE v_attempt.outcome WHEN 'released' THEN 'recorded' ELSE 'stale' END;
END $$;

-- Whether an attempt is leased still. Its worker may have come from another daemon: then the attempt is this one's from
-- now on, and number is 1.
CREATE OR REPLACE FUNCTION heartbeat(p_daemon int4, p_attempt int8) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE v_holder int4;
BEGIN
    SELECT daemon INTO v_holder FROM attempts WHERE attempt = p_attempt AND lease IS NOT NULL AND finished IS NULL;
    IF NOT FOUND THEN
        RETURN (NULL, 'stale', NULL, NULL, NULL, NULL, NULL)::outcome;
    ELSIF v_holder = p_daemon THEN
        RETURN (NULL, 'recorded', NULL, NULL, NULL, 0, NULL)::outcome;
    END IF;
    IF (lock_attempt(p_attempt)).finished IS NOT NULL THEN
        RETURN (NULL, 'stale', NULL, NULL, NULL, NULL, NULL)::outcome;
    END IF;
    UPDATE attempts SET daemon = p_daemon WHERE attempt = p_attempt;
    RETURN (NULL, 'recorded', NULL, NULL, NULL, 1, NULL)::outcome;
END $$;

-- Makes a dispatch undone, if the key's log row is still that dispatch's.
CREATE OR REPLACE FUNCTION undo(p_key int8, p_attempt int8, p_now_ms int8, p_lease int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_last attempts;
BEGIN
    SELECT d.* INTO v_last FROM deliveries(p_key) d ORDER BY d.attempt DESC LIMIT 1;
    IF v_last.attempt IS DISTINCT FROM p_attempt OR NOT EXISTS (SELECT FROM log
            WHERE key_id = p_key AND finished IS NULL AND started = v_last.started_ms / 1000) THEN
        RETURN false;
    END IF;
    PERFORM take_back(v_last, 'undone', true, p_now_ms, p_lease);
    RETURN true;
END $$;

-- Notes how far a run's file was read, and what that means to its listing. NULL: the run is not to be added to, or not there,
-- for its position is neither where the batch begins nor where it ends, or rows that came by ranges are not there.
CREATE OR REPLACE FUNCTION note_batch(p_daemon int4, p_fetcher text, p_started int8, p_batch jsonb) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
    v_run runs := run_of(p_daemon, p_fetcher, p_started); v_reading text := p_batch ->> 'reading';
    v_position jsonb := p_batch -> 'position'; v_offset int8 := coalesce((v_run.position ->> 'offset')::int8, 0);
BEGIN
    IF v_run.run IS NULL OR v_run.deleting THEN
        RETURN NULL;
    END IF;
    IF v_reading = 'onward' AND (v_position ->> 'offset')::int8 <> v_offset AND ((p_batch ->> 'from')::int8 <> v_offset
            OR (p_batch ->> 'by_range')::bool AND NOT v_run.stale
                AND v_run.ahead IS DISTINCT FROM coalesce(v_run.position, 'null')) THEN
        RETURN NULL;
    END IF;
    IF v_reading <> 'onward' THEN
        DELETE FROM listed WHERE run = v_run.run;
        UPDATE runs SET stale = true, listing = v_reading = 'listing', pruned_to = 0 WHERE run = v_run.run;
    END IF;
    -- A file that is read from the start again has its faulty lines counted again.
    UPDATE runs SET position = v_position, complete = (p_batch ->> 'complete')::bool,
            skipped = (p_batch ->> 'skipped')::int8 + CASE WHEN v_reading = 'onward'
                AND v_offset <= (v_position ->> 'offset')::int8 THEN skipped ELSE 0 END
        WHERE run = v_run.run RETURNING * INTO v_run;
    RETURN v_run;
END $$;

CREATE OR REPLACE FUNCTION note_input(p_daemon int4, p_input jsonb, p_now int8) RETURNS void LANGUAGE sql AS $$
    UPDATE daemons SET input_directory = coalesce(p_input ->> 'there', input_directory),
        lost_since = CASE WHEN p_input ? 'lost' THEN coalesce(lost_since, p_now) END, lost_reason = p_input ->> 'lost'
    WHERE daemon = p_daemon
$$;

-- Accepts entries of a spool, each with the task in its place.
CREATE OR REPLACE FUNCTION accept_entries(p_daemon int4, p_ids jsonb, p_keys bytea[], p_jitters int4[], p_payloads bytea[],
    p_max_tasks int8, p_max_expired int4, p_now int8, p_lease int8) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE v_answers jsonb := '[]'; v_answer text; v_id jsonb; v_at int4 := 0;
BEGIN
    FOR v_id IN SELECT jsonb_array_elements(p_ids) LOOP
        v_at := v_at + 1;
        INSERT INTO accepted VALUES (v_id ->> 0, v_id ->> 1, (v_id ->> 2)::int8, (v_id ->> 3)::int8, (v_id ->> 4)::int8, p_daemon)
            ON CONFLICT DO NOTHING;
        v_answer := 'known';
        IF FOUND THEN
            v_answer := add_task(p_keys[v_at], p_jitters[v_at], p_payloads[v_at], p_max_tasks, p_max_expired, p_now, p_lease);
            PERFORM forget_accepted(v_id) WHERE v_answer = 'full';
        END IF;
        v_answers := v_answers || to_jsonb(v_answer);
    END LOOP;
    RETURN v_answers;
END $$;

CREATE OR REPLACE FUNCTION forget_accepted(p_id jsonb) RETURNS void LANGUAGE sql AS $$
    DELETE FROM accepted WHERE spool = p_id ->> 0 AND name = p_id ->> 1 AND inode = (p_id ->> 2)::int8
        AND born = (p_id ->> 3)::int8 AND checksum = (p_id ->> 4)::int8
$$;

-- An operation that only looks.
CREATE OR REPLACE FUNCTION look(p_daemon int4, p_now int8, p_lease int8, p_paused bool, p_kind text, p_limit int8) RETURNS outcome
LANGUAGE plpgsql STABLE AS $$
DECLARE v_answer outcome;
BEGIN
    CASE p_kind
    WHEN 'runs' THEN
        v_answer.detail := (SELECT coalesce(jsonb_agg(stored_run(r)), '[]') FROM runs r WHERE daemon = p_daemon AND run <> 0);
    WHEN 'leases' THEN
        v_answer.detail := (SELECT coalesce(jsonb_agg(jsonb_build_array(attempt, lease) ORDER BY attempt), '[]')
            FROM attempts WHERE daemon = p_daemon AND finished IS NULL AND lease IS NOT NULL);
    WHEN 'has_work' THEN
        v_answer.answer := (NOT p_paused AND count_ready(1, p_now, p_lease) > 0)::text;
    WHEN 'count_in_flight' THEN
        v_answer.number := (SELECT count(*) FROM attempts WHERE daemon = p_daemon AND finished IS NULL
            AND (lease IS NOT NULL OR started_ms / 1000 >= p_now - p_lease));
    WHEN 'why_idle' THEN
        v_answer.answer := CASE WHEN p_paused THEN 'paused' ELSE 'busy' END;
        v_answer.number := CASE WHEN p_paused THEN count_ready(p_limit, p_now, p_lease)
            ELSE count_in_flight(p_now, p_lease) END;
    WHEN 'next_hold_end' THEN
        v_answer.number := least(
            (SELECT greatest(until + 1 - p_now, 0) FROM holds WHERE until IS NOT NULL ORDER BY until LIMIT 1),
            (SELECT greatest(due - p_now, 0) FROM bumps WHERE due IS NOT NULL ORDER BY due LIMIT 1));
    WHEN 'accepted_entries' THEN
        v_answer.detail := (SELECT coalesce(jsonb_agg(jsonb_build_array(spool, name, inode, born, checksum)
            ORDER BY spool COLLATE "C", name COLLATE "C", inode, born, checksum), '[]') FROM accepted WHERE daemon = p_daemon);
    WHEN 'fetcher_records' THEN
        v_answer.detail := (SELECT coalesce(jsonb_agg(record ORDER BY name COLLATE "C"), '[]')
            FROM managed_fetchers WHERE daemon = p_daemon);
    END CASE;
    RETURN v_answer;
END $$;

-- An operation that is neither a dispatch nor an end.
CREATE OR REPLACE FUNCTION perform_one(p_daemon int4, p_now_ms int8, p_lease int8, p_max_expired int4, p_max_tasks int8, p_paused bool,
    p_kind text, p_key bytea, p_jitter int4, p_number int8, p_limit int8, p_name text, p_payload bytea, p_detail jsonb,
    p_row_key bytea[], p_row_jitter int4[], p_row_payload bytea[]) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE v_now int8 := p_now_ms / 1000; v_answer outcome; v_run runs; v_taken record; v_key int8;
BEGIN
    CASE p_kind
    WHEN 'release' THEN
        v_answer.answer := release(p_number, p_now_ms, p_lease);
    WHEN 'heartbeat' THEN
        v_answer := heartbeat(p_daemon, p_number);
    WHEN 'expire' THEN
        v_answer := expire(p_daemon, p_number, p_max_expired, p_now_ms, p_lease);
    WHEN 'undo' THEN
        v_answer.answer := undo(lock_key(p_key, p_jitter, false), p_number, p_now_ms, p_lease)::text;
    WHEN 'retry' THEN
        v_key := lock_key(p_key, p_jitter, false);
        v_answer.number := retry(v_key, p_name, p_max_expired, v_now, p_lease);
        v_answer.answer := CASE WHEN v_answer.number IS NULL AND EXISTS (SELECT FROM queue WHERE key_id = v_key) THEN 'held' END;
    WHEN 'hold' THEN
        v_answer.detail := hold(p_key, p_jitter, p_number, p_detail ->> 0, p_name, p_limit, v_now, p_lease);
    WHEN 'bump' THEN
        SELECT b.answer, b.before INTO v_answer.answer, v_answer.number
            FROM bump(lock_key(p_key, p_jitter, false), p_name, p_limit, p_max_expired, v_now, p_lease) b;
    WHEN 'unhold' THEN
        v_answer.answer := unhold(lock_key(p_key, p_jitter, false), v_now, p_lease)::text;
    WHEN 'forget' THEN
        v_answer.answer := coalesce(forget_key(lock_key(p_key, p_jitter, false), v_now, p_lease), 'unknown');
    WHEN 'end_holds' THEN
        PERFORM end_delays(p_limit, p_max_expired, v_now, p_lease);
        PERFORM end_holds(p_limit, v_now, p_lease);
    WHEN 'requeue' THEN
        SELECT r.answer, r.attempt INTO v_answer.answer, v_answer.attempt
            FROM requeue(lock_key(p_key, p_jitter, false), p_now_ms, p_lease) r;
    WHEN 'pause', 'resume' THEN
        UPDATE state SET paused = p_kind = 'pause';
        -- To resume ends this daemon's drain, too.
        UPDATE daemons SET drains_since = NULL WHERE daemon = p_daemon AND p_kind = 'resume' AND drains_since IS NOT NULL;
        v_answer.number := count_in_flight(v_now, p_lease);
    WHEN 'drain' THEN
        UPDATE daemons SET drains_since = coalesce(drains_since, v_now) WHERE daemon = p_daemon;
        v_answer := look(p_daemon, v_now, p_lease, true, 'count_in_flight', NULL);
    WHEN 'register_run' THEN
        v_taken := register_run(p_daemon, p_name, p_number, p_detail);
        v_run := v_taken.run;
        -- The daemon logs it when this is committed.
        v_answer.payload := convert_to(v_taken.taken_from, 'UTF8');
        v_answer.answer := why_elsewhere(p_daemon, p_name, v_run);
        v_answer.detail := stored_run(v_run);
    WHEN 'add_rows' THEN
        v_run := note_batch(p_daemon, p_name, p_number, p_detail);
        v_answer.answer := CASE WHEN v_run.run IS NULL THEN 'unknown' END;
        IF v_run.run IS NOT NULL AND p_row_key <> '{}' THEN
            PERFORM add_rows(v_run, p_row_key, p_row_jitter, p_row_payload, v_now, p_lease);
        END IF;
    WHEN 'prune' THEN
        v_answer.answer := prune(run_of(p_daemon, p_name, p_number), p_limit, v_now, p_lease)::text;
    WHEN 'begin_deletion' THEN
        UPDATE runs SET deleting = true WHERE run = (run_of(p_daemon, p_name, p_number)).run;
    WHEN 'delete_runs' THEN
        v_answer.number := delete_runs(p_daemon, p_detail, p_limit, v_now, p_lease);
    WHEN 'reject_file' THEN
        INSERT INTO rejected_files VALUES (p_daemon, p_name, p_detail ->> 0, v_now)
            ON CONFLICT (daemon, name) DO UPDATE SET reason = excluded.reason;
    WHEN 'forget_rejected' THEN
        DELETE FROM rejected_files WHERE daemon = p_daemon AND name = p_name;
    WHEN 'note_input' THEN
        PERFORM note_input(p_daemon, p_detail, v_now);
    WHEN 'add_task' THEN
        v_answer.answer := add_task(p_key, p_jitter, p_payload, p_max_tasks, p_max_expired, v_now, p_lease);
    WHEN 'cancel_tasks' THEN
        SELECT c.deleted, (c.in_flight IS NOT NULL)::text INTO v_answer.number, v_answer.answer
            FROM cancel_tasks(lock_key(p_key, p_jitter, false), p_limit::int4, p_max_expired, v_now, p_lease) c;
    WHEN 'accept_entries' THEN
        v_answer.detail := accept_entries(p_daemon, p_detail, p_row_key, p_row_jitter, p_row_payload, p_max_tasks,
            p_max_expired, v_now, p_lease);
    WHEN 'forget_accepted' THEN
        PERFORM forget_accepted(p_detail);
    WHEN 'note_fetcher' THEN
        INSERT INTO managed_fetchers VALUES (p_daemon, p_name, p_detail)
            ON CONFLICT (daemon, name) DO UPDATE SET record = excluded.record;
    WHEN 'forget_fetcher' THEN
        DELETE FROM managed_fetchers WHERE daemon = p_daemon AND name = p_name;
    WHEN 'probe' THEN
        NULL;
    ELSE
        v_answer := look(p_daemon, v_now, p_lease, p_paused, p_kind, p_limit);
    END CASE;
    RETURN v_answer;
END $$;

-- Carries a batch out, in the name of a daemon. p_seen: the second of its last call; p_after: how far classic leases were
-- gone through then; the answer at place 0 has both anew, whether the queue is paused, what ended (see `tell_ends`), and, where
-- classic leases were gone through, whether there may be one that runs. p_drains: it hands nothing out. p_until: where each step ends; dispatches and ends that stand
-- together are one step. p_rows: where the rows of each operation end.
CREATE OR REPLACE FUNCTION apply(p_daemon int4, p_epoch int8, p_call int8, p_seen int8, p_after int8, p_lease int8, p_max_expired int4,
    p_max_tasks int8, p_drains bool, p_until int4[], p_kind text[], p_key bytea[], p_jitter int4[], p_number int8[], p_code int8[],
    p_name text[], p_seconds int4[], p_payload bytea[], p_detail jsonb[], p_rows int4[], p_row_key bytea[],
    p_row_jitter int4[], p_row_payload bytea[]) RETURNS SETOF outcome LANGUAGE plpgsql ROWS 64 AS $$
DECLARE
    v_now_ms int8; v_now int8; v_after int8 := p_after; v_more bool := false; v_paused bool; v_runs jsonb;
    v_from int4 := 1; v_to int4; v_row int4 := 0; v_answer outcome; v_answers outcome[]; v_call outcome;
BEGIN
    IF 'pause' = ANY (p_kind) OR 'resume' = ANY (p_kind) THEN
        -- Nobody joins meanwhile.
        LOCK TABLE daemons IN SHARE ROW EXCLUSIVE MODE;
        PERFORM FROM daemons ORDER BY daemon FOR UPDATE;
    END IF;
    PERFORM fence(p_daemon, p_epoch);
    PERFORM set_config('shiftboss.ends', '', true);
    v_now_ms := now_ms();
    v_now := v_now_ms / 1000;
    IF v_now < p_seen THEN
        PERFORM note_disorder();
    END IF;
    SELECT paused INTO v_paused FROM state;
    IF v_now <> p_seen THEN
        SELECT gone_to, more INTO v_after, v_more FROM expire_classic(v_after, v_now, p_lease);
        -- A daemon that begins at the first attempt has not seen what became of any key.
        PERFORM free_unended(CASE WHEN p_after = 0 THEN 0 ELSE p_seen END, v_now, p_lease);
        v_runs := to_jsonb(EXISTS (SELECT FROM attempts WHERE attempt > v_after) OR EXISTS (SELECT FROM disordered)
            OR EXISTS (SELECT FROM unended WHERE started >= v_now - p_lease));
    END IF;
    -- As if it were a second earlier, the next call goes on with what is left.
    v_call := (0, v_paused::text, v_after, NULL, NULL, v_now - v_more::int4, v_runs)::outcome;
    v_paused := v_paused OR p_drains;
    FOREACH v_to IN ARRAY p_until LOOP
        IF p_kind[v_from] IN ('dispatch', 'complete', 'complete_attempt') THEN
            v_answers := turn((NULL, NULL, NULL, p_daemon, p_call, v_now_ms, p_lease)::asked, v_paused, v_from, v_to,
                p_kind, p_key, p_jitter, p_number, p_code, p_name, p_seconds);
            FOREACH v_answer IN ARRAY v_answers LOOP
                RETURN NEXT v_answer;
            END LOOP;
        ELSE
            v_answer := perform_one(p_daemon, v_now_ms, p_lease, p_max_expired, p_max_tasks, v_paused, p_kind[v_from],
                p_key[v_from], p_jitter[v_from], p_number[v_from], p_code[v_from], p_name[v_from], p_payload[v_from],
                p_detail[v_from], p_row_key[v_row + 1 : p_rows[v_from]], p_row_jitter[v_row + 1 : p_rows[v_from]],
                p_row_payload[v_row + 1 : p_rows[v_from]]);
            v_answer.ord := v_from;
            RETURN NEXT v_answer;
            v_paused := CASE WHEN p_kind[v_from] IN ('pause', 'drain') THEN true ELSE v_paused AND p_kind[v_from] <> 'resume' END;
        END IF;
        v_row := p_rows[v_to];
        v_from := v_to + 1;
    END LOOP;
    v_call.payload := convert_to(nullif(substr(current_setting('shiftboss.ends'), 2), ''), 'UTF8');
    RETURN NEXT v_call;
    PERFORM tell_ready();
END $$;
