-- From version 8, of an unreleased build: a plain row records its dispatch itself.
DROP INDEX IF EXISTS shiftboss_held;
CREATE INDEX shiftboss_held ON queue (partition, last_started, order_jitter) WHERE state = -1;
ALTER TABLE queue ADD COLUMN prev_started INTEGER;
ALTER TABLE queue ADD COLUMN prev_finished INTEGER;
ALTER TABLE queue ADD COLUMN prev_exit_code INTEGER;
ALTER TABLE queue ADD COLUMN prev_last_served INTEGER;
-- Those that their rows record, with the columns of shiftboss_deliveries.
CREATE VIEW shiftboss_row_deliveries AS
SELECT queue.attr_path, last_served AS attempt, fetcher_id, fetcher_run_started AS run_started,
    log.started, 1 AS delivery_count, prev_started, prev_finished, prev_exit_code, prev_last_served,
    json_array(fetcher_run_started) AS marked_runs, NULL AS worker, NULL AS lease
FROM log CROSS JOIN queue ON queue.attr_path = log.attr_path
WHERE state = -2 AND log.finished IS NULL AND last_served IS NOT NULL;
-- All of them.
CREATE VIEW shiftboss_in_flight AS
SELECT attr_path, attempt, fetcher_id, run_started, started, delivery_count, prev_started, prev_finished,
    prev_exit_code, prev_last_served, marked_runs, worker, lease FROM shiftboss_deliveries
UNION ALL SELECT * FROM shiftboss_row_deliveries;
