-- Puts a queue that was copied to the tables moved_* where it belongs, and derives what rule.sql derives for one key, for
-- all of them. Nobody else is here. The setting shiftboss.daemon is the daemon whose lists these are.

ANALYZE moved_runs; ANALYZE moved_queue; ANALYZE moved_log; ANALYZE moved_last_served; ANALYZE moved_attempts;
ANALYZE moved_single_tasks;

-- Ids in the order of jitter; keys of one jitter in the order of their bytes, as number_ties has them.
INSERT INTO keys (key, jitter, place)
    SELECT key, jitter, ((jitter + 2147483648) << 16) + least(row_number() OVER (PARTITION BY jitter ORDER BY key) - 1, 65535)
    FROM (SELECT key, jitter FROM moved_queue UNION SELECT key, jitter FROM moved_log
        UNION SELECT key, jitter FROM moved_last_served UNION SELECT key, jitter FROM moved_attempts
        UNION SELECT key, jitter FROM moved_single_tasks UNION SELECT key, jitter FROM moved_holds
        UNION SELECT key, jitter FROM moved_backoff_counts
        UNION SELECT key, jitter FROM moved_bumps) AS named
    ORDER BY jitter, key;
ANALYZE keys;

INSERT INTO fetchers SELECT fetcher, name FROM moved_fetchers;
SELECT setval('fetchers_fetcher_seq', last_fetcher) FROM moved_state WHERE last_fetcher > 0;
-- Relays whose lists are here, as such that are gone.
INSERT INTO daemons (name, owner, version, epoch, process, lost, beat_at, gone_at, policy_lease, max_tasks, takeover)
    SELECT DISTINCT 'relay ' || relay, 'relay ' || relay, '', 0, '', true, now_ms() / 1000, now_ms() / 1000,
        policy_lease, max_tasks, takeover
    FROM moved_runs, daemons WHERE relay IS NOT NULL AND daemon = current_setting('shiftboss.daemon')::int4
    ON CONFLICT (name) DO UPDATE SET lost = true, pid = NULL, gone_at = excluded.gone_at;
CREATE FUNCTION pg_temp.daemon_of(p_relay text) RETURNS int4 LANGUAGE sql AS $$
    SELECT coalesce((SELECT daemon FROM daemons WHERE name = 'relay ' || p_relay), current_setting('shiftboss.daemon')::int4)
$$;
INSERT INTO runs (fetcher, run_started, daemon, complete, deleting, stale, rows, skipped, position)
    SELECT fetcher, run_started, pg_temp.daemon_of(relay), complete <> 0, deleting <> 0, stale <> 0,
        (SELECT count(*) FROM moved_queue q WHERE q.fetcher = r.fetcher AND q.run_started = r.run_started), skipped,
        CASE WHEN read_to IS NOT NULL THEN jsonb_build_object('offset', read_to, 'lines', lines, 'device', device,
            'inode', inode, 'checksum', checksum, 'content', content, 'modified', modified, 'changed', changed) END
    FROM moved_runs r ORDER BY fetcher, run_started;
INSERT INTO fetcher_owners (name, daemon)
    SELECT DISTINCT f.name, r.daemon FROM fetchers f JOIN runs r ON r.fetcher = f.fetcher AND r.run <> 0
    ON CONFLICT (name) DO UPDATE SET daemon = excluded.daemon, left_at = NULL;
INSERT INTO queue (run, key_id, fetcher, run_started, served, expired, dispatched, dead, payload)
    SELECT r.run, k.key_id, q.fetcher, q.run_started, q.served, q.expired, q.dispatched <> 0, q.dead <> 0, q.payload
    FROM moved_queue q JOIN keys k USING (jitter, key)
    JOIN runs r ON r.fetcher = q.fetcher AND (r.run_started = q.run_started OR r.run = 0)
    ORDER BY r.run, k.key_id;
INSERT INTO last_served
    SELECT k.key_id, s.name, s.attempt FROM moved_last_served s JOIN keys k USING (jitter, key) ORDER BY k.key_id;
