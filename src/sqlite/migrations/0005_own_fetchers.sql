-- Version 5: the fetchers that the daemon runs itself, and how each is. Their lists come through the input
-- directory, as anybody's do; the tables `fetchers` and `fetcher_runs` are about those.

-- state: what it is doing, in words. run_started: when the run began that is on, or was broken off by a
-- death; NULL: none. last_*: the run that ended last; last_code is 0 if its list is in place.
-- next_run: when it runs next if nothing changes; NULL: when something does.
CREATE TABLE shiftboss_own_fetchers (
    name         TEXT PRIMARY KEY,
    state        TEXT NOT NULL,
    run_started  INTEGER,
    last_started INTEGER,
    last_ended   INTEGER,
    last_code    INTEGER,
    last_told    TEXT,
    next_run     INTEGER
) STRICT, WITHOUT ROWID;
