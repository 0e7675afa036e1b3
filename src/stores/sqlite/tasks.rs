//! Single tasks (`shiftboss_single_tasks`): adding, accepting from a spool, cancelling, and what the end of
//! a job means for them.
//!
//! Called by the store's operations, and by the modules that end jobs. The table is the truth; the row of
//! the queue that each key has of it is derived by [`task_rows`](super::task_rows).

use rusqlite::{OptionalExtension, Result, Row};
use shiftboss_actors::store::{Added, Cancelled, EntryId, SpoolEntry};
use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::{Row as Task, UnixSeconds};

use super::query::Query;
use super::rows::RunId;
use super::schema::TASKS_ID;
use super::session::Session;

/// Single tasks that one call deletes, or puts back.
const AT_ONCE_MAX: i64 = 10_000;

/// Numbers of 64 bits are kept as SQLite's signed ones, bit for bit.
fn columns(id: &EntryId) -> (&str, &str, i64, i64, i64) {
    (&id.spool, &id.name, id.inode.cast_signed(), id.born, id.checksum.cast_signed())
}

fn read_id(row: &Row<'_>) -> Result<EntryId> {
    Ok(EntryId {
        spool: row.get(0)?,
        name: row.get(1)?,
        inode: row.get::<_, i64>(2)?.cast_unsigned(),
        born: row.get(3)?,
        checksum: row.get::<_, i64>(4)?.cast_unsigned(),
    })
}

