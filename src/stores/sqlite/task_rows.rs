//! The rows of the queue that single tasks have: of each key one, derived from `shiftboss_single_tasks`.
//!
//! A row is a run of its own of the fetcher `@tasks`, whose number is the task's: no later task of the key
//! can be taken for it. More than one row of a key would cost every job of that key a look at all of
//! them, so the others wait in the table. Called by [`tasks`](super::tasks).
//!
//! At the start, after the classic rules or the reference had the database, the rows are made again; and after edits by
//! hand. The triggers noted in `shiftboss_single_tasks` which tasks were out when their dispatches were removed,
//! and how those ended.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Result};
use shiftboss_protocol::model::{Key, Row as Task, TASKS_FETCHER};
use tracing::info;

use super::options::Policy;
use super::query::{Query, columns};
use super::rows::RunId;
use super::schema::TASKS_ID;
use super::session::Session;

/// The oldest task of a key that waits, or else the newest one that does not: in the order of the index.
const NEXT: &str = "SELECT * FROM (SELECT task, payload, status FROM shiftboss_single_tasks
        WHERE attr_path = ?1 AND status = 'waiting' ORDER BY task LIMIT 1)
    UNION ALL SELECT * FROM (SELECT task, payload, status FROM shiftboss_single_tasks
        WHERE attr_path = ?1 AND status < 'waiting' ORDER BY status DESC, task DESC LIMIT 1)
    LIMIT 1";

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

struct Current {
    task: i64,
    /// A worker has it.
    is_leased: bool,
    /// Its task's, if that is still there.
    status: Option<String>,
}

columns!(Current { task, is_leased, status });

struct Single {
    task: i64,
    payload: String,
    status: String,
}

columns!(Single { task, payload, status });

fn run_of(task: i64) -> RunId {
    RunId { fetcher_id: TASKS_ID, started: task }
}

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
        let noted = "SELECT task, exit_code FROM shiftboss_single_tasks
            WHERE attr_path = ?1 AND started IS NOT NULL AND exit_code IS NOT NULL";
        // A job that somebody ended in the log by hand ended all the same.
        let by_hand = "SELECT single.task, coalesce(log.exit_code, 0)
            FROM queue JOIN shiftboss_single_tasks AS single
                ON single.task = queue.fetcher_run_started AND status = 'waiting'
            JOIN log ON log.attr_path = ?1 AND log.finished IS NOT NULL
            WHERE queue.attr_path = ?1 AND +queue.fetcher_id = 0 AND is_dequeued <> 0
                AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                    WHERE delivery.attr_path = ?1 AND delivery.fetcher_id = 0
                        AND delivery.run_started = single.task)";
        for ended in [noted, by_hand] {
            if let Some((task, exit_code)) = self.row(ended, [key]).optional()? {
                self.end_task(key, task, exit_code)?;
            }
        }
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

    /// Sees to it that the key's row is the one that it has to be: one that is in flight or waits
    /// there stays, or else it is the oldest one that waits. One that failed stays while none waits.
    pub(super) fn derive_row(&mut self, key: &str) -> Result<()> {
        let current = self.current_row(key)?;
        let is_right = |current: &Current| match current.status.as_deref() {
            Some(status) => status == "waiting",
            None => current.is_leased,
        };
        if current.as_ref().is_some_and(is_right) {
            return Ok(());
        }
        let next: Option<Single> = self.row(NEXT, [key]).optional()?;
        let has_ended = current.as_ref().is_some_and(|current| current.status.is_some());
        if has_ended && next.as_ref().is_none_or(|next| next.status != "waiting") {
            return Ok(());
        }
        current.map_or(Ok(()), |current| self.drop_row(key, current.task))?;
        next.map_or(Ok(()), |next| self.put_row(key, &next))
    }

    /// Takes the key's row out if its task failed or is a dead letter.
    pub(super) fn drop_ended_row(&mut self, key: &str) -> Result<()> {
        let is_ended =
            |current: &Current| current.status.as_deref().is_some_and(|status| status != "waiting");
        match self.current_row(key)?.filter(is_ended) {
            Some(current) => self.drop_row(key, current.task),
            None => Ok(()),
        }
    }

    /// The task whose row the key has.
    pub(super) fn current_task(&self, key: &str) -> Result<Option<i64>> {
        Ok(self.current_row(key)?.map(|current| current.task))
    }

    fn current_row(&self, key: &str) -> Result<Option<Current>> {
        let sql = "SELECT fetcher_run_started,
                EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                    WHERE delivery.attr_path = ?1 AND delivery.fetcher_id = 0
                        AND delivery.run_started = queue.fetcher_run_started
                        AND lease IS NOT NULL),
                (SELECT status FROM shiftboss_single_tasks WHERE task = fetcher_run_started)
            FROM queue WHERE attr_path = ?1 AND +fetcher_id = 0 ORDER BY fetcher_run_started";
        self.row(sql, [key]).optional()
    }

    /// Makes a task's row and run, as adding a list's would.
    fn put_row(&mut self, key: &str, single: &Single) -> Result<()> {
        let fetcher =
            "INSERT INTO fetchers (fetcher_id, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        self.run(fetcher, (TASKS_ID, TASKS_FETCHER))?;
        let id = run_of(single.task);
        // Somebody may have deleted the row alone.
        let run = "INSERT INTO fetcher_runs (fetcher_id, run_started, is_complete)
            VALUES (?1, ?2, 1) ON CONFLICT DO NOTHING";
        self.run(run, id.pair())?;
        let counts = "INSERT INTO shiftboss_runs (fetcher_id, run_started) VALUES (?1, ?2)
            ON CONFLICT DO UPDATE SET rows = 0, pending = 0";
        self.run(counts, id.pair())?;
        let row = Task { key: Key::stored(key), payload: single.payload.clone() };
        self.add_rows(id, 0, &[row])?;
        self.queue.cache.forget_order();
        self.mark_dispatched(key, single)
    }

    /// The row of a task that is in flight, failed, or is a dead letter, stands as its dispatch left it.
    fn mark_dispatched(&self, key: &str, single: &Single) -> Result<()> {
        let mark = "UPDATE queue SET is_dequeued = 1
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 AND attr_path = ?3
                AND (?4 OR EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                    WHERE delivery.attr_path = ?3 AND delivery.fetcher_id = ?1
                        AND delivery.run_started = ?2))
            RETURNING fetcher_id, fetcher_run_started";
        let has_ended = single.status != "waiting";
        if self.mark_rows(mark, (TASKS_ID, single.task, key, has_ended), -1)?.is_empty() {
            return Ok(());
        }
        if single.status == "dead_letter" {
            let sql = "INSERT INTO shiftboss_expired_leases
                    (fetcher_id, run_started, attr_path, expired_leases, dead_letter)
                VALUES (?1, ?2, ?3, ?4, 1)";
            self.run(sql, (TASKS_ID, single.task, key, self.queue.max_expired_leases))?;
        }
        self.recompute(key)
    }

    /// Deletes a row and its run, with what is known of its expired leases.
    pub(super) fn drop_row(&mut self, key: &str, task: i64) -> Result<()> {
        // What was counted of the run is not the next one's of that number.
        self.queue.counters.flush(self.connection)?;
        self.delete_keys(run_of(task), &[key])?;
        self.delete_empty(run_of(task))?;
        self.queue.cache.forget_key(key);
        Ok(())
    }
}
