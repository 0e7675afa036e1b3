-- What has come and is in no record, once all keys have their ids (arrive.rs).

INSERT INTO tasks (number, key, status, checksum, name, payload)
SELECT task, keys.id, iif(keys.attempt IS NOT NULL AND keys.fetcher = 0 AND keys.run = task, 'in_flight', moved.status),
    shiftboss_checksum(moved.payload), NULL, CAST(moved.payload AS TEXT)
FROM moved_single_tasks AS moved JOIN keys USING (key) ORDER BY task;

-- Attempts that ended: the last one has the number that it had, and those before it the ones before that, so that whoever reads on
-- misses none. And, behind them, those whose leases had expired, for their keys had another one since. previous: the key's last one
-- before that was not undone. Whose fetcher is gone, nobody knows: that has the name ''.
INSERT INTO attempts (ended, attempt, key, fetcher, run, worker, started_ms, ended_ms, outcome, exit_code, previous, revisit)
SELECT last - ends + place, attempt, id,
    CASE WHEN fetcher = 0 OR is_known THEN fetcher ELSE (SELECT names.fetcher FROM names WHERE name = '') END,
    run_started, worker, started_ms,
    coalesce(started_ms + took_ms, finished * 1000, started_ms + coalesce(lease, (SELECT lease FROM moved_state), 0) * 1000),
    CASE WHEN outcome IS NULL THEN 'expired' WHEN outcome <> 'done' THEN outcome
        ELSE CASE exit_code WHEN 0 THEN 'success' WHEN 124 THEN 'timeout' ELSE 'failure' END END,
    exit_code, previous, max(started_ms / 1000 - prev_started, 0)
FROM (
    SELECT moved.*, keys.id, EXISTS (SELECT 1 FROM moved_fetchers AS known WHERE known.fetcher = moved.fetcher) AS is_known,
        coalesce(max(iif(outcome IS 'undone', NULL, moved.attempt)) OVER earlier, 0) AS previous,
        coalesce(max(ended) OVER (), 0) AS last, count(ended) OVER () AS ends,
        row_number() OVER (ORDER BY ended NULLS LAST, moved.attempt) AS place
    FROM moved_attempts AS moved JOIN keys USING (key)
    WHERE outcome IS NOT NULL OR keys.attempt IS NOT moved.attempt
    WINDOW earlier AS (PARTITION BY moved.key ORDER BY moved.attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
ORDER BY 1;
UPDATE header SET ends = (SELECT coalesce(max(ended), 0) FROM attempts);

INSERT INTO hours (hour, fetcher, outcome, jobs, took_ms, revisits, revisit_seconds)
SELECT hour, coalesce((SELECT names.fetcher FROM names WHERE name = moved.fetcher), 0), outcome, jobs, took_ms, revisits, revisit_seconds
FROM moved_hours AS moved;
INSERT INTO minutes (minute, exit_code, jobs) SELECT minute, exit_code, jobs FROM moved_completions;
