-- Version 6: single tasks, and how long attempts took.

-- How long the job ran, in milliseconds; NULL: not known, as of attempts that ended before this version.
ALTER TABLE shiftboss_attempts ADD COLUMN took_ms INTEGER;