impl Session<'_> {
    /// Its removal from the spool is durable.
    pub(super) fn forget_entry(&self, id: &EntryId) -> Result<()> {
        let sql = "DELETE FROM shiftboss_accepted
            WHERE spool = ?1 AND name = ?2 AND inode = ?3 AND born = ?4 AND checksum = ?5";
        self.run(sql, columns(id))
    }

    pub(super) fn accept_entry(&mut self, entry: &SpoolEntry, now: UnixSeconds) -> Result<Added> {
        let remember = "INSERT INTO shiftboss_accepted (spool, name, inode, born, checksum)
            VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
        if self.change(remember, columns(&entry.id))? == 0 {
            return Ok(Added::Known);
        }
        let added = self.add_single(&entry.task, now)?;
        if added == Added::Full {
            self.forget_entry(&entry.id)?;
        }
        Ok(added)
    }

    pub(super) fn all_accepted(&self) -> Result<Vec<EntryId>> {
        let sql = "SELECT spool, name, inode, born, checksum FROM shiftboss_accepted
            ORDER BY spool, name, inode, born, checksum";
        self.map(sql, [], read_id)
    }

    pub(super) fn add_single(&mut self, task: &Task, now: UnixSeconds) -> Result<Added> {
        let key = task.key.as_str();
        self.resolve_tasks(key)?;
        let content = checksum(task.payload.as_bytes()).cast_signed();
        if self.is_waiting(key, content, &task.payload)? {
            return Ok(Added::Known);
        }
        let Some(number) = self.next_task(now)? else {
            return Ok(Added::Full);
        };
        let sql = "INSERT INTO shiftboss_single_tasks (task, attr_path, checksum, added, payload)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        self.run(sql, (number, key, content, now, &task.payload))?;
        self.resolve_tasks(key)?;
        Ok(Added::Added)
    }

    /// Whether a task with that payload waits; one in flight began before this one came.
    fn is_waiting(&self, key: &str, content: i64, payload: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM shiftboss_single_tasks AS single
            WHERE attr_path = ?1 AND checksum = ?2 AND status = 'waiting' AND payload = ?3
                AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                    WHERE delivery.attr_path = ?1 AND delivery.fetcher_id = 0
                        AND delivery.run_started = single.task))";
        self.value(sql, (key, content, payload))
    }

    /// A number that no task had: the time, as runs of fetchers mostly have it, or the next one that is
    /// free. `None`: there are as many tasks as may be.
    fn next_task(&self, now: UnixSeconds) -> Result<Option<i64>> {
        let count = "UPDATE shiftboss_counters SET value = value + 1
            WHERE name = 'single_tasks' AND value < ?1";
        if self.change(count, [self.queue.max_single_tasks])? == 0 {
            return Ok(None);
        }
        let sql = "UPDATE shiftboss_counters SET value = max(value + 1, ?1)
            WHERE name = 'task' RETURNING value";
        self.value(sql, [now]).map(Some)
    }

    pub(super) fn cancel(&mut self, key: &str, now: UnixSeconds) -> Result<Cancelled> {
        let in_flight = self.task_in_flight(key, now)?;
        self.forget_earlier(key, RunId { fetcher_id: TASKS_ID, started: i64::MAX })?;
        let sql = "DELETE FROM shiftboss_single_tasks WHERE task IN (
                SELECT task FROM shiftboss_single_tasks WHERE attr_path = ?1 AND task IS NOT ?2
                ORDER BY task DESC LIMIT ?3)
            RETURNING status <> 'waiting'";
        let ended: Vec<i64> = self.values(sql, (key, in_flight, AT_ONCE_MAX))?;
        let deleted = i64::try_from(ended.len()).unwrap_or(i64::MAX);
        self.count_tasks(-deleted, -ended.iter().sum::<i64>())?;
        self.resolve_tasks(key)?;
        Ok(Cancelled {
            deleted: deleted.cast_unsigned(),
            more: deleted == AT_ONCE_MAX,
            in_flight: in_flight.is_some(),
        })
    }

    /// The single task of a key that a worker has.
    fn task_in_flight(&self, key: &str, now: UnixSeconds) -> Result<Option<i64>> {
        let sql =
            "SELECT run_started FROM shiftboss_deliveries WHERE attr_path = ?1 AND fetcher_id = 0
            AND (lease IS NOT NULL OR started >= ?2) ORDER BY attempt DESC LIMIT 1";
        let expired = self.queue.policy.expired(now);
        self.value(sql, (key, expired)).optional()
    }

    /// The job of a single task ended: with code 0 it is done and gone, with another one it failed. One
    /// that is gone already stays so.
    pub(super) fn end_task(&mut self, key: &str, task: i64, exit_code: i64) -> Result<()> {
        if exit_code == 0 {
            let sql = "DELETE FROM shiftboss_single_tasks WHERE task = ?1
                RETURNING status <> 'waiting'";
            let was_ended: Option<i64> = self.value(sql, [task]).optional()?;
            if let Some(was_ended) = was_ended {
                self.count_tasks(-1, -was_ended)?;
            }
        } else {
            self.set_task_ended(task, "failed")?;
        }
        self.derive_row(key)
    }

    pub(super) fn set_task_ended(&self, task: i64, status: &str) -> Result<()> {
        let sql = "UPDATE shiftboss_single_tasks SET status = ?2, started = NULL, exit_code = NULL
            WHERE task = ?1 AND status = 'waiting'";
        let ended = self.change(sql, (task, status))?;
        if ended == 0 {
            // A dead letter's late result.
            let sql = "UPDATE shiftboss_single_tasks SET status = ?2 WHERE task = ?1";
            return self.run(sql, (task, status));
        }
        self.count_tasks(0, 1)
    }

    /// Puts failed and dead-lettered single tasks of a key back; says how many.
    pub(super) fn retry_tasks(&mut self, key: &str) -> Result<u64> {
        let forget = "UPDATE shiftboss_single_tasks SET started = NULL, exit_code = NULL
            WHERE attr_path = ?1 AND started IS NOT NULL";
        self.run(forget, [key])?;
        let sql = "UPDATE shiftboss_single_tasks SET status = 'waiting' WHERE task IN (
            SELECT task FROM shiftboss_single_tasks
            WHERE attr_path = ?1 AND status IN ('failed', 'dead_letter')
            ORDER BY task LIMIT ?2)";
        // Its row, too, begins anew, and the oldest one comes first.
        self.drop_ended_row(key)?;
        let back = self.change(sql, (key, AT_ONCE_MAX))?;
        if back == 0 {
            return Ok(0);
        }
        self.count_tasks(0, -i64::try_from(back).unwrap_or(i64::MAX))?;
        self.derive_row(key)?;
        Ok(back as u64)
    }

    /// Puts one failed single task back; whether it had failed.
    pub(super) fn retry_task(&mut self, key: &str, task: i64) -> Result<bool> {
        let current = self.current_task(key)?;
        let sql =
            "UPDATE shiftboss_single_tasks SET status = 'waiting', started = NULL, exit_code = NULL
            WHERE task = ?1 AND status = 'failed'";
        if self.change(sql, [task])? == 0 {
            return Ok(false);
        }
        self.count_tasks(0, -1)?;
        if current == Some(task) {
            self.drop_row(key, task)?;
        }
        self.derive_row(key)?;
        Ok(true)
    }

    /// Adds to the kept counts: of all single tasks, and of those that failed or are dead letters.
    fn count_tasks(&self, all: i64, ended: i64) -> Result<()> {
        let sql = "UPDATE shiftboss_counters SET value = value + iif(name = 'single_tasks', ?1, ?2)
            WHERE name IN ('single_tasks', 'single_tasks_ended')";
        self.run(sql, (all, ended))
    }
}