INSERT INTO single_tasks (task, key_id, added, status, payload)
    SELECT s.task, k.key_id, s.added, s.status, s.payload FROM moved_single_tasks s JOIN keys k USING (jitter, key)
    ORDER BY s.task;
INSERT INTO holds SELECT k.key_id, h.kind, h.since, h.until, h.reason, h.held_by FROM moved_holds h JOIN keys k USING (jitter, key);
INSERT INTO backoff_counts SELECT k.key_id, c.failures FROM moved_backoff_counts c JOIN keys k USING (jitter, key);
INSERT INTO bumps (key_id, since, bumped_by, attempt, last_attempt, kind, due, fetcher, run_started, retries)
    SELECT k.key_id, b.since, b.bumped_by, b.attempt, b.last_attempt, b.kind, b.due, b.fetcher, b.run_started, b.retries FROM moved_bumps b JOIN keys k USING (jitter, key) ORDER BY b.ctid;
UPDATE bump_credit SET thousandths = credit, share = coalesce(bump_share, share) FROM moved_state;
INSERT INTO accepted SELECT a.*, current_setting('shiftboss.daemon')::int4 FROM moved_accepted a;

-- That an attempt which ended was leased tells its worker's name.
INSERT INTO attempts (attempt, key_id, fetcher, run_started, daemon, call, started_ms, worker, lease, delivery_count,
        prev_started, prev_finished, prev_exit_code, prev_served, marked, finished, outcome, exit_code, took_ms, ended)
    SELECT a.attempt, k.key_id, a.fetcher, a.run_started, current_setting('shiftboss.daemon')::int4, 0, a.started_ms,
        a.worker, coalesce(a.lease, CASE WHEN a.worker IS NOT NULL THEN 0 END), a.delivery_count, a.prev_started,
        a.prev_finished, a.prev_exit_code, a.prev_served,
        CASE WHEN a.marked IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(a.marked::jsonb)::int8) END,
        a.finished, a.outcome, a.exit_code, a.took_ms,
        -- Ends keep their numbers, unless those to come here would be lower.
        CASE WHEN a.outcome IS NULL THEN NULL
            WHEN max(a.ended) OVER () < pg_current_xact_id()::text::int8 << 16 THEN a.ended
            ELSE row_number() OVER (ORDER BY a.ended NULLS LAST) END
    FROM moved_attempts a JOIN keys k USING (jitter, key) ORDER BY a.attempt
    ON CONFLICT DO NOTHING;
INSERT INTO ends SELECT ended, attempt FROM attempts WHERE ended IS NOT NULL ORDER BY ended;
-- A key's history goes back over those that were not undone.
UPDATE attempts a SET prev_last = before.attempt
    FROM (SELECT attempt AS of, lag(attempt) OVER (PARTITION BY key_id ORDER BY attempt) AS attempt FROM attempts
        WHERE outcome IS DISTINCT FROM 'undone') AS before
    WHERE a.attempt = before.of AND a.finished IS NOT NULL;
SELECT setval('attempt_numbers', last_attempt) FROM moved_state WHERE last_attempt > 0;

-- Of several attempts of a key without an end the last one is out, and the leases of the others expired.
CREATE TEMP TABLE moved_open ON COMMIT DROP AS
    SELECT *, attempt = max(attempt) OVER (PARTITION BY key_id) AS is_last FROM attempts WHERE finished IS NULL;
INSERT INTO overdue SELECT attempt, key_id FROM moved_open WHERE NOT is_last;
-- Whatever was handed out, and not undone.
CREATE TEMP TABLE moved_handed_out ON COMMIT DROP AS
    SELECT key_id, served AS attempt FROM queue WHERE served IS NOT NULL
    UNION SELECT key_id, attempt FROM last_served
    UNION SELECT key_id, attempt FROM attempts WHERE outcome IS DISTINCT FROM 'undone'
    UNION SELECT key_id, prev_served FROM moved_open WHERE prev_served IS NOT NULL;
UPDATE attempts a SET prev_last = last.attempt
    FROM (SELECT o.attempt AS of, max(h.attempt) AS attempt FROM moved_open o JOIN moved_handed_out h USING (key_id)
        WHERE h.attempt < o.attempt GROUP BY o.attempt) AS last WHERE a.attempt = last.of;

