-- Whose fetchers are. A fetcher belongs to one daemon at a time, that whose input directory has its files; another one takes
-- it over when that daemon has been gone, or without the fetcher, for the time that the other one waits (daemons.takeover).
--
-- The fetcher's row in fetcher_owners is locked first, then its owner's in daemons, so that of two daemons one comes first,
-- and an owner that comes back just then is either an owner or has nothing left. Runs that nobody has (runs.daemon is NULL) are
-- being deleted, by all companions.

-- The run of that number of a fetcher, if it is this daemon's.
CREATE OR REPLACE FUNCTION run_of(p_daemon int4, p_fetcher text, p_started int8) RETURNS runs LANGUAGE sql STABLE AS $$
    SELECT r.* FROM runs r JOIN fetchers f USING (fetcher)
    WHERE f.name = p_fetcher AND r.run_started = p_started AND r.daemon = p_daemon
$$;

-- Makes a run known, if its fetcher is this daemon's, or is so from now on. p_own: all runs of the fetcher that the daemon
-- has, with the first of them in a batch. run is NULL: another daemon has the fetcher. taken_from: whose it was, if it was taken
-- over now.
CREATE OR REPLACE FUNCTION register_run(p_daemon int4, p_fetcher text, p_started int8, p_own jsonb, OUT run runs, OUT taken_from text)
LANGUAGE plpgsql AS $$
DECLARE v_owner fetcher_owners; v_fetcher int4;
BEGIN
    -- Again, if somebody deleted it in between.
    WHILE v_owner.name IS NULL LOOP
        INSERT INTO fetcher_owners VALUES (p_fetcher, p_daemon) ON CONFLICT DO NOTHING;
        SELECT * INTO v_owner FROM fetcher_owners WHERE name = p_fetcher FOR NO KEY UPDATE;
    END LOOP;
    IF v_owner.daemon IS DISTINCT FROM p_daemon THEN
        IF p_own IS NULL OR NOT is_free(v_owner, p_daemon) THEN
            RETURN;
        END IF;
        taken_from := (SELECT d.name FROM daemons d WHERE d.daemon = v_owner.daemon);
        PERFORM take_over(p_daemon, p_fetcher, p_own);
    ELSIF v_owner.left_at IS NOT NULL THEN
        UPDATE fetcher_owners SET left_at = NULL WHERE name = p_fetcher;
    END IF;
    INSERT INTO fetchers (name) VALUES (p_fetcher) ON CONFLICT DO NOTHING;
    SELECT fetcher INTO v_fetcher FROM fetchers WHERE name = p_fetcher;
    INSERT INTO runs (fetcher, run_started, daemon) VALUES (v_fetcher, p_started, p_daemon) ON CONFLICT DO NOTHING;
    SELECT * INTO run FROM runs r WHERE r.fetcher = v_fetcher AND r.run_started = p_started;
END $$;

-- Whether a daemon may take a fetcher of another one. Its owner writes nothing until this transaction ends.
CREATE OR REPLACE FUNCTION is_free(p_owner fetcher_owners, p_daemon int4) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_before int8;
BEGIN
    SELECT now_ms() / 1000 - takeover INTO v_before FROM daemons WHERE daemon = p_daemon;
    IF p_owner.daemon IS NULL OR p_owner.left_at <= v_before THEN
        RETURN true;
    END IF;
    PERFORM FROM daemons WHERE daemon = p_owner.daemon AND gone_at <= v_before FOR UPDATE;
    RETURN FOUND;
END $$;

-- A fetcher is this daemon's from now on. Of its runs those that this one has too are read anew, and what their files do not
-- list leaves the queue then; the others are being deleted.
CREATE OR REPLACE FUNCTION take_over(p_daemon int4, p_fetcher text, p_own jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_fetcher int4;
    v_own int8[] := ARRAY(SELECT jsonb_array_elements_text(p_own)::int8);
BEGIN
    SELECT fetcher INTO v_fetcher FROM fetchers WHERE name = p_fetcher;
    UPDATE fetcher_owners SET daemon = p_daemon, left_at = NULL WHERE name = p_fetcher;
    UPDATE runs SET daemon = NULL, deleting = true
        WHERE fetcher = v_fetcher AND daemon IS NOT NULL AND (deleting OR run_started <> ALL (v_own));
    UPDATE runs SET daemon = p_daemon, complete = false, position = NULL, skipped = 0, stale = true, listing = false
        WHERE fetcher = v_fetcher AND daemon IS NOT NULL;
END $$;

-- A time for people: 1h 30m.
CREATE OR REPLACE FUNCTION span(p_seconds int8) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT concat_ws(' ', nullif(p_seconds / 3600, 0) || 'h', nullif(p_seconds % 3600 / 60, 0) || 'm',
        nullif(p_seconds % 60, 0) || 's')
$$;

-- Why a daemon has not got a run that it registered, for people; NULL: it has.
CREATE OR REPLACE FUNCTION why_elsewhere(p_daemon int4, p_fetcher text, p_run runs) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF p_run.run IS NULL THEN
        RETURN (SELECT format('the fetcher %s belongs to the daemon %s; it is taken over (--takeover) when that one has been '
                'gone, or without a list of it, for %s', o.name, owner.name, span(own.takeover))
            FROM fetcher_owners o JOIN daemons owner USING (daemon) CROSS JOIN daemons own
            WHERE o.name = p_fetcher AND own.daemon = p_daemon);
    END IF;
    RETURN CASE WHEN p_run.daemon IS NULL THEN 'what another daemon had of this run is still being deleted' END;
END $$;

-- A run is gone. The daemon that has the fetcher, and no run of it any more, has it for a while yet.
CREATE OR REPLACE FUNCTION leave_fetcher(p_fetcher int4) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM runs WHERE fetcher = p_fetcher AND daemon IS NOT NULL) THEN
        UPDATE fetcher_owners SET left_at = now_ms() / 1000
            WHERE name = (SELECT name FROM fetchers WHERE fetcher = p_fetcher) AND left_at IS NULL;
    END IF;
    DELETE FROM fetchers f WHERE f.fetcher = p_fetcher AND NOT EXISTS (SELECT FROM runs WHERE fetcher = f.fetcher);
END $$;

-- Deletes rows of a run that nobody has, p_limit at the most, and with the last one the run; whether there may be more. When
-- there are none, forgets who had fetchers that have been left for so long that every daemon may have them.
CREATE OR REPLACE FUNCTION tidy_fetchers(p_daemon int4, p_epoch int8, p_limit int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_run runs; v_lease int8; v_takeover int8;
BEGIN
    PERFORM fence(p_daemon, p_epoch);
    SELECT policy_lease INTO v_lease FROM daemons WHERE daemon = p_daemon;
    SELECT max(takeover) INTO v_takeover FROM daemons;
    SELECT * INTO v_run FROM runs WHERE deleting AND daemon IS NULL ORDER BY run LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        PERFORM delete_run(v_run, p_limit, now_ms() / 1000, v_lease);
        PERFORM tell_ready();
        RETURN true;
    END IF;
    DELETE FROM fetcher_owners o WHERE name = ANY (ARRAY(
            SELECT name FROM fetcher_owners WHERE daemon IS NULL OR left_at < now_ms() / 1000 - v_takeover
            FOR UPDATE SKIP LOCKED))
        AND NOT EXISTS (SELECT FROM fetchers f WHERE f.name = o.name);
    RETURN false;
END $$;
