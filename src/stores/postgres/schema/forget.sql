-- Forgetting a daemon that is gone for good: `shiftboss forget-daemon`.

-- From now on a daemon does nothing, if it was stopped, is lost, or has not gone on since p_beat: living ones adopt what it
-- had leased, as that of one that was stopped. Else taken_by says who has the name. daemon is NULL: nobody has it.
CREATE OR REPLACE FUNCTION retire(p_name text, p_beat int8, OUT daemon int4, OUT taken_by text, OUT beat int8) LANGUAGE plpgsql AS $$
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
-- 'lives': it joined again meanwhile. And how many lists left the queue, fetchers are free, and leased jobs wait again.
CREATE OR REPLACE FUNCTION forget_part(p_daemon int4, p_limit int8, p_give_back bool,
    OUT came_to text, OUT lists int8, OUT fetchers int8, OUT jobs int8) LANGUAGE plpgsql AS $$
DECLARE v_known daemons; v_now int8 := now_ms() / 1000; v_more bool;
BEGIN
    lists := 0; fetchers := 0; jobs := 0;
    PERFORM require_here();
    SELECT * INTO v_known FROM daemons WHERE daemon = p_daemon FOR UPDATE;
    IF NOT FOUND THEN
        came_to := 'gone';
        RETURN;
    ELSIF v_known.gone_at IS NULL THEN
        came_to := 'lives';
        RETURN;
    ELSIF NOT v_known.lost AND NOT p_give_back AND EXISTS (SELECT FROM daemons
            WHERE daemon <> p_daemon AND pid IS NOT NULL AND NOT lost AND beat_at > v_now - 5) THEN
        came_to := 'adopting';
        RETURN;
    END IF;
    jobs := give_back(p_daemon, p_limit, v_known.policy_lease);
    SELECT n.more, n.lists, n.fetchers INTO v_more, lists, fetchers FROM forget_notes(p_daemon, p_limit) n;
    IF jobs > 0 OR v_more OR tidy_fetchers(p_daemon, v_known.epoch, p_limit) THEN
        came_to := 'more';
        RETURN;
    END IF;
    DELETE FROM daemons WHERE daemon = p_daemon;
    came_to := 'gone';
END $$;

-- Leased jobs of a daemon wait again; how many.
CREATE OR REPLACE FUNCTION give_back(p_daemon int4, p_limit int8, p_lease int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE v_attempt int8; v_now_ms int8 := now_ms(); v_jobs int8 := 0;
BEGIN
    FOR v_attempt IN SELECT attempt FROM attempts WHERE daemon = p_daemon AND finished IS NULL AND lease IS NOT NULL
            ORDER BY key_id LIMIT p_limit LOOP
        PERFORM release(v_attempt, v_now_ms, p_lease);
        v_jobs := v_jobs + 1;
    END LOOP;
    PERFORM tell_ready();
    RETURN v_jobs;
END $$;

-- What a daemon noted, and whose lists it has: whether there is more, how many lists leave, and how many fetchers it has no
-- longer. A fetcher that somebody takes over just now is left to him.
CREATE OR REPLACE FUNCTION forget_notes(p_daemon int4, p_limit int8, OUT more bool, OUT lists int8, OUT fetchers int8)
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM accepted WHERE ctid = ANY (ARRAY(SELECT ctid FROM accepted WHERE daemon = p_daemon LIMIT p_limit));
    DELETE FROM rejected_files WHERE ctid = ANY (ARRAY(SELECT ctid FROM rejected_files WHERE daemon = p_daemon LIMIT p_limit));
    DELETE FROM managed_fetchers
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM managed_fetchers WHERE daemon = p_daemon LIMIT p_limit));
    UPDATE runs SET daemon = NULL, deleting = true
        WHERE run = ANY (ARRAY(SELECT run FROM runs WHERE daemon = p_daemon LIMIT p_limit));
    GET DIAGNOSTICS lists = ROW_COUNT;
    UPDATE fetcher_owners SET daemon = NULL, left_at = coalesce(left_at, now_ms() / 1000) WHERE name = ANY (ARRAY(
        SELECT name FROM fetcher_owners WHERE daemon = p_daemon LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS fetchers = ROW_COUNT;
    more := EXISTS (SELECT FROM accepted WHERE daemon = p_daemon) OR EXISTS (SELECT FROM rejected_files WHERE daemon = p_daemon)
        OR EXISTS (SELECT FROM managed_fetchers WHERE daemon = p_daemon) OR EXISTS (SELECT FROM runs WHERE daemon = p_daemon)
        OR EXISTS (SELECT FROM fetcher_owners WHERE daemon = p_daemon);
END $$;
