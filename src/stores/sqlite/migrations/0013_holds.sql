-- Version 13: keys that are not handed out, and the last end.

-- since, until: in seconds since 1970; until NULL: somebody ends it. by: who holds it, as he named himself.
CREATE TABLE shiftboss_holds (
    attr_path TEXT NOT NULL,
    kind      TEXT NOT NULL CHECK (kind = 'hold'),
    since     INTEGER NOT NULL,
    until     INTEGER,
    reason    TEXT NOT NULL,
    by        TEXT NOT NULL,
    PRIMARY KEY (attr_path, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX shiftboss_hold_ends ON shiftboss_holds (until) WHERE until IS NOT NULL;

-- ended: no end up to this number is new, though the attempt that it was the end of may be forgotten.
INSERT INTO shiftboss_counters (name, value) VALUES ('ended', 0);
