//! Jobs that failed: whether their tasks are tried again ([`retries`](super::retries)); and keys whose jobs fail again and
//! again: how often in a row (`shiftboss_backoff_counts`), and the holds that come of it, which are rows of `shiftboss_holds`
//! beside those of operators.
//!
//! The modules that record ends of jobs tell here, once each. [`holds`](super::holds) ends what is over. Without a rule nothing
//! is counted, read or written. An end that somebody wrote by hand is not counted.

use rusqlite::{OptionalExtension, Result};
use shiftboss_actors::store::failed_so_often;
use shiftboss_protocol::model::UnixSeconds;

use super::options::Policy;
use super::query::Query;
use super::retries::EndedTask;
use super::session::Session;

/// One more end that counts; how many these were in a row.
const ONE_MORE: &str = "INSERT INTO shiftboss_backoff_counts (attr_path, failures) VALUES (?1, 1)
    ON CONFLICT (attr_path) DO UPDATE SET failures = failures + 1 RETURNING failures";
/// There may be as many as keys.
pub(super) const COUNT: &str =
    "SELECT count(*) FROM shiftboss_holds INDEXED BY shiftboss_holds_by_age WHERE kind = 'backoff'";

impl Session<'_> {
    /// A job of the key ended, of a task if it is known. Its row is to be out of `queue` by now, or dispatched.
    pub(super) fn settle(
        &mut self,
        key: &str,
        task: Option<EndedTask>,
        exit_code: i64,
        now: UnixSeconds,
    ) -> Result<()> {
        task.map_or(Ok(()), |task| self.end_retry(key, task.run))?;
        let task = task.filter(|_| exit_code != 0);
        let is_delayed = task.map_or(Ok(false), |task| self.delay(key, task, exit_code, now))?;
        if is_delayed { Ok(()) } else { self.count_end(key, exit_code, now) }
    }

    fn count_end(&mut self, key: &str, exit_code: i64, now: UnixSeconds) -> Result<()> {
        let Some(rule) = &self.queue.backoff else {
            return Ok(());
        };
        if !rule.on.counts(exit_code) {
            return self.forgive(key);
        }
        let failures: i64 = self.value(ONE_MORE, [key])?;
        let delay = rule.delay(key, failures);
        delay.map_or(Ok(()), |delay| self.back_off(key, failures, now, delay))
    }

    fn back_off(&mut self, key: &str, failures: i64, now: UnixSeconds, delay: i64) -> Result<()> {
        let sql =
            "INSERT OR REPLACE INTO shiftboss_holds (attr_path, kind, since, until, reason, by)
            VALUES (?1, 'backoff', ?2, ?3, ?4, 'backoff')";
        self.run(sql, (key, now, now.saturating_add(delay), failed_so_often(failures)))?;
        self.extract(key)?;
        self.recompute(key)
    }

    /// An end that does not count: the next one that does is the first in a row.
    fn forgive(&mut self, key: &str) -> Result<()> {
        let counted = "DELETE FROM shiftboss_backoff_counts WHERE attr_path = ?1";
        let held = "DELETE FROM shiftboss_holds WHERE attr_path = ?1 AND kind = 'backoff'";
        if self.change(counted, [key])? > 0 && self.change(held, [key])? > 0 {
            self.recompute(key)?;
        }
        Ok(())
    }

    /// Where a daemon starts without a rule, what an earlier one counted is forgotten, and the holds that came of it are over.
    /// The Python supervisor's rules leave them alone.
    pub(super) fn end_backoff_without_rule(&mut self) -> Result<()> {
        let is_left = "SELECT 1 FROM shiftboss_backoff_counts LIMIT 1";
        let is_off = self.queue.backoff.is_none() && self.queue.policy != Policy::Classic;
        if is_off && self.value::<i64>(is_left, []).optional()?.is_some() {
            self.run("DELETE FROM shiftboss_backoff_counts", [])?;
            self.run("UPDATE shiftboss_holds SET until = 0 WHERE kind = 'backoff'", [])?;
        }
        Ok(())
    }
}
