-- Forgetting a daemon that is gone for good: `shiftboss forget-daemon`.

-- From now on a daemon does nothing, if it was stopped, is lost, or has not gone on since p_beat: living ones adopt what it
-- had leased, as that of one that was stopped. Else taken_by says who has the name. daemon is NULL: nobody has it.
CREATE FUNCTION retire(p_name text, p_beat int8, OUT daemon int4, OUT taken_by text, OUT beat int8) LANGUAGE plpgsql AS $$
DECLARE v_known daemons;
BEGIN
    PERFORM require_here();
    SELECT * INTO v_known FROM daemons d WHERE d.name = p_name;
    IF FOUND AND (v_known.lost OR v_known.pid IS NULL OR v_known.beat = p_beat) THEN
        PERFORM end_connections(v_known.connections, to_timestamp(v_known.beat_at + 1));
        PERFORM FROM daemons d WHERE d.daemon = v_known.daemon AND d.beat = v_known.beat FOR UPDATE;
        IF FOUND THEN
            UPDATE daemons d SET epoch = nextval('epochs'), pid = NULL, started = NULL,
                gone_at = coalesce(gone_at, now_ms() / 1000)
                WHERE d.daemon = v_known.daemon;
            v_known.pid := NULL;
        END IF;
    END IF;
    daemon := v_known.daemon;
    taken_by := format('process %s, version %s', v_known.pid, v_known.version) WHERE v_known.pid IS NOT NULL;
    beat := v_known.beat;
END $$;

-- Forgets a part of what a daemon left, p_limit of each kind at the most; in the end the daemon itself: 'gone', or 'more'.
-- 'adopting': others live, and have not adopted what it had leased yet; with p_give_back it goes back to the queue instead.
-- 'lives': it joined again meanwhile.
CREATE FUNCTION forget_part(p_daemon int4, p_limit int8, p_give_back bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_known daemons; v_now int8 := now_ms() / 1000;
BEGIN
    PERFORM require_here();
    SELECT * INTO v_known FROM daemons WHERE daemon = p_daemon FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    ELSIF v_known.gone_at IS NULL THEN
        RETURN 'lives';
    ELSIF NOT v_known.lost AND NOT p_give_back AND EXISTS (SELECT FROM daemons
            WHERE daemon <> p_daemon AND pid IS NOT NULL AND NOT lost AND beat_at > v_now - 5) THEN
        RETURN 'adopting';
    ELSIF give_back(p_daemon, p_limit, v_known.policy_lease) OR forget_notes(p_daemon, p_limit)
            OR tidy_fetchers(p_daemon, v_known.epoch, p_limit) THEN
        RETURN 'more';
    END IF;
    DELETE FROM daemons WHERE daemon = p_daemon;
    RETURN 'gone';
END $$;

-- Leased jobs of a daemon wait again; whether there may be more.
CREATE FUNCTION give_back(p_daemon int4, p_limit int8, p_lease int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_attempt int8; v_now_ms int8 := now_ms(); v_any bool := false;
BEGIN
    FOR v_attempt IN SELECT attempt FROM attempts WHERE daemon = p_daemon AND finished IS NULL AND lease IS NOT NULL
            ORDER BY key_id LIMIT p_limit LOOP
        PERFORM release(v_attempt, v_now_ms, p_lease);
        v_any := true;
    END LOOP;
    PERFORM tell_ready();
    RETURN v_any;
END $$;

-- What a daemon noted, and whose lists it has; whether there may be more. A fetcher that somebody takes over just now is left
-- to him.
CREATE FUNCTION forget_notes(p_daemon int4, p_limit int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM accepted WHERE ctid = ANY (ARRAY(SELECT ctid FROM accepted WHERE daemon = p_daemon LIMIT p_limit));
    DELETE FROM rejected_files WHERE ctid = ANY (ARRAY(SELECT ctid FROM rejected_files WHERE daemon = p_daemon LIMIT p_limit));
    DELETE FROM managed_fetchers
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM managed_fetchers WHERE daemon = p_daemon LIMIT p_limit));
    UPDATE runs SET daemon = NULL, deleting = true
        WHERE run = ANY (ARRAY(SELECT run FROM runs WHERE daemon = p_daemon LIMIT p_limit));
    UPDATE fetcher_owners SET daemon = NULL, left_at = coalesce(left_at, now_ms() / 1000) WHERE name = ANY (ARRAY(
        SELECT name FROM fetcher_owners WHERE daemon = p_daemon LIMIT p_limit FOR UPDATE SKIP LOCKED));
    RETURN EXISTS (SELECT FROM accepted WHERE daemon = p_daemon) OR EXISTS (SELECT FROM rejected_files WHERE daemon = p_daemon)
        OR EXISTS (SELECT FROM managed_fetchers WHERE daemon = p_daemon) OR EXISTS (SELECT FROM runs WHERE daemon = p_daemon)
        OR EXISTS (SELECT FROM fetcher_owners WHERE daemon = p_daemon);
END $$;
