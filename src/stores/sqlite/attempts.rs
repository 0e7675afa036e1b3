//! Attempts: what is known of one in flight, what is kept of one that ended, and how one is taken back.
//!
//! An attempt is a row of `shiftboss_deliveries` until it ends, and of `shiftboss_attempts` from then on
//! ([`retire`](Session::retire) moves it). One whose answer did not arrive (spec 5), that was released, or whose
//! lease expired is taken back: its job is at its old place in the order.

use rusqlite::{OptionalExtension, Result, Row};
use shiftboss_protocol::model::{Attempt, Key};

use super::hours::AttemptEnd;
use super::query::{FromRow, Query, columns};
use super::rows::Delivery;
use super::session::Session;

/// How an attempt ended: its name in the table, and the exit code.
pub(super) type Outcome = (&'static str, Option<i64>);

const DONE: &str = "done";

pub(super) fn done(exit_code: i64) -> Outcome {
    (DONE, Some(exit_code))
}
/// The worker gave the job back.
pub(super) const RELEASED: Outcome = ("released", None);
/// The answer did not arrive.
const UNDONE: Outcome = ("undone", None);
/// The lease expired.
pub(super) const EXPIRED: Outcome = ("expired", None);

/// A leased attempt that ended.
pub(super) struct EndedAttempt {
    pub(super) delivery: Delivery,
    pub(super) outcome: String,
    pub(super) finished: i64,
    pub(super) took_ms: Option<i64>,
}

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

impl Session<'_> {
    /// A key's attempts in flight, the last one last; but for one that its row records.
    pub(super) fn deliveries(&self, key: &str) -> Result<Vec<Delivery>> {
        let sql = "SELECT attempt, fetcher_id, run_started, started, delivery_count, worker,
                prev_last_served, prev_started
            FROM shiftboss_deliveries WHERE attr_path = ?1 ORDER BY attempt";
        self.rows(sql, [key])
    }

    /// A leased attempt, with its key.
    pub(super) fn leased(&self, attempt: i64) -> Result<Option<(String, Delivery)>> {
        let sql = "SELECT attempt, fetcher_id, run_started, started, delivery_count, worker,
                prev_last_served, prev_started, attr_path
            FROM shiftboss_deliveries INDEXED BY shiftboss_leased
            WHERE attempt = ?1 AND lease IS NOT NULL";
        let read = |row: &Row<'_>| Ok((row.get(8)?, Delivery::from_row(row)?));
        self.with(sql, |statement| statement.query_row([attempt], read)).optional()
    }

    /// An attempt is in flight no longer; what became of it is kept.
    pub(super) fn retire(
        &mut self,
        key: &str,
        delivery: &Delivery,
        (outcome, exit_code): Outcome,
        finished: i64,
    ) -> Result<()> {
        let sql = "DELETE FROM shiftboss_deliveries WHERE attr_path = ?1 AND attempt = ?2";
        self.run(sql, (key, delivery.attempt))?;
        self.end_bump(delivery.attempt)?;
        self.keep_attempt(key, delivery, (outcome, exit_code), finished)
    }

    /// What became of an attempt.
    pub(super) fn keep_attempt(
        &mut self,
        key: &str,
        delivery: &Delivery,
        (outcome, exit_code): Outcome,
        finished: i64,
    ) -> Result<()> {
        let number = self.queue.counters.next_end(self.connection)?;
        // An end that is found later, or was none, took what its times say.
        let is_measured = outcome == DONE || outcome == RELEASED.0;
        let took_ms = self.queue.cache.take_milliseconds(delivery.attempt).filter(|_| is_measured);
        let end = AttemptEnd::of(delivery, (outcome, exit_code), finished, took_ms);
        self.queue.counters.hours.count(end);
        let Delivery { attempt, previous, fetcher_id, run_started, started, .. } = *delivery;
        if outcome == DONE && delivery.worker.is_none() {
            // The usual end. SQLite copies each text that is bound.
            let sql = "INSERT INTO shiftboss_attempts (attempt, ended, previous, attr_path,
                    fetcher_id, run_started, started, finished, outcome, exit_code, took_ms)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'done', ?9, ?10)";
            let ended = (
                attempt,
                number,
                previous,
                key,
                fetcher_id,
                run_started,
                started,
                finished,
                exit_code,
                took_ms,
            );
            return self.run(sql, ended);
        }
        let sql = "INSERT INTO shiftboss_attempts (attempt, ended, previous, attr_path, fetcher_id,
                run_started, worker, started, finished, outcome, exit_code, took_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let ended = (
            attempt,
            number,
            previous,
            key,
            fetcher_id,
            run_started,
            &delivery.worker,
            started,
            finished,
            outcome,
            exit_code,
            took_ms,
        );
        self.run(sql, ended)
    }

    /// A classic attempt whose lease expired at some time is in flight no longer.
    fn retire_expired(&mut self, key: &str, delivery: &Delivery) -> Result<()> {
        let finished = delivery.started.saturating_add(self.queue.policy.lease());
        self.retire(key, delivery, EXPIRED, finished)
    }

    /// The same of all of a key's that are meant; the others are returned, the last one last.
    pub(super) fn retire_all_expired(
        &mut self,
        key: &str,
        is_meant: impl Fn(&Delivery) -> bool,
    ) -> Result<Vec<Delivery>> {
        let mut deliveries = self.deliveries(key)?;
        for expired in deliveries.extract_if(.., |delivery| is_meant(delivery)) {
            self.retire_expired(key, &expired)?;
        }
        Ok(deliveries)
    }

    /// A leased attempt that ended, if it is not too long ago, with its key. A classic job's number is nobody's.
    pub(super) fn ended(&self, attempt: i64) -> Result<Option<(String, EndedAttempt)>> {
        let sql = "SELECT attempt, fetcher_id, run_started, started, 0, worker, previous, NULL,
                attr_path, outcome, finished, took_ms
            FROM shiftboss_attempts WHERE attempt = ?1 AND worker IS NOT NULL";
        let read = |row: &Row<'_>| {
            let (outcome, finished, took_ms) = (row.get(9)?, row.get(10)?, row.get(11)?);
            let delivery = Delivery::from_row(row)?;
            Ok((row.get(8)?, EndedAttempt { delivery, outcome, finished, took_ms }))
        };
        self.with(sql, |statement| statement.query_row([attempt], read)).optional()
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
        self.extract(key)?;
        let last = self.deliveries(key)?.pop().filter(|delivery| delivery.attempt == attempt.0);
        let Some(delivery) = last else {
            return Ok(false);
        };
        let is_in_log = self.is_in_log(key, delivery.started)?;
        if is_in_log {
            self.take_back(key, &delivery, UNDONE, delivery.started, true)?;
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
        self.queue.cache.forget_key(key);
        if rearm {
            self.rearm(key, delivery, &before)?;
            self.restore_bump(delivery.attempt)?;
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
            RETURNING fetcher_id, fetcher_run_started";
        self.mark_rows(sql, (key, delivery.fetcher_id, &before.marked_runs), 1).map(|_| ())
    }

    /// Also of a row that is gone by now.
    fn restore_last_served(&self, key: &str, attempt: i64, before: Option<i64>) -> Result<()> {
        let rows = "UPDATE queue SET last_served = ?3 WHERE attr_path = ?1 AND last_served = ?2";
        self.run(rows, (key, attempt, before))?;
        let sql = if before.is_some() {
            "UPDATE shiftboss_last_served SET attempt = ?3 WHERE attr_path = ?1 AND attempt = ?2"
        } else {
            "DELETE FROM shiftboss_last_served
                WHERE attr_path = ?1 AND attempt = ?2 AND ?3 IS NULL"
        };
        self.run(sql, (key, attempt, before))
    }

    /// A fetcher's key was dispatched.
    pub(super) fn set_last_served(&self, key: &str, fetcher_id: i64, attempt: i64) -> Result<()> {
        let rows = "UPDATE queue SET last_served = ?3 WHERE attr_path = ?1 AND +fetcher_id = ?2";
        match self.change(rows, (key, fetcher_id, attempt))? {
            0 => self.keep_last_served(key, fetcher_id, attempt),
            _ => Ok(()),
        }
    }

    /// What a row without another one of its fetcher and key knew. A fetcher that is gone has no name any more; its
    /// key was handed out all the same.
    pub(super) fn keep_last_served(&self, key: &str, fetcher_id: i64, attempt: i64) -> Result<()> {
        let sql = "INSERT INTO shiftboss_last_served (attr_path, name, attempt)
            SELECT ?1, coalesce((SELECT name FROM fetchers WHERE fetcher_id = ?2), ''), ?3
            WHERE NOT EXISTS (SELECT 1 FROM queue WHERE attr_path = ?1 AND +fetcher_id = ?2)
            ON CONFLICT (attr_path, name) DO UPDATE SET attempt = excluded.attempt";
        self.run(sql, (key, fetcher_id, attempt))
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
