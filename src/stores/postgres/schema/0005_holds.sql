-- Version 5: keys that are not handed out.

-- As SQLite's shiftboss_holds. There are few.
CREATE TABLE holds (
    key_id  int8 NOT NULL,
    kind    text NOT NULL CHECK (kind = 'hold'),
    since   int8 NOT NULL,
    until   int8,
    reason  text NOT NULL,
    held_by text NOT NULL,
    PRIMARY KEY (key_id, kind)
);
CREATE INDEX holds_ending ON holds (until) WHERE until IS NOT NULL;
