-- Version 13: keys that are not handed out, and the last end.

-- kind: `hold`, an operator's; `backoff`, because its jobs failed so often in a row. since, until: in seconds since 1970; until NULL:
-- somebody ends it. by: who holds it, as he named himself.
CREATE TABLE shiftboss_holds (
    attr_path TEXT NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('hold', 'backoff')),
    since     INTEGER NOT NULL,
    until     INTEGER,
    reason    TEXT NOT NULL,
    by        TEXT NOT NULL,
    PRIMARY KEY (attr_path, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX shiftboss_hold_ends ON shiftboss_holds (until) WHERE until IS NOT NULL;
-- There may be as many of backoff as keys.
CREATE INDEX shiftboss_holds_by_age ON shiftboss_holds (kind, since);

-- failures: so many jobs of the key in a row, the last one among them, ended in a way that counts (`[backoff]`).
CREATE TABLE shiftboss_backoff_counts (
    attr_path TEXT PRIMARY KEY,
    failures  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- ended: no end up to this number is new, though the attempt that it was the end of may be forgotten.
INSERT INTO shiftboss_counters (name, value) VALUES ('ended', 0);
