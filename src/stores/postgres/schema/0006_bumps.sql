-- Version 6: keys that go before the order.

-- As SQLite's shiftboss_bumps.
CREATE TABLE bumps (
    place        int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id       int8 NOT NULL UNIQUE,
    since        int8 NOT NULL,
    bumped_by    text NOT NULL,
    attempt      int8,
    last_attempt int8,
    kind         text NOT NULL DEFAULT 'bump' CHECK (kind IN ('bump', 'retry')),
    due          int8,
    fetcher      int4,
    run_started  int8,
    retries      int4 NOT NULL DEFAULT 0,
    CHECK ((kind = 'retry') = (fetcher IS NOT NULL) AND (kind = 'retry') = (run_started IS NOT NULL)),
    CHECK (due IS NULL OR kind = 'retry' AND attempt IS NULL)
);
CREATE INDEX bumps_lane ON bumps (kind, place) WHERE attempt IS NULL AND due IS NULL;
CREATE INDEX bumps_delayed ON bumps (due) WHERE due IS NOT NULL;
CREATE INDEX bumps_back ON bumps (last_attempt) WHERE last_attempt IS NOT NULL;
-- Which tasks that fail are tried again (actors/src/store/failures.rs); `codes` and so on as in backoff_rule. fetcher: its name; '' for
-- lists that have no rule of their own, '@tasks' for single tasks. daemon: whose rule it is; of those two, of the one that joined last.
CREATE TABLE retry_rules (
    fetcher   text PRIMARY KEY,
    daemon    int4 NOT NULL,
    most      int4 NOT NULL,
    codes     int8[] NOT NULL,
    is_listed bool NOT NULL,
    delays    int8[] NOT NULL
);
CREATE INDEX bumps_out ON bumps (attempt) WHERE attempt IS NOT NULL;
-- One row: what hand-outs before the order may cost, and how much each hand-out adds, in thousandths. The daemon that joined last
-- says how much; before one did, nothing goes before the order.
CREATE TABLE bump_credit (thousandths int8 NOT NULL, share int4 NOT NULL);
INSERT INTO bump_credit VALUES (1000, 0);
