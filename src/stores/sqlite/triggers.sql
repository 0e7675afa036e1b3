-- The triggers, in plain SQL that every SQLite from 3.40 on can run. They are dropped and made
-- again by every migration. They serve everybody but the daemon, which has
-- them switched off and does their work itself (src/stores/sqlite/derived_state.rs).
--
-- RECOMPUTE(key) stands for one UPDATE that sets queue.state of all rows of the key by the rule in
-- 0009_shiftboss.sql; src/stores/sqlite/schema.rs puts it in. Whatever changes, that is what is done.
-- EXTRACT(key) stands for the INSERT that moves the record of a dispatch from the key's row to shiftboss_deliveries,
-- before anything else happens to the key. Where its row is what changes it is made from the old values (OLD): a
-- trigger may not change a row that is about to be changed.

CREATE TRIGGER shiftboss_run_insert AFTER INSERT ON fetcher_runs
BEGIN
    INSERT INTO shiftboss_runs (fetcher_id, run_started)
    SELECT NEW.fetcher_id, NEW.run_started
    WHERE NOT EXISTS (
        SELECT 1 FROM shiftboss_runs
        WHERE fetcher_id = NEW.fetcher_id AND run_started = NEW.run_started
    );
END;

-- Before its rows lose its name.
CREATE TRIGGER shiftboss_fetcher_delete BEFORE DELETE ON fetchers
BEGIN
    INSERT INTO shiftboss_last_served (attr_path, name, attempt)
    SELECT attr_path, OLD.name, last_served
    FROM fetcher_runs AS run JOIN queue
        ON queue.fetcher_id = run.fetcher_id AND queue.fetcher_run_started = run.run_started
    WHERE run.fetcher_id = OLD.fetcher_id AND last_served IS NOT NULL
    ON CONFLICT DO UPDATE SET attempt = excluded.attempt;
END;

CREATE TRIGGER shiftboss_run_delete AFTER DELETE ON fetcher_runs
BEGIN
    -- As the foreign key would: most who edit by hand have those switched off.
    DELETE FROM queue
    WHERE fetcher_id = OLD.fetcher_id AND fetcher_run_started = OLD.run_started;
    DELETE FROM shiftboss_runs
    WHERE fetcher_id = OLD.fetcher_id AND run_started = OLD.run_started;
    DELETE FROM shiftboss_expired_leases
    WHERE fetcher_id = OLD.fetcher_id AND run_started = OLD.run_started;
END;

CREATE TRIGGER shiftboss_queue_insert AFTER INSERT ON queue
BEGIN
    UPDATE shiftboss_runs SET rows = rows + 1, pending = pending + (NEW.is_dequeued = 0)
    WHERE fetcher_id = NEW.fetcher_id AND run_started = NEW.fetcher_run_started;
    UPDATE queue SET last_served = coalesce(
        (SELECT max(other.last_served) FROM queue AS other
        WHERE other.attr_path = NEW.attr_path AND +other.fetcher_id = NEW.fetcher_id),
        (SELECT attempt FROM fetchers JOIN shiftboss_last_served USING (name)
        WHERE fetcher_id = NEW.fetcher_id AND attr_path = NEW.attr_path)
    ) WHERE rowid = NEW.rowid;
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_queue_inserting BEFORE INSERT ON queue
BEGIN
    EXTRACT(NEW.attr_path);
END;

-- INSERT OR REPLACE fires no trigger for the rows that it deletes, those in the new row's way. So they are deleted before,
-- by a statement that fires one. A statement in a trigger has the conflict clause of the statement that fired it, if
-- that has one: so `replaces` becomes 1 under OR REPLACE alone.
CREATE TRIGGER shiftboss_queue_replacing BEFORE INSERT ON queue
WHEN EXISTS (
    SELECT 1 FROM queue WHERE rowid = NEW.rowid
    UNION ALL SELECT 1 FROM queue WHERE fetcher_id = NEW.fetcher_id
        AND fetcher_run_started = NEW.fetcher_run_started AND attr_path = NEW.attr_path
)
BEGIN
    DELETE FROM shiftboss_counters WHERE name = 'replaces';
    INSERT INTO shiftboss_counters (name, value) VALUES ('replaces', 0);
    INSERT OR IGNORE INTO shiftboss_counters (name, value) VALUES ('replaces', 1);
    DELETE FROM queue
    WHERE (rowid = NEW.rowid OR (fetcher_id = NEW.fetcher_id
            AND fetcher_run_started = NEW.fetcher_run_started AND attr_path = NEW.attr_path))
        AND (SELECT value FROM shiftboss_counters WHERE name = 'replaces') = 1;
    DELETE FROM shiftboss_counters WHERE name = 'replaces';
