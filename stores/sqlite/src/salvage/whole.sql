-- What was saved table by table belongs together again: before records are read of it (whole.rs).

-- Of a key that begins anew its last attempt is known, if that is kept.
UPDATE keys SET (started, finished, exit_code, served, last_attempt) = (
    SELECT started_ms / 1000, ended_ms / 1000, exit_code,
        iif(fetcher = 0, '', fetcher || ':' || attempt || iif(exit_code <> 0, 'f', '')), attempt
    FROM attempts WHERE ended = last.ended)
FROM (SELECT key, max(ended) AS ended FROM attempts WHERE outcome <> 'undone' GROUP BY key) AS last
WHERE keys.id = last.key AND keys.last_attempt = 0 AND keys.attempt IS NULL AND keys.started IS NULL;

-- What is of nobody whose name is known.
DELETE FROM rows WHERE key NOT IN (SELECT id FROM keys) OR fetcher NOT IN (SELECT fetcher FROM names);
DELETE FROM runs WHERE fetcher NOT IN (SELECT fetcher FROM names);
DELETE FROM extras WHERE key NOT IN (SELECT id FROM keys);
DELETE FROM tasks WHERE key NOT IN (SELECT id FROM keys);
DELETE FROM attempts WHERE key NOT IN (SELECT id FROM keys);
DELETE FROM row_edits WHERE key NOT IN (SELECT id FROM keys);

-- The next daemon sorts tasks into groups anew: of those that were lost no name is known.
UPDATE rows SET grp = NULL WHERE grp NOT IN (SELECT grp FROM groups);
UPDATE keys SET single_group = NULL WHERE single_group NOT IN (SELECT grp FROM groups);
DELETE FROM documents WHERE name = 'routed';
-- By no known rules.
INSERT OR REPLACE INTO documents (name, value) SELECT 'sorted', '{}' WHERE EXISTS (SELECT 1 FROM groups);

-- Numbers that none was given: a damaged page named them.
DELETE FROM attempts WHERE ended NOT BETWEEN 1 AND (SELECT ends FROM header);
UPDATE tasks SET number = numbered.now
FROM (SELECT number, last_single + row_number() OVER (ORDER BY number) AS now FROM tasks, header
    WHERE number NOT BETWEEN 1 AND last_single) AS numbered
WHERE tasks.number = numbered.number;

-- Lists are read again as a whole; rows that are in none of them any more go then.
INSERT INTO runs (fetcher, run, since, complete, deleting, listing, reading, position, skipped, stale)
SELECT fetcher, run, 0, 0, 0, NULL, max(reading), NULL, 0, 1 FROM rows WHERE true GROUP BY fetcher, run
ON CONFLICT DO UPDATE SET reading = max(runs.reading, excluded.reading);
UPDATE runs SET complete = 0, listing = NULL, position = NULL, stale = 1;

-- A status that is no word was damaged.
UPDATE tasks SET status = 'waiting' WHERE status NOT IN ('waiting', 'failed', 'dead_letter', 'done', 'cancelled')
    AND NOT EXISTS (SELECT 1 FROM keys WHERE id = tasks.key AND attempt IS NOT NULL AND fetcher = 0 AND run = number);
UPDATE keys SET
    waiting = (SELECT count(*) FROM tasks WHERE tasks.key = id AND status = 'waiting'),
    failed = (SELECT count(*) FROM tasks WHERE tasks.key = id AND status = 'failed'),
    dead = (SELECT count(*) FROM tasks WHERE tasks.key = id AND status = 'dead_letter')
WHERE waiting <> 0 OR failed <> 0 OR dead <> 0 OR id IN (SELECT key FROM tasks);
UPDATE keys SET extra = id IN (SELECT key FROM extras) WHERE extra OR id IN (SELECT key FROM extras);
