-- Single tasks, and the row of the queue that each key has of them: the oldest task that waits, or, while none does,
-- the last one that failed. Called with the key's row in `log` locked; none of these derives the key's place in the order.

-- Whether a dispatch of a task is known.
CREATE OR REPLACE FUNCTION is_out(p_key int8, p_task int8) RETURNS bool LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM deliveries(p_key) WHERE fetcher = 0 AND run_started = p_task)
$$;

CREATE OR REPLACE FUNCTION count_tasks(p_all int8, p_ended int8) RETURNS void LANGUAGE sql AS $$
    UPDATE state SET single_tasks = single_tasks + p_all, single_tasks_ended = single_tasks_ended + p_ended
    WHERE p_all <> 0 OR p_ended <> 0
$$;

-- Takes a row out, and what hangs on it: an expired delivery of it has nothing left to be handed out; one in flight
-- stays known, and one that is leased is its worker's.
CREATE OR REPLACE FUNCTION remove_row(p_key int8, p_run int4, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_row queue; v_other attempts;
BEGIN
    DELETE FROM queue WHERE run = p_run AND key_id = p_key RETURNING * INTO v_row;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM count_rows(0, -1, -(NOT v_row.dispatched)::int4) WHERE p_run = 0;
    PERFORM keep_served(p_key, v_row.fetcher, v_row.served);
    FOR v_other IN SELECT d.* FROM deliveries(p_key) d, log l
            WHERE l.key_id = p_key AND d.lease IS NULL AND d.fetcher = v_row.fetcher AND d.run_started = v_row.run_started
                AND NOT (l.finished IS NULL AND l.started IS NOT DISTINCT FROM d.started_ms / 1000) LOOP
        PERFORM end_expired(v_other, p_lease);
    END LOOP;
END $$;

-- Sees to it that the key's row is the one that it has to be.
CREATE OR REPLACE FUNCTION derive_row(p_key int8, p_max_expired int4, p_lease int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_current int8; v_status text; v_next single_tasks; v_is_out bool;
BEGIN
    SELECT q.run_started, s.status INTO v_current, v_status FROM queue q LEFT JOIN single_tasks s ON s.task = q.run_started
        WHERE q.run = 0 AND q.key_id = p_key;
    IF v_status = 'waiting' OR v_current IS NOT NULL AND v_status IS NULL AND EXISTS (SELECT FROM deliveries(p_key)
            WHERE fetcher = 0 AND run_started = v_current AND lease IS NOT NULL) THEN
        RETURN;
    END IF;
    SELECT * INTO v_next FROM single_tasks WHERE key_id = p_key
        ORDER BY status DESC, CASE status WHEN 'waiting' THEN task ELSE -task END LIMIT 1;
    IF v_status IS NOT NULL AND v_next.status IS DISTINCT FROM 'waiting' THEN
        RETURN;
    END IF;
    PERFORM remove_row(p_key, 0, p_lease);
    IF v_next.task IS NOT NULL THEN
        INSERT INTO queue AS q (run, key_id, fetcher, run_started, served, dispatched, expired, dead, payload)
        VALUES (0, p_key, 0, v_next.task, served(p_key, 0), v_next.status <> 'waiting' OR is_out(p_key, v_next.task),
            CASE v_next.status WHEN 'dead_letter' THEN p_max_expired ELSE 0 END, v_next.status = 'dead_letter', v_next.payload)
        RETURNING q.dispatched INTO v_is_out;
        PERFORM count_rows(0, 1, (NOT v_is_out)::int4);
    END IF;
END $$;

-- The job of a row ended: if it was a single task's, the task is gone with code 0, and has failed with another one.
CREATE OR REPLACE FUNCTION end_task(p_key int8, p_fetcher int4, p_task int8, p_code int8, p_now_ms int8, p_lease int8)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_was text;
BEGIN
    IF p_fetcher <> 0 THEN
        RETURN;
    END IF;
    IF p_code = 0 THEN
        DELETE FROM single_tasks WHERE task = p_task RETURNING status INTO v_was;
        PERFORM count_tasks(-1, CASE v_was WHEN 'waiting' THEN 0 ELSE -1 END) WHERE v_was IS NOT NULL;
    ELSE
        PERFORM end_task_with(p_task, 'failed');
    END IF;
    PERFORM derive_row(p_key, 0, p_lease);
END $$;

CREATE OR REPLACE FUNCTION end_task_with(p_task int8, p_status text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_was text;
BEGIN
    SELECT status INTO v_was FROM single_tasks WHERE task = p_task;
    UPDATE single_tasks SET status = p_status WHERE task = p_task;
    PERFORM count_tasks(0, 1) WHERE v_was = 'waiting';
END $$;

-- Adds a task: 'added', 'known', or 'full'.
CREATE OR REPLACE FUNCTION add_task(p_key bytea, p_jitter int4, p_payload bytea, p_max_tasks int8, p_max_expired int4, p_now int8,
    p_lease int8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_key int8 := lock_key(p_key, p_jitter, true); v_task int8;
BEGIN
    IF EXISTS (SELECT FROM single_tasks WHERE key_id = v_key AND status = 'waiting' AND payload = p_payload
            AND NOT is_out(v_key, task)) THEN
        RETURN 'known';
    END IF;
    UPDATE state SET single_tasks = single_tasks + 1, last_task = greatest(last_task + 1, p_now)
        WHERE single_tasks < p_max_tasks RETURNING last_task INTO v_task;
    IF NOT FOUND THEN
        RETURN 'full';
    END IF;
    INSERT INTO single_tasks (task, key_id, added, payload) VALUES (v_task, v_key, p_now, p_payload);
    PERFORM derive_row(v_key, p_max_expired, p_lease);
    PERFORM refresh(v_key, p_now, p_lease);
    RETURN 'added';
END $$;

-- Deletes the tasks of a key, the newest first, p_limit at once; that in flight stays. NULL: none is in flight.
CREATE OR REPLACE FUNCTION cancel_tasks(p_key int8, p_limit int4, p_max_expired int4, p_now int8, p_lease int8, OUT deleted int8,
    OUT in_flight int8) LANGUAGE plpgsql AS $$
DECLARE v_ended int8;
BEGIN
    SELECT run_started INTO in_flight FROM deliveries(p_key)
        WHERE fetcher = 0 AND (lease IS NOT NULL OR started_ms / 1000 >= p_now - p_lease) ORDER BY attempt DESC LIMIT 1;
    PERFORM forget_earlier(ARRAY[p_key], 0, 9223372036854775807);
    WITH gone AS (DELETE FROM single_tasks WHERE task IN (SELECT task FROM single_tasks
            WHERE key_id = p_key AND task IS DISTINCT FROM in_flight ORDER BY task DESC LIMIT p_limit) RETURNING status)
        SELECT count(*), count(*) FILTER (WHERE status <> 'waiting') INTO deleted, v_ended FROM gone;
    PERFORM count_tasks(-deleted, -v_ended);
    IF p_key IS NOT NULL THEN
        PERFORM derive_row(p_key, p_max_expired, p_lease);
        PERFORM refresh(p_key, p_now, p_lease);
    END IF;
END $$;

-- Failed tasks of a key and its dead letters wait again, the oldest first; how many.
CREATE OR REPLACE FUNCTION retry_tasks(p_key int8, p_limit int4, p_max_expired int4, p_lease int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE v_back int8;
BEGIN
    IF EXISTS (SELECT FROM queue q JOIN single_tasks s ON s.task = q.run_started
            WHERE q.run = 0 AND q.key_id = p_key AND s.status <> 'waiting') THEN
        PERFORM remove_row(p_key, 0, p_lease);
    END IF;
    WITH back AS (UPDATE single_tasks SET status = 'waiting' WHERE task IN (SELECT task FROM single_tasks
            WHERE key_id = p_key AND status <> 'waiting' ORDER BY task LIMIT p_limit) RETURNING 1)
        SELECT count(*) INTO v_back FROM back;
    PERFORM count_tasks(0, -v_back);
    PERFORM derive_row(p_key, p_max_expired, p_lease);
    RETURN v_back;
END $$;