END;

CREATE TRIGGER shiftboss_queue_delete AFTER DELETE ON queue
BEGIN
    EXTRACT(OLD);
    INSERT INTO shiftboss_last_served (attr_path, name, attempt)
    SELECT OLD.attr_path, name, OLD.last_served FROM fetchers
    WHERE fetcher_id = OLD.fetcher_id AND OLD.last_served IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM queue
        WHERE attr_path = OLD.attr_path AND +queue.fetcher_id = OLD.fetcher_id
    )
    ON CONFLICT DO UPDATE SET attempt = excluded.attempt;
    UPDATE shiftboss_runs SET rows = rows - 1, pending = pending - (OLD.is_dequeued = 0)
    WHERE fetcher_id = OLD.fetcher_id AND run_started = OLD.fetcher_run_started;
    -- A dispatch whose lease expired has nothing left to be handed out; one in flight stays known, and
    -- one that is leased is its worker's.
    DELETE FROM shiftboss_deliveries
    WHERE attr_path = OLD.attr_path
      AND lease IS NULL
      AND fetcher_id = OLD.fetcher_id
      AND run_started = OLD.fetcher_run_started
      AND started IS NOT (
          SELECT log.started FROM log
          WHERE log.attr_path = OLD.attr_path AND log.finished IS NULL
      );
    RECOMPUTE(OLD.attr_path);
END;

CREATE TRIGGER shiftboss_queue_update AFTER UPDATE OF is_dequeued ON queue
WHEN (OLD.is_dequeued = 0) <> (NEW.is_dequeued = 0)
BEGIN
    EXTRACT(NEW.attr_path);
    UPDATE shiftboss_runs
    SET pending = pending - (OLD.is_dequeued = 0) + (NEW.is_dequeued = 0)
    WHERE fetcher_id = NEW.fetcher_id AND run_started = NEW.fetcher_run_started;
    RECOMPUTE(NEW.attr_path);
END;

-- A row that takes another key's name, or with UPDATE OR REPLACE its row's place: that fires no trigger for the row
-- that it deletes.
CREATE TRIGGER shiftboss_queue_moving BEFORE UPDATE OF attr_path ON queue
WHEN OLD.attr_path <> NEW.attr_path
BEGIN
    EXTRACT(NEW.attr_path);
END;

-- A row that became another's.
CREATE TRIGGER shiftboss_queue_move AFTER UPDATE OF attr_path, fetcher_id, fetcher_run_started ON queue
WHEN (OLD.attr_path, OLD.fetcher_id, OLD.fetcher_run_started)
    <> (NEW.attr_path, NEW.fetcher_id, NEW.fetcher_run_started)
