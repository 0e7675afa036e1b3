//! Tasks that failed and are tried again by themselves: rows of `shiftboss_bumps` with the time when each is due, until it
//! waits again; then it goes with the bumped keys ([`bumps`](super::bumps)), behind them.
//!
//! [`failures`](super::failures) asks for each failed job whether its task is delayed. While it is, its row stays dispatched, or
//! the single task failed, so the order knows nothing of it. A newer list that names the key, `retry` and `cancel` end it here;
//! what edits by hand have made of it is seen when it is due. Of a key one task at a time is tried again.

use rusqlite::{OptionalExtension, Result};
use shiftboss_actors::store::HOLDS_ENDED_AT_ONCE;
use shiftboss_protocol::model::{TASKS_FETCHER, UnixSeconds};

use super::options::Policy;
use super::query::Query;
use super::rows::RunId;
use super::schema::TASKS_ID;
use super::session::Session;

/// When the first delayed task is due.
const FIRST_DUE: &str = "SELECT due FROM shiftboss_bumps INDEXED BY shiftboss_delayed
    WHERE due IS NOT NULL ORDER BY due LIMIT 1";
/// Keys of those that are due at ?1, at most ?2, and the tasks.
const DUE: &str =
    "SELECT attr_path, fetcher_id, run_started FROM shiftboss_bumps INDEXED BY shiftboss_delayed
    WHERE due IS NOT NULL AND due <= ?1 ORDER BY due LIMIT ?2";
/// Delayed tasks.
pub(super) const COUNT: &str =
    "SELECT count(*) FROM shiftboss_bumps INDEXED BY shiftboss_delayed WHERE due IS NOT NULL";

/// Those of them that are single tasks.
pub(super) const COUNT_SINGLE: &str =
    "SELECT count(*) FROM shiftboss_bumps INDEXED BY shiftboss_delayed
    WHERE due IS NOT NULL AND fetcher_id = 0";

/// Tasks of the key ?1 that are tried again and do not wait any more, though nobody of ours handed them out.
const STALE: &str = "DELETE FROM shiftboss_bumps WHERE kind = 'retry' AND attempt IS NULL AND due IS NULL
    AND attr_path = ?1 AND NOT iif(fetcher_id = 0,
        EXISTS (SELECT 1 FROM shiftboss_single_tasks WHERE task = run_started AND status = 'waiting'),
        EXISTS (SELECT 1 FROM queue WHERE queue.attr_path = shiftboss_bumps.attr_path
            AND +queue.fetcher_id = shiftboss_bumps.fetcher_id AND fetcher_run_started = run_started AND is_dequeued = 0))";

/// A task whose job ended.
#[derive(Clone, Copy)]
pub(super) struct EndedTask {
    pub(super) run: RunId,
    /// So often it was tried again by itself.
    pub(super) retried: u32,
}

