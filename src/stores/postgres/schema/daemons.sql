-- The daemons of a queue: who may write, who lives, and who takes over what another one had.

-- Nobody but the daemon that joined with this epoch writes in its name. Shared, to the end of the transaction: who takes
-- a daemon for dead locks its row FOR UPDATE first, and so waits for what it is about.
CREATE OR REPLACE FUNCTION fence(p_daemon int4, p_epoch int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM daemons WHERE daemon = p_daemon AND epoch = p_epoch FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'daemon % has another epoch than %', p_daemon, p_epoch USING errcode = 'SB001';
    END IF;
END $$;

-- Ends the connections of a daemon that began by then: one that waits for a frozen client would hold its locks.
CREATE OR REPLACE FUNCTION end_connections(p_connections text, p_begun timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = p_connections AND datname = current_database() AND pid <> pg_backend_pid()
        AND backend_start <= p_begun AND pg_has_role(usesysid, 'USAGE')
$$;

-- Whoever moves the queue holds this lock: "shiftmov" as a number.
CREATE OR REPLACE FUNCTION move_lock() RETURNS int8 LANGUAGE sql IMMUTABLE AS 'SELECT 8316012600700530550';

-- The queue is here, and stays here for now; to the end of the transaction.
CREATE OR REPLACE FUNCTION require_here() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_state state;
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(move_lock()) THEN
        RAISE EXCEPTION 'the queue is being moved: wait until `shiftboss move` has ended' USING errcode = 'SB002';
    END IF;
    SELECT * INTO v_state FROM state;
    IF v_state.moved IS NOT NULL THEN
        RAISE EXCEPTION 'the queue was moved to %: use that', substr(v_state.moved, strpos(v_state.moved, ' ') + 1)
            USING errcode = 'SB002';
    ELSIF v_state.move IS NOT NULL THEN
        RAISE EXCEPTION 'a move of the queue in % to here was broken off: run the same `shiftboss move` again',
            substr(v_state.move, strpos(v_state.move, ' ') + 1) USING errcode = 'SB002';
    END IF;
END $$;

-- A daemon joins, or joins anew: from now on nobody writes in its name with an earlier epoch. A name that another owner
-- has is not taken, and taken_by says who has it, unless it is lost, was stopped, or has not gone on since p_beat.
-- p_again: by the same process, which has been running since it joined first. p_drains: it hands nothing out.
CREATE OR REPLACE FUNCTION join_queue(p_name text, p_owner text, p_version text, p_lease int8, p_max_tasks int8, p_takeover int8,
    p_pid int8, p_beat int8, p_again bool, p_drains bool,
    OUT daemon int4, OUT epoch int8, OUT was_clean bool, OUT paused bool, OUT input_directory text, OUT seen int8,
    OUT taken_by text, OUT beat int8) LANGUAGE plpgsql AS $$
DECLARE v_known daemons;
BEGIN
    PERFORM require_here();
    INSERT INTO daemons (name, owner, version, epoch, policy_lease, max_tasks, takeover)
        VALUES (p_name, p_owner, p_version, 0, p_lease, p_max_tasks, p_takeover) ON CONFLICT DO NOTHING;
    SELECT * INTO v_known FROM daemons d WHERE d.name = p_name;
    IF NOT has_name(v_known, p_owner, p_beat) THEN
        PERFORM end_connections(v_known.connections, 'infinity');
        SELECT * INTO v_known FROM daemons d WHERE d.name = p_name FOR UPDATE;
    END IF;
    IF v_known.name IS NULL THEN
        RAISE EXCEPTION 'the daemon % was forgotten in this moment', p_name USING errcode = 'serialization_failure';
    END IF;
    IF has_name(v_known, p_owner, p_beat) THEN
        taken_by := format('process %s, version %s', v_known.pid, v_known.version);
        beat := v_known.beat;
        RETURN;
    END IF;
    was_clean := v_known.pid IS NULL;
    UPDATE daemons d SET owner = p_owner, version = p_version, policy_lease = p_lease, max_tasks = p_max_tasks,
            takeover = p_takeover, epoch = nextval('epochs'), connections = current_setting('application_name'), pid = p_pid,
            started = CASE WHEN p_again AND d.started IS NOT NULL THEN d.started ELSE now_ms() / 1000 END,
            drains_since = CASE WHEN p_drains THEN coalesce(d.drains_since, now_ms() / 1000) END,
            beat = d.beat + 1, beat_at = now_ms() / 1000, lost = false, gone_at = NULL
        WHERE d.name = p_name
        RETURNING d.daemon, d.epoch, d.input_directory INTO daemon, epoch, input_directory;
    SELECT s.paused INTO paused FROM state s;
    SELECT started_ms / 1000 INTO seen FROM attempts ORDER BY attempt DESC LIMIT 1;
END $$;

-- Whether another process has the name of a daemon, and has gone on since p_beat. One that was at the same place (the owner
-- from its @ on) and has no connection any more has ended: so a daemon that is started again need not wait.
CREATE OR REPLACE FUNCTION has_name(p_known daemons, p_owner text, p_beat int8) RETURNS bool LANGUAGE sql STABLE AS $$
    SELECT p_known.owner <> p_owner AND NOT p_known.lost AND p_known.pid IS NOT NULL
        AND p_known.beat IS DISTINCT FROM p_beat
        AND (substr(p_known.owner, strpos(p_known.owner, '@')) <> substr(p_owner, strpos(p_owner, '@'))
            OR EXISTS (SELECT FROM pg_stat_activity
                WHERE application_name = p_known.connections AND datname = current_database() AND pid <> pg_backend_pid()))
$$;

CREATE OR REPLACE FUNCTION leave_queue(p_daemon int4, p_epoch int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fence(p_daemon, p_epoch);
    UPDATE daemons SET pid = NULL, started = NULL, gone_at = now_ms() / 1000 WHERE daemon = p_daemon;
END $$;

-- A daemon lives. Returns those that are not lost, itself among them. It asks for no table but its own, for whoever locks
-- another one makes nobody dead.
CREATE OR REPLACE FUNCTION beat(p_daemon int4, p_epoch int8)
RETURNS TABLE (daemon int4, epoch int8, beat int8, is_stopped bool, adoptions int8)
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE daemons d SET beat = d.beat + 1, beat_at = now_ms() / 1000 WHERE d.daemon = p_daemon AND d.epoch = p_epoch;
    IF NOT FOUND THEN
        PERFORM fence(p_daemon, p_epoch);
    END IF;
    RETURN QUERY SELECT d.daemon, d.epoch, d.beat, d.pid IS NULL, d.adoptions FROM daemons d WHERE NOT d.lost;
END $$;

-- Takes another daemon for dead, if it has not gone on since: it writes no more, and what it had leased is this one's.
-- Says how many those were; NULL: it lives.
CREATE OR REPLACE FUNCTION adopt(p_daemon int4, p_epoch int8, p_other int4, p_other_epoch int8, p_other_beat int8) RETURNS int8
LANGUAGE plpgsql AS $$
DECLARE v_adopted int8;
BEGIN
    -- Not one with which it joins anew at this moment; and one that was stopped ended them itself.
    PERFORM end_connections(connections, to_timestamp(beat_at + 1)) FROM daemons
        WHERE daemon = p_other AND epoch = p_other_epoch AND beat = p_other_beat AND NOT lost AND pid IS NOT NULL;
    PERFORM FROM daemons WHERE daemon = p_other AND epoch = p_other_epoch AND beat = p_other_beat AND NOT lost FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM fence(p_daemon, p_epoch);
    UPDATE daemons SET adoptions = adoptions + 1 WHERE daemon = p_daemon;
    UPDATE daemons SET epoch = nextval('epochs'), lost = true, gone_at = coalesce(gone_at, now_ms() / 1000)
        WHERE daemon = p_other;
    UPDATE attempts SET daemon = p_daemon WHERE daemon = p_other AND finished IS NULL AND lease IS NOT NULL;
    GET DIAGNOSTICS v_adopted = ROW_COUNT;
    RETURN v_adopted;
END $$;

-- What a call handed out whose result nobody learnt is undone, whoever adopted it meanwhile.
CREATE OR REPLACE FUNCTION undo_call(p_daemon int4, p_epoch int8, p_call int8, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_attempt attempts; v_now_ms int8;
BEGIN
    PERFORM fence(p_daemon, p_epoch);
    v_now_ms := now_ms();
    FOR v_attempt IN SELECT * FROM attempts WHERE call = p_call AND finished IS NULL
            ORDER BY key_id LOOP
        PERFORM FROM log WHERE key_id = v_attempt.key_id FOR NO KEY UPDATE;
        PERFORM undo(v_attempt.key_id, v_attempt.attempt, v_now_ms, p_lease);
    END LOOP;
    PERFORM tell_ready();
END $$;
