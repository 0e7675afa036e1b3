//! Attempts: what is known of one in flight, what is kept of one that ended, and how one is taken back.
//!
//! An attempt is a row of `shiftboss_deliveries` until it ends, and of `shiftboss_attempts` from then on
//! ([`retire`](SqliteStore::retire) moves it). One whose answer did not arrive (spec 5), that was released, or whose
//! lease expired is taken back: its job is at its old place in the order.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, Result, Row};
use shiftboss_protocol::model::{Attempt, Key, jitter};

use super::SqliteStore;
use super::partitions::RunId;
use super::query::{Query, columns};

pub(super) const ATTEMPTS_KEPT: i64 = 100_000;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With an exit code.
    Done(i64),
    /// The worker gave the job back.
    Released,
    /// The answer did not arrive.
    Undone,
    /// The lease expired.
    Expired,
}

impl Outcome {
    /// Its name in the table, and the exit code.
    fn columns(self) -> (&'static str, Option<i64>) {
        match self {
            Self::Done(code) => ("done", Some(code)),
            Self::Released => ("released", None),
            Self::Undone => ("undone", None),
            Self::Expired => ("expired", None),
        }
    }
}

/// An attempt whose end is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) attempt: i64,
    pub(super) fetcher_id: i64,
    pub(super) run_started: i64,
    pub(super) started: i64,
    /// Which try of its row this is.
    pub(super) delivery_count: i64,
    /// `None`: a classic worker.
    pub(super) worker: Option<Arc<str>>,
    /// When it was handed out, if that is still in memory: wall clocks have whole seconds here, and step.
    pub(super) handed_out: Option<Instant>,
}

columns!(Delivery { attempt, fetcher_id, run_started, started, delivery_count, worker; handed_out: None });

impl Delivery {
    const COLUMNS: &str = "attempt, fetcher_id, run_started, started, delivery_count, worker";

    /// How long it is out, in milliseconds.
    fn took_ms(&self) -> Option<i64> {
        i64::try_from(self.handed_out?.elapsed().as_millis()).ok()
    }

    pub(super) fn run(&self) -> RunId {
        RunId { fetcher_id: self.fetcher_id, started: self.run_started }
    }
}

pub(super) struct Ended {
    pub(super) key: String,
    pub(super) fetcher_id: i64,
    pub(super) run_started: i64,
    pub(super) started: i64,
    pub(super) outcome: String,
}

columns!(Ended { key, fetcher_id, run_started, started, outcome });

/// What a dispatch changed, as it was before.
struct Before {
    last_served: Option<i64>,
    /// The runs whose rows it marked, as a JSON array.
    marked_runs: String,
    started: Option<i64>,
    finished: Option<i64>,
    exit_code: Option<i64>,
}

columns!(Before { last_served, marked_runs, started, finished, exit_code });

impl SqliteStore {
    /// A key's attempts in flight, the last one last.
    pub(super) fn deliveries(&self, key: &str) -> Result<Vec<Delivery>> {
        let sql = format!(
            "SELECT {} FROM shiftboss_deliveries WHERE attr_path = ?1 ORDER BY attempt",
            Delivery::COLUMNS
        );
        self.rows(&sql, [key])
    }

    /// A leased attempt, with its key.
    pub(super) fn leased(&self, attempt: i64) -> Result<Option<(String, Delivery)>> {
        let sql = format!(
            "SELECT {}, attr_path FROM shiftboss_deliveries INDEXED BY shiftboss_leased
                WHERE attempt = ?1 AND lease IS NOT NULL",
            Delivery::COLUMNS
        );
        let read = |row: &Row<'_>| Ok((row.get(6)?, Delivery::try_from(row)?));
        self.prepared(&sql)?.query_row([attempt], read).optional()
    }

    /// An attempt is in flight no longer; what became of it is kept.
    pub(super) fn retire(
        &self,
        key: &str,
        delivery: &Delivery,
        outcome: Outcome,
        finished: i64,
    ) -> Result<()> {
        let sql = "DELETE FROM shiftboss_deliveries WHERE attr_path = ?1 AND attempt = ?2";
        self.run(sql, (key, delivery.attempt))?;
        let (outcome, exit_code) = outcome.columns();
        let sql = "INSERT INTO shiftboss_attempts (attempt, attr_path, fetcher_id, run_started,
                worker, started, finished, outcome, exit_code, took_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let ended = (
            delivery.attempt,
            key,
            delivery.fetcher_id,
            delivery.run_started,
            &delivery.worker,
            delivery.started,
            finished,
            outcome,
            exit_code,
            delivery.took_ms(),
        );
        self.run(sql, ended)
    }

    /// A classic attempt whose lease expired at some time is in flight no longer.
    pub(super) fn retire_expired(&self, key: &str, delivery: &Delivery) -> Result<()> {
        let finished = delivery.started.saturating_add(self.policy.lease());
        self.retire(key, delivery, Outcome::Expired, finished)
    }

