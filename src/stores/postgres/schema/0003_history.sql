-- Version 3: what ended, and when, by its own number; and what was done each hour.

-- ended: the number of an attempt's end, which ascends: the transaction's, and its own within that. So whoever reads on from
-- the last one that was read misses none and meets none twice, as long as only ends of transactions are read before which no
-- other one is open. A late result is another end of its attempt, in the place of the former one.
ALTER TABLE attempts ADD COLUMN ended int8;
CREATE SEQUENCE end_numbers CACHE 1;
CREATE TABLE ends (
    ended   int8 PRIMARY KEY,
    attempt int8 NOT NULL
);
INSERT INTO ends SELECT row_number() OVER (ORDER BY finished, attempt), attempt FROM attempts WHERE finished IS NOT NULL;
UPDATE attempts a SET ended = e.ended FROM ends e WHERE a.attempt = e.attempt;

-- As SQLite's shiftboss_hours. Each connection counts in rows of its own, a new one each minute (unix time / 60), as in `counts`;
-- those that were put together have backend and minute 0.
CREATE TABLE hours (
    hour            int8 NOT NULL,
    fetcher         text NOT NULL,
    outcome         text NOT NULL,
    backend         int4 NOT NULL,
    minute          int8 NOT NULL,
    jobs            int8 NOT NULL,
    took_ms         int8 NOT NULL,
    revisits        int8 NOT NULL,
    revisit_seconds int8 NOT NULL,
    PRIMARY KEY (hour, fetcher, outcome, backend, minute)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
