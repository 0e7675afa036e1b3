-- Version 11: what a relay asks is numbered in lanes. 0 and 1: batches about jobs and about lists; 16 and on: rows of a range of
-- keys. answer: what the batch of that number was answered, as JSON, for its relay may ask again; NULL for rows.
CREATE TABLE shiftboss_relay_lanes (
    relay  INTEGER NOT NULL,
    lane   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    answer TEXT,
    PRIMARY KEY (relay, lane)
) STRICT, WITHOUT ROWID;
-- shiftboss_runs.stale is 2 while rows of a range are there that its position is not behind yet.
INSERT INTO shiftboss_relay_lanes (relay, lane, number, answer)
    SELECT relay, 0, number, answer FROM shiftboss_relays WHERE number > 0;
ALTER TABLE shiftboss_relays DROP COLUMN number;
ALTER TABLE shiftboss_relays DROP COLUMN answer;