INSERT INTO log (key_id, started, finished, exit_code, attempt, last, plain)
    SELECT k.key_id, l.started, l.finished, l.exit_code, o.attempt, h.attempt,
        k.key_id NOT IN (SELECT key_id FROM holds UNION ALL SELECT key_id FROM bumps) AND CASE WHEN o.attempt IS NULL
            THEN coalesce(q.rows, 0) <= 1 AND coalesce(q.simple, true) AND (l.started IS NULL OR l.finished IS NOT NULL)
            ELSE coalesce(q.rows, 0) = 1 AND q.simple AND q.dispatched AND q.fetcher = o.fetcher
                AND q.run_started = o.run_started AND o.key_id NOT IN (SELECT key_id FROM overdue) END
    FROM keys k LEFT JOIN moved_log l USING (jitter, key)
    LEFT JOIN moved_open o ON o.key_id = k.key_id AND o.is_last
    LEFT JOIN (SELECT key_id, max(attempt) AS attempt FROM moved_handed_out GROUP BY key_id) AS h ON h.key_id = k.key_id
    LEFT JOIN (SELECT key_id, count(*) AS rows, min(fetcher) AS fetcher, min(run_started) AS run_started,
            bool_and(dispatched) AS dispatched,
            bool_and(expired = 0 AND NOT dead AND fetcher <> 0 AND run <> ALL (ARRAY(SELECT run FROM runs WHERE deleting)))
                AS simple
        FROM queue GROUP BY key_id) AS q ON q.key_id = k.key_id
    ORDER BY k.key_id;
ANALYZE log; ANALYZE queue; ANALYZE attempts; ANALYZE overdue;

INSERT INTO unended SELECT key_id, started FROM log WHERE started IS NOT NULL AND finished IS NULL AND attempt IS NULL;
INSERT INTO failures
    SELECT key_id FROM log l WHERE exit_code <> 0 AND finished IS NOT NULL AND NOT EXISTS (SELECT FROM attempts a
        WHERE a.key_id = l.key_id AND a.outcome = 'done' AND a.started_ms / 1000 = l.started);
-- A classic job is in the order from when its lease is over; the next daemon sees to that.
INSERT INTO ready
    SELECT coalesce(l.started, -1), k.place, k.key_id, only_run(k.key_id) FROM log l JOIN keys k USING (key_id),
        (SELECT deleting_runs() AS deleting OFFSET 0) AS d
    WHERE (l.started IS NULL OR l.finished IS NOT NULL OR l.attempt IS NULL)
        AND NOT EXISTS (SELECT FROM moved_open o WHERE o.key_id = l.key_id AND o.lease IS NOT NULL)
        AND l.key_id NOT IN (SELECT key_id FROM holds)
        AND EXISTS (SELECT FROM choose(l.key_id, d.deleting))
    ORDER BY 1, 2;

INSERT INTO counts (run, backend, minute, rows, pending)
    SELECT run, pg_backend_pid(), now_ms() / 60000, CASE run WHEN 0 THEN count(*) ELSE 0 END,
        count(*) FILTER (WHERE NOT dispatched) FROM queue GROUP BY run;
SELECT count_out(count(*)) FROM moved_open WHERE is_last;
INSERT INTO completions (minute, exit_code, backend, jobs) SELECT minute, exit_code, pg_backend_pid(), jobs FROM moved_completions;
INSERT INTO hours SELECT hour, fetcher, outcome, 0, 0, jobs, took_ms, revisits, revisit_seconds FROM moved_hours;
-- Whether the clock was set back while these were out is not known.
INSERT INTO disordered SELECT attempt FROM moved_open WHERE lease IS NULL;
UPDATE forgotten SET attempt = (SELECT coalesce(min(attempt) - 1, (SELECT last_value FROM attempt_numbers)) FROM attempts);
UPDATE state SET paused = m.paused <> 0, installation = m.installation, last_task = m.last_task,
    single_tasks = (SELECT count(*) FROM single_tasks),
    single_tasks_ended = (SELECT count(*) FROM single_tasks WHERE status <> 'waiting')
    FROM moved_state m;
