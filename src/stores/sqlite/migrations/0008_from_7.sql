-- From version 7, of an unreleased build: what fetchers take turns by is a column of the queue. The states come with
-- rebuild.sql.
ALTER TABLE queue ADD COLUMN last_served INTEGER;
ALTER TABLE shiftboss_last_served RENAME TO shiftboss_copy;
CREATE TABLE shiftboss_last_served (
    attr_path TEXT NOT NULL,
    name      TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    PRIMARY KEY (attr_path, name)
) STRICT, WITHOUT ROWID;
INSERT INTO shiftboss_last_served
SELECT attr_path, name, max(attempt) FROM shiftboss_copy GROUP BY attr_path, name;
DROP TABLE shiftboss_copy;
-- By the key: a row that somebody else inserted may have no jitter.
UPDATE queue SET last_served = served.attempt
FROM shiftboss_last_served AS served JOIN fetchers USING (name)
WHERE served.attr_path = queue.attr_path AND fetchers.fetcher_id = queue.fetcher_id;
DELETE FROM shiftboss_last_served WHERE EXISTS (
    SELECT 1 FROM queue JOIN fetchers USING (fetcher_id)
    WHERE queue.attr_path = shiftboss_last_served.attr_path AND fetchers.name = shiftboss_last_served.name
);
