//! Counts that are written once a commit rather than at every job: attempts given out, undispatched
//! rows of runs, jobs that ended by minute and by hour.
//!
//! Until they are flushed the tables lag behind by those counts, inside the open transaction only.
//! Flushed by the commit, and before anything reads them. Dropped by a rollback.

use rusqlite::{Connection, Result};
use shiftboss_protocol::model::Attempt;

use super::hours::Hours;
use super::query::Query;
use super::rows::RunId;

/// Attempts that are reserved in one write. A daemon that is killed skips those it had left.
const ATTEMPTS_RESERVED: i64 = 1_000;
/// Numbers of attempts that are forgotten at the most when as many as [`ATTEMPTS_RESERVED`] were given out: a commit waits for it.
const FORGOTTEN_AT_ONCE: i64 = 10_000;
/// Minutes for which ended jobs are counted.
const COUNTED_MINUTES: i64 = 24 * 60;

/// Sums by a key. Most that are added one after the other are of one key, and to hash each would cost more than all else here.
#[derive(Debug)]
struct Sums<K>(Vec<(K, i64)>);

impl<K> Default for Sums<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy> Sums<K> {
    fn add(&mut self, key: K, value: i64) {
        match self.0.last_mut() {
            Some((last, sum)) if *last == key => *sum += value,
            _ => self.0.push((key, value)),
        }
    }

    /// Takes all of them, each key once, in order.
    fn take(&mut self) -> Vec<(K, i64)> {
        let mut sums = std::mem::take(&mut self.0);
        sums.sort_unstable_by_key(|(key, _)| *key);
        sums.dedup_by(|(key, value), (before, sum)| {
            let is_same = key == before;
            *sum += if is_same { *value } else { 0 };
            is_same
        });
        sums
    }
}

/// Counts that are not in the tables yet.
#[derive(Debug, Default)]
pub(super) struct WriteBehindCounters {
    /// Attempts that ended are kept, so many of the last ones.
    history: i64,
    /// The last attempt that was given out.
    attempt: i64,
    /// Up to here they may be given out: the last one that is stored as taken.
    reserved: i64,
    /// Changes of runs' undispatched rows.
    pending: Sums<RunId>,
    /// Jobs that ended, by (minute, exit_code).
    done: Sums<(i64, i64)>,
    /// The last minute in which a job ended.
    minute: i64,
    pub(super) hours: Hours,
    /// The number of the last end; `None`: others may have recorded ends since it was read.
    last_end: Option<i64>,
}

impl WriteBehindCounters {
    /// Nothing is counted yet; attempts go on behind the stored one.
    pub(super) fn load(connection: &Connection, history: u32) -> Result<Self> {
        let sql = "SELECT value FROM shiftboss_counters WHERE name = 'attempt'";
        let attempt = connection.value(sql, [])?;
        Ok(Self { history: history.into(), attempt, reserved: attempt, ..Self::default() })
    }

    /// Drops what was counted in a transaction that was rolled back. Nobody saw its attempts; they
    /// are not used again all the same.
    pub(super) fn roll_back(&mut self) {
        self.pending = Sums::default();
        self.done = Sums::default();
        self.hours.roll_back();
        self.last_end = None;
        // It may have been reserved in that transaction.
        self.reserved = 0;
    }

    pub(super) fn next_attempt(&mut self) -> Attempt {
        self.attempt += 1;
        Attempt(self.attempt)
    }

