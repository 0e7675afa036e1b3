-- Makes everything that the triggers keep, anew from the public tables: after a take-over.
-- Whoever gave the file back to the reference may have made its index again.
DROP INDEX IF EXISTS queue_order_index;
DELETE FROM shiftboss_runs
WHERE NOT EXISTS (
    SELECT 1 FROM fetcher_runs AS run
    WHERE run.fetcher_id = shiftboss_runs.fetcher_id AND run.run_started = shiftboss_runs.run_started
);
INSERT INTO shiftboss_runs (fetcher_id, run_started)
SELECT fetcher_id, run_started FROM fetcher_runs AS run
WHERE NOT EXISTS (
    SELECT 1 FROM shiftboss_runs AS known
    WHERE known.fetcher_id = run.fetcher_id AND known.run_started = run.run_started
);
DELETE FROM shiftboss_expired_leases
WHERE NOT EXISTS (
    SELECT 1 FROM fetcher_runs AS run
    WHERE run.fetcher_id = shiftboss_expired_leases.fetcher_id
      AND run.run_started = shiftboss_expired_leases.run_started
);
UPDATE shiftboss_runs SET rows = 0, pending = 0;
UPDATE shiftboss_runs SET rows = counted.rows, pending = counted.pending
FROM (
    SELECT fetcher_id, fetcher_run_started, count(*) AS rows, sum(is_dequeued = 0) AS pending
    FROM queue GROUP BY fetcher_id, fetcher_run_started
) AS counted
WHERE counted.fetcher_id = shiftboss_runs.fetcher_id
  AND counted.fetcher_run_started = shiftboss_runs.run_started;
-- Large runs get partitions of their own, the largest first (src/stores/sqlite/partitions.rs).
UPDATE shiftboss_runs SET partition = coalesce((
    SELECT place FROM (
        SELECT fetcher_id, run_started, row_number() OVER (ORDER BY rows DESC) AS place
        FROM shiftboss_runs WHERE rows > 500
    ) AS large
    WHERE large.fetcher_id = shiftboss_runs.fetcher_id
      AND large.run_started = shiftboss_runs.run_started AND place < 64
), 0);
-- Whoever edits by hand may leave rows without their run.
UPDATE queue SET partition = coalesce((
    SELECT partition FROM shiftboss_runs AS run
    WHERE run.fetcher_id = queue.fetcher_id AND run.run_started = queue.fetcher_run_started
), 0);
EXTRACT();
-- Dispatches that somebody else ended or repeated meanwhile.
DELETE FROM shiftboss_deliveries
WHERE NOT EXISTS (
    SELECT 1 FROM log
    WHERE log.attr_path = shiftboss_deliveries.attr_path
      AND log.started = shiftboss_deliveries.started AND log.finished IS NULL
);
UPDATE queue SET last_started = (SELECT started FROM log WHERE log.attr_path = queue.attr_path)
WHERE last_started IS NOT (SELECT started FROM log WHERE log.attr_path = queue.attr_path);
RECOMPUTE();
-- The last program may have been another one, which keeps no leases (src/stores/sqlite/adopt.rs).
DELETE FROM shiftboss_state WHERE name = 'policy';