impl Session<'_> {
    /// A task whose job is about to end.
    pub(super) fn ending(&self, key: &str, run: RunId) -> Result<EndedTask> {
        let sql = "SELECT retries FROM shiftboss_bumps
            WHERE attr_path = ?1 AND kind = 'retry' AND fetcher_id = ?2 AND run_started = ?3";
        let retried = match self.queue.bumps.are_any() {
            true => self.value(sql, (key, run.fetcher_id, run.started)).optional()?,
            false => None,
        };
        Ok(EndedTask { run, retried: retried.unwrap_or(0) })
    }

    /// It has ended: what it was tried again for is past.
    pub(super) fn end_retry(&mut self, key: &str, run: RunId) -> Result<()> {
        let sql = "DELETE FROM shiftboss_bumps
            WHERE attr_path = ?1 AND kind = 'retry' AND fetcher_id = ?2 AND run_started = ?3";
        self.forget(sql, (key, run.fetcher_id, run.started))
    }

    /// Deletes rows of the lane.
    fn forget(&mut self, sql: &'static str, parameters: impl rusqlite::Params) -> Result<()> {
        if self.queue.bumps.are_any() {
            let gone = self.change(sql, parameters)?;
            self.queue.bumps.note_fewer(gone);
        }
        Ok(())
    }

    /// Whether a failed task is delayed: its rule has retries left, and it is not replaced by now.
    pub(super) fn delay(
        &mut self,
        key: &str,
        task: EndedTask,
        exit_code: i64,
        now: UnixSeconds,
    ) -> Result<bool> {
        let RunId { fetcher_id, started } = task.run;
        let Some(delay) = self.retry_delay(key, task, exit_code)? else {
            return Ok(false);
        };
        let sql = "INSERT INTO shiftboss_bumps (attr_path, since, by, kind, due, fetcher_id, run_started, retries)
            SELECT ?1, ?2, 'job_retry', 'retry', ?3, ?4, ?5, ?6 WHERE iif(?4 = 0,
                EXISTS (SELECT 1 FROM shiftboss_single_tasks WHERE task = ?5 AND status = 'failed'),
                EXISTS (SELECT 1 FROM queue WHERE attr_path = ?1 AND +fetcher_id = ?4
                    AND fetcher_run_started = ?5 AND is_dequeued <> 0)
                AND NOT EXISTS (SELECT 1 FROM queue WHERE attr_path = ?1 AND +fetcher_id = ?4
                    AND +fetcher_run_started > ?5))
            ON CONFLICT (attr_path) DO NOTHING";
        let values = (key, now, now.saturating_add(delay), fetcher_id, started, task.retried + 1);
        let is_delayed = self.change(sql, values)? > 0;
        if is_delayed {
            self.queue.bumps.note_more();
            self.recompute(key)?;
        }
        Ok(is_delayed)
    }

    fn retry_delay(&self, key: &str, task: EndedTask, exit_code: i64) -> Result<Option<i64>> {
        let rules = &self.queue.retries;
        if task.run.fetcher_id == TASKS_ID {
            return Ok(rules
                .of(TASKS_FETCHER)
                .and_then(|rule| rule.delay(key, exit_code, task.retried)));
        }
        if rules.lists.is_none() && rules.of_fetcher.is_empty() {
            return Ok(None);
        }
        let sql = "SELECT name FROM fetchers WHERE fetcher_id = ?1";
        let name: Option<String> = self.value(sql, [task.run.fetcher_id]).optional()?;
        let rule = name.and_then(|name| self.queue.retries.of(&name));
        Ok(rule.and_then(|rule| rule.delay(key, exit_code, task.retried)))
    }

    /// Delayed tasks whose time has come wait again, a bounded number at once. Under the classic rules they stay as they are.
    pub(super) fn end_delays(&mut self, now: UnixSeconds) -> Result<()> {
        if self.queue.policy == Policy::Classic {
            return Ok(());
        }
        let due: Vec<(String, i64, i64)> = self.rows(DUE, (now, HOLDS_ENDED_AT_ONCE as i64))?;
        for (key, fetcher_id, started) in due {
            self.end_delay(&key, RunId { fetcher_id, started }, now)?;
        }
        Ok(())
    }

    /// One that was replaced meanwhile, put back or taken out, is not tried again.
    fn end_delay(&mut self, key: &str, task: RunId, now: UnixSeconds) -> Result<()> {
        self.extract(key)?;
        let is_back = match task.fetcher_id {
            TASKS_ID => self.retry_task(key, task.started)?,
            _ => self.retry_row(key, task)?,
        };
        if is_back {
            let sql = "UPDATE shiftboss_bumps SET due = NULL, since = ?2 WHERE attr_path = ?1";
            self.run(sql, (key, now))?;
        } else {
            self.forget_delay(key, None)?;
        }
        self.recompute(key)
    }

    fn retry_row(&self, key: &str, task: RunId) -> Result<bool> {
        let sql = "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1 AND fetcher_id = ?2
            AND fetcher_run_started = ?3 AND is_dequeued <> 0
            AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                WHERE delivery.attr_path = ?1 AND delivery.fetcher_id = ?2)
            AND NOT EXISTS (SELECT 1 FROM queue AS newer WHERE newer.attr_path = ?1
                AND +newer.fetcher_id = ?2 AND +newer.fetcher_run_started > ?3)
            RETURNING fetcher_id, fetcher_run_started";
        Ok(!self.mark_rows(sql, (key, task.fetcher_id, task.started), 1)?.is_empty())
    }

    /// A delayed task of the key is tried again no more: somebody puts it back. With a fetcher's name only if it is that one's.
    pub(super) fn forget_delay(&mut self, key: &str, fetcher: Option<&str>) -> Result<()> {
        let sql = "DELETE FROM shiftboss_bumps WHERE attr_path = ?1 AND due IS NOT NULL
            AND (?2 IS NULL OR fetcher_id = iif(?2 = '@tasks', 0,
                (SELECT fetchers.fetcher_id FROM fetchers WHERE name = ?2)))";
        self.forget(sql, (key, fetcher))
    }

    /// A fetcher's newer list names the key, or its single tasks are cancelled: earlier tasks are not tried again.
    pub(super) fn forget_earlier(&mut self, key: &str, newer: RunId) -> Result<()> {
        let sql = "DELETE FROM shiftboss_bumps WHERE attr_path = ?1 AND kind = 'retry' AND attempt IS NULL
            AND fetcher_id = ?2 AND run_started < ?3";
        self.forget(sql, (key, newer.fetcher_id, newer.started))
    }

    /// A key was handed out, of which a task waits to be tried again: another one may have gone.
    pub(super) fn forget_stale(&mut self, key: &str) -> Result<()> {
        self.forget(STALE, [key])
    }

    /// At a start: the classic rules end jobs and know nothing of this.
    pub(super) fn forget_all_stale(&mut self) -> Result<()> {
        let waiting = "SELECT attr_path FROM shiftboss_bumps INDEXED BY shiftboss_lane
            WHERE kind = 'retry' AND attempt IS NULL AND due IS NULL";
        if self.queue.bumps.are_any() {
            let keys: Vec<String> = self.values(waiting, [])?;
            keys.iter().try_for_each(|key| self.forget_stale(key))?;
        }
        Ok(())
    }

    /// In how many seconds the first delayed task is due.
    pub(super) fn next_due(&self, now: UnixSeconds) -> Result<Option<u64>> {
        if self.queue.policy == Policy::Classic {
            return Ok(None);
        }
        let first: Option<i64> = self.value(FIRST_DUE, []).optional()?;
        Ok(first.map(|due| due.saturating_sub(now).max(0).cast_unsigned()))
    }
}
