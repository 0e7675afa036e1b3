-- What has come is found by its keys (arrive.rs).

CREATE INDEX temp.moved_queue_by_key ON moved_queue (key);
CREATE INDEX temp.moved_log_by_key ON moved_log (key);
CREATE INDEX temp.moved_last_served_by_key ON moved_last_served (key);
CREATE INDEX temp.moved_attempts_by_key ON moved_attempts (key, attempt);
CREATE INDEX temp.moved_attempts_by_number ON moved_attempts (attempt);
CREATE INDEX temp.moved_single_tasks_by_key ON moved_single_tasks (key, status, task);
CREATE INDEX temp.moved_holds_by_key ON moved_holds (key);
CREATE INDEX temp.moved_backoff_counts_by_key ON moved_backoff_counts (key);
CREATE INDEX temp.moved_bumps_by_key ON moved_bumps (key);

-- In the order in which they are written; what: in which tables they are, as a sum (`Writer::record`).
CREATE TEMP TABLE moved_keys AS
SELECT key, sum(what) AS what FROM (
    SELECT DISTINCT key, 1 AS what FROM moved_queue
    UNION ALL SELECT key, 2 FROM moved_log
    UNION ALL SELECT key, 4 FROM (SELECT key FROM moved_last_served UNION SELECT key FROM moved_queue WHERE served IS NOT NULL)
    UNION ALL SELECT DISTINCT key, 8 FROM moved_attempts
    UNION ALL SELECT DISTINCT key, 16 FROM moved_single_tasks
    UNION ALL SELECT key, 32 FROM (SELECT key FROM moved_holds UNION SELECT key FROM moved_backoff_counts UNION SELECT key FROM moved_bumps))
GROUP BY key ORDER BY shiftboss_jitter(key), key;
