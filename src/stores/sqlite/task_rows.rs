//! The rows of the queue that single tasks have: of each key one, derived from `shiftboss_single_tasks`.
//!
//! A row is a run of its own of the fetcher `@tasks`, whose number is the task's: no later task of the key
//! can be taken for it. More than one row of a key would cost every job of that key a look at all of
//! them, so the others wait in the table. Called by [`tasks`](super::tasks).

use rusqlite::{OptionalExtension, Result};
use shiftboss_protocol::model::{Key, Row as Task, TASKS_FETCHER};

use super::query::{Query, columns};
use super::rowids::RowidAllocator;
use super::rows::RunId;
use super::schema::TASKS_ID;
use super::session::Session;

/// The oldest task of a key that waits, and the newest one that does not: in the order of the index.
const WAITING: &str = "SELECT task, payload, status FROM shiftboss_single_tasks
    WHERE attr_path = ?1 AND status = 'waiting' ORDER BY task LIMIT 1";
const ENDED: &str = "SELECT task, payload, status FROM shiftboss_single_tasks
    WHERE attr_path = ?1 AND status < 'waiting' ORDER BY status DESC, task DESC LIMIT 1";

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
        let waiting: Option<Single> = self.row(WAITING, [key]).optional()?;
        match (current, waiting) {
            (Some(Current { status: Some(_), .. }), None) => Ok(()),
            (current, waiting) => {
                let next = match waiting {
                    Some(waiting) => Some(waiting),
                    None => self.row(ENDED, [key]).optional()?,
                };
                current.map_or(Ok(()), |current| self.drop_row(key, current.task))?;
                next.map_or(Ok(()), |next| self.put_row(key, &next))
            }
        }
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
        let counts = "INSERT INTO shiftboss_runs (fetcher_id, run_started, rows, pending)
            VALUES (?1, ?2, 1, 1) ON CONFLICT DO UPDATE SET rows = 1, pending = 1";
        self.run(counts, id.pair())?;
        let mut rowids = RowidAllocator::load(self.connection)?;
        let row = Task { key: Key::stored(key), payload: single.payload.clone() };
        self.add_row(id, 0, &row, &mut rowids)?;
        rowids.store(self.connection)?;
        self.queue.cache.forget_order();
        self.queue.checkpoints.count_rows(1);
        self.mark_dispatched(key, single)
    }

    /// The row of a task that is in flight, failed, or is a dead letter, stands as its dispatch left it.
    fn mark_dispatched(&self, key: &str, single: &Single) -> Result<()> {
        let mark = "UPDATE queue SET is_dequeued = 1
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 AND attr_path = ?3
                AND (?4 OR EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                    WHERE delivery.attr_path = ?3 AND delivery.fetcher_id = ?1
                        AND delivery.run_started = ?2))";
        let has_ended = single.status != "waiting";
        if self.change(mark, (TASKS_ID, single.task, key, has_ended))? == 0 {
            return Ok(());
        }
        self.count(run_of(single.task), 0, -1)?;
        if single.status == "dead_letter" {
            let sql = "INSERT INTO shiftboss_expired_leases
                    (fetcher_id, run_started, attr_path, expired_leases, dead_letter)
                VALUES (?1, ?2, ?3, ?4, 1)";
            self.run(sql, (TASKS_ID, single.task, key, self.queue.max_expired_leases))?;
        }
        self.recompute(key)
    }

    /// Deletes a row and its run, with what is known of its expired leases.
    fn drop_row(&mut self, key: &str, task: i64) -> Result<()> {
        let sql = "DELETE FROM queue
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 AND attr_path = ?3";
        self.run(sql, (TASKS_ID, task, key))?;
        self.drop_expired_deliveries(key, run_of(task))?;
        self.delete_empty(run_of(task))?;
        self.queue.cache.forget_key(key);
        self.queue.checkpoints.count_rows(1);
        self.recompute(key)
    }
}
