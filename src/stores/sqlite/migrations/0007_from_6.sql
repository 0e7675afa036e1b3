-- From version 6, of an unreleased build: names alone. The triggers are dropped before.
DROP INDEX shiftboss_slots;
DROP INDEX shiftboss_returned;
ALTER TABLE queue RENAME COLUMN slot TO partition;
ALTER TABLE shiftboss_runs RENAME COLUMN slot TO partition;
ALTER TABLE shiftboss_flights RENAME TO shiftboss_deliveries;
ALTER TABLE shiftboss_deliveries RENAME COLUMN tries TO delivery_count;
ALTER TABLE shiftboss_deliveries RENAME COLUMN prev_turn TO prev_last_served;
ALTER TABLE shiftboss_deliveries RENAME COLUMN rearm TO marked_runs;
ALTER TABLE shiftboss_turns RENAME TO shiftboss_last_served;
ALTER TABLE shiftboss_tries RENAME TO shiftboss_expired_leases;
ALTER TABLE shiftboss_expired_leases RENAME COLUMN tries TO expired_leases;
ALTER TABLE shiftboss_expired_leases RENAME COLUMN dead TO dead_letter;
ALTER TABLE shiftboss_aside RENAME TO shiftboss_rejected_files;
ALTER TABLE shiftboss_own_fetchers RENAME TO shiftboss_managed_fetchers;
ALTER TABLE shiftboss_managed_fetchers RENAME COLUMN last_told TO last_message;
ALTER TABLE shiftboss_done RENAME TO shiftboss_completions;
CREATE INDEX shiftboss_partitioned_runs ON shiftboss_runs (partition)
WHERE partition > 0 OR deleting <> 0;
CREATE INDEX shiftboss_returned_attempts ON shiftboss_attempts (attr_path, attempt)
WHERE outcome IN ('released', 'expired');
