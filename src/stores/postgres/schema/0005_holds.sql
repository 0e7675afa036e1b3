-- Version 5: keys that are not handed out.

-- As SQLite's shiftboss_holds.
CREATE TABLE holds (
    key_id  int8 NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('hold', 'backoff')),
    since   int8 NOT NULL,
    until   int8,
    reason  text NOT NULL,
    held_by text NOT NULL,
    PRIMARY KEY (key_id, kind)
);
CREATE INDEX holds_ending ON holds (until) WHERE until IS NOT NULL;
CREATE INDEX holds_by_age ON holds (kind, since);

-- As SQLite's shiftboss_backoff_counts.
CREATE TABLE backoff_counts (key_id int8 PRIMARY KEY, failures int8 NOT NULL);
-- At most one row: the rule of the daemon that joined last (actors/src/store/failures.rs). Ends count that have one of these codes, or,
-- where is_listed is false, any other one. delays: for how long a key is held, in seconds, from the first time on.
CREATE TABLE backoff_rule (
    codes     int8[] NOT NULL,
    is_listed bool NOT NULL,
    after     int8 NOT NULL,
    delays    int8[] NOT NULL,
    is_only   bool PRIMARY KEY DEFAULT true CHECK (is_only)
);
