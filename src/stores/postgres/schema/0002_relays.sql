-- Version 2: relays, who act on the queue through daemons from machines that reach a broker only.
--
-- A relay is a row of `daemons`: so it has fetchers, runs, leased attempts, rejected files and an input directory as a daemon
-- has, it is taken for dead as one is, and what it had leased is adopted. Its beats are raised by whichever daemon hears it.

-- process: which process a relay is; NULL: a daemon.
ALTER TABLE daemons ADD COLUMN process text;
-- Which queue it is, for relays: made when it is asked for first.
ALTER TABLE state ADD COLUMN installation text;
-- The position that the run had when rows were added behind it; NULL: none were. While it is the run's position still, the
-- next process that reads its file does not know of them.
ALTER TABLE runs ADD COLUMN ahead jsonb;

-- The last number of a relay in a lane. 0 and 1: batches about jobs and about lists, with what the last one was answered;
-- 16 and on: rows of a range of keys.
CREATE TABLE relay_lanes (
    daemon int4 NOT NULL REFERENCES daemons ON DELETE CASCADE,
    lane   int4 NOT NULL,
    number int8 NOT NULL,
    answer jsonb,
    PRIMARY KEY (daemon, lane)
) WITH (fillfactor = 50);
