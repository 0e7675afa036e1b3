//! Making the rows of single tasks again at the start, after the classic rules or the reference had the
//! database; and after edits by hand.
//!
//! Called by `open`, and by [`tasks`](super::tasks) for one key. The triggers noted in
//! `shiftboss_single_tasks` which tasks were out when their dispatches were removed, and how those ended.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Result};
use tracing::info;

use super::options::Policy;
use super::query::Query;
use super::session::Session;

/// Keys whose rows are made in one transaction.
const KEYS_AT_ONCE: i64 = 10_000;

/// Keys without a row, or whose job ended while nobody of ours looked; behind the key ?1.
const WITHOUT_ROW: &str =
    "SELECT DISTINCT attr_path, attr_path FROM shiftboss_single_tasks AS single
    WHERE attr_path > ?1 AND (exit_code IS NOT NULL OR NOT EXISTS (SELECT 1 FROM queue
        WHERE queue.attr_path = single.attr_path AND +queue.fetcher_id = 0))
    ORDER BY attr_path LIMIT ?2";
/// Keys whose row is of a task that is gone, or that waits and is marked; behind the run ?1.
const WRONG_ROW: &str = "SELECT queue.attr_path, run.run_started
    FROM fetcher_runs AS run JOIN queue
        ON queue.fetcher_id = 0 AND queue.fetcher_run_started = run.run_started
    LEFT JOIN shiftboss_single_tasks AS single ON single.task = run.run_started
    WHERE run.fetcher_id = 0 AND run.run_started > ?1 AND (single.task IS NULL
        OR status = 'waiting' AND is_dequeued <> 0 AND NOT EXISTS (
            SELECT 1 FROM shiftboss_deliveries AS delivery
            WHERE delivery.attr_path = queue.attr_path AND delivery.fetcher_id = 0
                AND delivery.run_started = single.task))
    ORDER BY run.run_started LIMIT ?2";

impl Session<'_> {
    /// What the queue holds of single tasks is made to be what the table says, as far as it can differ.
    /// Under the classic policy nothing is derived. On a full disk all stays as it is.
    pub(super) fn restore_tasks(&mut self) -> Result<()> {
        if self.queue.policy == Policy::Classic {
            return Ok(());
        }
        self.recount_tasks()?;
        self.restore_each(WITHOUT_ROW, Value::Text(String::new()))?;
        self.restore_each(WRONG_ROW, Value::Integer(i64::MIN))
    }

    /// Resolves the keys that a question finds, in bounded steps.
    fn restore_each(&mut self, question: &'static str, mut behind: Value) -> Result<()> {
        loop {
            let found: Vec<(String, Value)> = self.rows(question, (&behind, KEYS_AT_ONCE))?;
            let Some((_, last)) = found.last() else {
                return Ok(());
            };
            behind = last.clone();
            info!(keys = found.len(), "Single tasks enter the queue again.");
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            let resolved = found.iter().try_for_each(|(key, _)| self.resolve_tasks(key));
            let ended = resolved.and_then(|()| self.connection.execute_batch("COMMIT"));
            if !self.connection.is_autocommit() {
                return self.connection.execute_batch("ROLLBACK").and(ended);
            }
            ended?;
        }
    }

    fn recount_tasks(&self) -> Result<()> {
        let sql = "UPDATE shiftboss_counters SET value = counted.value
            FROM (SELECT 'single_tasks' AS name, count(*) AS value FROM shiftboss_single_tasks
                UNION ALL SELECT 'single_tasks_ended', count(*) FROM shiftboss_single_tasks
                    WHERE status <> 'waiting') AS counted
            WHERE counted.name = shiftboss_counters.name
                AND counted.value <> shiftboss_counters.value";
        self.run(sql, [])
    }

    /// The key's tasks are what its log says of them, and its row is the one that it has to be.
    pub(super) fn resolve_tasks(&mut self, key: &str) -> Result<()> {
        let sql = "SELECT task, exit_code FROM shiftboss_single_tasks
            WHERE attr_path = ?1 AND started IS NOT NULL AND exit_code IS NOT NULL";
        let ended: Option<(i64, i64)> = self.row(sql, [key]).optional()?;
        ended.map_or(Ok(()), |(task, exit_code)| self.end_task(key, task, exit_code))?;
        // A job that somebody ended in the log by hand ended all the same.
        let sql = "SELECT single.task, coalesce(log.exit_code, 0)
            FROM queue JOIN shiftboss_single_tasks AS single
                ON single.task = queue.fetcher_run_started AND status = 'waiting'
            JOIN log ON log.attr_path = ?1 AND log.finished IS NOT NULL
            WHERE queue.attr_path = ?1 AND +queue.fetcher_id = 0 AND is_dequeued <> 0
                AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                    WHERE delivery.attr_path = ?1 AND delivery.fetcher_id = 0
                        AND delivery.run_started = single.task)";
        let ended: Option<(i64, i64)> = self.row(sql, [key]).optional()?;
        ended.map_or(Ok(()), |(task, exit_code)| self.end_task(key, task, exit_code))?;
        self.derive_row(key)
    }

    /// Keys of single tasks whose jobs somebody ended in the log by hand, as the triggers noted.
    pub(super) fn edited_tasks(&self) -> Result<Vec<String>> {
        if self.queue.policy == Policy::Classic {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT attr_path FROM shiftboss_single_tasks INDEXED BY shiftboss_unrecorded_tasks
            WHERE started IS NOT NULL AND exit_code IS NOT NULL";
        self.values(sql, [])
    }

    /// Somebody else wrote: keys whose jobs were ended by hand are free.
    pub(super) fn resolve_edited_tasks(&mut self) -> Result<()> {
        self.edited_tasks()?.iter().try_for_each(|key| self.resolve_tasks(key))
    }

    /// A job ended whose dispatch is recorded no longer: it may have been a single task's.
    pub(super) fn note_task_end(&mut self, key: &str, exit_code: i64) -> Result<()> {
        let sql = "UPDATE shiftboss_single_tasks SET exit_code = ?2
            WHERE attr_path = ?1 AND status = 'waiting'
                AND started = (SELECT started FROM log WHERE log.attr_path = ?1)";
        let noted = self.change(sql, (key, exit_code))?;
        if noted > 0 && self.queue.policy != Policy::Classic {
            self.resolve_tasks(key)
        } else {
            Ok(())
        }
    }
}
