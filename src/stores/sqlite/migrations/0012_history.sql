-- Version 12: what ended, and when, by its own number; a key's history; and what was done each hour.

-- ended: the number of the end, which ascends: whoever reads on from the last one that was read misses none and meets none
-- twice. A late result is another end of its attempt. previous: the attempt before, in which a row of this fetcher and key was
-- dispatched. So the history of a key is a chain that begins at queue.last_served; what was taken back is not in it, but in
-- shiftboss_returned_attempts. An index by key would cost a tenth of a job.
ALTER TABLE shiftboss_attempts ADD COLUMN ended INTEGER;
ALTER TABLE shiftboss_attempts ADD COLUMN previous INTEGER;
UPDATE shiftboss_attempts AS kept SET ended = numbered.ended, previous = numbered.previous
FROM (SELECT attempt, row_number() OVER (ORDER BY finished, attempt) AS ended,
        lag(attempt) OVER (PARTITION BY attr_path, fetcher_id, outcome IN ('done', 'expired') ORDER BY attempt) AS previous
    FROM shiftboss_attempts) AS numbered
WHERE kept.attempt = numbered.attempt;
-- No two ends have one number: the daemon draws them. For SQLite to check that would cost each job.
CREATE INDEX shiftboss_ends ON shiftboss_attempts (ended);

-- Attempts that ended, by hour (unix time / 3600), fetcher ('': it was gone) and outcome; kept for 90 days. took_ms: how long
-- they were out, all together. revisits: those whose key ran before, and revisit_seconds, how long that was ago at their
-- start, all together.
CREATE TABLE shiftboss_hours (
    hour            INTEGER NOT NULL,
    fetcher         TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    jobs            INTEGER NOT NULL,
    took_ms         INTEGER NOT NULL,
    revisits        INTEGER NOT NULL,
    revisit_seconds INTEGER NOT NULL,
    PRIMARY KEY (hour, fetcher, outcome)
) STRICT, WITHOUT ROWID;
