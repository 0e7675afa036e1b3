//! Attempts: what is known of one in flight, and what is kept of one that ended.
//!
//! An attempt is a row of `shiftboss_deliveries` until it ends, and of `shiftboss_attempts` from then on
//! ([`retire`](SqliteStore::retire) moves it). Called by the modules that begin and end jobs; it
//! changes nothing in the queue.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, Row};

use super::SqliteStore;

/// Ended attempts that are kept.
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

impl Delivery {
    /// The columns that [`Delivery::read`] reads.
    const COLUMNS: &str = "attempt, fetcher_id, run_started, started, delivery_count, worker";

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            attempt: row.get(0)?,
            fetcher_id: row.get(1)?,
            run_started: row.get(2)?,
            started: row.get(3)?,
            delivery_count: row.get(4)?,
            worker: row.get(5)?,
            handed_out: None,
        })
    }

    /// How long it is out, in milliseconds.
    fn took_ms(&self) -> Option<i64> {
        i64::try_from(self.handed_out?.elapsed().as_millis()).ok()
    }

    /// Whether it is of that row of its key.
    pub(super) fn is_of(&self, fetcher_id: i64, run_started: i64) -> bool {
        (self.fetcher_id, self.run_started) == (fetcher_id, run_started)
    }
}

/// What is kept of an attempt that ended.
pub(super) struct Ended {
    pub(super) key: String,
    pub(super) fetcher_id: i64,
    pub(super) run_started: i64,
    pub(super) started: i64,
    pub(super) outcome: String,
}

impl SqliteStore {
    /// A key's attempts in flight, the last one last.
    pub(super) fn deliveries(&self, key: &str) -> rusqlite::Result<Vec<Delivery>> {
        let sql = format!(
            "SELECT {} FROM shiftboss_deliveries WHERE attr_path = ?1 ORDER BY attempt",
            Delivery::COLUMNS
        );
        self.prepared(&sql)?.query_map([key], Delivery::read)?.collect()
    }

    /// A leased attempt, with its key.
    pub(super) fn leased(&self, attempt: i64) -> rusqlite::Result<Option<(String, Delivery)>> {
        let sql = format!(
            "SELECT {}, attr_path FROM shiftboss_deliveries INDEXED BY shiftboss_leased
                WHERE attempt = ?1 AND lease IS NOT NULL",
            Delivery::COLUMNS
        );
        let read = |row: &Row<'_>| Ok((row.get(6)?, Delivery::read(row)?));
        self.prepared(&sql)?.query_row([attempt], read).optional()
    }

    /// An attempt is in flight no longer; what became of it is kept.
    pub(super) fn retire(
        &self,
        key: &str,
        delivery: &Delivery,
        outcome: Outcome,
        finished: i64,
    ) -> rusqlite::Result<()> {
        let sql = "DELETE FROM shiftboss_deliveries WHERE attr_path = ?1 AND attempt = ?2";
        self.prepared(sql)?.execute((key, delivery.attempt))?;
        let (outcome, exit_code) = outcome.columns();
        let sql = "INSERT INTO shiftboss_attempts (attempt, attr_path, fetcher_id, run_started,
                worker, started, finished, outcome, exit_code, took_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        self.prepared(sql)?.execute((
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
        ))?;
        Ok(())
    }

    /// A classic attempt whose lease expired at some time is in flight no longer.
    pub(super) fn retire_expired(&self, key: &str, delivery: &Delivery) -> rusqlite::Result<()> {
        let finished = delivery.started.saturating_add(self.policy.lease());
        self.retire(key, delivery, Outcome::Expired, finished)
    }

    /// A leased attempt that ended, if it is not too long ago. A classic job's number is nobody's.
    pub(super) fn ended(&self, attempt: i64) -> rusqlite::Result<Option<Ended>> {
        let sql = "SELECT attr_path, fetcher_id, run_started, started, outcome
            FROM shiftboss_attempts WHERE attempt = ?1 AND worker IS NOT NULL";
        let read = |row: &Row<'_>| {
            Ok(Ended {
                key: row.get(0)?,
                fetcher_id: row.get(1)?,
                run_started: row.get(2)?,
                started: row.get(3)?,
                outcome: row.get(4)?,
            })
        };
        self.prepared(sql)?.query_row([attempt], read).optional()
    }
}

/// Forgets the attempts that ended longest ago, given the last one that was given out.
pub(super) fn forget_old(connection: &Connection, last: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM shiftboss_attempts WHERE attempt <= ?1";
    connection.prepare_cached(sql)?.execute([last - ATTEMPTS_KEPT]).map(|_| ())
}