    /// The same of all of a key's that are meant.
    pub(super) fn retire_all_expired(
        &self,
        key: &str,
        is_meant: impl Fn(&Delivery) -> bool,
    ) -> Result<()> {
        let deliveries = self.deliveries(key)?;
        let mut meant = deliveries.iter().filter(|delivery| is_meant(delivery));
        meant.try_for_each(|delivery| self.retire_expired(key, delivery))
    }

    /// A leased attempt that ended, if it is not too long ago. A classic job's number is nobody's.
    pub(super) fn ended(&self, attempt: i64) -> Result<Option<Ended>> {
        let sql = "SELECT attr_path, fetcher_id, run_started, started, outcome
            FROM shiftboss_attempts WHERE attempt = ?1 AND worker IS NOT NULL";
        self.row(sql, [attempt]).optional()
    }

    /// Whether a key's log row is still that of the dispatch that started then.
    pub(super) fn is_in_log(&self, key: &str, started: i64) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM log
            WHERE attr_path = ?1 AND started = ?2 AND finished IS NULL)";
        self.value(sql, (key, started))
    }

    /// Undoes a dispatch whose answer did not arrive, as if it had not happened, if nothing has
    /// happened to its key since.
    pub(super) fn undo_dispatch(&mut self, key: &Key, attempt: Attempt) -> Result<bool> {
        let key = key.as_str();
        let last = self.deliveries(key)?.pop().filter(|delivery| delivery.attempt == attempt.0);
        let Some(delivery) = last else {
            return Ok(false);
        };
        let is_in_log = self.is_in_log(key, delivery.started)?;
        if is_in_log {
            self.take_back(key, &delivery, Outcome::Undone, delivery.started, true)?;
        }
        Ok(is_in_log)
    }

    /// Takes a dispatch back, whatever was done to its log row meanwhile. With `rearm` its rows wait again.
    pub(super) fn take_back(
        &mut self,
        key: &str,
        delivery: &Delivery,
        outcome: Outcome,
        finished: i64,
        rearm: bool,
    ) -> Result<()> {
        let sql =
            "SELECT prev_last_served, marked_runs, prev_started, prev_finished, prev_exit_code
            FROM shiftboss_deliveries WHERE attr_path = ?1 AND attempt = ?2";
        let before: Before = self.row(sql, (key, delivery.attempt))?;
        self.cache.forget_key(key);
        if rearm {
            self.rearm(key, delivery, &before)?;
        }
        self.restore_last_served(key, delivery.attempt, before.last_served)?;
        if self.is_in_log(key, delivery.started)? {
            self.restore_log(key, &before)?;
        }
        self.retire(key, delivery, outcome, finished)?;
        self.recompute(key)
    }

    /// The rows that the dispatch marked wait again.
    fn rearm(&self, key: &str, delivery: &Delivery, before: &Before) -> Result<()> {
        let sql = "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1 AND fetcher_id = ?2
            AND is_dequeued <> 0 AND fetcher_run_started IN (SELECT value FROM json_each(?3))
            RETURNING fetcher_run_started";
        let fetcher_id = delivery.fetcher_id;
        for started in self.values(sql, (key, fetcher_id, &before.marked_runs))? {
            self.count(RunId { fetcher_id, started }, 0, 1)?;
        }
        Ok(())
    }

    /// By the fetcher's name: the fetcher itself may be gone by now.
    fn restore_last_served(&self, key: &str, attempt: i64, before: Option<i64>) -> Result<()> {
        let sql = if before.is_some() {
            "UPDATE shiftboss_last_served SET attempt = ?4
                WHERE order_jitter = ?1 AND attr_path = ?2 AND attempt = ?3"
        } else {
            "DELETE FROM shiftboss_last_served
                WHERE order_jitter = ?1 AND attr_path = ?2 AND attempt = ?3 AND ?4 IS NULL"
        };
        self.run(sql, (jitter(key), key, attempt, before))
    }

    fn restore_log(&self, key: &str, before: &Before) -> Result<()> {
        let Before { started, finished, exit_code, .. } = *before;
        if started.is_some() {
            let sql = "UPDATE log SET started = ?2, finished = ?3, exit_code = ?4
                WHERE attr_path = ?1";
            self.run(sql, (key, started, finished, exit_code))?;
        } else {
            self.run("DELETE FROM log WHERE attr_path = ?1", [key])?;
        }
        self.set_last_started(key, started)
    }
}

/// Forgets the attempts that ended longest ago, given the last one that was given out.
pub(super) fn forget_old(connection: &Connection, last: i64) -> Result<()> {
    let sql = "DELETE FROM shiftboss_attempts WHERE attempt <= ?1";
    connection.run(sql, [last - ATTEMPTS_KEPT])
}
