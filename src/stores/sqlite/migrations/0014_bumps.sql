-- Version 14: keys that go before the order.

-- kind: `bump`, an operator's; `retry`, for a task that failed (`[job_retry]`): then fetcher_id and run_started name it, and it is the
-- retries-th time that it is tried again. place: in the order in which they came. since: in seconds since 1970. by: who wants it, as
-- he named himself. due: when a delayed task waits again; NULL: it does. attempt: in which it was handed out, until that ends; NULL: it
-- waits. last_attempt: the last one of those that were taken back.
CREATE TABLE shiftboss_bumps (
    place        INTEGER PRIMARY KEY,
    attr_path    TEXT NOT NULL UNIQUE,
    since        INTEGER NOT NULL,
    by           TEXT NOT NULL,
    attempt      INTEGER,
    last_attempt INTEGER,
    kind         TEXT NOT NULL DEFAULT 'bump' CHECK (kind IN ('bump', 'retry')),
    due          INTEGER,
    fetcher_id   INTEGER,
    run_started  INTEGER,
    retries      INTEGER NOT NULL DEFAULT 0,
    CHECK ((kind = 'retry') = (fetcher_id IS NOT NULL) AND (kind = 'retry') = (run_started IS NOT NULL)),
    CHECK (due IS NULL OR kind = 'retry' AND attempt IS NULL)
) STRICT;
CREATE INDEX shiftboss_lane ON shiftboss_bumps (kind, place) WHERE attempt IS NULL AND due IS NULL;
CREATE INDEX shiftboss_bumps_out ON shiftboss_bumps (attempt) WHERE attempt IS NOT NULL;
CREATE INDEX shiftboss_bumps_back ON shiftboss_bumps (last_attempt) WHERE last_attempt IS NOT NULL;
CREATE INDEX shiftboss_delayed ON shiftboss_bumps (due) WHERE due IS NOT NULL;

-- Delayed tasks that have failed still: no newer list has replaced them, and nobody has put them back.
CREATE VIEW shiftboss_delayed_tasks AS
SELECT attr_path, fetcher_id, run_started, since, due, retries FROM shiftboss_bumps AS retry
WHERE due IS NOT NULL AND iif(fetcher_id = 0,
    EXISTS (SELECT 1 FROM shiftboss_single_tasks WHERE task = retry.run_started AND status = 'failed'),
    EXISTS (SELECT 1 FROM queue WHERE queue.attr_path = retry.attr_path AND +queue.fetcher_id = retry.fetcher_id
        AND fetcher_run_started = retry.run_started AND is_dequeued <> 0)
    AND NOT EXISTS (SELECT 1 FROM queue AS newer WHERE newer.attr_path = retry.attr_path
        AND +newer.fetcher_id = retry.fetcher_id AND +newer.fetcher_run_started > retry.run_started));

-- credit: what hand-outs before the order may cost, in thousandths (actors/src/store/bumps.rs).
INSERT INTO shiftboss_counters (name, value) VALUES ('credit', 1000);
