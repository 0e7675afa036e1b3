-- From version 7, of an unreleased build: what fetchers take turns by is a column of the queue. The states come with
-- rebuild.sql.
ALTER TABLE queue ADD COLUMN last_served INTEGER;
UPDATE queue SET last_served = served.attempt
FROM shiftboss_last_served AS served JOIN fetchers USING (name)
WHERE served.order_jitter = queue.order_jitter AND served.attr_path = queue.attr_path
    AND fetchers.fetcher_id = queue.fetcher_id;
CREATE INDEX shiftboss_held ON queue (partition, last_started, order_jitter) WHERE state < 0;
ALTER TABLE shiftboss_last_served RENAME TO shiftboss_copy;
CREATE TABLE shiftboss_last_served (
    attr_path TEXT NOT NULL,
    name      TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    PRIMARY KEY (attr_path, name)
) STRICT, WITHOUT ROWID;
INSERT INTO shiftboss_last_served SELECT attr_path, name, max(attempt) FROM shiftboss_copy AS served
WHERE NOT EXISTS (
    SELECT 1 FROM queue JOIN fetchers USING (fetcher_id)
    WHERE queue.attr_path = served.attr_path AND fetchers.name = served.name
) GROUP BY attr_path, name;
DROP TABLE shiftboss_copy;