    /// The number of the next end. It is stored with the attempt that ended.
    pub(super) fn next_end(&mut self, connection: &Connection) -> Result<i64> {
        let last = match self.last_end {
            Some(last) => last,
            None => connection.value(
                "SELECT max((SELECT coalesce(max(ended), 0) FROM shiftboss_attempts),
                    (SELECT coalesce(max(value), 0) FROM shiftboss_counters WHERE name = 'ended'))",
                [],
            )?,
        };
        self.last_end = Some(last + 1);
        Ok(last + 1)
    }

    /// Others wrote: their ends have numbers, too.
    pub(super) fn forget_last_end(&mut self) {
        self.last_end = None;
    }

    /// A run has so many undispatched rows more.
    pub(super) fn count_pending(&mut self, run: RunId, change: i64) {
        self.pending.add(run, change);
    }

    pub(super) fn count_done(&mut self, minute: i64, exit_code: i64) {
        self.done.add((minute, exit_code), 1);
    }

    pub(super) fn flush(&mut self, connection: &Connection) -> Result<()> {
        let sql = "UPDATE shiftboss_runs SET pending = pending + ?3
            WHERE fetcher_id = ?1 AND run_started = ?2";
        for (run, change) in self.pending.take() {
            connection.run(sql, (run.fetcher_id, run.started, change))?;
        }
        let sql = "INSERT INTO shiftboss_completions (minute, exit_code, jobs) VALUES (?1, ?2, ?3)
            ON CONFLICT (minute, exit_code) DO UPDATE SET jobs = jobs + excluded.jobs";
        let mut last = self.minute;
        for ((minute, exit_code), jobs) in self.done.take() {
            connection.run(sql, (minute, exit_code, jobs))?;
            last = minute;
        }
        if self.minute != last {
            self.minute = last;
            let old = "DELETE FROM shiftboss_completions WHERE minute < ?1";
            connection.run(old, [last - COUNTED_MINUTES])?;
        }
        self.hours.flush(connection)?;
        if self.attempt > self.reserved {
            self.reserve(connection, ATTEMPTS_RESERVED)?;
            self.forget_attempts(connection)?;
        }
        Ok(())
    }

    /// Attempts that are too old are kept still, more than a few: fewer are to be kept than were.
    pub(super) fn keeps_too_many(&self, connection: &Connection) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM shiftboss_attempts WHERE attempt <= ?1)";
        connection.value(sql, [self.attempt - self.history - 2 * ATTEMPTS_RESERVED])
    }

    /// Those that are too old go. The last end may be that of an old attempt.
    pub(super) fn forget_attempts(&self, connection: &Connection) -> Result<()> {
        keep_last_end(connection)?;
        let old = "DELETE FROM shiftboss_attempts
            WHERE attempt <= min(?1, (SELECT min(attempt) FROM shiftboss_attempts) + ?2)";
        connection.run(old, (self.attempt - self.history, FORGOTTEN_AT_ONCE))
    }

    /// Takes the end of a job back that was counted, if it still is.
    pub(super) fn uncount_done(
        &mut self,
        connection: &Connection,
        minute: i64,
        exit_code: i64,
    ) -> Result<()> {
        self.flush(connection)?;
        let sql = "UPDATE shiftboss_completions SET jobs = jobs - 1
            WHERE minute = ?1 AND exit_code = ?2 AND jobs > 0";
        connection.run(sql, (minute, exit_code))
    }

    /// Stores that attempts up to `more` behind the last one are taken; with none, that all others
    /// are free: the end of a daemon's life.
    pub(super) fn reserve(&mut self, connection: &Connection, more: i64) -> Result<()> {
        let sql = "UPDATE shiftboss_counters SET value = ?1 WHERE name = 'attempt'";
        connection.run(sql, [self.attempt + more])?;
        self.reserved = self.attempt + more;
        Ok(())
    }
}

/// Before attempts are deleted: the number of the last end is not used again.
pub(super) fn keep_last_end(connection: &impl Query) -> Result<()> {
    let sql = "INSERT INTO shiftboss_counters (name, value)
        SELECT 'ended', coalesce(max(ended), 0) FROM shiftboss_attempts WHERE true
        ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";
    connection.run(sql, [])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key has one sum, however its values came.
    #[test]
    fn sums_are_by_key() {
        let mut sums = Sums::default();
        for (key, value) in [(2, 1), (2, 1), (1, 5), (2, -3), (3, 0), (1, 1)] {
            sums.add(key, value);
        }
        assert_eq!(sums.take(), [(1, 6), (2, -1), (3, 0)]);
        assert!(sums.take().is_empty());
    }
}
