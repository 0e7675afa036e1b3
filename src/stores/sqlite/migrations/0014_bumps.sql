-- Version 14: keys that go before the order.

-- place: in the order in which they were bumped. since: in seconds since 1970. by: who wants it, as he named himself.
-- attempt: in which it was handed out, until that ends; NULL: it waits. last_attempt: the last one of those that were taken
-- back. There are few.
CREATE TABLE shiftboss_bumps (
    place        INTEGER PRIMARY KEY,
    attr_path    TEXT NOT NULL UNIQUE,
    since        INTEGER NOT NULL,
    by           TEXT NOT NULL,
    attempt      INTEGER,
    last_attempt INTEGER
) STRICT;

-- credit: what hand-outs before the order may cost, in thousandths (actors/src/store/bumps.rs).
INSERT INTO shiftboss_counters (name, value) VALUES ('credit', 1000);