BEGIN
    EXTRACT(OLD);
    UPDATE queue SET state = 0 WHERE rowid = NEW.rowid AND state = -2;
    UPDATE shiftboss_runs SET rows = rows - 1, pending = pending - (NEW.is_dequeued = 0)
    WHERE fetcher_id = OLD.fetcher_id AND run_started = OLD.fetcher_run_started;
    UPDATE shiftboss_runs SET rows = rows + 1, pending = pending + (NEW.is_dequeued = 0)
    WHERE fetcher_id = NEW.fetcher_id AND run_started = NEW.fetcher_run_started;
    UPDATE queue SET last_started = (SELECT started FROM log WHERE log.attr_path = NEW.attr_path)
    WHERE rowid = NEW.rowid;
    RECOMPUTE(OLD.attr_path);
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_log_inserting BEFORE INSERT ON log
BEGIN
    EXTRACT(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_log_updating BEFORE UPDATE ON log
BEGIN
    EXTRACT(OLD.attr_path);
END;

-- UPDATE OR REPLACE fires no trigger for the row that it deletes.
CREATE TRIGGER shiftboss_log_renaming BEFORE UPDATE OF attr_path ON log
WHEN OLD.attr_path <> NEW.attr_path
BEGIN
    EXTRACT(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_log_deleting BEFORE DELETE ON log
BEGIN
    EXTRACT(OLD.attr_path);
END;

-- INSERT OR REPLACE of an ended job ends it as an UPDATE does.
CREATE TRIGGER shiftboss_log_insert AFTER INSERT ON log
BEGIN
    DELETE FROM shiftboss_deliveries
    WHERE NEW.finished IS NOT NULL
      AND attr_path = NEW.attr_path
      AND fetcher_id = (
          SELECT fetcher_id FROM shiftboss_deliveries
          WHERE attr_path = NEW.attr_path ORDER BY attempt DESC LIMIT 1
      );
    UPDATE shiftboss_single_tasks SET exit_code = coalesce(NEW.exit_code, 0)
    WHERE attr_path = NEW.attr_path AND started = NEW.started AND status = 'waiting'
      AND NEW.finished IS NOT NULL;
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_log_delete AFTER DELETE ON log
BEGIN
    RECOMPUTE(OLD.attr_path);
END;

-- A job ended: the dispatch that was in flight is known no longer, and neither are earlier ones of
-- its fetcher whose leases expired.
CREATE TRIGGER shiftboss_log_finish AFTER UPDATE OF finished ON log
WHEN OLD.finished IS NULL AND NEW.finished IS NOT NULL
BEGIN
    DELETE FROM shiftboss_deliveries
    WHERE attr_path = NEW.attr_path
      AND fetcher_id = (
          SELECT fetcher_id FROM shiftboss_deliveries
          WHERE attr_path = NEW.attr_path ORDER BY attempt DESC LIMIT 1
      );
    UPDATE shiftboss_single_tasks SET exit_code = coalesce(NEW.exit_code, 0)
    WHERE attr_path = NEW.attr_path AND started = NEW.started AND status = 'waiting';
    INSERT INTO shiftboss_completions (minute, exit_code, jobs)
    SELECT NEW.finished / 60, coalesce(NEW.exit_code, 0), 0
    WHERE NOT EXISTS (
        SELECT 1 FROM shiftboss_completions
        WHERE minute = NEW.finished / 60 AND exit_code = coalesce(NEW.exit_code, 0)
    );
    UPDATE shiftboss_completions SET jobs = jobs + 1
    WHERE minute = NEW.finished / 60 AND exit_code = coalesce(NEW.exit_code, 0);
    RECOMPUTE(NEW.attr_path);
END;

-- A finish said again, or another exit code: the last one stands, and is not counted twice.
CREATE TRIGGER shiftboss_log_refinish AFTER UPDATE OF finished, exit_code ON log
WHEN OLD.finished IS NOT NULL AND NEW.finished IS NOT NULL
BEGIN
    UPDATE shiftboss_single_tasks SET exit_code = coalesce(NEW.exit_code, 0)
    WHERE attr_path = NEW.attr_path AND started = NEW.started AND status = 'waiting';
    UPDATE shiftboss_completions SET jobs = jobs - 1
    WHERE minute = OLD.finished / 60 AND exit_code = coalesce(OLD.exit_code, 0) AND jobs > 0;
    INSERT INTO shiftboss_completions (minute, exit_code, jobs)
    SELECT NEW.finished / 60, coalesce(NEW.exit_code, 0), 0
    WHERE NOT EXISTS (
        SELECT 1 FROM shiftboss_completions
        WHERE minute = NEW.finished / 60 AND exit_code = coalesce(NEW.exit_code, 0)
    );
    UPDATE shiftboss_completions SET jobs = jobs + 1
    WHERE minute = NEW.finished / 60 AND exit_code = coalesce(NEW.exit_code, 0);
END;

CREATE TRIGGER shiftboss_log_restart AFTER UPDATE OF finished ON log
WHEN OLD.finished IS NOT NULL AND NEW.finished IS NULL
BEGIN
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_log_rename AFTER UPDATE OF attr_path ON log
WHEN OLD.attr_path <> NEW.attr_path
BEGIN
    UPDATE queue SET last_started = NEW.started WHERE attr_path = NEW.attr_path;
    RECOMPUTE(OLD.attr_path);
    RECOMPUTE(NEW.attr_path);
END;

-- INSERT OR REPLACE fires no trigger for the row that it deletes.
CREATE TRIGGER shiftboss_hold_inserting BEFORE INSERT ON shiftboss_holds
BEGIN
    DELETE FROM shiftboss_holds WHERE attr_path = NEW.attr_path AND kind = NEW.kind;
    EXTRACT(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_hold_insert AFTER INSERT ON shiftboss_holds
BEGIN
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_hold_delete AFTER DELETE ON shiftboss_holds
BEGIN
    RECOMPUTE(OLD.attr_path);
END;

CREATE TRIGGER shiftboss_hold_moving BEFORE UPDATE OF attr_path ON shiftboss_holds
WHEN OLD.attr_path <> NEW.attr_path
BEGIN
    DELETE FROM shiftboss_holds WHERE attr_path = NEW.attr_path AND kind = NEW.kind;
    EXTRACT(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_hold_move AFTER UPDATE OF attr_path ON shiftboss_holds
WHEN OLD.attr_path <> NEW.attr_path
BEGIN
    RECOMPUTE(OLD.attr_path);
    RECOMPUTE(NEW.attr_path);
END;

-- A key that is bumped is not plain.
CREATE TRIGGER shiftboss_bump_inserting BEFORE INSERT ON shiftboss_bumps
BEGIN
    EXTRACT(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_bump_insert AFTER INSERT ON shiftboss_bumps
BEGIN
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_bump_delete AFTER DELETE ON shiftboss_bumps
BEGIN
    RECOMPUTE(OLD.attr_path);
END;

CREATE TRIGGER shiftboss_bump_move AFTER UPDATE OF attr_path ON shiftboss_bumps
BEGIN
    EXTRACT(NEW.attr_path);
    RECOMPUTE(OLD.attr_path);
    RECOMPUTE(NEW.attr_path);
END;

CREATE TRIGGER shiftboss_delivery_insert AFTER INSERT ON shiftboss_deliveries
BEGIN
    RECOMPUTE(NEW.attr_path);
END;

-- What became of the attempt: the log tells, if somebody ended the job there.
CREATE TRIGGER shiftboss_delivery_delete AFTER DELETE ON shiftboss_deliveries
BEGIN
    INSERT INTO shiftboss_attempts (attempt, attr_path, fetcher_id, run_started, worker, started,
        finished, outcome, exit_code, ended, previous)
    SELECT OLD.attempt, OLD.attr_path, OLD.fetcher_id, OLD.run_started, OLD.worker, OLD.started,
        coalesce(ended.finished, OLD.started), iif(ended.finished IS NULL, 'expired', 'done'),
        iif(ended.finished IS NULL, NULL, coalesce(ended.exit_code, 0)),
        max((SELECT coalesce(max(kept.ended), 0) FROM shiftboss_attempts AS kept),
            (SELECT coalesce(max(value), 0) FROM shiftboss_counters WHERE name = 'ended')) + 1, OLD.prev_last_served
    FROM (SELECT 1) LEFT JOIN log AS ended
        ON ended.attr_path = OLD.attr_path AND ended.started = OLD.started
    WHERE NOT EXISTS (SELECT 1 FROM shiftboss_attempts WHERE attempt = OLD.attempt);
    -- A single task is known to be out all the same.
    UPDATE shiftboss_single_tasks SET started = max(coalesce(started, OLD.started), OLD.started)
    WHERE OLD.fetcher_id = 0 AND task = OLD.run_started AND status = 'waiting';
    RECOMPUTE(OLD.attr_path);
END;
