-- What outsiders see and edit: the four tables of the Python supervisor, as views, laid over with what they wrote (edits.sql).
-- Nothing here decides.

-- Single tasks are a fetcher's, 0, and each is a run of its own.
CREATE VIEW fetchers (fetcher_id, name) AS
SELECT fetcher, name FROM names WHERE EXISTS (SELECT 1 FROM runs WHERE runs.fetcher = names.fetcher)
UNION ALL
SELECT 0, '@tasks' WHERE EXISTS (SELECT 1 FROM tasks WHERE status NOT IN ('done', 'cancelled'));

CREATE VIEW fetcher_runs (fetcher_id, run_started, is_complete) AS
SELECT fetcher, run, complete FROM runs
UNION ALL
SELECT 0, number, 1 FROM tasks WHERE status NOT IN ('done', 'cancelled');

-- A row waits if it was armed no earlier than its fetcher was served, as keys.served says. An id begins with the key's jitter.
CREATE VIEW queue (
    fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued, last_started, order_jitter
) AS
SELECT rows.fetcher, rows.run, keys.key, rows.payload,
    coalesce(row_edits.is_dequeued, armed < CASE instr(' ' || served, ' ' || rows.fetcher || ':')
        WHEN 0 THEN 0
        ELSE CAST(substr(served, instr(' ' || served, ' ' || rows.fetcher || ':') + length(rows.fetcher) + 1) AS INTEGER)
    END),
    coalesce(log_edits.started, keys.started), (keys.id >> 31) - 2147483648
FROM rows JOIN keys ON keys.id = rows.key
LEFT JOIN row_edits ON row_edits.key = rows.key AND row_edits.fetcher = rows.fetcher AND row_edits.run = rows.run
LEFT JOIN log_edits ON log_edits.key = keys.key
UNION ALL
SELECT 0, number, keys.key, payload, status <> 'waiting', coalesce(log_edits.started, keys.started), (keys.id >> 31) - 2147483648
FROM tasks JOIN keys ON keys.id = tasks.key LEFT JOIN log_edits ON log_edits.key = keys.key
WHERE status NOT IN ('done', 'cancelled');

CREATE VIEW log (attr_path, started, finished, exit_code) AS
SELECT key, started, finished, exit_code FROM log_edits
UNION ALL
SELECT key, started, finished, exit_code FROM keys
WHERE started IS NOT NULL AND NOT EXISTS (SELECT 1 FROM log_edits WHERE log_edits.key = keys.key);

-- A row that is known gets into the way of the new one, as in a table; what the statement says of conflicts (OR IGNORE, OR REPLACE)
-- holds in here.
CREATE TRIGGER log_insert INSTEAD OF INSERT ON log BEGIN
    SELECT RAISE(ABORT, 'a key has 1 to 4096 bytes, and no space or line end: insert one that has')
    WHERE length(CAST(NEW.attr_path AS BLOB)) NOT BETWEEN 1 AND 4096
        OR instr(NEW.attr_path, ' ') OR instr(NEW.attr_path, char(10)) OR instr(NEW.attr_path, char(13));
    INSERT INTO log_edits SELECT * FROM log WHERE attr_path = NEW.attr_path
        AND NOT EXISTS (SELECT 1 FROM log_edits WHERE key = NEW.attr_path);
    INSERT INTO log_edits VALUES (NEW.attr_path, NEW.started, NEW.finished, NEW.exit_code);
END;
CREATE TRIGGER log_update INSTEAD OF UPDATE ON log BEGIN
    SELECT RAISE(ABORT, 'a key keeps its name: use `shiftboss forget`, and insert the other one')
    WHERE NEW.attr_path IS NOT OLD.attr_path;
    INSERT INTO log_edits VALUES (NEW.attr_path, NEW.started, NEW.finished, NEW.exit_code)
    ON CONFLICT (key) DO UPDATE SET started = excluded.started, finished = excluded.finished, exit_code = excluded.exit_code;
END;
CREATE TRIGGER log_delete INSTEAD OF DELETE ON log BEGIN
    SELECT RAISE(ABORT, 'rows of log cannot be deleted here: use `shiftboss forget`');
END;

CREATE TRIGGER queue_update INSTEAD OF UPDATE ON queue BEGIN
    SELECT RAISE(ABORT, 'of queue only is_dequeued can be changed here: write a list, or use `shiftboss add`')
    WHERE (NEW.fetcher_id, NEW.fetcher_run_started, NEW.attr_path, NEW.payload, NEW.last_started, NEW.order_jitter)
        IS NOT (OLD.fetcher_id, OLD.fetcher_run_started, OLD.attr_path, OLD.payload, OLD.last_started, OLD.order_jitter);
    SELECT RAISE(ABORT, 'is_dequeued of a single task cannot be changed here: use `shiftboss retry` or `shiftboss cancel`')
    WHERE OLD.fetcher_id = 0 AND NEW.is_dequeued IS NOT OLD.is_dequeued;
    INSERT INTO row_edits
    SELECT id, OLD.fetcher_id, OLD.fetcher_run_started, NEW.is_dequeued <> 0 FROM keys
    WHERE key = OLD.attr_path AND OLD.fetcher_id <> 0
    ON CONFLICT (key, fetcher, run) DO UPDATE SET is_dequeued = excluded.is_dequeued;
END;
CREATE TRIGGER queue_insert INSTEAD OF INSERT ON queue BEGIN
    SELECT RAISE(ABORT, 'rows cannot be added to queue here: write a list, or use `shiftboss add`');
END;
CREATE TRIGGER queue_delete INSTEAD OF DELETE ON queue BEGIN
    SELECT RAISE(ABORT, 'rows of queue cannot be deleted here: delete the list, or use `shiftboss cancel` or `shiftboss hold`');
END;

-- Runs come and go with their files.
CREATE TRIGGER fetchers_insert INSTEAD OF INSERT ON fetchers BEGIN
    SELECT RAISE(ABORT, 'fetchers cannot be changed here: write or delete lists');
END;
CREATE TRIGGER fetchers_update INSTEAD OF UPDATE ON fetchers BEGIN
    SELECT RAISE(ABORT, 'fetchers cannot be changed here: write or delete lists');
END;
CREATE TRIGGER fetchers_delete INSTEAD OF DELETE ON fetchers BEGIN
    SELECT RAISE(ABORT, 'fetchers cannot be changed here: write or delete lists');
END;
CREATE TRIGGER fetcher_runs_insert INSTEAD OF INSERT ON fetcher_runs BEGIN
    SELECT RAISE(ABORT, 'fetcher_runs cannot be changed here: write or delete lists');
END;
CREATE TRIGGER fetcher_runs_update INSTEAD OF UPDATE ON fetcher_runs BEGIN
    SELECT RAISE(ABORT, 'fetcher_runs cannot be changed here: write or delete lists');
END;
CREATE TRIGGER fetcher_runs_delete INSTEAD OF DELETE ON fetcher_runs BEGIN
    SELECT RAISE(ABORT, 'fetcher_runs cannot be changed here: write or delete lists');
END;
